"""Read the expressions of a kernel's source: integers, indices, accesses of tiles and tensors."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from math import prod

from acceld.nki.source.affine import Affine, Symbol
from acceld.nki.source.spans import ParsedText
from acceld.nki.source.syntax import NO_TILES, TILE_SIZES, Access, Buffer, Dim, elements, names_in

_COMPARISONS: Mapping[type[ast.cmpop], Callable[[int, int], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


class ExpressionReader(ParsedText):
    """Read expressions in statements. The values of the names in them come from the statements that were read before.

    For example, suppose that ``f = nl.arange(512)[None, :]`` precedes a loop over ``c``. Then ``512 * c + f`` is read
    as an affine form of ``c`` and of an index range of 512 columns.
    """

    programs: tuple[int, ...] | None = None
    """Number of programs of the launch along each axis, () for one program; None if the launch is not known."""

    def __init__(self, source: str) -> None:
        super().__init__(source)
        self.shapes: dict[str, tuple[int, ...] | None] = {}
        """Shapes of the kernel's parameters by name; None for scalars."""
        self.aliases: dict[str, ast.expr] = {}
        """The expression of an index or number by the name that stands for it."""
        self.settings: dict[str, bool | None] = {}
        """The value (True, False or None) of each name that stands for one of these."""
        self.constants: dict[str, int] = {}
        """The extent by the name that a statement unpacked from a shape, such as ``rows`` in ``rows, columns =
        x.shape``.
        """
        self.other_shapes: set[str] = set()
        """Names of arguments and of tensors in HBM that ``reshape`` gave another shape."""
        self.tiles: dict[str, str] = {}
        """The memory, ``sbuf`` or ``psum``, of each parameter that is a tile on the chip."""
        self.parameters: list[str] = []
        self.buffers: dict[str, Buffer] = {}
        self.ambiguous: set[str] = set()
        """Names that may have more than one meaning."""
        self.doubts: dict[str, int] = {}
        """The first line that made a name ambiguous, by name. A name that no single statement made ambiguous is
        missing.
        """
        self.loop_variables: set[str] = set()
        self.trips: dict[str, int | None] = {}
        """Number of iterations by loop variable; None if the number is not known, or if loops with the same variable
        have different numbers.
        """

    def is_tensor(self, name: str) -> bool:
        """Tell whether a name is an argument in HBM, or another shape of a tensor in HBM."""
        return name in self.other_shapes or (name in self.parameters and name not in self.tiles)

    def callee(self, call: ast.Call) -> str:
        """Return the name of the called function without its module, such as ``exp`` for ``nl.exp(...)``."""
        function = call.func
        if isinstance(function, ast.Attribute):
            return function.attr
        return function.id if isinstance(function, ast.Name) else self.text(function).rsplit(".", 1)[-1]

    def known_shape(self, value: ast.expr) -> tuple[int | None, ...] | None:
        """Return the shape that an expression such as ``(128, n)`` or ``x.shape`` stands for.

        An extent that is not known is None in the tuple. The result is None if not even the number of extents
        is known.
        """
        if isinstance(value, ast.Tuple | ast.List):
            return tuple(self.constant(element) for element in value.elts)
        if isinstance(value, ast.Attribute) and value.attr == "shape" and isinstance(value.value, ast.Name):
            name = value.value.id
            if name in self.buffers:
                return self.buffers[name].shape
            return self.shapes.get(name)
        return None

    def constant(self, node: ast.expr) -> int | None:
        """Return the value of ``node`` as an integer; None if it is not an integer, or its value is not known."""
        form = self.affine(node)
        return form.constant if form is not None and not form.terms else None

    def truth(self, node: ast.expr) -> bool | None:
        """Return the truth value of a condition; None if it is not known."""
        match node:
            case ast.Constant(value=bool(value)):
                return value
            case ast.Name(id=name) if name in self.settings:
                return bool(self.settings[name])
            case ast.UnaryOp(op=ast.Not(), operand=inner):
                known = self.truth(inner)
                return None if known is None else not known
            case ast.BoolOp(op=joined, values=given):
                values = [self.truth(one) for one in given]
                decisive = isinstance(joined, ast.Or)
                return decisive if decisive in values else None if None in values else not decisive
            case ast.Compare(left=left, ops=[sign], comparators=[right]):
                return self._compared(left, sign, right)
        number = self.constant(node)
        return None if number is None else bool(number)

    def _compared(self, left: ast.expr, sign: ast.cmpop, right: ast.expr) -> bool | None:
        if isinstance(sign, ast.Is | ast.IsNot):
            same = self._is_none(left) if _is_constant(right, None) else None
            return None if same is None else same == isinstance(sign, ast.Is)
        one, other, compare = self.constant(left), self.constant(right), _COMPARISONS.get(type(sign))
        return None if compare is None or one is None or other is None else compare(one, other)

    def _is_none(self, node: ast.expr) -> bool | None:
        """Tell whether an expression is None; None if that is not known, as for a name without a known value."""
        if not isinstance(node, ast.Name):
            return None
        if node.id in self.settings:
            return self.settings[node.id] is None
        return False if self.shapes.get(node.id) is not None or node.id in self.aliases else None

    def number(self, node: ast.expr | None) -> float | None:
        """Return the value of ``node`` as a float; None if it is not a number, or its value is not known.

        Products, quotients, square roots and casts such as ``np.float32`` are computed.
        """
        match node:
            case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
                return float(value)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                inner = self.number(operand)
                return None if inner is None else -inner
            case ast.Name(id=name):
                if name in self.ambiguous:
                    return None
                if name in self.constants:
                    return float(self.constants[name])
                return self.number(self.aliases[name]) if name in self.aliases else None
            case ast.BinOp(left=left, op=ast.Div() | ast.Mult() as sign, right=right):
                one, other = self.number(left), self.number(right)
                if one is None or other is None:
                    return None
                if isinstance(sign, ast.Mult):
                    return one * other
                return one / other if other else None
            case ast.Call(args=[argument], keywords=[]):
                return self._cast(node, argument)
        return None

    def _cast(self, call: ast.Call, argument: ast.expr) -> float | None:
        """Return the value of a call that casts ``argument`` or takes its square root; None for other calls."""
        callee = self.text(call.func)
        if (callee.endswith(".type") and "dtype" in callee) or callee.startswith("np.float"):
            return self.number(argument)
        if callee in ("np.sqrt", "math.sqrt"):
            inner = self.number(argument)
            return inner**0.5 if inner is not None and inner >= 0 else None
        return None

    def affine(self, node: ast.expr) -> Affine | None:
        """Return ``node`` as an affine form of loop variables and index ranges; None if it is not affine."""
        match node:
            case ast.Constant(value=value):
                return Affine(value) if type(value) is int else None
            case ast.Name(id=name):
                return self._named(name)
            case ast.BinOp():
                return self._combined(node)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                inner = self.affine(operand)
                return None if inner is None else inner.times(-1)
            case ast.Subscript():
                return self._extent(node) or self._range(node)
            case ast.Call(func=ast.Name(id="min" | "max")):
                return self._least(node)
            case ast.Attribute(value=ast.Attribute(attr="tile_size") | ast.Name(id="tile_size")):
                limit = TILE_SIZES.get(node.attr)
                return None if limit is None else Affine(limit)
            case ast.Call(func=ast.Attribute(attr="num_programs" | "program_ndim")):
                launched = self._of_launch(node)
                return None if launched is None else Affine(launched)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                known = self.truth(test)
                return None if known is None else self.affine(body if known else orelse)
        return None

    def _of_launch(self, call: ast.Call) -> int | None:
        """Return the value of ``nl.num_programs(axes=0)``, ``nl.num_programs()`` or ``nl.program_ndim()``; None if the launch
        is not known.
        """
        if self.programs is None:
            return None
        if self.callee(call) == "program_ndim":
            return len(self.programs)
        given = [*call.args, *(one.value for one in call.keywords)]
        if not given or _is_constant(given[0], None):
            return prod(self.programs)
        axis = self.constant(given[0]) if len(given) == 1 else None
        return None if axis is None else self.programs_along(axis)

    def programs_along(self, axis: int) -> int | None:
        """Return the number of programs of the launch along an axis; None if it is not known."""
        if not self.programs:
            return None if self.programs is None else 1
        return self.programs[axis] if -len(self.programs) <= axis < len(self.programs) else None

    def program_axis(self, node: ast.expr) -> int | None:
        """Return the axis of the launch whose program number an expression gives; None if the expression gives anything
        else.

        ``nl.program_id(0)`` gives 0, and so does ``nl.program_id(0) if nl.program_ndim() > 0 else 0``.
        """
        match node:
            case ast.Call(func=ast.Attribute(attr="program_id"), args=[axis], keywords=[]):
                return self.constant(axis)
            case ast.Call(func=ast.Attribute(attr="program_id"), args=[], keywords=[ast.keyword(value=axis)]):
                return self.constant(axis)
            case ast.IfExp(test=test, body=body, orelse=ast.Constant(value=0)) if self._is_steady(test):
                return self.program_axis(body)
        return None

    def _is_steady(self, node: ast.expr) -> bool:
        """Tell whether an expression has the same value in the whole launch: no name in it stands for a tile, or for
        a number that changes, such as a loop's variable.
        """
        return all(
            one.id in NO_TILES
            or (
                one.id not in self.ambiguous
                and (
                    one.id in self.constants
                    or one.id in self.settings
                    or (one.id in self.aliases and self._is_steady(self.aliases[one.id]))
                )
            )
            for one in names_in(node)
        )

    def _combined(self, node: ast.BinOp) -> Affine | None:
        left = self.affine(node.left)
        right = None if left is None else self.affine(node.right)
        if left is None or right is None:
            return None
        match node.op:
            case ast.Add():
                return left + right
            case ast.Sub():
                return left - right
            case ast.Mult():
                return left.product(right)
            case ast.FloorDiv() | ast.Mod() if not right.terms and right.constant > 0:
                return self._quotient(node, left, right.constant)
        return None

    def _named(self, name: str) -> Affine | None:
        if name in self.ambiguous:
            return None
        if name in self.loop_variables:
            return Affine.of_variable(name)
        if name in self.constants:
            return Affine(self.constants[name])
        if name in self.aliases:
            return self.affine(self.aliases[name])
        return None

    def _quotient(self, node: ast.BinOp, left: Affine, divisor: int) -> Affine | None:
        whole = isinstance(node.op, ast.FloorDiv)
        if not left.terms:
            return Affine(left.constant // divisor if whole else left.constant % divisor)
        if len(left.variables) != 1 or left.ranges:
            return None
        (variable,) = left.variables
        sign = "//" if whole else "%"
        return Affine.of(Symbol(f"({left.constant}+{left.terms}){sign}{divisor}", variable))

    def _least(self, node: ast.Call) -> Affine | None:
        """Return the value of a call of ``min`` or ``max`` on integers.

        The result is the argument that is the least or the greatest in every iteration of the loops. If no argument is
        proved to be that, the result is a symbol of the one loop variable on which the arguments depend, or None.
        """
        forms = [self.affine(argument) for argument in node.args]
        known = [one for one in forms if one is not None]
        if len(known) != len(forms) or len(known) < 2 or node.keywords:
            return None
        sign = 1 if self.callee(node) == "min" else -1
        for one in known:
            if all(self._is_never_negative((other - one).times(sign)) for other in known):
                return one
        variables = {name for one in known for name in one.variables}
        if len(variables) != 1 or any(one.ranges for one in known):
            return None
        listed = ", ".join(sorted(f"{one.constant}+{one.terms}" for one in known))
        greatest = [self._greatest(one) for one in known]
        limits = [one for one in greatest if one is not None]
        most = min(limits, default=None) if sign == 1 else max(limits) if None not in greatest else None
        return Affine.of(Symbol(f"{self.callee(node)}({listed})", variables.pop(), most=most))

    def _greatest(self, form: Affine) -> int | None:
        """Return the greatest value of a form over the iterations of the loops that it depends on; None if not known."""
        most = form.constant
        for symbol, coefficient in form.terms:
            trips = self.trips.get(symbol.name)
            if symbol.is_range or trips is None:
                return None
            most += max(0, coefficient * (trips - 1))
        return most

    def _is_never_negative(self, form: Affine) -> bool:
        """Tell whether a form is at least 0 in every iteration of the loops that it depends on."""
        least = form.constant
        for symbol, coefficient in form.terms:
            trips = self.trips.get(symbol.name) if not symbol.is_range else None
            if trips is None:
                return False
            least += min(0, coefficient * (trips - 1))
        return least >= 0

    def is_number(self, node: ast.expr) -> bool:
        """Tell whether an expression stands for a number, of known or unknown value, and not for a tile."""
        match node:
            case ast.Constant(value=int() | float()):
                return True
            case ast.Name(id=name):
                return name in self.aliases or name in self.constants or name in self.loop_variables
            case ast.BinOp(left=left, right=right):
                return self.is_number(left) and self.is_number(right)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return self.is_number(operand)
            case ast.Subscript(value=ast.Attribute(value=ast.Name(), attr="shape"), slice=index):
                return self.is_number(index)
            case ast.Call(func=ast.Name(id="min" | "max" | "abs" | "int"), args=args, keywords=[]):
                return all(self.is_number(one) for one in args)
            case ast.Call(
                func=ast.Attribute(attr="num_programs" | "program_id" | "program_ndim"), args=args, keywords=named
            ):
                return all(self.is_number(one) for one in (*args, *(each.value for each in named)))
            case ast.IfExp(test=ast.Compare(left=left, comparators=others), body=body, orelse=orelse):
                return all(self.is_number(one) for one in (left, *others, body, orelse))
        return False

    def _extent(self, node: ast.Subscript) -> Affine | None:
        """Return the extent that an expression such as ``x.shape[1]`` refers to; None if the shape is not known."""
        shape = self.known_shape(node.value)
        if shape is None or isinstance(node.slice, ast.Slice | ast.Tuple):
            return None
        place = self.constant(node.slice)
        extent = shape[place] if place is not None and -len(shape) <= place < len(shape) else None
        return None if extent is None else Affine(extent)

    def _range(self, node: ast.Subscript) -> Affine | None:
        call = node.value
        if not isinstance(call, ast.Call) or self.callee(call) != "arange" or len(call.args) + len(call.keywords) != 1:
            return None
        extent = self.constant(call.args[0] if call.args else call.keywords[0].value)
        indices = elements(node)
        places = [at for at, index in enumerate(indices) if isinstance(index, ast.Slice)]
        if extent is None or len(places) != 1:
            return None
        return Affine.of(Symbol.over(extent, places[0], len(indices)))

    def access(self, node: ast.expr) -> Access | None:
        """Return ``node`` as an access of a tile or tensor, with or without an index; None for a number or an
        index.
        """
        if isinstance(node, ast.Name):
            name = node.id
            known = name in self.aliases or name in self.constants or name in self.loop_variables
            return None if (known and name not in self.buffers) or name in NO_TILES else Access(name, None, node)
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="ap")) if self._rank_in_hbm(name):
                return Access(name, (Dim(None, None, self.text(node)),) * self._rank_in_hbm(name), node)
        if not isinstance(node, ast.Subscript) or not isinstance(node.value, ast.Name):
            return None
        name = node.value.id
        if name in self.aliases or name in NO_TILES:
            return None
        if _is_constant(node.slice, ...):
            return Access(name, None, node)
        return Access(name, tuple(self._dim(index) for index in elements(node)), node)

    def _rank_in_hbm(self, name: str) -> int:
        """Return the number of dimensions of a tensor in HBM; 0 if the name is not known to be one."""
        if name in self.aliases or name in NO_TILES or name in self.tiles:
            return 0
        if name in self.buffers:
            buffer = self.buffers[name]
            return len(buffer.shape) if buffer.space.endswith("hbm") else 0
        return len(self.shapes.get(name) or ())

    def _dim(self, index: ast.expr) -> Dim:
        text = self.text(index)
        if not isinstance(index, ast.Slice):
            if isinstance(index, ast.Call) and self.callee(index) == "ds" and len(index.args) == 2:
                start, size = self.affine(index.args[0]), self.affine(index.args[1])
                found = _slice(start, size, text)
                return found if found.extent is not None else Dim(start, None, text, unsized=True, span=found.span)
            return Dim(_counted_from_zero(self.affine(index)), None, text)
        if index.step is not None:
            return Dim(None, None, text)
        if index.lower is None and index.upper is None:
            return Dim(Affine(), None, text, True)
        lower = _counted_from_zero(self.affine(index.lower)) if index.lower is not None else Affine()
        upper = _counted_from_zero(self.affine(index.upper)) if index.upper is not None else None
        return _slice(lower, None if lower is None or upper is None else upper - lower, text)


def _counted_from_zero(index: Affine | None) -> Affine | None:
    """Return an index, but None for a negative number, which counts from the end."""
    return None if index is not None and not index.terms and index.constant < 0 else index


def _slice(start: Affine | None, size: Affine | None, text: str) -> Dim:
    """Return the index of a slice with ``size`` elements from ``start`` on. None for ``size`` or ``start`` means that
    the number is not known.
    """
    if start is None or size is None:
        return Dim(None, None, text)
    return Dim(None, None, text, span=(start, size)) if size.terms else Dim(start, size.constant, text)


def _is_constant(node: ast.expr, value: object) -> bool:
    return isinstance(node, ast.Constant) and node.value is value
