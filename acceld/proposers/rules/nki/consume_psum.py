"""Let element-wise instructions read a matrix product directly from PSUM, without a copy of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from acceld.model import Profile
from acceld.nki.source.building import changed, replaced
from acceld.nki.source.matching import keeps_float32, one_name, same_body, same_mask, unchanged, uses
from acceld.nki.source.reading import KernelModule
from acceld.nki.source.syntax import COPIES, UNARY, Access, Statement
from acceld.proposers.rules.records import Place, Rule, Variant

_READERS = frozenset(
    "activation activation_reduce tensor_scalar tensor_scalar_reduce tensor_tensor tensor_reduce reciprocal tensor_copy copy "
    "add subtract multiply maximum minimum scalar_tensor_tensor".split()
) | frozenset(UNARY)
_PAIRS = ("x", "y", "data1", "data2", "data", "operand1")


class ConsumePsum(Rule):
    """Remove a copy out of PSUM if the instructions that read the copy can read PSUM themselves."""

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

    def find(self, kernel: KernelModule, profile: Profile | None) -> Iterator[Place]:
        """Yield every copy out of PSUM that only element-wise work reads, with the reason if the copy has to stay."""
        for copy in kernel.statements:
            readers = _element_wise_readers(kernel, copy)
            if readers:
                lines = ", ".join(str(reader.line) for reader in readers)
                yield self.answer(
                    copy.line,
                    _obstacle(kernel, copy, readers),
                    f"Let line {lines} read the product from PSUM, and drop the copy in line {copy.line}",
                    partial(_without, kernel, copy, readers),
                    Variant("read_psum"),
                    precondition="every reader is element-wise, in the same loop body, and has no other operand in PSUM",
                    plan=f"Line {copy.line} copies a product from PSUM to SBUF only for line {lines}. Read the "
                    "product from PSUM there, and leave out the copy.",
                    benefit=0.25,
                    gain_percent=(1.0, 15.0),
                )


def _without(kernel: KernelModule, copy: Statement, readers: Sequence[Statement], _: Variant) -> str:
    """Return the source without the copy; its readers read PSUM directly."""
    product, name = kernel.text(copy.reads["src"].node), copy.made.name
    texts = {reader: {a.node: product for a in reader.reads.values() if a.name == name} for reader in readers}
    return replaced(kernel, [copy], {one: changed(kernel, one.node, new) for one, new in texts.items()})


def _element_wise_readers(kernel: KernelModule, copy: Statement) -> list[Statement]:
    """Return the statements that read the result of a copy out of PSUM, if all of them are element-wise; [] otherwise,
    and for a statement that is no copy out of PSUM.
    """
    if copy.op not in COPIES or copy.kind != "op" or copy.target is None or copy.augmented:
        return []
    product = copy.reads.get("src")
    if product is None or kernel.space_of(product.name) != "psum" or kernel.space_of(copy.target.name) != "sbuf":
        return []
    readers = kernel.readers(copy.target.name)
    return readers if all(one.kind == "op" and one.op in _READERS and not one.augmented for one in readers) else []


def _obstacle(kernel: KernelModule, copy: Statement, readers: Sequence[Statement]) -> str:
    """Return the reason why the readers can not read PSUM; empty if they can."""
    product, tile = copy.reads["src"], copy.made.name
    reasons = [one_name(kernel, (product.name, tile)), keeps_float32(kernel, copy)]
    if len(kernel.writers(tile)) != 1:
        reasons.append(f"{tile} is written in several lines: give the copy a tile of its own")
    for reader in readers:
        reasons += [
            same_body(copy, reader),
            same_mask(kernel, copy, reader),
            _operands(kernel, copy.made, reader),
            unchanged(kernel, [product.name], copy, reader),
        ]
    return next(filter(None, reasons), "")


def _operands(kernel: KernelModule, copied: Access, reader: Statement) -> str:
    """Return the reason why ``reader`` can not read PSUM in place of the copy; empty if it can read PSUM.

    ``reader`` must have no other operand in PSUM, and must read all of the copied elements.
    """
    plain = [a for name, a in reader.reads.items() if a.name == copied.name and name in (*_PAIRS, "src")]
    if len(plain) != 1 or uses(reader, copied.name) != 1 or not plain[0].same_as(copied):
        return f"line {reader.line} reads {copied.name} more than once, or reads other elements than the copy wrote: read the same elements, once"
    for name, access in reader.reads.items():
        if name in _PAIRS and access.name != copied.name and kernel.space_of(access.name) != "sbuf":
            return f"line {reader.line} reads {access.name}, which is not in SBUF: one operand may be in PSUM"
    return ""


RULE = ConsumePsum()
