"""Scale the rows of a product's result, instead of the rows of its wider operand.

Before, every row of ``x`` is scaled, as at the end of a softmax::

    scaled[p, f] = nisa.tensor_scalar(x[p, f], op0=nl.multiply, operand0=r[p, 0])
    turned = nisa.nc_transpose(scaled[p, 128 * k + c]); scaled_t[k, p, c] = nl.copy(turned)
    total += nisa.nc_matmul(scaled_t[k, p, c], w[k, p, f])
    out = nl.copy(total)

After, ``x`` itself is transposed, and every row of the product is scaled::

    turned = nisa.nc_transpose(x[p, 128 * k + c]); scaled_t[k, p, c] = nl.copy(turned)
    total += nisa.nc_matmul(scaled_t[k, p, c], w[k, p, f])
    out = nisa.tensor_scalar(total, op0=nl.multiply, operand0=r[p, 0])

The rule does the same in the current API, where tiles are declared in the loop and used whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

from acceld.editing import Edits
from acceld.model import Profile
from acceld.nki.source.affine import Affine, Symbol
from acceld.nki.source.building import without_unused_buffers
from acceld.nki.source.matching import keeps_float32, one_name
from acceld.nki.source.nests import all_accesses, around, inside
from acceld.nki.source.reading import KernelModule
from acceld.nki.source.spelling import indexed, operation, prefix
from acceld.nki.source.syntax import COPIES, Access, Loop, Statement
from acceld.proposers.rules.nki.operand_swaps import BLOCK, is_copy, transposed
from acceld.proposers.rules.profiles import busy_share
from acceld.proposers.rules.records import Place, Rule, Variant

_ROWS = Symbol.over(BLOCK, 0, 2)

_Renames = Mapping[str, Affine]
"""For a loop variable around one statement, its value as an expression in the loop variables around another statement.
"""


@dataclass(frozen=True)
class _Chain:
    """The statements from the scaling of an operand to the copy of the product's result, and their operands."""

    scaling: Statement
    plain: str
    """Text of the part of the unscaled tile that is transposed in place of the scaled tile."""
    turned: Access
    """The part of the scaled tile that is transposed."""
    product: Statement
    drain: Statement
    """The copy of the product's result out of PSUM."""
    factor: str
    """The factor's source text at the place where the result is copied."""


class ScaleAfterProduct(Rule):
    """Multiply a product's result by a factor for each row, instead of its stationary operand."""

    name = "scale_after_product"
    reason = (
        "A factor for each row of an operand is a factor for each row of the product. The result is copied out of PSUM in "
        "any case, and that instruction can scale it; scaling the operand is one more pass over more elements."
    )
    source = "nki.isa.tensor_scalar: operand0 may be one number a partition, data may be in PSUM; FlashAttention-2: 3.1"
    apis = frozenset({"nki_legacy", "nki"})
    change_class = "fusion"

    def find(self, kernel: KernelModule, profile: Profile | None) -> Iterator[Place]:
        """Yield every tile whose rows are scaled and whose transpose is the stationary operand of one product. If the
        factor can not move, the place has the reason.
        """
        for scaling in kernel.statements:
            factor = _factor(kernel, scaling)
            if factor is None or not any(transposed(kernel, one) for one in _readers(kernel, scaling)):
                continue
            chain = _chain(kernel, scaling, factor)
            if isinstance(chain, str):
                yield self.refused(scaling.line, chain, "Scale the product's result and not its operand")
                continue
            busiest = max((busy_share(profile, engine) for engine in ("vector", "scalar")), default=0.0)
            yield self.found(
                scaling.line,
                partial(_moved, kernel, chain),
                Variant("after the product"),
                precondition=f"{factor.name} has one number for each row, the same for all products that are added up",
                plan=f"Line {scaling.line} scales the rows of an operand of the product in line {chain.product.line}. Scale "
                f"the product's rows in line {chain.drain.line} by {factor.name}, where they leave PSUM anyway.",
                benefit=0.25 * busiest if profile else 0.2,
                gain_percent=(0.0, 25.0),
            )


def _readers(kernel: KernelModule, statement: Statement) -> list[Statement]:
    return kernel.readers(statement.target.name) if statement.target is not None else []


