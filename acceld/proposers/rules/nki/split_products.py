"""Compute products of float32 operands from products of their bfloat16 parts.

``x`` is ``hi + lo``, where ``hi`` is its bfloat16 value and ``lo`` the bfloat16 value of the rest. Before, and after::

    out += nisa.nc_matmul(x[p, c], w[p, f])      out += nisa.nc_matmul(x_hi[p, c], w_hi[p, f])
                                                 out += nisa.nc_matmul(x_hi[p, c], w_lo[p, f])
                                                 out += nisa.nc_matmul(x_lo[p, c], w_hi[p, f])

In the current API the first product keeps its ``accumulate``, and the other two add to its result.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from acceld.editing import Edits
from acceld.errors import RuleRefused
from acceld.model import Profile
from acceld.nki.source.affine import Affine, Symbol
from acceld.nki.source.building import changed, without_unused_buffers
from acceld.nki.source.matching import one_name
from acceld.nki.source.nests import all_accesses, around
from acceld.nki.source.reading import KernelModule
from acceld.nki.source.spelling import partitions, prefix
from acceld.nki.source.syntax import COPIES, LOADS, PRODUCTS, Access, Loop, Statement, elements, value_of
from acceld.proposers.rules.profiles import busy_share
from acceld.proposers.rules.records import Place, Rule, Variant

_PARTS = (("hi", "hi"), ("hi", "lo"), ("lo", "hi"))
"""Parts of the stationary and the moving operand in each of the three products. The product of the two low parts is
left out, because it is below float32's rounding of the sum.
"""
_STACKED = (("hi", "hi"), ("hi", "lo"))
_HALF = 64
_FLAGS = frozenset(("is_stationary_onezero", "is_moving_onezero", "is_transpose", "mask"))
_OF_CURRENT = frozenset(("dst", "accumulate"))


class SplitProducts(Rule):
    """Replace a product of float32 operands by three products of bfloat16 parts."""

    name = "split_products"
    reason = (
        "The tensor engine takes a float32 product in four passes and a bfloat16 product in one. Three products of high "
        "and low parts keep 16 of 24 bits, an error of about 4e-6, and take three quarters of the time."
    )
    source = "nki.isa.nc_matmul: cost by dtype, 4 passes for float32; accumulation in float32 in PSUM"
    apis = frozenset({"nki_legacy", "nki"})
    change_class = "mixed"

    def find(self, kernel: KernelModule, profile: Profile | None) -> Iterator[Place]:
        """Yield the places where products may be computed from bfloat16 parts: all products of the kernel as one place;
        then each group of products that shares no operand with another group; then each single product of a group whose
        products stand side by side in loops of their own.

        Parts of an operand are made once for all products that read it. Making parts is element-wise work, which does
        not pay off for every product. A workload may also allow the error of some products only.
        """
        products = [one for one in kernel.statements if _is_product(kernel, one)]
        if not products:
            return
        problems = {product: _problem(kernel, product) for product in products}
        ready = [product for product, problem in problems.items() if not problem]
        wish = "Split the operands into bfloat16 parts"
        if not ready:
            yield self.refused(products[0].line, problems[products[0]], wish)
            return
        groups = _groups(ready)
        yield self._place(kernel, profile, ready)
        for group in groups if len(groups) > 1 else ():
            yield self._place(kernel, profile, group, key="alone")
        for group in filter(_is_side_by_side, groups):
            for product in group:
                yield self._place(kernel, profile, [product], key="this product")

    def _place(
        self, kernel: KernelModule, profile: Profile | None, products: Sequence[Statement], key: str = ""
    ) -> Place:
        names = sorted({access.name for product in products for access in _operands(product)})
        return self.found(
            products[0].line,
            partial(_split, kernel, products),
            *([Variant("stacked", {"stacked": 1})] if all(_can_stack(kernel, one) for one in products) else []),
            Variant("three products"),
            precondition=f"bfloat16 parts can be made wherever the tiles {', '.join(names)} are written, and the products are "
            "summed in PSUM",
            plan=f"{len(products)} products take float32 operands, four passes of the tensor engine each. Split "
            f"{', '.join(names)} into a high and a low bfloat16 part where they are written, and add up three products "
            "of parts. The workload must allow the error of about 4e-6.",
            benefit=0.25 * busy_share(profile, "tensor") if profile else 0.2,
            gain_percent=(0.0, 25.0),
            key=key,
        )


def _groups(products: Sequence[Statement]) -> list[list[Statement]]:
    """Return the products in groups; no two groups share an operand."""
    groups: list[tuple[set[str], list[Statement]]] = []
    for product in products:
        names, members = {access.name for access in _operands(product)}, [product]
        for group in [one for one in groups if one[0] & names]:
            groups.remove(group)
            names, members = group[0] | names, [*group[1], *members]
        groups.append((names, members))
    return [sorted(members, key=lambda one: one.start) for _, members in groups]


def _is_side_by_side(group: Sequence[Statement]) -> bool:
    """Return True if several products make different results in loops of their own, all in one iteration of a loop."""
    beyond = [around(one)[1:] for one in group]
    results = {one.made.name for one in group}
    return len(group) == len(results) > 1 and beyond[0] != [] and all(one == beyond[0] for one in beyond)


@dataclass(frozen=True)
class Parts:
    """The names of a buffer's high and low part."""

    hi: str
    lo: str

    def of(self, part: str) -> str:
        return self.hi if part == "hi" else self.lo


