"""Scale the rows of a product's result, instead of the rows of its wider operand.

Before, every element of ``x`` is scaled, as at the end of a softmax; after, every row of the product::

    scaled[p, f] = nisa.tensor_scalar(x[p, f], op0=nl.multiply, operand0=r[p, 0])
    turned = nisa.nc_transpose(scaled[p, 128 * k + c]); scaled_t[k, p, c] = nl.copy(turned)    (from x, not scaled)
    total += nisa.nc_matmul(scaled_t[k, p, c], w[k, p, f])
    out = nl.copy(total)                          out = nisa.tensor_scalar(total, op0=nl.multiply, operand0=r[p, 0])
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from acceld.editing import Edits
from acceld.errors import RuleRefused
from acceld.model import Profile
from acceld.nki.source.affine import Affine, Symbol
from acceld.nki.source.building import without_unused_buffers
from acceld.nki.source.nests import all_accesses, around, inside
from acceld.nki.source.reading import KernelModule
from acceld.nki.source.spelling import prefix, rendered
from acceld.nki.source.syntax import Access, Statement
from acceld.proposers.rules.nki.operand_swaps import BLOCK, is_copy, transposed
from acceld.proposers.rules.profiles import busy_share
from acceld.proposers.rules.records import Finding, Rule, Variant

_ROWS, _COLUMNS = Symbol.over(BLOCK, 0, 2), Symbol.over(BLOCK, 1, 2)

_Renames = Mapping[str, Affine]
"""For a loop variable around one statement, its value as an expression in the loop variables around another statement.
"""


@dataclass(frozen=True)
class _Chain:
    """The statements and operands from the scaled operand to the product's result."""

    scaling: Statement
    data: Access
    factor: Access
    turn: Statement
    """The transpose of the scaled tile."""
    product: Statement
    drain: Statement
    """The copy of the product's result out of PSUM."""
    renames: _Renames
    """Values, at the drain, of the loop variables that select the factor."""


class ScaleAfterProduct(Rule):
    """Move a factor for each row from a product's stationary operand to its result."""

    name = "scale_after_product"
    reason = (
        "A factor for each row of an operand is a factor for each row of the product. The result is copied out of PSUM in "
        "any case, and that instruction can scale it; scaling the operand is one more pass over more elements."
    )
    source = "nki.isa.tensor_scalar: operand0 may be one number a partition, data may be in PSUM; FlashAttention-2: 3.1"
    apis = frozenset({"nki_legacy"})
    change_class = "fusion"

    def find(self, kernel: KernelModule, profile: Profile | None) -> Iterator[Finding]:
        """Yield every tile whose rows are scaled and which, transposed, is the stationary operand of one product."""
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
                precondition=f"{chain.factor.name} has one number for each row, the same for all products that are added up",
                plan=f"Line {scaling.line} scales the rows of an operand of the product in line {chain.product.line}. Scale "
                f"the product's rows in line {chain.drain.line} by {chain.factor.name}, where they leave PSUM anyway.",
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
    whole = factor is not None and factor.dims is not None and len(factor.dims) > 1
    if factor is None or not whole or kernel.extents(factor) != (BLOCK, 1) or one.target is None:
        return None
    return factor if "data" in one.reads else None


def _chain(kernel: KernelModule, scaling: Statement, factor: Access) -> _Chain | str:
    """Return the chain from the scaled tile to the result; or, as text, the reason why the factor can not be moved
    along it.
    """
    data, scaled = scaling.reads["data"], scaling.target
    assert scaled is not None
    problem = _settled(kernel, data, scaling) or _own_place(kernel, factor)
    if problem:
        return problem
    turn = _only_reader(kernel, scaling)
    turned = transposed(kernel, turn) if turn is not None else None
    if turn is None or turned is None:
        return f"line {scaling.line}: {scaled.name} is not only transposed: scale what else is needed apart"
    if turn.start < scaling.start or (scaling.parent is not None and not inside(turn, scaling.parent)):
        return f"line {turn.line}: this is not in the loop of line {scaling.line}, after it"
    if _forms(turned)[:-1] != _forms(scaled)[:-1]:
        return f"line {turn.line}: this reads another tile than line {scaling.line} writes"
    copy = _only_reader(kernel, turn)
    if copy is None or not is_copy(kernel, copy, turn) or copy.target is None:
        return f"line {turn.line}: the transpose is not only copied out of PSUM: copy it once"
    product = _only_reader(kernel, copy)
    if product is None or product.op != "nc_matmul" or product.target is None or "stationary" not in product.reads:
        return f"line {copy.line}: {copy.target.name} is not only the operand of one product"
    if product.reads["stationary"].name != copy.target.name or kernel.text_of(product, "is_transpose") == "True":
        return f"line {product.line}: {copy.target.name} is not the stationary operand"
    drain = _only_reader(kernel, product)
    if drain is None or drain.op not in ("copy", "tensor_copy") or drain.augmented or kernel.mask(drain):
        return f"line {product.line}: the result is not only copied out of PSUM: copy it once"
    total = kernel.buffers.get(product.target.name)
    if total is None or total.space != "psum" or total.declaration.op not in ("zeros", "ndarray"):
        return f"line {product.line}: the sum is not in PSUM, or does not begin with zeros"
    if set(drain.args) - {"src", "dtype", "mask"}:
        return f"line {drain.line}: this is no plain copy"
    renames: _Renames = {name: Affine.of_variable(name) for name in factor.variables or ()}
    for writer, reader in ((scaling, turn), (turn, copy), (copy, product), (product, drain)):
        renamed = _followed(writer, reader, renames)
        if isinstance(renamed, str):
            return renamed
        renames = renamed
    return _Chain(scaling, data, factor, turn, product, drain, renames)


