"""Choose instructions for element-wise nodes. One instruction does the work of several nodes where the hardware can."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from acceld.lowering.graph import Node, NotLowered, View

ALU = {
    "add": "add",
    "sub": "subtract",
    "mul": "multiply",
    "max": "maximum",
    "min": "minimum",
    "gt": "greater",
    "ge": "greater_equal",
    "lt": "less",
    "le": "less_equal",
    "eq": "equal",
    "ne": "not_equal",
    "and": "bitwise_and",
    "or": "bitwise_or",
    "xor": "bitwise_xor",
    "left_shift": "left_shift",
    "right_shift": "right_shift",
}
BITWISE = frozenset({"and", "or", "xor", "left_shift", "right_shift"})
"""Bitwise functions of integers. Their operands and results are int32."""
_SHIFTS = ("left_shift", "right_shift")
TURNED = {"gt": "lt", "lt": "gt", "ge": "le", "le": "ge"}
"""The comparison that gives the same result with swapped operands, by comparison.

All other functions of two operands commute, except ``sub`` and shifts.
"""

INVERSE = {"gt": "le", "lt": "ge", "ge": "lt", "le": "gt", "eq": "ne", "ne": "eq"}
"""The comparison of the same operands that gives the opposite result, by comparison."""

ACTIVATIONS = frozenset(
    "exp log sqrt rsqrt tanh sigmoid relu abs arctan sin cos sign erf gelu silu softplus square".split()
)
SCANS = {
    "linear": ("multiply", "add", 0.0),
    "sum": ("multiply", "add", 0.0),
    "product": ("multiply", "add", 1.0),
    "greatest": ("maximum", "maximum", -3e38),
    "least": ("minimum", "minimum", 3e38),
    "peak": ("add", "maximum", -3e38),
    "valley": ("add", "minimum", 3e38),
}
"""Scans by name, as (turn, step, start): ``result[i] = step(turn(decay[i], result[i - 1]), drive[i])``.

``turn`` and ``step`` are operations of the scan instruction. ``start`` is the value of ``result[-1]``.
"""


EIGHT, SEARCHES = 8, ("greatest_few", "places")
"""Number of elements that a search of each row finds; the searches: for the greatest elements, and for their positions."""


@dataclass(frozen=True, slots=True)
class Operand:
    """One operand of an instruction: operand number ``number``, which is operand number ``place`` of a graph node.

    ``negative`` is True if the operand has to be multiplied by -1 first. ``spread`` is True if the operand has one
    number in each row that has to be repeated along the columns. ``bits`` is True if the operand's bits are read as an
    integer.
    """

    number: int
    node: Node
    place: int
    negative: bool = False
    spread: bool = False
    bits: bool = False

    @property
    def value(self) -> View | float:
        """Return the operand in the graph: a view or a number."""
        return self.node.args[self.place]


Argument = Operand | float | str | bool | int


@dataclass(frozen=True, slots=True)
class Selected:
    """A chosen instruction: its name, its operands, and its arguments by name.

    ``reduce`` is the node of a sum over columns that the instruction computes, too; None if there is no such sum.
    """

    operation: str
    operands: tuple[Operand, ...]
    arguments: tuple[tuple[str, Argument], ...]
    reduce: Node | None = None


@dataclass(frozen=True, slots=True)
class _Read:
    """A reference to operand number ``place`` of a graph node."""

    node: Node
    place: int

    @property
    def arg(self) -> View | float:
        """Return the operand in the graph: a view or a number."""
        return self.node.args[self.place]


class Surroundings(Protocol):
    """The facts about a region on which the choice of instructions depends."""

    nodes: list[Node]
    kept: set[int]
    attached: dict[int, tuple[int, int]]

    def column_width(self, node: Node) -> int:
        """Return the number of columns of a node's value."""
        ...

    def read_from_hbm(self, node: Node, place: int) -> bool:
        """Tell whether a node reads its operand number ``place`` from HBM."""
        ...

    def scalar_in_hbm(self, node: Node, place: int) -> bool:
        """Tell whether operand number ``place`` of a node, which must come from HBM, has one element in each row."""
        ...

    def stores_of(self, node: Node) -> list[int]:
        """Return the numbers of the HBM accesses that store a node's result."""
        ...

    def counts_in_place(self, node: Node) -> bool:
        """Tell whether a node compares positions with 0, and one affine pattern gives these positions.

        The pattern has to hold for all rows and columns of the chunk that is being written.
        """
        ...


