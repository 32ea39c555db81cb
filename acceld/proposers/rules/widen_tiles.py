"""Fewer, wider instructions: element-wise work and its loads and stores on larger tiles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import libcst as cst

from acceld.model import Profile
from acceld.proposers.rules.affine import Affine, Symbol
from acceld.proposers.rules.building import fresh, header, names_in, rendered
from acceld.proposers.rules.editing import Edits, reindent
from acceld.proposers.rules.reading import KernelModule
from acceld.proposers.rules.records import RuleRefused, Site, Variant
from acceld.proposers.rules.syntax import BINARY, UNARY, Access, Loop, Statement

_WIDEST = 8192
_PSUM_WIDTH = 512
_SCALARS = frozenset(["operand0", "operand1", "bias", "scale"])
_OPS = frozenset(
    "activation tensor_scalar tensor_tensor reciprocal copy tensor_copy load store dma_copy "
    "scalar_tensor_tensor".split()
) | frozenset(BINARY + UNARY)
_TARGET_BYTES = 96 * 1024


@dataclass
class _Plan:
    """What has to change for a loop to take larger steps."""

    loop: Loop
    width: int
    masks: list[Statement] = field(default_factory=list)
    accesses: list[Access] = field(default_factory=list)
    """Accesses with an index to write anew."""
    expanded: set[str] = field(default_factory=set)
    """Buffers that have a place for each step."""
    local: set[str] = field(default_factory=set)
    """Buffers declared in the loop, one tile wide."""
    tiles: int = 0
    moves: int = 0
    psum: bool = False


class WidenTiles:
    """Several iterations of an element-wise loop in one, on a tile as many times as wide."""

    name = "widen_tiles"
    reason = (
        "Each instruction has a fixed cost of 60 to 130 cycles besides one cycle an element, and a DMA row below 2 KiB "
        "takes as long as one of 2 KiB: one instruction on 2048 columns is cheaper than four on 512."
    )
    source = "AWS NKI guides: MIN_II 64 cycles, about 100 cycles static overhead; DMA efficiency by bytes a partition"
    apis = frozenset({"nki_legacy", "nki"})
    change_class = "tile_width"

    def sites(self, kernel: KernelModule, profile: Profile | None) -> Sequence[Site]:
        """Loops over chunks of a tile, loops over tiles, and named tile widths."""
        found = []
        for loop in kernel.loops:
            plan = _plan(kernel, loop)
            if isinstance(plan, str):
                continue
            factors = _factors(plan)
            if not factors:
                continue
            found.append(
                Site(
                    self.name,
                    loop.line,
                    "every instruction in the loop is element-wise on its own columns, and larger steps cover the same "
                    "columns",
                    f"Loop {loop.variable} does {plan.tiles} element-wise operations and {plan.moves} transfers on "
                    f"{plan.width} columns at a time. Take {' or '.join(str(plan.width * f) for f in factors)} columns "
                    "at a time, so that fixed costs are paid less often.",
                    tuple(Variant(f"{plan.width * f} columns", {"factor": f}) for f in factors),
                    min(0.5, 0.08 * plan.tiles * (512 / plan.width)),
                    (2.0, 20.0),
                )
            )
        for name, width, line, factors in _named_widths(kernel):
            found.append(
                Site(
                    self.name,
                    line,
                    f"{name} is only a step, a range and a tile width, and there are no matrix products",
                    f"Tiles are {name} = {width} columns wide. Take "
                    f"{' or '.join(str(width * f) for f in factors)} columns, so that fixed costs of instructions and "
                    "transfers are paid less often.",
                    tuple(Variant(f"{width * f} columns", {"factor": f}) for f in factors),
                    0.3,
                    (2.0, 20.0),
                    name,
                )
            )
        return found

    def refusals(self, kernel: KernelModule) -> Sequence[Site]:
        """Loops with element-wise work that can not take larger steps."""
        found = []
        for loop in kernel.loops:
            plan = _plan(kernel, loop)
            reason = plan if isinstance(plan, str) else _limit(plan)
            if reason and any(isinstance(s, Statement) and s.op in _OPS for s in loop.items):
                text = f"Take more columns at a time in loop {loop.variable}, if {reason} can be lifted."
                wider = Variant("wider", {"factor": 2 if isinstance(plan, str) else plan.loop.trips or 2})
                found.append(Site(self.name, loop.line, reason, text, (wider,), 0.0, key="refused"))
        return found

    def apply(self, kernel: KernelModule, site: Site, variant: Variant) -> str:
        """Larger steps by the variant's factor."""
        factor = int(variant.parameters["factor"])
        if site.key and site.key != "refused":
            for name, width, _, factors in _named_widths(kernel):
                if name == site.key and factor in factors:
                    edits = Edits(kernel.source)
                    edits.replace(*kernel.span(kernel.aliases[name]), str(width * factor))
                    return edits.apply()
            raise RuleRefused(f"line {site.line}: {site.key} can not be larger")
        for loop in kernel.loops:
            if loop.line == site.line:
                plan = _plan(kernel, loop)
                if isinstance(plan, str):
                    raise RuleRefused(plan)
                if factor not in _factors(plan):
                    columns = f"line {loop.line}: {plan.width * factor} columns are too many"
                    raise RuleRefused(_limit(plan) or columns)
                return _widened(kernel, plan, factor)
        raise RuleRefused(f"line {site.line}: there is no loop")


