"""Let element-wise work read a matrix product directly from PSUM, without a copy of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from acceld.editing import Edits
from acceld.model import Profile
from acceld.nki.source.building import replaced
from acceld.nki.source.reading import KernelModule
from acceld.nki.source.syntax import UNARY, Access, Statement
from acceld.proposers.rules.records import Finding, Rule, Variant

_READERS = frozenset(
    "activation activation_reduce tensor_scalar tensor_tensor tensor_reduce reciprocal tensor_copy copy "
    "add subtract multiply maximum minimum scalar_tensor_tensor".split()
) | frozenset(UNARY)
_PAIRS = ("x", "y", "data1", "data2", "data", "operand1")


class ConsumePsum(Rule):
    """Remove a copy out of PSUM whose readers could read PSUM themselves."""

    name = "consume_psum"
    reason = (
        "The vector and scalar engines read PSUM directly, and a vector instruction with one operand in PSUM and one in "
        "SBUF takes N cycles instead of 2N: the copy costs a pass and makes the next instruction slower."
    )
    source = "nki.isa.tensor_tensor: cost max(MIN_II, N) if one input is in PSUM and the other in SBUF"
    apis = frozenset({"nki_legacy", "nki"})
    change_class = "engine"
    relieves = ("vector", "scalar")
    everywhere = True

    def find(self, kernel: KernelModule, profile: Profile | None) -> Iterator[Finding]:
        """Yield every such copy."""
        for copy in kernel.statements:
            readers = _readers(kernel, copy)
            if readers:
                lines = ", ".join(str(reader.line) for reader in readers)
                yield self.found(
                    copy.line,
                    partial(_without, kernel, copy, readers),
                    Variant("read_psum"),
                    precondition="every reader is element-wise, in the same loop body, and has no other operand in PSUM",
                    plan=f"Line {copy.line} copies a product from PSUM to SBUF only for line {lines}. Read it from PSUM "
                    "there and drop the copy.",
                    benefit=0.25,
                    gain_percent=(1.0, 15.0),
                )


def _without(kernel: KernelModule, copy: Statement, readers: Sequence[Statement], _: Variant) -> str:
    """Return the source without the copy, whose readers get the PSUM operand."""
    assert copy.target is not None
    product = kernel.text(copy.reads["src"].node)
    changed = {}
    for reader in readers:
        edits = Edits(kernel.source[reader.start : reader.end])
        for name, access in reader.reads.items():
            if access.name == copy.target.name:
                start, end = kernel.span(reader.args[name])
                edits.replace(start - reader.start, end - reader.start, product)
        changed[reader] = edits.apply()
    return replaced(kernel, [copy], changed)


def _readers(kernel: KernelModule, copy: Statement) -> list[Statement]:
    if copy.op not in ("copy", "tensor_copy") or copy.kind != "op" or copy.target is None or copy.augmented:
        return []
    product = copy.reads.get("src")
    if product is None or kernel.space_of(product.name) != "psum" or kernel.space_of(copy.target.name) != "sbuf":
        return []
    if kernel.ambiguous & {product.name, copy.target.name}:
        return []
    dtype = kernel.text_of(copy, "dtype")
    if dtype and not dtype.endswith("float32"):
        return []
    readers = kernel.readers(copy.target.name)
    if not readers or len(kernel.writers(copy.target.name)) != 1:
        return []
    return readers if all(_can_read(kernel, copy, reader, product) for reader in readers) else []


def _can_read(kernel: KernelModule, copy: Statement, reader: Statement, product: Access) -> bool:
    assert copy.target is not None
    if reader.kind != "op" or reader.augmented or reader.op not in _READERS or reader.start < copy.start:
        return False
    if reader.parent is not copy.parent or kernel.mask(reader) != kernel.mask(copy):
        return False
    mine = [access for access in reader.mentions if access.name == copy.target.name]
    plain = [a for name, a in reader.reads.items() if a.name == copy.target.name and name in (*_PAIRS, "src")]
    if len(mine) != len(plain) or len(plain) != 1 or not all(access.same_as(copy.target) for access in plain):
        return False
    others = [a for name, a in reader.reads.items() if name in _PAIRS and a.name != copy.target.name]
    if any(kernel.space_of(access.name) != "sbuf" for access in others):
        return False
    later = [w for w in kernel.writers(product.name) if copy.start < w.start < reader.start]
    return not later


RULE = ConsumePsum()