def _factor(kernel: KernelModule, one: Statement) -> Access | None:
    """Return the factors by which a statement multiplies the rows of a tile, one for each row; None for other
    statements.
    """
    if one.kind != "op" or one.op != "tensor_scalar" or one.augmented or kernel.mask(one):
        return None
    if kernel.opname(one.args.get("op0")) != "multiply" or kernel.text_of(one, "op1") not in ("", "None"):
        return None
    factor = one.reads.get("operand0")
    if factor is None or len(kernel.forms(factor)) < 2 or kernel.extents(factor) != (BLOCK, 1) or one.target is None:
        return None
    return factor if "data" in one.reads else None


def _chain(kernel: KernelModule, scaling: Statement, factor: Access) -> _Chain | str:
    """Return the statements from the scaled tile to the product's result. If the factor can not be applied to the
    result, return the reason as text.
    """
    data = scaling.reads["data"]
    fresh = _fresh(kernel, factor, scaling)
    problem = fresh if isinstance(fresh, str) else _settled(kernel, data, scaling)
    steps = problem or _steps(kernel, scaling)
    if isinstance(steps, str) or isinstance(fresh, str):
        return str(steps)
    turn, _, product, drain = steps
    turned = transposed(kernel, turn)
    renames: _Renames = {name: Affine.of_variable(name) for name in {*fresh, *(factor.variables or ())}}
    for writer, reader in pairwise((scaling, *steps)):
        renamed = _followed(kernel, writer, reader, renames)
        if isinstance(renamed, str):
            return renamed
        renames = renamed
    fixed = {
        *fresh,
        *(s.variable for form in kernel.forms(factor) if form for s, _ in form.terms if s.name != s.variable),
    }
    for name in sorted(fixed - {""}):
        together = next((loop for loop in around(drain) if loop.variable == name), None)
        if renames[name] != Affine.of_variable(name) or (name in fresh and together is not fresh[name]):
            return (
                f"line {drain.line} is not in the iteration of {name} that makes {factor.name}: copy the result there"
            )
    assert turned is not None
    (*places, last), columns = kernel.forms(data), kernel.forms(turned)[-1]
    assert last is not None and columns is not None
    plain = indexed(kernel, data.name, [*places, last.start + columns])
    moved = [form and form.substituted(renames) for form in kernel.forms(factor)]
    there = factor.name if factor.dims is None else indexed(kernel, factor.name, moved)
    return _Chain(scaling, plain, turned, product, drain, there)


def _steps(kernel: KernelModule, scaling: Statement) -> tuple[Statement, Statement, Statement, Statement] | str:
    """Return the statements that follow the scaling of a tile: its transpose, the copy of the transpose, the product,
    and the copy of the product's result.

    Return the reason as text if one of these statements is missing, or if another statement uses a tile of theirs.
    """
    scaled = scaling.made
    turn = _only_reader(kernel, scaling)
    turned = transposed(kernel, turn) if turn is not None else None
    if turn is None or turned is None:
        return f"line {scaling.line}: {scaled.name} is used by other statements than the transpose: scale the rows into another tile for the other uses"
    if turn.start < scaling.start or (scaling.parent is not None and not inside(turn, scaling.parent)):
        return f"line {turn.line} is not in the loop of line {scaling.line}, after it: transpose {scaled.name} there"
    if kernel.forms(turned)[-1] is None or kernel.forms(turned)[:-1] != kernel.forms(scaled)[:-1]:
        return f"line {turn.line} reads another tile of {scaled.name} than line {scaling.line} writes: give each of the two tiles a name"
    copy = _only_reader(kernel, turn)
    if copy is None or not is_copy(kernel, copy, turn):
        return f"line {turn.line}: the transpose in PSUM is used by more than one copy: copy it once, and use the copy"
    product, kept = _only_reader(kernel, copy), copy.made.name
    if product is None or product.op != "nc_matmul" or "stationary" not in product.reads:
        return f"line {copy.line}: {kept} is used by other statements than one product: give that product a copy of its own"
    if product.reads["stationary"].name != kept or kernel.text_of(product, "is_transpose") == "True":
        return f"line {product.line}: {kept} is not the stationary operand: only the columns of a stationary operand become rows of the result"
    drain, total = _only_reader(kernel, product), product.made.name
    if drain is None or drain.op not in COPIES or drain.augmented or kernel.mask(drain):
        return f"line {product.line}: {total} is used in PSUM by other statements than one copy: copy it once, and use the copy"
    declared = kernel.buffers.get(total)
    if declared is None or declared.space != "psum" or declared.declaration.op not in ("zeros", "ndarray"):
        return f"line {product.line}: {total} does not begin with zeros in PSUM: declare it there, with zeros"
    if set(drain.args) - {"src", "dtype", "mask"}:
        return f"line {drain.line} is not a plain copy: leave out its further arguments"
    return turn, copy, product, drain