def _operands(product: Statement) -> tuple[Access, Access]:
    first, second = ("x", "y") if product.op == "matmul" else ("stationary", "moving")
    return product.reads[first], product.reads[second]


def _is_product(kernel: KernelModule, one: Statement) -> bool:
    """Return True if a statement is a product of two accesses whose options are all known and switched off.

    ``nl.matmul`` must have ``transpose_x=True``.
    """
    if one.kind != "op" or one.op not in PRODUCTS:
        return False
    wanted = {"x", "y"} if one.op == "matmul" else {"stationary", "moving"}
    known = wanted | _FLAGS | (_OF_CURRENT if kernel.api == "nki" else {"transpose_x"})
    if not wanted <= set(one.reads) or not set(one.args) <= known:
        return False
    if one.op == "matmul" and kernel.text_of(one, "transpose_x") != "True":
        return False
    return all(kernel.text_of(one, flag) in ("", "False", "None") for flag in _FLAGS - {"mask"})


def _problem(kernel: KernelModule, product: Statement) -> str:
    """Return the reason why a product can not be split; empty if it can."""
    where = f"line {product.line}:"
    target = product.target
    assert target is not None
    declared = kernel.buffers.get(target.name)
    if target.name in kernel.parameters:
        return f"{where} {kernel.function.name} gets {target.name} as an argument: declare the sum in {kernel.function.name}"
    if declared is None or declared.space != "psum":
        return f"{where} {target.name} is not declared in PSUM: declare it there"
    if kernel.api == "nki":
        if not kernel.declared_dtype(target.name).endswith("float32"):
            return f"{where} {target.name} is not a sum in float32: declare it as float32"
    elif declared.declaration.op != "zeros" and not _may_begin_with_zeros(kernel, product, declared.declaration):
        return f"{where} {target.name} is not a sum in PSUM that begins with zeros: declare it by nl.zeros"
    elif not product.augmented and not _every_iteration(product, target, declared.declaration):
        return f"{where} {target.name} is shared by products of several iterations: index it by the loops around the product"
    elif not product.augmented and not _is_only_writer(kernel, product, target):
        return f"{where} {target.name} is also written elsewhere: give those values another tile"
    for access in _operands(product):
        problem = no_parts(kernel, product, access.name)
        if problem:
            return problem
    return ""


def no_parts(kernel: KernelModule, reader: Statement, name: str) -> str:
    """Return the reason why bfloat16 parts of the tile ``name``, which ``reader`` reads, can not be made wherever the tile is
    written; empty if they can.
    """
    where = f"line {reader.line}:"
    if name in kernel.tiles:
        here = kernel.function.name
        return f"{where} {here} gets the tile {name} as an argument: copy it to a tile that {here} declares"
    if doubt := one_name(kernel, (name,)):
        return f"{where} {doubt}"
    if kernel.space_of(name) != "sbuf" or name in kernel.parameters:
        return f"{where} {name} is not a tile in SBUF: copy it there"
    declaration = kernel.declaration(name)
    if declaration is None and kernel.api == "nki":
        return f"{where} {name} is a tile that a function makes: write the function's body in place of its call"
    if declaration is not None and declaration.op not in ("ndarray", "zeros"):
        return f"{where} {name} has initial values: write them by a statement"
    dtype = kernel.declared_dtype(name)
    if dtype and not dtype.endswith(("float32", ".dtype")):
        return f"{where} {name} is {dtype}: only products of float32 need to be split"
    given = {kernel.dtypes.get(other, "") for other in _dtype_givers(kernel, name, dtype)}
    if other_dtypes := given - {"", "float32"}:
        return f"{where} {name} is {', '.join(sorted(other_dtypes))}: only products of float32 need to be split"
    writers = kernel.writers(name)
    if not writers or any(_adds(w) or w.target is None or w.target.name != name for w in writers):
        return (
            f"{where} {name} is not written by a plain statement: write it by an instruction or a load without a mask"
        )
    if all_accesses(kernel, name) is None and declaration is not None:
        return f"{where} {name} is also used in a way that is not understood: give line {reader.line} a tile of its own"
    if any(kernel.text_of(w, "dtype").endswith("16") for w in writers):
        return f"{where} {name} was rounded to fewer bits: keep it in float32"
    return ""