def _factors(plan: _Plan) -> list[int]:
    trips = plan.loop.trips or 1
    limit = _PSUM_WIDTH if plan.psum else _WIDEST
    largest = _TARGET_BYTES // (4 * plan.width * max(1, plan.tiles + plan.moves))
    fits = [f for f in range(2, trips + 1) if trips % f == 0 and plan.width * f <= limit and f <= max(2, largest)]
    return sorted(fits, key=lambda f: abs(plan.width * f - 2048))[:3]


def _limit(plan: _Plan) -> str:
    """Why not all columns can be taken at once; empty where they can."""
    columns, tiles = plan.width * (plan.loop.trips or 1), max(1, plan.tiles + plan.moves)
    limit = _PSUM_WIDTH if plan.psum else _WIDEST
    where = f"line {plan.loop.line}: {columns} columns"
    if columns > limit:
        return f"{where} are more than the {limit} of {'a PSUM bank' if plan.psum else 'the widest tile'}"
    if 4 * columns * tiles > max(_TARGET_BYTES, 8 * plan.width * tiles):
        return f"{where} in {tiles} tiles take {4 * columns * tiles >> 10} KiB a partition, more than {_TARGET_BYTES >> 10}"
    return ""


def _plan(kernel: KernelModule, loop: Loop) -> _Plan | str:
    """The plan, or why there is none."""
    where = f"line {loop.line}:"
    if loop.trips is None or loop.trips < 2 or loop.kind == "range":
        return f"{where} the number of iterations is not known"
    statements: list[Statement] = []
    for item in loop.items:
        if isinstance(item, Loop):
            return f"{where} there is a loop inside"
        statements.append(item)
    ops = [s for s in statements if s.kind == "op"]
    for statement in statements:
        if statement.kind == "other" or (statement.kind == "op" and (statement.op not in _OPS or statement.augmented)):
            return f"line {statement.line}: this is not element-wise"
        if statement.kind == "alias" and any(name.value == loop.variable for name in names_in(statement.node)):
            return f"line {statement.line}: an index name depends on the loop"
    made = {s.target.name for s in ops if s.target is not None and s.target.dims is None}
    local = {s.target.name for s in statements if s.kind == "declaration" and s.target is not None}
    width = _width(kernel, ops, loop)
    if width is None:
        return f"{where} the columns of a step are not known"
    plan = _Plan(loop, width, local=set(local))
    for statement in ops:
        problem = _check(kernel, plan, statement, made, local)
        if problem:
            return f"line {statement.line}: {problem}"
    if not plan.tiles and not plan.moves:
        return f"{where} there is nothing to widen"
    for name in plan.expanded:
        buffer = kernel.buffers[name]
        if any(s.parent is not loop for s in (*kernel.writers(name), *kernel.readers(name))):
            return f"{where} {name} is also used elsewhere, tile by tile"
        if buffer.shape[-1] != width:
            return f"{where} {name} is not {width} columns wide"
    for name in local | made:
        if any(s.parent is not loop for s in kernel.readers(name)):
            return f"{where} {name} is used after the loop"
        shape = kernel.buffers[name].shape if name in local else ()
        if shape and shape[-1] != width and not _narrow(shape):
            return f"{where} {name} is not {width} columns wide"
    return plan