def _only_reader(kernel: KernelModule, writer: Statement) -> Statement | None:
    """Return the only statement that reads the tile that ``writer`` writes.

    None means that there is another writer or reader, or that some access does not cover all 128 partitions.
    """
    name = writer.made.name
    readers, found = kernel.readers(name), all_accesses(kernel, name)
    others = [one for one in readers if one is not writer]
    if kernel.writers(name) != [writer] or len(others) != 1 or found is None or name in kernel.ambiguous:
        return None
    for _, access in found:
        if access.dims is None or len(access.dims) < 2 or any(dim.form is None for dim in access.dims):
            return None
        rows = [dim.form for dim in access.dims if dim.form is not None and any(r.axis == 0 for r in dim.form.ranges)]
        if rows != [Affine.of(_ROWS)]:
            return None
    return others[0]


def _settled(kernel: KernelModule, data: Access, scaling: Statement) -> str:
    """Return the reason why a tile may change after it is scaled, or can not be transposed itself; empty if there is
    none.
    """
    name, scaled = data.name, scaling.target
    assert scaled is not None
    writers = kernel.writers(name)
    if name in kernel.ambiguous or kernel.space_of(name) != "sbuf" or data.dims is None or not writers:
        return f"line {scaling.line}: {name} is not a tile in SBUF"
    if any(one.kind != "op" or one.start > scaling.start for one in writers):
        return f"line {scaling.line}: {name} changes afterwards"
    dtypes = [
        kernel.text_of(kernel.buffers[one].declaration, "dtype") if one in kernel.buffers else ""
        for one in (name, scaled.name)
    ]
    given = kernel.text_of(scaling, "dtype")
    if not all(one.endswith("float32") for one in dtypes) or (given and not given.endswith("float32")):
        return f"line {scaling.line}: {name} or the scaled tile is not float32"
    *places, last = _forms(data)
    ranges = [form for form in places if form is None or form.ranges]
    new = _forms(scaled)[-1] if scaled.dims else None
    if last is None or new is None or len(last.ranges) != 1 or new != Affine.of(last.ranges[0]):
        return f"line {scaling.line}: the columns of the scaled tile are no plain range"
    return "" if ranges == [Affine.of(_ROWS)] else f"line {scaling.line}: not all rows of {name}"


def _forms(access: Access) -> list[Affine | None]:
    return [dim.form for dim in access.dims or ()]


def _own_place(kernel: KernelModule, factor: Access) -> str:
    """Return the reason why a factor may be overwritten before the result is copied; empty if it has a place of its
    own.
    """
    writers = kernel.writers(factor.name)
    if factor.name in kernel.ambiguous or factor.name not in kernel.buffers or len(writers) != 1:
        return f"{factor.name} is not written once"
    writer = writers[0]
    written = writer.result(factor.name)
    if writer.kind != "op" or writer.augmented or writer.op == "loop_reduce" or written is None:
        return f"line {writer.line}: {factor.name} is not written once"
    is_local = any(inside(kernel.buffers[factor.name].declaration, loop) for loop in around(writer))
    if is_local or any(Affine.of_variable(loop.variable) not in _forms(written) for loop in around(writer)):
        return f"line {writer.line}: {factor.name} has no place for every iteration"
    return ""


def _followed(writer: Statement, reader: Statement, renames: _Renames) -> _Renames | str:
    """Return the values of loop variables around ``reader``, in the iteration that reads what ``writer`` writes.

    ``renames`` gives the values around ``writer``. If they differ, the result is the reason as text.
    """
    written = writer.target
    assert written is not None and written.dims is not None
    read = next(access for access in reader.mentions if access.name == written.name)
    assert read.dims is not None
    if len(read.dims) != len(written.dims):
        return f"line {reader.line}: {read.name} is read in another way"
    found: dict[str, Affine] = {}
    for variable in {name for form in renames.values() for name in form.variables}:
        value = _value(writer, reader, written, read, variable)
        if value is None:
            return f"line {reader.line}: the factor depends on {variable}, which is not the same here"
        found[variable] = value
    if not (_in_blocks(written) and _in_blocks(read)):
        return f"line {reader.line}: the columns of {read.name} do not begin at a multiple of {BLOCK}"
    return {name: _substituted(form, found) for name, form in renames.items()}