def _adds(writer: Statement) -> bool:
    """Return True if a statement adds to its target, or is not understood."""
    return writer.kind != "op" or writer.augmented or writer.op == "loop_reduce"


def _dtype_givers(kernel: KernelModule, name: str, dtype: str) -> list[str]:
    """Return the names of the tensors whose dtype a tile has: the tensor that the tile's declaration names, or the
    tensors from which the tile is loaded.
    """
    if dtype.endswith(".dtype"):
        return [dtype.removesuffix(".dtype")]
    if dtype:
        return []
    loads = [one for one in kernel.writers(name) if one.op in LOADS and not kernel.text_of(one, "dtype")]
    return [one.reads["src"].name for one in loads if "src" in one.reads]


def _may_begin_with_zeros(kernel: KernelModule, product: Statement, declaration: Statement) -> bool:
    """Return True if a product overwrites what its buffer held, so that the buffer may as well begin with zeros."""
    return (
        declaration.op == "ndarray"
        and not product.augmented
        and kernel.text_of(declaration, "dtype").endswith("float32")
        and isinstance(call := value_of(declaration), ast.Call)
        and isinstance(call.func, ast.Attribute)
    )


def _is_only_writer(kernel: KernelModule, product: Statement, target: Access) -> bool:
    """Return True if all other statements that write the buffer are proved to write other elements than the product."""
    if target.name in kernel.ambiguous or all_accesses(kernel, target.name) is None:
        return False
    others = [one.result(target.name) for one in kernel.writers(target.name) if one is not product]
    return all(other is not None and _are_apart(target, other) for other in others)


def _are_apart(one: Access, other: Access) -> bool:
    """Return True if the two accesses differ by a constant in an index that selects a single element."""
    if one.dims is None or other.dims is None or len(one.dims) != len(other.dims):
        return False
    for a, b in zip(one.dims, other.dims, strict=True):
        if a.form is not None and b.form is not None and a.extent is None and b.extent is None:
            apart = a.form - b.form
            if not (a.form.ranges or b.form.ranges or apart.terms) and apart.constant:
                return True
    return False


def _every_iteration(product: Statement, target: Access, declaration: Statement) -> bool:
    """Return True if each iteration of the loops between declaration and product writes a place of its own."""
    outside: list[Loop] = around(declaration)
    variables = {loop.variable for loop in around(product) if loop not in outside}
    return target.variables is not None and variables <= target.variables


def _can_stack(kernel: KernelModule, product: Statement) -> bool:
    """Return True if both operands have 64 partitions, so that two parts of an operand fit in one tile, one below the
    other.
    """
    for access in _operands(product):
        buffer = kernel.buffers.get(access.name)
        found = all_accesses(kernel, access.name)
        if buffer is None or found is None or buffer.shape[buffer.partition_axis :][:1] != (_HALF,):
            return False
        for one, place in ((one, buffer.partition_axis) for _, one in found):
            if not _on_all(kernel, one, place, len(buffer.shape)):
                return False
        if not isinstance(buffer.declaration.args.get("shape"), ast.Tuple):
            return False
    stationary, moving = _operands(product)
    return stationary.name != moving.name and not kernel.mask(product)


def _on_all(kernel: KernelModule, access: Access, place: int, axes: int) -> bool:
    """Return True if an access is proved to cover all 64 partitions of its buffer.

    The partitions are index ``place`` of the buffer's ``axes`` indices.
    """
    if access.dims is None or len(access.dims) != axes:
        return access.dims is None and kernel.api == "nki"
    rows = access.dims[place]
    if kernel.api == "nki":
        return rows.covers(_HALF)
    return rows.form == Affine.of(Symbol.over(_HALF, 0, 2))