def _narrow(shape: Sequence[int | None]) -> bool:
    return shape[-1] == 1


def _width(kernel: KernelModule, ops: Sequence[Statement], loop: Loop) -> int | None:
    """Columns of one step: the coefficient of the loop variable in an index with a range or slice."""
    found = set()
    for statement in ops:
        for access in _all(statement):
            for dim in access.dims or ():
                if dim.form is None:
                    return None
                coefficient = dim.form.coefficient(loop.variable)
                if coefficient and (dim.extent is not None or dim.form.ranges):
                    found.add(coefficient)
    return found.pop() if len(found) == 1 else None


def _all(statement: Statement) -> list[Access]:
    accesses = list(statement.mentions)
    if statement.target is not None:
        accesses.append(statement.target)
    return accesses


def _check(kernel: KernelModule, plan: _Plan, statement: Statement, made: set[str], local: set[str]) -> str:
    """Why the statement can not be widened; empty where it can. Notes what has to change."""
    scalar = {id(access.node) for name, access in statement.reads.items() if name in _SCALARS}
    if len(statement.mentions) != len(statement.reads):
        return "an operand is an expression"
    if statement.op in ("load", "store", "dma_copy"):
        plan.moves += 1
    else:
        plan.tiles += 1
    mask = statement.args.get("mask")
    if mask is not None and kernel.mask(statement) and not _mask_is_of_rows(kernel, plan, mask):
        return "the mask depends on the columns"
    for access in _all(statement):
        if access.name in kernel.ambiguous:
            return f"{access.name} may have another name"
        if kernel.space_of(access.name) == "psum":
            plan.psum = True
        if access.dims is None:
            if access.name in made or access.name in local or id(access.node) in scalar:
                continue
            return f"{access.name} is the same in every step"
        kind = _kind(plan, access)
        if kind in ("constant", "local"):
            if kind == "constant" and id(access.node) in scalar:
                continue
            if access.name not in local | made:
                return f"{access.name} is the same in every step"
        elif not kind:
            return f"an index of {access.name} is not a plain step"
        elif kind == "expanded":
            if access.name not in kernel.buffers:
                return f"{access.name} is not declared here"
            plan.expanded.add(access.name)
        plan.accesses.append(access)
    return ""


def _mask_is_of_rows(kernel: KernelModule, plan: _Plan, mask: cst.BaseExpression) -> bool:
    if not isinstance(mask, cst.Comparison) or len(mask.comparisons) != 1:
        return False
    for side in (mask.left, mask.comparisons[0].comparator):
        form = kernel.affine(side)
        if form is None or plan.loop.variable in form.variables:
            return False
        if any(symbol.axis != 0 for symbol in form.ranges):
            return False
    return True


def _kind(plan: _Plan, access: Access) -> str:
    """tiled, expanded, local or constant; empty where an index is something else."""
    assert access.dims is not None
    variable, found = plan.loop.variable, "constant"
    last = access.dims[-1]
    for position, dim in enumerate(access.dims):
        if dim.form is None:
            return ""
        coefficient = dim.form.coefficient(variable)
        if coefficient is None:
            return ""
        if coefficient == 0:
            continue
        if position == len(access.dims) - 1 and coefficient == plan.width:
            one_step = dim.extent == plan.width or [s.extent for s in dim.form.ranges] == [plan.width]
            if not one_step or (dim.form.ranges and _range_coefficient(dim.form) != 1):
                return ""
            found = "tiled"
        elif coefficient == 1 and dim.form.constant == 0 and len(dim.form.terms) == 1 and dim.extent is None:
            found = "expanded" if found == "constant" else ""
        else:
            return ""
    if found == "tiled":
        return found
    full = last.full or (last.form is not None and [s.extent for s in last.form.ranges] == [plan.width])
    full = full or (last.extent == plan.width and last.form == Affine())
    if found == "expanded":
        return "expanded" if full and last.form is not None and not last.form.variables else ""
    return "local" if full else "constant"


def _range_coefficient(form: Affine) -> int:
    return next(coefficient for symbol, coefficient in form.terms if symbol.is_range)