def _only_reader(kernel: KernelModule, writer: Statement) -> Statement | None:
    """Return the only statement that reads the tile that ``writer`` writes.

    None means that the tile has another writer or a second reader, or that an access does not cover all 128
    partitions.
    """
    name = writer.made.name
    readers, found = kernel.readers(name), all_accesses(kernel, name)
    others = [one for one in readers if one is not writer]
    if kernel.writers(name) != [writer] or len(others) != 1 or found is None or name in kernel.ambiguous:
        return None
    for _, access in found:
        forms = kernel.forms(access)
        rows = [form for form in forms if form is not None and any(one.axis == 0 for one in form.ranges)]
        if len(forms) < 2 or None in forms or rows != [Affine.of(_ROWS)]:
            return None
    return others[0]


def _settled(kernel: KernelModule, data: Access, scaling: Statement) -> str:
    """Return the reason why the unscaled tile can not be transposed in place of the scaled tile, for example because it
    may change before the transpose; empty if it can.
    """
    name, scaled = data.name, scaling.made
    writers, forms = kernel.writers(name), kernel.forms(data)
    where = f"line {scaling.line}: "
    if name in kernel.ambiguous:
        return one_name(kernel, [name])
    if kernel.space_of(name) != "sbuf" or not writers or len(forms) < 2:
        return f"{where}{name} is not a tile of a known shape in SBUF: declare it there"
    late = next((one for one in writers if one.kind != "op" or one.start > scaling.start), None)
    if late is not None:
        return f"line {late.line} may change {name} after it is scaled: write the new values into another tile"
    if not kernel.declared_dtype(name).endswith("float32"):
        return f"{where}{name} is not declared as float32, so its transpose may round: declare it as float32"
    problem = keeps_float32(kernel, scaling)
    if problem:
        return problem
    *places, last = forms
    new = (kernel.forms(scaled) or (None,))[-1]
    if last is None or new is None or len(last.ranges) != 1 or new != last - last.start:
        return f"{where}the columns of {name} or {scaled.name} are no plain range: write slices of neighbors"
    if [form for form in places if form is None or form.ranges] != [Affine.of(_ROWS)]:
        return f"{where}this statement does not use all {BLOCK} partitions of {name}: scale all of them"
    return ""


def _fresh(kernel: KernelModule, factor: Access, scaling: Statement) -> dict[str, Loop] | str:
    """Return the loops that make a new factor tile in each iteration, as a dict from the loop's variable to the loop.

    If the factor may be overwritten before the product's result is copied, return the reason as text. For example, the
    iterations of another loop around the factor's writer may all write the same element.
    """
    name, writers = factor.name, kernel.writers(factor.name)
    if name in kernel.ambiguous:
        return one_name(kernel, [name])
    if len(writers) != 1:
        return f"line {scaling.line}: {name} is not written by one line: give these factors a tile of their own"
    (writer,) = writers
    written = writer.result(name)
    if writer.kind != "op" or writer.augmented or writer.op == "loop_reduce" or written is None:
        return f"line {writer.line}: this statement adds to {name}, and does not write all of it at once: write the sum to another tile, and copy that tile"
    declared = kernel.buffers[name].declaration if name in kernel.buffers else writer
    forms = kernel.forms(written)
    starts = [form.start for form in forms if form and all(one.extent == 1 for one in form.ranges)]
    fresh: dict[str, Loop] = {}
    for loop in around(writer):
        if inside(declared, loop):
            fresh[loop.variable] = loop
        elif Affine.of_variable(loop.variable) not in starts:
            return f"line {writer.line}: {name} is shared by all iterations of {loop.variable}: index it by {loop.variable}"
    late = writer.start > scaling.start or any(not inside(scaling, loop) for loop in fresh.values())
    return (
        f"line {scaling.line} scales before line {writer.line}, or outside of the loop of that line: scale in that loop, after line {writer.line}"
        if late
        else fresh
    )