class Selection:
    """The choice of the instructions of one region.

    ``sums_beside`` is True if an activation may also sum its columns in a region with matrix products.
    """

    def __init__(self, nest: Surroundings, *, sums_beside: bool) -> None:
        self.nest = nest
        self.sums_beside = sums_beside or not any(node.kind == "dot" for node in nest.nodes)
        self.readers: dict[int, list[Node]] = {}
        for node in nest.nodes:
            for view in node.views:
                self.readers.setdefault(id(view.node), []).append(node)

    def of(self, nodes: Sequence[Node]) -> dict[int, Selected]:
        """Return the instruction of each element-wise node of a group, as a dict by the node's id.

        A node has no entry if the instruction of another node computes it too.
        """
        self.group = {id(node) for node in nodes if node.kind == "elementwise"}
        self.sums = {
            id(n.views[0].node): n
            for n in nodes
            if self.sums_beside and n.kind == "reduce" and n.name == "add" and id(n) in self.nest.attached
        }
        absorbed: set[int] = set()
        found: dict[int, Selected] = {}
        for node in reversed(nodes):
            if node.kind != "elementwise" or id(node) in absorbed:
                continue
            self.taken: set[int] = set()
            found[id(node)] = self._select(node)
            absorbed |= self.taken
        return found

    # -- what an operand is

    def _number(self, read: _Read) -> float | None:
        """Return an operand's number; None if the operand is a view."""
        return read.arg if isinstance(read.arg, float) else None

    def _is_row(self, read: _Read) -> bool:
        """Tell whether an operand has one number in each row, while the node that reads it has several columns."""
        view = read.arg
        if not isinstance(view, View) or self.nest.column_width(read.node) == 1:
            return False
        if self.nest.read_from_hbm(read.node, read.place):
            return self.nest.scalar_in_hbm(read.node, read.place)
        return self.nest.column_width(view.node) == 1

    def _absorbable(self, read: _Read) -> Node | None:
        """Return the node that computes an operand, if it can be fused into the instruction that reads the operand.

        Return None if the node's value is needed elsewhere too, or if the operand is not a float32 value of the group.
        """
        view = read.arg
        if not isinstance(view, View) or id(view.node) not in self.group:
            return None
        source = view.node
        outside = self.nest.read_from_hbm(read.node, read.place)
        needed = outside or id(source) in self.nest.kept or self.nest.stores_of(source) or id(source) in self.sums
        alone = len(self.readers.get(id(source), ())) == 1 and source.dtype == "float32"
        return source if alone and not needed else None

    # -- selection

    def _select(self, node: Node) -> Selected:
        """Return the instruction of an element-wise node. If it computes operand nodes too, these are added to
        ``taken``.
        """
        args = [_Read(node, place) for place in range(len(node.args))]
        fused = self.sums.get(id(node))
        if node.name == "fill":
            value = node.args[0]
            assert isinstance(value, float)
            return Selected("memset", (), (("value", value),))
        if node.name == "where":
            chosen = self._by_position(node, args)
            if chosen is not None:
                return chosen
            return Selected("where", tuple(self._operand(n, read) for n, read in enumerate(args)), ())
        if len(args) == 1:
            return self._unary(node, args[0], fused)
        return self._binary(node, args)

    def _by_position(self, node: Node, args: list[_Read]) -> Selected | None:
        """Return one ``affine_select`` for a node that chooses between a tile and a number by positions; None for any
        other node.
        """
        test = self._absorbable(args[0])
        numbers = [self._number(read) for read in args[1:]]
        if test is None or test.name not in INVERSE or not self.nest.counts_in_place(test):
            return None
        if (numbers[0] is None) == (numbers[1] is None) or any(self._is_row(read) for read in args[1:]):
            return None
        self.taken.add(id(test))
        kept, name = (args[1], test.name) if numbers[0] is None else (args[2], INVERSE[test.name])
        operands = (Operand(0, test, 0), self._operand(1, kept))
        other = numbers[1] if numbers[0] is None else numbers[0]
        assert other is not None
        chosen: tuple[tuple[str, Argument], ...] = (("on_true_tile", operands[1]), ("on_false_value", other))
        return Selected("affine_select", operands, (*chosen, ("cmp_op", ALU[name])))

    def _unary(self, node: Node, read: _Read, fused: Node | None) -> Selected:
        """Return the instruction of a node with one operand. Raise NotLowered if no instruction computes the node.

        ``fused`` is the node of a sum over columns that an activation computes, too; None if there is no such sum.
        """
        if node.name == "square" and fused is None:
            data = self._operand(0, read)
            return Selected("tensor_tensor", (data,), (("data1", data), ("data2", data), ("op", "multiply")))
        if node.name in ACTIVATIONS:
            return self._activation(node, read, fused)
        if node.name == "recip":
            data = self._operand(0, read)
            return Selected("reciprocal", (data,), (("data", data),))
        if node.name == "copy":
            data = self._operand(0, read)
            return Selected("tensor_copy", (data,), (("src", data),))
        if node.name == "neg":
            return self._chained(node, read, "multiply", -1.0, False)
        # compare the bits as an integer: -0.0 itself is not below 0, but the integer with its bits is
        if node.name == "signbit":
            bits = Operand(0, read.node, read.place, bits=True)
            return Selected("tensor_scalar", (bits,), (("data", bits), ("op0", "less"), ("operand0", 0)))
        if node.name == "not":
            return self._chained(node, read, "equal", 0.0, False)
        raise NotLowered(
            f"'{node.name}' is not lowered, because no instruction computes it; use functions of the table in docs/lowering.md",
            node.line,
        )

    def _activation(self, node: Node, read: _Read, fused: Node | None) -> Selected:
        """Return an activation instruction, ``f(x * scale + bias)``, for the node of function ``f``.

        The instruction also computes nodes that multiply by the scale and add the bias before ``f``.
        """
        data, scale, bias, negative = read, None, None, False
        factor: float = 1.0
        if (inner := self._absorbable(data)) is not None and inner.name in ("add", "sub"):
            first, second = _Read(inner, 0), _Read(inner, 1)
            if self._is_row(second) and not self._plain_row(first):
                data, bias, negative = first, second, inner.name == "sub"
                self.taken.add(id(inner))
            elif self._is_row(first) and not self._plain_row(second):
                data, bias = second, first
                factor = -1.0 if inner.name == "sub" else 1.0
                self.taken.add(id(inner))
        if (inner := self._absorbable(data)) is not None and inner.name in ("mul", "neg"):
            reads = [_Read(inner, place) for place in range(len(inner.args))]
            for one, other in (reads, reads[::-1]) if len(reads) == 2 else ():
                number = self._number(other)
                if number is not None:
                    data, factor = one, factor * number
                    self.taken.add(id(inner))
                    break
                if self._is_row(other) and not self._plain_row(one) and factor == 1.0:
                    data, scale = one, other
                    self.taken.add(id(inner))
                    break
            if inner.name == "neg":
                data, factor = reads[0], -factor
                self.taken.add(id(inner))
        operands = [self._operand(0, data)]
        arguments: list[tuple[str, Argument]] = [("op", node.name), ("data", operands[0])]
        if bias is not None:
            operands.append(Operand(len(operands), bias.node, bias.place, negative))
            arguments.append(("bias", operands[-1]))
        if scale is not None:
            operands.append(Operand(len(operands), scale.node, scale.place))
            arguments.append(("scale", operands[-1]))
        elif factor != 1.0:
            arguments.append(("scale", factor))
        return Selected("activation", tuple(operands), tuple(arguments), fused)

    def _plain_row(self, read: _Read) -> bool:
        """Tell whether an operand is a number, or has one number in each row."""
        return self._number(read) is not None or self._is_row(read)

    def _operand(self, number: int, read: _Read) -> Operand:
        """Return operand ``number`` of an instruction that takes all columns. If the operand has one number in each
        row, it is repeated along them.
        """
        return Operand(number, read.node, read.place, spread=self._is_row(read))

    def _row_operand(self, number: int, read: _Read) -> Operand:
        """Return operand ``number`` of an instruction that takes one number in each row without repeating it."""
        return Operand(number, read.node, read.place)

    def _chained(self, node: Node, read: _Read, op: str, value: float | _Read, reverse: bool) -> Selected:
        """Return a ``tensor_scalar`` instruction for ``x op value``; for ``value op x`` if ``reverse`` is True.

        If ``x`` is the result of such a step, too, one instruction does both steps.
        """
        data, steps = read, [(op, value, reverse)]
        if (inner := self._absorbable(read)) is not None:
            step = self._step(inner)
            if step is not None:
                data = step[0]
                steps.insert(0, step[1:])
                self.taken.add(id(inner))
        operands = [self._operand(0, data)]
        arguments: list[tuple[str, Argument]] = [("data", operands[0])]
        for number, (word, by, turned) in enumerate(steps):
            arguments.append((f"op{number}", word))
            if isinstance(by, _Read):
                operands.append(self._row_operand(len(operands), by))
                arguments.append((f"operand{number}", operands[-1]))
            else:
                arguments.append((f"operand{number}", int(by) if node.name in BITWISE else by))
            if turned:
                arguments.append((f"reverse{number}", True))
        return Selected("tensor_scalar", tuple(operands), tuple(arguments))

    def _step(self, node: Node) -> tuple[_Read, str, float | _Read, bool] | None:
        """Return (x, op, value, reversed) for a node of the form ``x op value``; None for a node of another form.

        ``value`` is a number, or has one number in each row. If ``reversed`` is True, the node is ``value op x``.
        """
        if node.name in ("neg", "not"):
            return (_Read(node, 0), *(("multiply", -1.0) if node.name == "neg" else ("equal", 0.0)), False)
        if len(node.args) != 2 or node.name not in ALU:
            return None
        for place, other in ((0, 1), (1, 0)):
            data, value = _Read(node, place), _Read(node, other)
            number = self._number(value)
            if self._number(data) is not None or (number is None and not self._is_row(value)):
                continue
            name = node.name if place == 0 else TURNED.get(node.name, node.name)
            return data, ALU[name], value if number is None else number, place == 1 and node.name in ("sub", *_SHIFTS)
        return None

    def _binary(self, node: Node, args: list[_Read]) -> Selected:
        """Return the instruction of a node with two operands. Raise NotLowered if no instruction computes the node."""
        if node.name == "pow":
            power = self._number(args[1])
            if power is None:
                raise NotLowered(
                    "a power of two arrays is not lowered; for a positive base use np.exp(y * np.log(x))", node.line
                )
            data = self._operand(0, args[0])
            return Selected("tensor_scalar", (data,), (("data", data), ("op0", "power"), ("operand0", power)))
        step = self._step(node)
        if step is not None:
            return self._chained(node, *step)
        if node.name not in ALU:
            raise NotLowered(
                f"'{node.name}' is not lowered, because no instruction computes it; use functions of the table in docs/lowering.md",
                node.line,
            )
        for place, other in ((0, 1), (1, 0)):
            inner = self._absorbable(args[place])
            before = None if inner is None else self._step(inner)
            commutes = node.name in ("add", "mul", "max", "min", "eq", "ne")
            if inner is None or before is None or self._is_row(args[other]):
                continue
            self.taken.add(id(inner))
            data = self._operand(0, before[0])
            operands = [data]
            arguments: list[tuple[str, Argument]] = [("data", data), ("op0", before[1])]
            if isinstance(before[2], _Read):
                operands.append(self._row_operand(1, before[2]))
                arguments.append(("operand0", operands[-1]))
            else:
                arguments.append(("operand0", before[2]))
            if before[3]:
                arguments.append(("reverse0", True))
            operands.append(self._operand(len(operands), args[other]))
            name = node.name if place == 0 else TURNED.get(node.name, node.name)
            arguments += [("op1", ALU[name]), ("operand1", operands[-1])]
            if place == 1 and not commutes and node.name == "sub":
                arguments.append(("reverse1", True))
            return Selected("scalar_tensor_tensor", tuple(operands), tuple(arguments))
        first, second = self._operand(0, args[0]), self._operand(1, args[1])
        return Selected("tensor_tensor", (first, second), (("data1", first), ("data2", second), ("op", ALU[node.name])))