def _widened(kernel: KernelModule, plan: _Plan, factor: int) -> str:
    loop, width = plan.loop, plan.width * factor
    trips = (loop.trips or 1) // factor
    edits = Edits(kernel.source)
    ranges = _Ranges(kernel, plan.width, width)
    for access in plan.accesses:
        assert isinstance(access.node, cst.Subscript) and access.dims is not None
        for dim, element in zip(access.dims, access.node.slice, strict=True):
            text = _index(plan, dim.form, dim.extent, dim.full, factor, trips, ranges, access.name in plan.expanded)
            if text is not None:
                edits.replace(*kernel.span(element.slice), _sliced(kernel, element, text, width, dim.extent))
    for name in plan.expanded | plan.local:
        _reshape(kernel, plan, name, factor, edits)
    for alias in ranges.new_lines():
        edits.insert(*alias)
    first = kernel.source.rfind("\n", 0, loop.start) + 1
    head = header(kernel, loop)
    if trips > 1:
        new = head.replace(f"({kernel.text(loop.node.iter.args[0].value)})", f"({trips})")  # type: ignore[attr-defined]
        edits.replace(loop.start, loop.start + len(head), new)
        return edits.apply()
    marker = "\0"
    edits.insert(first, marker)
    end = kernel.source.find("\n", loop.end)
    edits.insert(len(kernel.source) if end < 0 else end + 1, marker)
    before, body, after = edits.apply().split(marker)
    lines = body.split("\n", 1)[1]
    return before + reindent(lines, loop.items[0].indent, loop.indent) + after


def _index(
    plan: _Plan,
    form: Affine | None,
    extent: int | None,
    full: bool,
    factor: int,
    trips: int,
    ranges: _Ranges,
    expanded: bool,
) -> str | None:
    """The new text of an index, or None where it stays."""
    assert form is not None
    variable = plan.loop.variable
    coefficient = form.coefficient(variable) or 0
    touched = coefficient != 0 or [s.extent for s in form.ranges] == [plan.width] or extent == plan.width
    if not touched or full:
        return None
    step = 1 if expanded and coefficient == 1 else factor
    rest = Affine(form.constant, tuple((s, c) for s, c in form.terms if s.variable != variable))
    moved = rest + (Affine.of(Symbol(variable, variable)).times(coefficient * step) if trips > 1 else Affine())
    if [s.extent for s in form.ranges if s.axes and s.axis == s.axes - 1] != [plan.width] and form.ranges:
        return None if coefficient == 0 else rendered(moved, ranges.old(form))
    return rendered(moved, ranges.widened(form))


def _sliced(kernel: KernelModule, element: cst.SubscriptElement, start: str, width: int, extent: int | None) -> str:
    if isinstance(element.slice, cst.Slice):
        upper = str(width) if start == "0" else f"{start} + {width}"
        return f"{start}:{upper}"
    assert isinstance(element.slice, cst.Index)
    if extent is not None:
        assert isinstance(element.slice.value, cst.Call)
        return f"{kernel.text(element.slice.value.func)}({start}, {width})"
    return start