def _in_blocks(access: Access) -> bool:
    """Return True if the columns of an access begin at a multiple of 128 in every iteration."""
    form = _forms(access)[-1]
    if form is None or any(coefficient != 1 for symbol, coefficient in form.terms if symbol.is_range):
        return False
    start = _start(form)
    return all(part % BLOCK == 0 for part in (start.constant, *(coefficient for _, coefficient in start.terms)))


def _value(writer: Statement, reader: Statement, written: Access, read: Access, variable: str) -> Affine | None:
    """Return the value that a loop variable of ``writer`` had when the element that ``read`` reads was written; None if
    not known.
    """
    pairs = list(zip(_forms(written), _forms(read), strict=True))
    uses = [(there, here) for there, here in pairs if there is not None and variable in there.variables]
    if not uses:
        loop = next((loop for loop in around(writer) if loop.variable == variable), None)
        together = loop is not None and inside(reader, loop) and reader.start > writer.start
        return Affine.of_variable(variable) if together else None
    for there, here in uses:
        factor = there.coefficient(variable)
        if here is not None and factor and _start(there) == Affine.of_variable(variable).times(factor):
            start = _start(here)
            parts = [start.constant, *(coefficient for _, coefficient in start.terms)]
            if all(part % factor == 0 for part in parts):
                terms = tuple((symbol, coefficient // factor) for symbol, coefficient in start.terms)
                return Affine(start.constant // factor, terms)
    return None


def _start(form: Affine) -> Affine:
    """Return an index without its range: the first element."""
    return Affine(form.constant, tuple((symbol, c) for symbol, c in form.terms if not symbol.is_range))


def _substituted(form: Affine, values: _Renames) -> Affine:
    """Return a form with its variables replaced by ``values``."""
    result = Affine(form.constant)
    for symbol, coefficient in form.terms:
        value = values[symbol.variable] if symbol.variable == symbol.name else Affine(0, ((symbol, 1),))
        result = result + value.times(coefficient)
    return result


def _moved(kernel: KernelModule, chain: _Chain, _: Variant) -> str:
    """Return the source in which the plain tile is transposed, and the factor is applied where the result leaves PSUM."""
    language, isa = prefix(kernel, "language"), prefix(kernel, "isa")
    edits = Edits(kernel.source)
    edits.delete_lines(chain.scaling.start, chain.scaling.end)
    turned = transposed(kernel, chain.turn)
    assert turned is not None
    edits.replace(*kernel.span(turned.node), _place(kernel, chain, turned, language))
    factor = _factor_place(chain, language)
    drain, source = chain.drain, kernel.text(chain.drain.reads["src"].node)
    dtype = f", dtype={kernel.text_of(drain, 'dtype')}" if "dtype" in drain.args else ""
    scaled = f"{isa}.tensor_scalar(data={source}, op0={language}.multiply, operand0={factor}{dtype})"
    edits.replace(drain.start, drain.end, f"{kernel.text(drain.made.node)} = {scaled}")
    return without_unused_buffers(edits.apply(), kernel)


def _ranges(language: str) -> dict[Symbol, str]:
    return {_ROWS: f"{language}.arange({BLOCK})[:, None]", _COLUMNS: f"{language}.arange({BLOCK})[None, :]"}


def _place(kernel: KernelModule, chain: _Chain, turned: Access, language: str) -> str:
    """Return the text of the part of the plain tile that corresponds to the transposed part of the scaled tile."""
    *places, last = _forms(chain.data)
    columns = _forms(turned)[-1]
    if last is None or columns is None or any(form is None for form in places) or columns.ranges != (_COLUMNS,):
        raise RuleRefused(f"line {chain.turn.line}: an index of {chain.data.name} is not understood")
    forms = [*(form for form in places if form is not None), _start(last) + columns]
    return f"{chain.data.name}[{', '.join(rendered(form, _ranges(language)) for form in forms)}]"


def _factor_place(chain: _Chain, language: str) -> str:
    """Return the text of the access to the factor in the instruction that copies the result out of PSUM."""
    renamed = [_substituted(form, chain.renames) for form in _forms(chain.factor) if form is not None]
    return f"{chain.factor.name}[{', '.join(rendered(form, _ranges(language)) for form in renamed)}]"


RULE = ScaleAfterProduct()