def _on_rows(kernel: KernelModule, access: Access, name: str, first: int, last: int) -> str:
    """Return the text of an access to the same columns of the buffer ``name`` (current API), on partitions ``first`` to
    ``last``.
    """
    if access.dims is None:
        columns = [f"0:{extent}" for extent in kernel.buffers[access.name].shape[1:]]
    else:
        columns = [dim.text for dim in access.dims[1:]]
    return f"{name}[{', '.join((f'{first}:{last}', *columns))}]"


def _split(kernel: KernelModule, products: Sequence[Statement], variant: Variant) -> str:
    """Return the source in which each writer of an operand also makes its parts, and two or three products replace each
    product.

    When stacked, the high and the low part of the stationary operand lie one below the other, and the moving operand
    holds its high part twice. Then a single product over all partitions gives the sum of two products.
    """
    stacked = bool(variant.parameters.get("stacked"))
    sides = {_operands(product)[0].name: "stationary" for product in products}
    if stacked and any(_operands(product)[1].name in sides for product in products):
        raise RuleRefused(
            f"line {products[0].line}: a tile is the stationary operand of one product and the moving operand of another: copy the tile for one of the products"
        )
    language = prefix(kernel, "language")
    edits = Edits(kernel.source)
    names = sorted({access.name for product in products for access in _operands(product)})
    taken: set[str] = set()
    parts: dict[str, Parts] = {}
    for name in names:
        parts[name] = Parts(kernel.fresh(f"{name}_hi", taken), kernel.fresh(f"{name}_lo", taken))
        taken |= {parts[name].hi, parts[name].lo}
    for product in products:
        pairs = _STACKED if stacked else _PARTS
        lines = [
            _product(kernel, product, parts, pair, stacked=stacked, adds=number > 0)
            for number, pair in enumerate(pairs)
        ]
        edits.replace(product.start, product.end, f"\n{product.indent}".join(lines))
        _begin_with_zeros(kernel, product, edits)
    for name in names:
        if name in kernel.buffers:
            declare_parts(kernel, name, parts[name], language, edits, sides.get(name, "moving") if stacked else "")
        only_products = all(reader in products for reader in kernel.readers(name))
        for writer in last_writers(kernel, name, products):
            side = sides.get(name, "moving") if stacked else ""
            make_parts(kernel, writer, parts[name], language, edits, side, moved=only_products)
    return without_unused_buffers(edits.apply(), kernel)


def _product(
    kernel: KernelModule,
    product: Statement,
    parts: dict[str, Parts],
    pair: tuple[str, str],
    *,
    stacked: bool,
    adds: bool,
) -> str:
    """Return the statement that adds the product of one part of each operand to the sum; stacked parts are multiplied
    at once.

    ``adds`` is True if the statement follows another product of the same operands.
    """
    texts: dict[ast.AST, str] = {}
    for access, part in zip(_operands(product), pair, strict=True):
        name = parts[access.name].of(part)
        if stacked and kernel.api == "nki":
            last = 2 * _HALF if pair == _STACKED[0] else _HALF
            texts[access.node] = _on_rows(kernel, access, name, 0, last)
            continue
        texts[access.node.value if isinstance(access.node, ast.Subscript) else access.node] = name
        if stacked and pair == _STACKED[0]:
            texts[_partitions(kernel, access)] = f"{prefix(kernel, 'language')}.arange({2 * _HALF})[:, None]"
    if kernel.api == "nki" and adds:
        given, final = product.args.get("accumulate"), list(product.args.values())[-1]
        if given is None:
            inside = {node: texts.pop(node) for node in ast.walk(final) if node in texts}
            texts[final] = f"{changed(kernel, final, inside)}, accumulate=True"
        else:
            texts[given] = "True"
    text = changed(kernel, product.node, texts)
    if kernel.api != "nki" and not product.augmented:
        assert isinstance(product.node, ast.Assign)
        target = kernel.text(product.made.node)
        text = target + text.removeprefix(target).replace("=", "+=", 1)
    return text


def _begin_with_zeros(kernel: KernelModule, product: Statement, edits: Edits) -> None:
    """Add to ``edits`` the change that lets a buffer of the legacy API begin with zeros, if the product overwrote the
    buffer's values until now.
    """
    declaration = kernel.buffers[product.made.name].declaration
    if kernel.api == "nki" or declaration.op != "ndarray":
        return
    call = value_of(declaration)
    assert isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)
    _, end = kernel.span(call.func)
    edits.replace(end - len(call.func.attr), end, "zeros")