def _reshape(kernel: KernelModule, plan: _Plan, name: str, factor: int, edits: Edits) -> None:
    declaration = kernel.buffers[name].declaration
    shape = declaration.args["shape"]
    assert isinstance(shape, cst.Tuple | cst.List)
    last = shape.elements[-1].value
    if kernel.constant(last) == plan.width:
        edits.replace(*kernel.span(last), str(plan.width * factor))
    if name not in plan.expanded:
        return
    access = next(a for a in plan.accesses if a.name == name)
    assert access.dims is not None
    for dim, element in zip(access.dims, shape.elements, strict=True):
        if dim.form is not None and dim.form.coefficient(plan.loop.variable) == 1:
            if kernel.constant(element.value) != plan.loop.trips:
                raise RuleRefused(f"line {declaration.line}: {name} has no place for each step")
            edits.replace(*kernel.span(element.value), str((plan.loop.trips or 1) // factor))


class _Ranges:
    """Texts of index ranges, old and widened; named ones get a new name beside the old."""

    def __init__(self, kernel: KernelModule, old_width: int, width: int) -> None:
        self._kernel, self._old_width, self._width = kernel, old_width, width
        self._names: dict[Symbol, str] = {}
        self._new: dict[str, tuple[int, str]] = {}
        for name in kernel.aliases:
            form = kernel.affine(cst.Name(name))
            if form is not None and len(form.terms) == 1 and form.terms[0][1] == 1 and not form.constant:
                self._names.setdefault(form.terms[0][0], name)

    def _text(self, symbol: Symbol, extent: int) -> str:
        places = ", ".join(":" if axis == symbol.axis else "None" for axis in range(symbol.axes))
        return f"nl.arange({extent})[{places}]"

    def old(self, form: Affine) -> dict[Symbol, str]:
        """Texts of the ranges in ``form`` as they are."""
        return {s: self._names.get(s, self._text(s, s.extent)) for s in form.ranges}

    def widened(self, form: Affine) -> dict[Symbol, str]:
        """Texts of the ranges in ``form``, the one of the old width widened."""
        texts = self.old(form)
        for symbol in form.ranges:
            if symbol.extent != self._old_width or symbol.axis != symbol.axes - 1:
                continue
            wide = Symbol(f"arange{self._width}.{symbol.axis}.{symbol.axes}", "", self._width, symbol.axis, symbol.axes)
            if wide in self._names:
                texts[symbol] = self._names[wide]
            elif symbol in self._names:
                texts[symbol] = self._named(self._names[symbol], symbol)
            else:
                texts[symbol] = self._text(symbol, self._width)
        return texts

    def _named(self, name: str, symbol: Symbol) -> str:
        if name not in self._new:
            statement = next(s for s in self._kernel.statements if s.kind == "alias" and self._assigns(s, name))
            new = fresh(self._kernel, f"{name}_{self._width}")
            end = self._kernel.source.find("\n", statement.end) + 1
            self._new[name] = (end, f"{statement.indent}{new} = {self._text(symbol, self._width)}\n")
            self._new[name + "\0"] = (0, new)
        return self._new[name + "\0"][1]

    @staticmethod
    def _assigns(statement: Statement, name: str) -> bool:
        small = statement.small
        target = small.targets[0].target if isinstance(small, cst.Assign) else None
        return isinstance(target, cst.Name) and target.value == name

    def new_lines(self) -> list[tuple[int, str]]:
        """Definitions of new names, with where they go."""
        return [line for name, line in self._new.items() if not name.endswith("\0")]


def _named_widths(kernel: KernelModule) -> list[tuple[str, int, int, list[int]]]:
    """Constants that are a tile width and nothing else: name, value, line, factors."""
    if any(
        s.op in ("matmul", "nc_matmul", "nc_transpose", "tensor_reduce", "tensor_tensor_scan")
        for s in kernel.statements
    ):
        return []
    found = []
    for name, node in kernel.aliases.items():
        if not isinstance(node, cst.Integer):
            continue
        width = int(node.value)
        uses = [n for n in names_in(kernel.function.body) if n.value == name]
        steps, others = _uses(kernel, name)
        if len(steps) != 1 or steps[0] is None or len(uses) != 1 + 1 + others:
            continue
        length = steps[0]
        factors = [f for f in (4, 2, 8) if length % (width * f) == 0 and width * f <= _WIDEST]
        line = kernel.line(node)
        if factors:
            found.append((name, width, line, factors))
    return found


def _uses(kernel: KernelModule, name: str) -> tuple[list[int | None], int]:
    """Lengths of loops that step by ``name``, and how many ranges and shapes use it."""
    steps: list[int | None] = []
    others = 0

    def walk(node: cst.CSTNode) -> None:
        nonlocal others
        if isinstance(node, cst.Call):
            callee = kernel.text(node.func).rsplit(".", 1)[-1]
            values = [argument.value for argument in node.args]
            if callee == "range" and len(values) == 3 and _is(values[2], name):
                steps.append(kernel.constant(values[1]) if kernel.constant(values[0]) == 0 else None)
            if callee == "arange" and len(values) == 1 and _is(values[0], name):
                others += 1
            if callee == "ndarray" and values and isinstance(values[0], cst.Tuple):
                others += sum(_is(element.value, name) for element in values[0].elements[-1:])
        for child in node.children:
            walk(child)

    walk(kernel.function.body)
    return steps, others


def _is(node: cst.BaseExpression, name: str) -> bool:
    return isinstance(node, cst.Name) and node.value == name


RULE = WidenTiles()
