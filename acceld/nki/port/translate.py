"""Translate the statements of one legacy function to the current API."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod
from types import MappingProxyType

from acceld.nki.frontend.core.names import WITHOUT
from acceld.nki.ir.operations import BITS
from acceld.nki.port.calls import (
    ACTIVATIONS,
    COMPARISONS,
    GPSIMD,
    INSTRUCTIONS,
    LANGUAGE,
    OPERATORS,
    OTHER_SHAPE,
    REDUCTIONS,
    SAME,
    TWO_TILES,
    WRITES,
    operation_name,
)
from acceld.nki.port.facts import Fact
from acceld.nki.port.forms import Atom, Grid, Linear
from acceld.nki.port.values import Clip, Op, Unportable, Values, call, dtype_word, name, shape_node
from acceld.nki.source.signatures import of_call, positional
from acceld.parsing import parse_expression

PRODUCTS = ("nl.matmul", "nisa.nc_matmul")
_COMMUTING = ("add", "multiply", "maximum", "minimum", "equal", "not_equal")
_WITH_COLUMNS = ("tensor_scalar", "activation", "scalar_tensor_tensor")
"""Instructions that take operands with one element in each partition."""


class Function(Values):
    """Translate the statements of one function, with the facts that a trace found about its expressions."""

    # statements

    def statement(self, node: ast.stmt) -> list[ast.stmt]:
        """Return the statements that replace a simple statement. Raise Unportable if the statement can not be
        translated.
        """
        self.out = []
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            self._assign(node, node.targets[0])
        elif (
            isinstance(node, ast.AnnAssign)
            and node.value is not None
            and isinstance(node.target, ast.Name)
            and self._is_api(node.value)
        ):
            self._assign(ast.copy_location(ast.Assign([node.target], node.value), node), node.target)
        elif isinstance(node, ast.AugAssign):
            self._update(node)
        elif isinstance(node, ast.Expr):
            self._expression(node)
        elif isinstance(node, ast.Return):
            value = None if node.value is None else self.value(node.value)
            self.out.append(ast.Return(value))
        else:
            self.out.append(self._plain(node))
        return self.out

    def _is_api(self, node: ast.expr) -> bool:
        fact = self.facts.of(node)
        return fact is not None and fact.kind in ("tile", "grid", "predicate")

    def header(self, node: ast.expr) -> ast.expr:
        """Return the translated expression in the header of a ``for``, ``if``, ``while`` or ``with``.

        Raise Unportable if the expression computes tiles.
        """
        self.out = []
        found = self.value(node)
        if self.out:
            raise Unportable(
                node.lineno,
                "a tile is computed in the header of a block",
                "compute the tile on a line before the block",
            )
        return found

    def _plain(self, node: ast.stmt) -> ast.stmt:
        made = copy.copy(node)
        for field_name, value in ast.iter_fields(node):
            if isinstance(value, ast.expr):
                setattr(made, field_name, self.value(value))
            elif isinstance(value, list) and value and isinstance(value[0], ast.expr):
                setattr(made, field_name, [self.value(one) for one in value])
        return made

    def _expression(self, node: ast.Expr) -> None:
        value = node.value
        if isinstance(value, ast.Call):
            word = self.names.of(value.func)
            if word == "nl.store":
                self._store(value)
                return
            if word in ("nisa.dma_copy", "nl.atomic_rmw"):
                self._transfer(value, word)
                return
            if word.startswith("nisa.") and word[5:] in WRITES:
                self._written(value, word[5:])
                return
            op = self.op(value)
            if op is not None:
                self._temporary(op)
                return
        self.out.append(ast.Expr(self.value(value)))

    def _assign(self, node: ast.Assign, target: ast.expr) -> None:
        value = node.value
        if self._index_assignment(target, value):
            return
        if isinstance(target, ast.Name) and target.id in self.blocks and self.blocks[target.id].declaration is node:
            return  # emit nothing here, because the declaration moves into the body of a loop
        if isinstance(target, ast.Subscript) and self._is_tile(target.value):
            self._write(target, value)
            return
        op = self.op(value)
        if op is None:
            self._reassign(node, self.value(value), target)
        elif isinstance(target, ast.Name) and not self._reads(op, target.id):
            self._declare(target.id, op)
            self._emit(op, name(target.id))
        else:
            self._reassign(node, self._temporary(op), target)

    def _reassign(self, node: ast.Assign, value: ast.expr, target: ast.expr) -> None:
        """Emit the assignment ``node`` again, with ``value`` as its right side and ``target`` as its left side."""
        made = copy.copy(node)
        made.value = value
        if isinstance(target, ast.Subscript):
            target = ast.Subscript(self.value(target.value), self.value(target.slice), ast.Store())
        made.targets = [target]
        self.out.append(made)

    def _reads(self, op: Op, variable: str) -> bool:
        return any(isinstance(one, ast.Name) and one.id == variable for use in op.uses for one in ast.walk(use))

    def _index_assignment(self, target: ast.expr, value: ast.expr) -> bool:
        """Record the index grid or mask that an assignment defines, and return True: the port leaves the assignment
        out.

        Return False, and record nothing, for any other assignment.
        """
        if isinstance(target, ast.Name):
            grid = self.grid(value)
            if grid is not None and grid.rank:
                self.grids[target.id] = grid
                return True
            mesh = self._mesh(value)
            if mesh is not None:
                self.grids[target.id] = mesh
                return True
            if self._is_mask(value):
                self.masks[target.id] = value
                return True
            self.grids.pop(target.id, None)
            self.masks.pop(target.id, None)
        if isinstance(target, ast.Tuple) and all(isinstance(one, ast.Name) for one in target.elts):
            mesh = self._mesh(value)
            found: Sequence[Grid | None] | None = mesh
            if mesh is None and isinstance(value, ast.Tuple):
                found = [self.grid(one) for one in value.elts]
            if found and all(one is not None and one.rank for one in found):
                for one, grid in zip(target.elts, found, strict=True):
                    assert isinstance(one, ast.Name) and grid is not None
                    self.grids[one.id] = grid
                return True
        return False

    def _is_mask(self, value: ast.expr) -> bool:
        if isinstance(value, ast.Compare):
            return any((grid := self.grid(side)) is not None and grid.rank for side in (value.left, *value.comparators))
        if isinstance(value, ast.BinOp) and isinstance(value.op, ast.BitAnd):
            return self._is_mask(value.left) or self._is_mask(value.right)
        if isinstance(value, ast.BoolOp):
            return any(map(self._is_mask, value.values))
        return isinstance(value, ast.Name) and value.id in self.masks

    def _write(self, target: ast.Subscript, value: ast.expr) -> None:
        """Translate the assignment ``target[...] = value``."""
        op = self.op(value)
        if op is not None:
            if self._fits(op, target):
                self._emit(op, target)
                return
            clip = self._result_clip(op, self.clip(op.mask))
            source: ast.expr = self._temporary(op)
            source = self.part(source, self.facts.of(value), clip)
            self._copy(self.subscript(target, clip), source)
            return
        fact = self.facts.of(value)
        if (fact is not None and fact.kind == "number") or isinstance(value, ast.Constant):
            self._line("nisa.memset", dst=self.subscript(target, Clip()), value=self.value(value))
            return
        self._copy(self.subscript(target, Clip()), self.value(value))

    def _fits(self, op: Op, target: ast.expr) -> bool:
        """Tell whether the instruction may write ``target`` directly, without a temporary tile."""
        made, wanted = self.facts.of(op.node), self._tile_fact(target)
        if made is None or wanted is None or self._overlaps(op, target):
            return False
        if wanted.space == "psum" and op.dma:
            return False
        if made.space == "psum" and wanted.space != "psum":
            return False
        floats = made.dtype == "float32" and "float" in wanted.dtype
        if wanted.shape and made.shape != wanted.shape and not self._same_but_ones(made.shape, wanted.shape):
            return False
        return op.dma or made.dtype == wanted.dtype or floats

    @staticmethod
    def _same_but_ones(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
        return [n for n in one if n != 1] == [n for n in other if n != 1]

    def _overlaps(self, op: Op, target: ast.expr) -> bool:
        """Tell whether the instruction reads and writes the same tensor, but at different parts."""
        if not isinstance(target, ast.Subscript) or not isinstance(target.value, ast.Name):
            return False
        for use in op.uses:
            for one in ast.walk(use):
                same = isinstance(one, ast.Subscript) and ast.unparse(one.value) == target.value.id
                if same and isinstance(one, ast.Subscript) and ast.unparse(one.slice) != ast.unparse(target.slice):
                    return True
        return False

    def _update(self, node: ast.AugAssign) -> None:
        """Translate an augmented assignment such as ``target += value``. It stays as it is unless the target is a tile."""
        target, value = node.target, node.value
        base = target.value if isinstance(target, ast.Subscript) else target
        if not self._is_tile(base):
            made = copy.copy(node)
            made.value = self.value(value)
            self.out.append(made)
            return
        word = {"Add": "add", "Sub": "subtract", "Mult": "multiply", "Div": "divide"}.get(type(node.op).__name__)
        if word is None:
            raise Unportable(node.lineno, f"{ast.unparse(node)[:60]} changes a tile in place", "use nisa.tensor_tensor")

        def place(clip: Clip) -> ast.expr:
            if isinstance(target, ast.Subscript):
                return self.subscript(target, clip)
            return self.part(name(ast.unparse(target)), None, clip)

        product = isinstance(value, ast.Call) and self.names.of(value.func) in PRODUCTS
        fact = self._tile_fact(target) if isinstance(target, ast.Subscript) else self._variable(base)
        if product and word == "add" and fact is not None and fact.space == "psum":
            added = self.op(value)
            assert added is not None
            clip = self.clip(added.mask)
            self._guarded(clip, lambda: added.emit(place(self._result_clip(added, clip)), clip))
            return
        op = self.op(value)
        clip = self.clip(op.mask) if op is not None else Clip()
        source = self.part(self._temporary(op), self.facts.of(value), clip) if op is not None else self.value(value)
        source_fact = self.facts.of(value)
        dst = place(clip)
        if word == "divide":
            word, source = "multiply", self._inverse(source, source_fact)
        if (
            source_fact is not None
            and source_fact.kind == "tile"
            and not (fact is not None and fact.shape and self._column(source_fact, fact))
        ):
            self._line("nisa.tensor_tensor", dst=dst, data1=dst, data2=source, op=parse_expression(f"nl.{word}"))
        else:
            self._line("nisa.tensor_scalar", dst=dst, data=dst, op0=parse_expression(f"nl.{word}"), operand0=source)

    def _copy(self, dst: ast.expr, src: ast.expr) -> None:
        self._line("nisa.tensor_copy", dst=dst, src=src)

    def _line(self, function: str, **kwargs: ast.expr | None) -> None:
        self.out.append(ast.Expr(call(function, **kwargs)))

    # instructions with a destination

    def _temporary(self, op: Op) -> ast.expr:
        variable = self._fresh("tile")
        self._declare(variable, op)
        self._emit(op, name(variable))
        return name(variable)

    def _declare(self, variable: str, op: Op) -> None:
        fact = self.facts.of(op.node)
        if fact is None:
            raise Unportable(
                op.node.lineno,
                "this line was not traced, so the shape of the result is not known",
                "give arguments that reach this line",
            )
        dtype: ast.expr = op.dtype if op.dtype is not None else parse_expression(f"nl.{dtype_word(fact.dtype)}")
        if not fact.dtype and op.dtype is None:
            if op.like is None:
                raise Unportable(
                    op.node.lineno, "the result's dtype differs from call to call", "pass dtype= in the call"
                )
            dtype = ast.Attribute(self.value(op.like), "dtype", ast.Load())
        buffer = "nl.psum" if fact.space == "psum" else "nl.sbuf"
        shape = self._shape(op, fact)
        made = call("nl.ndarray", shape, dtype=dtype, buffer=parse_expression(buffer))
        self.out.append(ast.Assign([ast.Name(variable, ast.Store())], made))
        self.made.add(variable)

    def _shape(self, op: Op, fact: Fact) -> ast.expr:
        like = op.like
        if like is not None and isinstance(like, ast.Name) and self._same_shapes(like, op.node):
            return ast.Attribute(name(like.id), "shape", ast.Load())
        if like is not None and isinstance(like, ast.Subscript):
            sizes = self._sizes(like)
            if sizes is not None and len(sizes) >= 2 and (not fact.shape or len(sizes) == len(fact.shape)):
                return ast.Tuple(sizes, ast.Load())
        if fact.shape:
            return shape_node(fact.shape)
        if like is not None and self._same_shapes(like, op.node):
            return ast.Attribute(self.value(like), "shape", ast.Load())
        raise Unportable(
            op.node.lineno,
            "the result's shape differs from call to call",
            "declare the result with nl.ndarray for each case",
        )

    def _same_shapes(self, one: ast.expr, other: ast.expr) -> bool:
        first, second = self.facts.visits(one), self.facts.visits(other)
        return bool(first) and [f.shape for f in first] == [f.shape for f in second]

    def _sizes(self, node: ast.Subscript) -> list[ast.expr] | None:
        """Return the size, as an expression, of each axis that an index of index grids selects; None for any other
        index.
        """
        items = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        grids = [self.grid(one) for one in items]
        rank = max((grid.rank for grid in grids if grid is not None), default=0)
        if not rank:
            return None
        sizes: list[ast.expr] = [ast.Constant(1)] * rank
        for grid in grids:
            for atom in grid.atoms if grid is not None else ():
                if atom.size.number != 1:
                    sizes[rank - atom.axis] = atom.size.node
        return sizes

    def _emit(self, op: Op, target: ast.expr) -> None:
        """Emit the instruction with ``target`` as its destination: the target of an assignment in the source, or a
        new tile.
        """
        clip = self.clip(op.mask)

        def write() -> None:
            place = self._result_clip(op, clip)
            if isinstance(target, ast.Subscript):
                dst = self.subscript(target, place)
            else:
                dst = self.part(target, self.facts.of(op.node), place)
            op.emit(dst, clip)

        self._guarded(clip, write)

    def _result_clip(self, op: Op, clip: Clip) -> Clip:
        """Return the part of an instruction's result that the mask of the instruction keeps."""
        if not clip.axes or op.data is None:
            return clip
        if isinstance(op.node, ast.Call) and self.names.of(op.node.func) in PRODUCTS:
            return self._product_clips(op.uses[0], op.uses[1], clip)[0]
        data, result = self.facts.of(op.data), self.facts.of(op.node)
        if data is None or result is None or not data.shape or not result.shape:
            raise Unportable(op.node.lineno, "a mask limits an operand whose shape is not known", "slice the operand")
        lead, place = len(data.shape), len(result.shape)
        return Clip(
            {place: clip.stops[lead]} if lead in clip.stops else {},
            {place: clip.starts[lead]} if lead in clip.starts else {},
            clip.guards,
        )

    def _product_clips(self, stationary: ast.expr, moving: ast.expr, clip: Clip) -> tuple[Clip, Clip, Clip]:
        """Return the parts that a matrix product's mask keeps: of the result, of the stationary operand and of the
        moving operand.

        The rows of both operands are the contraction dimension.
        """
        left, right = self.facts.of(stationary), self.facts.of(moving)
        if left is None or right is None or clip.starts or len(left.shape) != 2 or len(right.shape) != 2:
            raise Unportable(
                stationary.lineno, "this mask of a product can not become slices", "slice the operands of the product"
            )
        rows = {2: clip.stops[2]} if 2 in clip.stops else {}
        if 1 not in clip.stops:
            return Clip(), Clip(rows), Clip(rows)
        width = self.widths.get(ast.unparse(clip.stops[1]))
        if width is not None and width != right.shape[1]:
            return Clip({2: clip.stops[1]}), Clip({**rows, 1: clip.stops[1]}), Clip(rows)
        return Clip({1: clip.stops[1]}), Clip(rows), Clip({**rows, 1: clip.stops[1]})

    def _store(self, node: ast.Call) -> None:
        args = self._bound(node, ("dst", "value"))
        target, value = args["dst"], args["value"]
        clip = self.clip(args.get("mask"))
        self._guarded(clip, lambda: self._stored(node, target, value, clip))

    def _stored(self, node: ast.Call, target: ast.expr, value: ast.expr, clip: Clip) -> None:
        fact = self.facts.of(value)
        source = self.value(value, clip)
        if fact is not None and fact.kind != "tile":
            shape = self._tile_fact(target)
            if shape is None or not shape.shape:
                raise Unportable(node.lineno, "a number is stored to HBM", "fill a tile with nisa.memset and copy it")
            made = self._new("tile", shape_node(shape.shape), dtype_word(shape.dtype))
            self._line("nisa.memset", dst=made, value=source)
            source = self.part(made, shape, clip)
        if fact is not None and fact.space == "psum":
            source = self._in_sbuf(source, fact)
        self._line("nisa.dma_copy", dst=self._at(target, clip), src=source)

    def _new(self, wish: str, shape: ast.expr, dtype: ast.expr | str, buffer: str = "nl.sbuf") -> ast.Name:
        """Declare a tile under an unused name like ``wish``, and return the name."""
        variable = self._fresh(wish)
        kind = parse_expression(f"nl.{dtype}") if isinstance(dtype, str) else dtype
        made = call("nl.ndarray", shape, dtype=kind, buffer=parse_expression(buffer))
        self.out.append(ast.Assign([ast.Name(variable, ast.Store())], made))
        return name(variable)

    def _in_sbuf(self, source: ast.expr, fact: Fact) -> ast.expr:
        """Copy a tile from PSUM to SBUF, and return the copy. DMA and GpSimd can not read PSUM."""
        dtype = dtype_word(fact.dtype) if fact.dtype else ast.Attribute(source, "dtype", ast.Load())
        made = self._new("tile", ast.Attribute(source, "shape", ast.Load()), dtype)
        self._copy(made, source)
        return made

    def _operand(self, node: ast.expr, clip: Clip) -> ast.expr:
        """Translate an operand of an engine that can not read PSUM: a tile in PSUM is first copied to SBUF."""
        found, fact = self.value(node, clip), self.facts.of(node)
        return self._in_sbuf(found, fact) if fact is not None and fact.space == "psum" else found

    def _guarded(self, clip: Clip, write: Callable[[], None]) -> None:
        before, self.out = self.out, []
        write()
        made, self.out = self.out, before
        for guard in reversed(clip.guards):
            made = [ast.If(guard, made, [])]
        self.out.extend(made)

    def _transfer(self, node: ast.Call, word: str) -> None:
        atomic = word == "nl.atomic_rmw"
        args = self._bound(node, ("dst", "value", "op") if atomic else ("dst", "src"))
        source = args["value" if atomic else "src"]
        fold = args.get("op" if atomic else "dst_rmw_op")
        clip = self.clip(args.get("mask"))
        target = args["dst"]

        def write() -> None:
            dst = self._at(target, clip)
            src = self.value(source, clip)
            if fold is not None:
                self._line(
                    "nisa.dma_compute", dst=dst, srcs=ast.List([dst, src], ast.Load()), reduce_op=self.operation(fold)
                )
                return
            oob, dge = args.get("oob_mode"), args.get("dge_mode")
            self._line(
                "nisa.dma_copy", dst=dst, src=src,
                oob_mode=None if oob is None else self.value(oob),
                dge_mode=None if dge is None or "unknown" in ast.unparse(dge) else self.value(dge),
            )  # fmt: skip

        self._guarded(clip, write)

    def _written(self, node: ast.Call, word: str) -> None:
        """Translate an instruction of ``nisa`` whose call in the legacy API already names its destination (the
        argument ``dst``). ``word`` is the instruction's name.
        """
        args = self._bound(node, positional("nki_legacy", "isa")[word])
        clip = self.clip(args.pop("mask", None))
        args.pop("dtype", None)
        target = args.pop("dst")
        self._guarded(clip, lambda: self._instruction(word, args, self._at(target, clip), clip))

    def _at(self, target: ast.expr, clip: Clip) -> ast.expr:
        if isinstance(target, ast.Subscript):
            return self.subscript(target, clip)
        return self.part(self.value(target), self.facts.of(target), clip)

    def _instruction(self, word: str, args: Mapping[str, ast.expr], dst: ast.expr, clip: Clip) -> None:
        if word == "tensor_tensor" and (scaled := self._with_column(args)) is not None:
            word, args = "tensor_scalar", scaled
        made: dict[str, ast.expr | None] = {"dst": dst}
        for key, value in args.items():
            text = ast.unparse(value)
            if (key in ("engine", "dge_mode") and "unknown" in text) or text in ("None", "False"):
                continue
            if key in ("op", "op0", "op1", "reduce_op", "comp_op0", "comp_op1"):
                made[key] = self.operation(value)
                continue
            if key == "perf_mode" and "double_row" in text:
                made[key] = parse_expression("nisa.matmul_perf_mode.double_row")
                continue
            found = self.value(value, clip)
            fact = self.facts.of(value)
            if key in ("operand0", "scale", "operand1") and word in _WITH_COLUMNS:
                tile = word == "scalar_tensor_tensor" and key == "operand1"
                bits = any(ast.unparse(self.operation(args[k]))[3:] in BITS for k in ("op0", "op1") if k in args)
                found = found if tile or bits else self._wide(found, fact)
            if (word in GPSIMD or key in ("stationary", "moving")) and fact is not None and fact.space == "psum":
                found = self._in_sbuf(found, fact)
            made[key] = found
        self._without_division(word, args, made)
        self._line(f"nisa.{word}", **made)

    def _with_column(self, args: Mapping[str, ast.expr]) -> dict[str, ast.expr] | None:
        """Return the arguments of the ``tensor_scalar`` that replaces this ``tensor_tensor``, if one of its tiles has
        one element a partition (the legacy API repeats that element along the row). Return None for any other
        ``tensor_tensor``.
        """
        first, second = (self.facts.of(args[key]) for key in ("data1", "data2"))
        if first is None or second is None or "tile" != first.kind or "tile" != second.kind:
            return None
        sizes = [prod(one.shape[1:]) for one in (first, second)]
        if first.shape[:1] != second.shape[:1] or sizes.count(1) != 1:
            return None
        data, operand = ("data1", "data2") if sizes[1] == 1 else ("data2", "data1")
        found = {key: value for key, value in args.items() if key not in ("data1", "data2", "op")}
        found |= {"data": args[data], "op0": args["op"], "operand0": args[operand]}
        turned = operand == "data1" and ast.unparse(self.operation(args["op"]))[3:] not in _COMMUTING
        return found | ({"reverse0": ast.Constant(True)} if turned else {})

    def _without_division(self, word: str, args: Mapping[str, ast.expr], made: dict[str, ast.expr | None]) -> None:
        """Replace divisions in the arguments ``made`` of an instruction by multiplications with reciprocals, because no
        engine divides.
        """
        for key, operand in (("op", "data2"), ("op0", "operand0"), ("op1", "operand1")):
            function = made.get(key)
            shown = "" if function is None else ast.unparse(function)
            if shown in ("nl.mod", "nl.fmod"):
                raise Unportable(
                    args[key].lineno,
                    f"no engine computes {shown}",
                    WITHOUT[shown[3:]],
                )
            divisor = made.get(operand)
            if shown != "nl.divide" or divisor is None:
                continue
            turned = made.get("reverse0" if key == "op0" else "reverse1")
            if turned is None:
                made[key] = parse_expression("nl.multiply")
                made[operand] = self._inverse(divisor, self.facts.of(args[operand]))
            elif word == "tensor_scalar" and key == "op0" and made.get("op1") is None:
                made |= {
                    "op0": parse_expression("nl.reciprocal"),
                    "op1": parse_expression("nl.multiply"),
                    "operand1": divisor,
                }
                del made["reverse0"], made["operand0"]
            else:
                raise Unportable(
                    args[operand].lineno,
                    f"nisa.{word} divides by its own result",
                    "use nisa.reciprocal in an instruction of its own",
                )

    def _plain_flags(self, args: Mapping[str, ast.expr]) -> dict[str, ast.expr | None]:
        """Return the translated arguments that are not tiles, without those whose value is False or None, the defaults."""
        return {k: self.value(v) for k, v in args.items() if ast.unparse(v) not in ("False", "None")}

    def operation(self, node: ast.expr) -> ast.expr:
        """Return the current API's expression for an operator such as ``np.add``."""
        word = self.names.of(node)
        found = operation_name(word)
        return parse_expression(found) if found else self.value(node)

    def _mask_and_dtype(self, args: Mapping[str, ast.expr]) -> tuple[ast.expr | None, ast.expr | None]:
        given = {key: args[key] for key in ("mask", "dtype") if key in args and ast.unparse(args[key]) != "None"}
        return given.get("mask"), self.value(given["dtype"]) if "dtype" in given else None

    def _bound(self, node: ast.Call, parameters: Sequence[str]) -> dict[str, ast.expr]:
        if any(isinstance(one, ast.Starred) for one in node.args) or any(k.arg is None for k in node.keywords):
            raise Unportable(
                node.lineno,
                f"{ast.unparse(node.func)} takes its arguments from a list or dict",
                "write each argument out",
            )
        if len(node.args) > len(parameters):
            raise Unportable(
                node.lineno,
                f"{ast.unparse(node.func)} has {len(node.args)} positional arguments, but takes {len(parameters)}",
                "pass the further arguments by name",
            )
        args = dict(zip(parameters, node.args, strict=False))
        return args | {k.arg: k.value for k in node.keywords if k.arg is not None}

    # operations

    def op(self, node: ast.expr) -> Op | None:
        """Return the instruction that computes an expression; None if the expression computes no tile."""
        fact = self.facts.of(node)
        if isinstance(node, ast.BinOp | ast.UnaryOp | ast.Compare):
            return self._operator(node, fact)
        if not isinstance(node, ast.Call):
            return None
        word = self.names.of(node.func)
        if isinstance(node.func, ast.Attribute) and node.func.attr == "astype" and self._is_tile(node.func.value):
            source = node.func.value
            return self._plain_op(node, "nisa.tensor_copy", {"src": source}, like=source)
        space, _, function = word.partition(".")
        if space == "nl" and fact is not None and fact.kind == "tile":
            return self._language(node, function)
        if space == "nisa" and function in INSTRUCTIONS - WRITES:
            return self._isa(node, function)
        if space in ("nl", "nisa") and fact is None and (function in LANGUAGE or function in INSTRUCTIONS):
            raise Unportable(
                node.lineno,
                f"{word} is in a branch that these arguments do not take",
                "give arguments that reach this line",
            )
        return None

    def _operator(self, node: ast.BinOp | ast.UnaryOp | ast.Compare, fact: Fact | None) -> Op | None:
        if fact is None or fact.kind != "tile":
            return None
        word = OPERATORS.get(type(node.op).__name__) if isinstance(node, ast.BinOp) else None
        if isinstance(node, ast.BinOp) and word is not None:
            return self._binary(node, word, node.left, node.right)
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            word = COMPARISONS.get(type(node.ops[0]).__name__)
            if word is not None:
                return self._binary(node, word, node.left, node.comparators[0])
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return self._negative(node, node.operand)
        raise Unportable(
            node.lineno,
            f"no function of nisa replaces the operator in {ast.unparse(node)[:60]}",
            "write the operator with functions of nisa",
        )

    def _binary(self, node: ast.expr, word: str, x: ast.expr, y: ast.expr) -> Op:
        left, right = self.facts.of(x), self.facts.of(y)
        tiles = [f for f in (left, right) if f is not None and f.kind == "tile"]
        if word in ("mod", "fmod"):
            raise Unportable(node.lineno, f"no engine computes nl.{word}", WITHOUT[word])
        if word == "divide":
            return self._quotient(node, x, y)
        operation = parse_expression(f"nl.{word}")
        if len(tiles) == 2:
            assert left is not None and right is not None
            if self._column(right, left):
                return self._scalar(node, operation, x, y, False)
            if self._column(left, right):
                return self._scalar(node, operation, y, x, True)
            result = self.facts.of(node)
            big = x if result is not None and left.shape == result.shape else y

            def emit(dst: ast.expr, clip: Clip) -> None:
                sides = []
                for side, fact in ((x, left), (y, right)):
                    found = self.value(side, clip)
                    shape = result.shape if result is not None else ()
                    if shape and fact.shape and len(shape) == len(fact.shape) and fact.shape[0] == 1 < shape[0]:
                        wide = shape_node((shape[0], *fact.shape[1:]))
                        found = self._hoisted(call("nl.broadcast_to", found, shape=wide))
                    found = self._repeated(found, fact.shape, shape)
                    if word == "power" and fact.space == "psum":
                        found = self._in_sbuf(found, fact)
                    sides.append(found)
                self._line("nisa.tensor_tensor", dst=dst, data1=sides[0], data2=sides[1], op=operation)

            return Op(node, emit, [x, y], like=big)
        if left is not None and left.kind == "tile":
            return self._scalar(node, operation, x, y, False)
        return self._scalar(node, operation, y, x, True)

    @staticmethod
    def _repeated(source: ast.expr, shape: tuple[int, ...], wanted: tuple[int, ...]) -> ast.expr:
        """Return ``source`` as a tile with the shape ``wanted``. Free axes of one element are repeated, as in numpy's
        broadcasting.
        """
        if len(shape) != len(wanted):
            return source
        for axis in range(1, len(shape)):
            if shape[axis] == 1 < wanted[axis]:
                source = call(f"{ast.unparse(source)}.broadcast", ast.Constant(axis), ast.Constant(wanted[axis]))
        return source

    def _inverse(self, source: ast.expr, fact: Fact | None) -> ast.expr:
        """Return the reciprocal of ``source``. Callers multiply by the reciprocal, because no engine of nki divides."""
        if fact is None or fact.kind != "tile":
            return ast.BinOp(ast.Constant(1.0), ast.Div(), source)
        made = self._new("inverse", ast.Attribute(source, "shape", ast.Load()), "float32")
        self._line("nisa.reciprocal", dst=made, data=source)
        return made

    def _quotient(self, node: ast.expr, x: ast.expr, y: ast.expr) -> Op:
        """Return the instruction for a division: it multiplies the dividend by the reciprocal of the divisor."""
        left, right = self.facts.of(x), self.facts.of(y)
        multiply = parse_expression("nl.multiply")
        over_tile = right is not None and right.kind == "tile"
        of_tile = left is not None and left.kind == "tile"
        result = self.facts.of(node)

        def emit(dst: ast.expr, clip: Clip) -> None:
            divisor, dividend = self.value(y, clip), self.value(x, clip)
            if not of_tile and ast.unparse(dividend) in ("1", "1.0"):
                self._line("nisa.reciprocal", dst=dst, data=divisor)
                return
            inverse = self._inverse(divisor, right)
            if of_tile and over_tile and left is not None and right is not None:
                if self._column(left, right):
                    self._line(
                        "nisa.tensor_scalar", dst=dst, data=inverse, op0=multiply, operand0=self._wide(dividend, left)
                    )
                    return
                if not self._column(right, left):
                    shape = result.shape if result is not None else ()
                    sides = [self._repeated(dividend, left.shape, shape), self._repeated(inverse, right.shape, shape)]
                    self._line("nisa.tensor_tensor", dst=dst, data1=sides[0], data2=sides[1], op=multiply)
                    return
            data, operand = (dividend, inverse) if of_tile else (inverse, dividend)
            self._line("nisa.tensor_scalar", dst=dst, data=data, op0=multiply, operand0=operand)

        like = (
            x
            if of_tile and not (over_tile and left is not None and right is not None and self._column(left, right))
            else y
        )
        return Op(node, emit, [x, y], like=like)

    def _wide(self, source: ast.expr, fact: Fact | None) -> ast.expr:
        """Return a tile of one element a partition as float32, because arithmetic requires that dtype of such an
        operand.
        """
        if fact is None or fact.kind != "tile" or fact.dtype in ("float32", ""):
            return source
        made = self._new("column", ast.Attribute(source, "shape", ast.Load()), "float32")
        self._copy(made, source)
        return made

    def _scalar(self, node: ast.expr, operation: ast.expr, tile: ast.expr, scalar: ast.expr, reverse: bool) -> Op:
        commutes = ast.unparse(operation)[3:] in _COMMUTING

        def emit(dst: ast.expr, clip: Clip) -> None:
            turned = ast.Constant(True) if reverse and not commutes else None
            data, operand = self.value(tile, clip), self.value(scalar, clip)
            fact = self.facts.of(tile)
            if ast.unparse(operation) == "nl.power" and fact is not None and fact.space == "psum":
                data = self._in_sbuf(data, fact)
            if ast.unparse(operation)[3:] not in BITS:
                operand = self._wide(operand, self.facts.of(scalar))
            self._line("nisa.tensor_scalar", dst=dst, data=data, op0=operation, operand0=operand, reverse0=turned)

        return Op(node, emit, [tile, scalar], like=tile)

    def _negative(self, node: ast.expr, x: ast.expr) -> Op:
        fixed: Mapping[str, ast.expr] = {"op0": parse_expression("nl.multiply"), "operand0": ast.Constant(-1.0)}
        return self._plain_op(node, "nisa.tensor_scalar", {"data": x}, like=x, fixed=fixed)

    def _plain_op(
        self, node: ast.expr, function: str, operands: Mapping[str, ast.expr], *,
        fixed: Mapping[str, ast.expr | None] = MappingProxyType({}), like: ast.expr | None = None,
        dma: bool = False, data: ast.expr | None = None,
    ) -> Op:  # fmt: skip
        """Return the instruction ``function`` that reads ``operands``. ``fixed`` has the instruction's other arguments."""

        def emit(dst: ast.expr, clip: Clip) -> None:
            given = {**fixed, **{key: self.value(one, clip) for key, one in operands.items()}}
            order = [*of_call("nki", function.partition(".")[2]), *given]
            self._line(function, dst=dst, **{key: given[key] for key in sorted(given, key=order.index)})

        return Op(node, emit, list(operands.values()), like=like, dma=dma, data=data)

    def _language(self, node: ast.Call, word: str) -> Op | None:
        """Return the instruction for the function ``word`` of ``nl``, which computes a tile; None if the call needs no
        change.
        """
        if word not in LANGUAGE:
            return None
        args = self._bound(node, positional("nki_legacy", "language")[word])
        mask, dtype = self._mask_and_dtype(args)
        if word in SAME and mask is None:
            return None  # the call stays, because the current API has the function too
        op = self._function(node, word, args)
        dtype = None if word == "matmul" else dtype  # the legacy API ignores the dtype argument of a matmul
        return None if op is None else replace(op, mask=mask, dtype=dtype)

    def _function(self, node: ast.Call, word: str, args: Mapping[str, ast.expr]) -> Op | None:
        """Return the instruction for the function ``word`` of ``nl``, without its mask and dtype; None if the call
        needs no change.
        """
        if word in ("load", "copy", "static_cast"):
            function = "nisa.dma_copy" if word == "load" else "nisa.tensor_copy"
            src = args["input_data" if word == "static_cast" else "src"]
            return self._plain_op(node, function, {"src": src}, like=src, dma=word == "load")
        if word in TWO_TILES:
            tiles = any(self._is_tile(args[k]) for k in ("x", "y"))
            return self._binary(node, word, args["x"], args["y"]) if tiles else None
        if word == "negative":
            return self._negative(node, args["x"])
        if word == "reciprocal":
            return self._plain_op(node, "nisa.reciprocal", {"data": args["x"]}, like=args["x"])
        if word in ACTIVATIONS:
            fixed = {"op": parse_expression(f"nl.{word}")}
            return self._plain_op(node, "nisa.activation", {"data": args["x"]}, like=args["x"], fixed=fixed)
        if word in REDUCTIONS:
            return self._reduction(node, REDUCTIONS[word], args)
        if word == "matmul":
            return self._product(node, args)
        if word == "transpose":
            return self._plain_op(node, "nisa.nc_transpose", {"data": args["x"]})
        if word == "loop_reduce":
            return self._loop_reduce(node, args)
        if word in ("full", "zeros", "ones"):
            self._filled(node, word)
            return None
        if word == "rms_norm":
            raise Unportable(
                node.lineno, "NKI 0.6 does not compile nl.rms_norm", "write the norm with nl.square and nl.rsqrt"
            )
        return self._same(node, word, args) if word in SAME else None

    def _reduction(self, node: ast.Call, operation: str, args: Mapping[str, ast.expr]) -> Op:
        x, keep = args["x"], args.get("keepdims")
        fixed = {"op": parse_expression(operation), "axis": self.value(args["axis"])}
        fixed |= {} if keep is None else {"keepdims": self.value(keep)}
        return self._plain_op(node, "nisa.tensor_reduce", {"data": x}, fixed=fixed, data=x)

    def _product(self, node: ast.Call, args: Mapping[str, ast.expr]) -> Op:
        x, y, turned = args["x"], args["y"], args.get("transpose_x")

        def emit(dst: ast.expr, clip: Clip) -> None:
            _, first, second = self._product_clips(x, y, clip) if clip.axes else (clip, clip, clip)
            left, right = self._operand(x, first), self._operand(y, second)
            if turned is None or ast.unparse(turned) != "True":
                fact = self.facts.of(x)
                if fact is None or len(fact.shape) != 2:
                    raise Unportable(
                        node.lineno, "the first operand of a product is not known to be a matrix", "use nisa.nc_matmul"
                    )
                made = self._new("tile", shape_node(reversed(fact.shape)), dtype_word(fact.dtype), "nl.psum")
                self._line("nisa.nc_transpose", dst=made, data=left)
                left = self._in_sbuf(made, fact)
            self._line("nisa.nc_matmul", dst=dst, stationary=left, moving=right)

        return Op(node, emit, [x, y], data=x)

    def _loop_reduce(self, node: ast.Call, args: Mapping[str, ast.expr]) -> Op:
        x, fold, loops = args["x"], self.operation(args["op"]), args["loop_indices"]
        if not isinstance(loops, ast.List | ast.Tuple):
            raise Unportable(
                node.lineno, "loop_indices of loop_reduce is not a list of loops", "accumulate with nisa.tensor_tensor"
            )
        first = [ast.Compare(self.value(one), [ast.Eq()], [ast.Constant(0)]) for one in loops.elts]
        condition: ast.expr = first[0] if len(first) == 1 else ast.BoolOp(ast.And(), list(first))

        def emit(dst: ast.expr, clip: Clip) -> None:
            source = self.value(x, clip)
            fresh = [ast.Expr(call("nisa.tensor_copy", dst=dst, src=source))]
            more = [ast.Expr(call("nisa.tensor_tensor", dst=dst, data1=dst, data2=source, op=fold))]
            self.out.append(ast.If(condition, fresh, more))  # type: ignore[arg-type]  # lists are invariant

        return Op(node, emit, [x], like=x)

    def _filled(self, node: ast.Call, word: str) -> None:
        fact = self.facts.of(node)
        if fact is None or fact.space == "hbm":
            raise Unportable(
                node.lineno,
                f"nl.{word} can not fill a tensor in HBM",
                "declare the tensor with nl.ndarray and fill it from a tile",
            )

    def declaration(self, node: ast.Call, word: str) -> ast.expr:
        """Return the declaration of a tensor without ``par_dim``, ``lazy_initialization`` and addresses."""
        args = self._bound(node, positional("nki_legacy", "language")[word])
        shape = args.get("shape")
        made: dict[str, ast.expr | None] = {}
        fact = self.facts.of(node)
        space = fact.space if fact is not None else ""
        for key, value in args.items():
            if key in ("lazy_initialization", "shape", "fill_value", "a", "x") or (
                key == "name" and ast.unparse(value) == "''"
            ):
                continue
            made[key] = self._buffer(value, space) if key == "buffer" else self.value(value)
        if word == "zeros" and space == "psum":
            # zeros are not needed: the first product of a group overwrites, and a product may not add to a memset
            word = "ndarray"
        if shape is None:
            like = args.get("a", args.get("x"))
            assert like is not None
            return call(f"nl.{word}", self.value(like), **made)
        if word == "full":
            return call("nl.full", self.value(shape), self.value(args["fill_value"]), **made)
        return call(f"nl.{word}", self.value(shape), **made)

    def _buffer(self, value: ast.expr, space: str) -> ast.expr:
        word = self.names.of(value.func if isinstance(value, ast.Call) else value)
        if word.startswith("nl.") or isinstance(value, ast.Name) or not space:
            return self.value(value)
        return parse_expression("nl.psum" if space == "psum" else "nl.sbuf")

    def _same(self, node: ast.Call, word: str, args: Mapping[str, ast.expr]) -> Op:
        """Return the instruction for a masked call of a function that both APIs have: a copy of the part of the result
        that the mask keeps.
        """

        def emit(dst: ast.expr, clip: Clip) -> None:
            kept = {k: self.value(v, clip) for k, v in args.items() if k != "mask"}
            self._copy(dst, call(f"nl.{word}", **kept))

        return Op(node, emit, list(args.values()))

    def _isa(self, node: ast.Call, word: str) -> Op:
        """Return the instruction for the function ``word`` of ``nisa``."""
        args = self._bound(node, positional("nki_legacy", "isa")[word])
        mask, dtype = self._mask_and_dtype(args)
        args = {key: one for key, one in args.items() if key not in ("mask", "dtype")}
        return replace(self._instruction_of(node, word, args), mask=mask, dtype=dtype)

    def _instruction_of(self, node: ast.Call, word: str, args: Mapping[str, ast.expr]) -> Op:
        """Return the instruction for the function ``word`` of ``nisa``, without its mask and dtype."""
        if word == "memset":
            value, engine = args["value"], args.get("engine")
            engine = None if engine is None or "unknown" in ast.unparse(engine) else self.value(engine)
            return self._plain_op(node, "nisa.memset", {}, fixed={"value": self.value(value), "engine": engine})
        if word == "iota":
            return Op(node, lambda dst, clip: self._iota(dst, args["expr"], clip, node), [])
        if word == "affine_select":
            tile = args["on_true_tile"]
            return Op(node, lambda dst, clip: self._select(dst, args, clip, node), [tile], like=tile)
        like = next((args[key] for key in ("data", "data1", "data0", "src", "on_true_tile") if key in args), None)
        if word in OTHER_SHAPE:
            like = None
        if word == "tensor_tensor" and "data2" in args:
            fact, first = self.facts.of(node), self.facts.of(args["data1"])
            like = args["data1"] if fact is None or first is None or fact.shape == first.shape else args["data2"]

        def emit(dst: ast.expr, clip: Clip) -> None:
            if word == "nc_matmul" and clip.axes:
                _, first, second = self._product_clips(args["stationary"], args["moving"], clip)
                rest = {k: v for k, v in args.items() if k not in ("stationary", "moving")}
                self._line(
                    "nisa.nc_matmul", dst=dst, stationary=self.value(args["stationary"], first),
                    moving=self.value(args["moving"], second), **self._plain_flags(rest),
                )  # fmt: skip
                return
            self._instruction(word, args, dst, clip)

        data = next((args[key] for key in ("data", "src", "stationary") if key in args), None)
        return Op(
            node, emit, list(args.values()), like=like, dma=word == "dma_transpose",
            data=data if word in OTHER_SHAPE else None,
        )  # fmt: skip

    def _iota(self, dst: ast.expr, value: ast.expr, clip: Clip, node: ast.Call) -> None:
        grid = self.grid(value)
        if grid is None or clip.axes:
            raise Unportable(
                node.lineno, "the expression of iota is not a sum of nl.arange", "give nisa.iota a pattern"
            )
        made = self.facts.of(node)
        rank = max(grid.rank, 2)
        shape = made.shape if made is not None and len(made.shape) == rank else (1,) * rank
        self._line("nisa.iota", dst=dst, **self._positions(grid, shape))

    @staticmethod
    def _positions(grid: Grid, shape: Sequence[int]) -> dict[str, ast.expr]:
        """Return the arguments with which an instruction computes the positions of ``grid`` in a tile of shape
        ``shape``.
        """
        rank, by_axis = len(shape), {atom.axis: atom for atom in grid.atoms}
        free = [by_axis.get(axis, Atom(axis, Linear(shape[rank - axis]), Linear(0))) for axis in range(rank - 1, 0, -1)]
        lead = by_axis.get(rank)
        return {
            "pattern": ast.List([ast.List([a.stride.node, a.size.node], ast.Load()) for a in free], ast.Load()),
            "offset": grid.base.node,
            "channel_multiplier": lead.stride.node if lead is not None else ast.Constant(0),
        }

    def _select(self, dst: ast.expr, args: Mapping[str, ast.expr], clip: Clip, node: ast.Call) -> None:
        pred, tile = args["pred"], args["on_true_tile"]
        if isinstance(pred, ast.Name) and pred.id in self.masks:
            pred = self.masks[pred.id]
        if isinstance(pred, ast.BinOp | ast.BoolOp) or not isinstance(pred, ast.Compare) or len(pred.ops) != 1:
            raise Unportable(
                node.lineno,
                "the predicate of affine_select has several comparisons",
                "use one affine_select for each comparison",
            )
        left, right = self.grid(pred.left), self.grid(pred.comparators[0])
        fact = self.facts.of(tile)
        word = COMPARISONS.get(type(pred.ops[0]).__name__)
        if left is None or right is None or fact is None or not fact.shape or clip.axes or word is None:
            raise Unportable(
                node.lineno,
                "the predicate of affine_select does not compare sums of nl.arange",
                "compare sums of nl.arange, loop variables and numbers",
            )
        self._line(
            "nisa.affine_select", dst=dst, **self._positions(left - right, fact.shape),
            cmp_op=parse_expression(f"nl.{word}"), on_true_tile=self._operand(tile, Clip()),
            on_false_value=self.value(args["on_false_value"]),
        )  # fmt: skip