def _partitions(kernel: KernelModule, access: Access) -> ast.AST:
    """Return the syntax node of that index of ``access`` which selects partitions."""
    return elements(access.node)[kernel.buffers[access.name].partition_axis]


def declare_parts(kernel: KernelModule, name: str, parts: Parts, language: str, edits: Edits, stacked: str) -> None:
    """Add to ``edits`` the declarations of both parts. ``stacked`` is the operand's side if its high part gets twice
    the partitions.
    """
    declaration, axis = kernel.buffers[name].declaration, kernel.buffers[name].partition_axis
    given = {
        key: kernel.text(value) for key, value in declaration.args.items() if key not in ("dtype", "name", "shape")
    }
    shape = declaration.args["shape"]
    texts = [kernel.text(shape)] * 2
    if stacked:
        assert isinstance(shape, ast.Tuple)
        extents = [kernel.text(extent) for extent in shape.elts]
        extents[axis] = partitions(kernel, 2 * _HALF)
        texts[0] = f"({', '.join(extents)})"
    listed = ", ".join(f"{key}={text}" for key, text in given.items())
    for one, text in zip((parts.hi, parts.lo), texts, strict=True):
        if not (stacked == "stationary" and one == parts.lo):
            call = f"{language}.{declaration.op}({text}, dtype={language}.bfloat16, {listed})"
            edits.insert(kernel.after_line(declaration.end), f"{declaration.indent}{one} = {call}\n")


def last_writers(kernel: KernelModule, name: str, readers: Sequence[Statement]) -> list[Statement]:
    """Return the statements that write values of a buffer which one of ``readers`` reads.

    A statement is left out if its value is overwritten before any of the readers reads it.
    """
    writers = kernel.writers(name)
    reads = [one.start for one in readers if name in {access.name for access in one.reads.values()}]
    return [
        one
        for one in writers
        if not any(
            other.parent is one.parent
            and other.start > one.start
            and _whole(other)
            and _whole(one)
            and not any(one.start < read < other.start for read in reads)
            for other in writers
        )
    ]


def _whole(writer: Statement) -> bool:
    return writer.target is not None and writer.target.dims is None


def make_parts(
    kernel: KernelModule, writer: Statement, parts: Parts, language: str, edits: Edits, stacked: str, *, moved: bool
) -> None:
    """Add to ``edits`` the statements that make both parts of the value that a statement writes.

    With ``moved``, a copy is replaced by the parts, which are made of the copy's source. With ``stacked``, the
    partitions 64 to 127 of the high part hold the low part of a stationary operand, or the high part of a moving
    operand once more.
    """
    name = writer.made.name
    target = kernel.text(writer.made.node) if name in kernel.buffers else name
    source = writer.reads.get("src") if writer.op in COPIES and moved else None
    value = target if source is None else kernel.text(source.node)
    mask = f", mask={kernel.mask(writer)}" if kernel.mask(writer) else ""
    hi, lo = (target.replace(name, part, 1) for part in (parts.hi, parts.lo))
    if stacked and kernel.api == "nki":
        hi, lo = (_on_rows(kernel, writer.made, part, 0, _HALF) for part in (parts.hi, parts.lo))
        below = _on_rows(kernel, writer.made, parts.hi, _HALF, 2 * _HALF)
    elif stacked:
        rows = kernel.text(_partitions(kernel, writer.made))
        below = hi.replace(rows, f"{_HALF} + {rows}", 1)
    if stacked == "stationary":
        lo = below
    if kernel.api == "nki":
        isa = prefix(kernel, "isa")
        lines = [
            f"{isa}.tensor_copy(dst={hi}, src={value})",
            f"{isa}.tensor_tensor(dst={lo}, data1={value}, data2={hi}, op={language}.subtract)",
        ]
    else:
        lines = [
            f"{hi} = {language}.copy({value}, dtype={language}.bfloat16{mask})",
            f"{lo} = {language}.subtract({value}, {hi}, dtype={language}.bfloat16{mask})",
        ]
    if stacked == "moving" and kernel.api == "nki":
        lines.insert(1, f"{isa}.tensor_copy(dst={below}, src={hi})")
    elif stacked == "moving":
        lines.insert(1, f"{below} = {language}.copy({hi}, dtype={language}.bfloat16{mask})")
    text = "".join(f"{writer.indent}{line}\n" for line in lines)
    if source is not None:
        edits.replace(kernel.line_start(writer.start), kernel.after_line(writer.end), text)
    else:
        edits.insert(kernel.after_line(writer.end), text)


RULE = SplitProducts()