def _followed(kernel: KernelModule, writer: Statement, reader: Statement, renames: _Renames) -> _Renames | str:
    """Return the values that the loop variables around ``reader`` have in the iteration that reads the result of
    ``writer``. If these values are not known or differ, return the reason as text.

    ``renames`` has the values of the variables around ``writer``.
    """
    written = writer.made
    read = next(access for access in reader.mentions if access.name == written.name)
    there, here = kernel.forms(written), kernel.forms(read)
    if len(there) != len(here):
        return f"line {reader.line}: {read.name} has other indices than in line {writer.line}: use the same indices in both lines"
    found: dict[str, Affine] = {}
    for variable in sorted({name for form in renames.values() for name in form.variables}):
        value = _value(kernel, writer, reader, list(zip(there, here, strict=True)), variable)
        if value is None:
            return (
                f"line {reader.line}: which {variable} made this part of {read.name}, and so its factor, does not follow "
                f"from its index: index {read.name} by {variable}, or read it in that loop"
            )
        found[variable] = value
    if not (_in_blocks(there[-1]) and _in_blocks(here[-1])):
        return f"line {reader.line}: the columns of {read.name} do not begin at a multiple of {BLOCK}: let them begin at such a multiple"
    return {name: form.substituted(found) for name, form in renames.items()}


def _in_blocks(form: Affine | None) -> bool:
    """Return True if columns begin at a multiple of 128 in every iteration."""
    if form is None or any(coefficient != 1 for symbol, coefficient in form.terms if symbol.is_range):
        return False
    return all(part % BLOCK == 0 for part in (form.start.constant, *(factor for _, factor in form.start.terms)))


def _value(
    kernel: KernelModule,
    writer: Statement,
    reader: Statement,
    pairs: Sequence[tuple[Affine | None, Affine | None]],
    variable: str,
) -> Affine | None:
    """Return the value that a loop variable of ``writer`` had when ``writer`` wrote the element that ``reader``
    reads; None if the value is not known.

    ``pairs`` has pairs (index by which the element was written, index by which it is read).
    """
    uses = [(there, here) for there, here in pairs if there is not None and variable in there.variables]
    if not uses:
        loop = next((loop for loop in around(writer) if loop.variable == variable), None)
        declared = kernel.buffers.get(writer.made.name)
        sums = writer.augmented and declared is not None and loop is not None and not inside(declared.declaration, loop)
        together = loop is not None and inside(reader, loop) and reader.start > writer.start and not sums
        return Affine.of_variable(variable) if together else None
    for there, here in uses:
        factor = there.coefficient(variable)
        if here is not None and factor and there.start == Affine.of_variable(variable).times(factor):
            parts = [here.start.constant, *(coefficient for _, coefficient in here.start.terms)]
            if all(part % factor == 0 for part in parts):
                terms = tuple((symbol, coefficient // factor) for symbol, coefficient in here.start.terms)
                return Affine(here.start.constant // factor, terms)
    return None


def _moved(kernel: KernelModule, chain: _Chain, _: Variant) -> str:
    """Return the source in which the unscaled tile is transposed, and the factor is applied when the result is copied
    out of PSUM.
    """
    edits = Edits(kernel.source)
    edits.delete_lines(chain.scaling.start, chain.scaling.end)
    edits.replace(*kernel.span(chain.turned.node), chain.plain)
    drain = chain.drain
    given = {"data": kernel.text(drain.reads["src"].node), "op0": f"{prefix(kernel, 'language')}.multiply"}
    scaled = operation(kernel, drain, "tensor_scalar", given | {"operand0": chain.factor})
    edits.replace(drain.start, drain.end, scaled)
    return without_unused_buffers(edits.apply(), kernel)


RULE = ScaleAfterProduct()
