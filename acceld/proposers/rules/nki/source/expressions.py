"""Read a kernel's expressions: whole numbers, index forms, accesses of tiles and tensors."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from functools import cached_property, lru_cache

import libcst as cst

from acceld.proposers.rules.affine import Affine, Symbol
from acceld.proposers.rules.editing import SourceText
from acceld.proposers.rules.nki.source.syntax import NO_TILES, TILE_SIZES, Access, Buffer, Dim, names_in

_COMPARISONS: Mapping[type[cst.BaseCompOp], Callable[[int, int], bool]] = {
    cst.Equal: operator.eq,
    cst.NotEqual: operator.ne,
    cst.LessThan: operator.lt,
    cst.LessThanEqual: operator.le,
    cst.GreaterThan: operator.gt,
    cst.GreaterThanEqual: operator.ge,
}


@lru_cache(maxsize=32768)
def _text(node: cst.CSTNode) -> str:
    return cst.Module([]).code_for_node(node)


class ExpressionReader(SourceText):
    """Read expressions with the names known so far.

    After ``f = nl.arange(512)[None, :]``, and in a loop over ``c``, the index ``512 * c + f`` is the affine form of
    ``c`` and of a range of 512 along the columns.
    """

    def __init__(self, source: str, module: cst.Module) -> None:
        super().__init__(source)
        self.module = module
        self.shapes: dict[str, tuple[int, ...] | None] = {}
        """Shapes of the kernel's parameters; None for scalars."""
        self.aliases: dict[str, cst.BaseExpression] = {}
        """Names of index expressions, by name."""
        self.settings: dict[str, bool | None] = {}
        """Names that stand for True, False or None."""
        self.constants: dict[str, int] = {}
        """Extents that a shape was unpacked to."""
        self.other_shapes: set[str] = set()
        """Names of arguments, or of tensors in HBM, in another shape."""
        self.buffers: dict[str, Buffer] = {}
        self.ambiguous: set[str] = set()
        """Names with more than one possible meaning."""
        self.loop_variables: set[str] = set()

    @cached_property
    def words(self) -> frozenset[str]:
        """Every name in the source."""
        return frozenset(name.value for name in names_in(self.module))

    def text(self, node: cst.CSTNode) -> str:
        """Return the source of ``node``."""
        return _text(node)

    def callee(self, call: cst.Call) -> str:
        """Return the function's own name: ``exp`` for ``nl.exp(...)``."""
        return self.text(call.func).rsplit(".", 1)[-1]

    def known_shape(self, value: cst.BaseExpression) -> tuple[int | None, ...] | None:
        """Return the shape of an expression such as ``(128, n)`` or ``x.shape``; None for unknown extents, or an
        unknown shape.
        """
        if isinstance(value, cst.Tuple | cst.List):
            return tuple(self.constant(element.value) for element in value.elements)
        if isinstance(value, cst.Attribute) and value.attr.value == "shape" and isinstance(value.value, cst.Name):
            name = value.value.value
            if name in self.buffers:
                return self.buffers[name].shape
            return self.shapes.get(name)
        return None

    def constant(self, node: cst.BaseExpression) -> int | None:
        """Return the value of ``node`` if it is a whole number; None otherwise."""
        form = self.affine(node)
        return form.constant if form is not None and not form.terms else None

    def truth(self, node: cst.BaseExpression) -> bool | None:
        """Return the value of a condition; None if it is not known."""
        match node:
            case cst.Name(value="True" | "False"):
                return node.value == "True"
            case cst.Name(value=name) if name in self.settings:
                return bool(self.settings[name])
            case cst.UnaryOperation(operator=cst.Not(), expression=inner):
                value = self.truth(inner)
                return None if value is None else not value
            case cst.BooleanOperation(left=left, operator=joined, right=right):
                values = (self.truth(left), self.truth(right))
                decisive = isinstance(joined, cst.Or)
                return decisive if decisive in values else None if None in values else not decisive
            case cst.Comparison(left=left, comparisons=[one]):
                return self._compared(left, one.operator, one.comparator)
        number = self.constant(node)
        return None if number is None else bool(number)

    def _compared(self, left: cst.BaseExpression, sign: cst.BaseCompOp, right: cst.BaseExpression) -> bool | None:
        if isinstance(sign, cst.Is | cst.IsNot):
            same = self._is_none(left) if isinstance(right, cst.Name) and right.value == "None" else None
            return None if same is None else same == isinstance(sign, cst.Is)
        one, other, compare = self.constant(left), self.constant(right), _COMPARISONS.get(type(sign))
        return None if compare is None or one is None or other is None else compare(one, other)

    def _is_none(self, node: cst.BaseExpression) -> bool | None:
        """Return whether an argument is None; None if that is not known."""
        if not isinstance(node, cst.Name):
            return None
        if node.value in self.settings:
            return self.settings[node.value] is None
        return False if self.shapes.get(node.value) is not None else None

    def number(self, node: cst.BaseExpression | None) -> float | None:
        """Return the value of ``node`` if it is a number, also through arithmetic and casts such as ``np.float32``;
        None otherwise.
        """
        if node is None:
            return None
        if isinstance(node, cst.Integer | cst.Float):
            return float(node.value)
        if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Minus):
            inner = self.number(node.expression)
            return None if inner is None else -inner
        if isinstance(node, cst.Name):
            if node.value in self.ambiguous:
                return None
            if node.value in self.constants:
                return float(self.constants[node.value])
            if node.value in self.aliases:
                return self.number(self.aliases[node.value])
        if isinstance(node, cst.BinaryOperation):
            left, right = self.number(node.left), self.number(node.right)
            if left is None or right is None:
                return None
            if isinstance(node.operator, cst.Divide) and right:
                return left / right
            if isinstance(node.operator, cst.Multiply):
                return left * right
        if isinstance(node, cst.Call) and len(node.args) == 1:
            callee = self.text(node.func)
            if (callee.endswith(".type") and "dtype" in callee) or callee.startswith("np.float"):
                return self.number(node.args[0].value)
            if callee in ("np.sqrt", "math.sqrt"):
                inner = self.number(node.args[0].value)
                return inner**0.5 if inner is not None and inner >= 0 else None
        return None

    def affine(self, node: cst.BaseExpression) -> Affine | None:
        """Return ``node`` as an affine form over loop variables and index ranges, or None."""
        if isinstance(node, cst.Integer):
            return Affine(int(node.value.replace("_", ""), 0))
        if isinstance(node, cst.Name):
            return self._named(node.value)
        if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Minus):
            inner = self.affine(node.expression)
            return None if inner is None else inner.times(-1)
        if isinstance(node, cst.Subscript):
            return self._extent(node) or self._range(node)
        if isinstance(node, cst.Call) and self.text(node.func) in ("min", "max"):
            return self._least(node)
        if isinstance(node, cst.Attribute) and self.text(node.value).endswith("tile_size"):
            limit = TILE_SIZES.get(node.attr.value)
            return None if limit is None else Affine(limit)
        if not isinstance(node, cst.BinaryOperation):
            return None
        left, right = self.affine(node.left), self.affine(node.right)
        if left is None or right is None:
            return None
        if isinstance(node.operator, cst.Add):
            return left + right
        if isinstance(node.operator, cst.Subtract):
            return left - right
        if isinstance(node.operator, cst.Multiply):
            return left.product(right)
        if isinstance(node.operator, cst.FloorDivide | cst.Modulo) and not right.terms and right.constant > 0:
            return self._quotient(node, left, right.constant)
        return None

    def _named(self, name: str) -> Affine | None:
        if name in self.loop_variables:
            return Affine.of_variable(name)
        if name in self.ambiguous:
            return None
        if name in self.constants:
            return Affine(self.constants[name])
        if name in self.aliases:
            return self.affine(self.aliases[name])
        return None

    def _quotient(self, node: cst.BinaryOperation, left: Affine, divisor: int) -> Affine | None:
        whole = isinstance(node.operator, cst.FloorDivide)
        if not left.terms:
            return Affine(left.constant // divisor if whole else left.constant % divisor)
        if len(left.variables) != 1 or left.ranges:
            return None
        (variable,) = left.variables
        sign = "//" if whole else "%"
        return Affine.of(Symbol(f"({left.constant}+{left.terms}){sign}{divisor}", variable))

    def _least(self, node: cst.Call) -> Affine | None:
        """Return the least or greatest of whole numbers."""
        given = [
            self.constant(argument.value) for argument in node.args if argument.keyword is None and not argument.star
        ]
        numbers = [one for one in given if one is not None]
        if len(numbers) != len(node.args) or len(numbers) < 2:
            return None
        return Affine(min(numbers) if self.text(node.func) == "min" else max(numbers))

    def _extent(self, node: cst.Subscript) -> Affine | None:
        """Return the extent of ``x.shape[1]`` for a tensor with a known shape; None otherwise."""
        shape = self.known_shape(node.value)
        if shape is None or len(node.slice) != 1 or not isinstance(node.slice[0].slice, cst.Index):
            return None
        place = self.constant(node.slice[0].slice.value)
        extent = shape[place] if place is not None and -len(shape) <= place < len(shape) else None
        return None if extent is None else Affine(extent)

    def _range(self, node: cst.Subscript) -> Affine | None:
        if not isinstance(node.value, cst.Call) or self.callee(node.value) != "arange" or len(node.value.args) != 1:
            return None
        extent = self.constant(node.value.args[0].value)
        places = [i for i, element in enumerate(node.slice) if isinstance(element.slice, cst.Slice)]
        if extent is None or len(places) != 1:
            return None
        return Affine.of(Symbol.over(extent, places[0], len(node.slice)))

    def access(self, node: cst.BaseExpression) -> Access | None:
        """Return ``node`` as an access if it is a tile or a tensor, with or without an index; None for numbers and
        indices.
        """
        if isinstance(node, cst.Name):
            name = node.value
            known = name in self.aliases or name in self.constants or name in self.loop_variables
            return None if known or name in NO_TILES else Access(name, None, node)
        if not isinstance(node, cst.Subscript) or not isinstance(node.value, cst.Name):
            return None
        name = node.value.value
        if name in self.aliases or name in NO_TILES:
            return None
        elements = node.slice
        only = elements[0].slice
        if len(elements) == 1 and isinstance(only, cst.Index) and isinstance(only.value, cst.Ellipsis):
            return Access(name, None, node)
        dims = tuple(self._dim(element.slice) for element in elements)
        return Access(name, dims, node)

    def _dim(self, element: cst.BaseSlice) -> Dim:
        if isinstance(element, cst.Index):
            value = element.value
            text = self.text(value)
            if isinstance(value, cst.Call) and self.callee(value) == "ds" and len(value.args) == 2:
                return Dim(self.affine(value.args[0].value), self.constant(value.args[1].value), text)
            return Dim(self.affine(value), None, text)
        assert isinstance(element, cst.Slice)
        text = self.text(element)
        if element.step is not None:
            return Dim(None, None, text)
        if element.lower is None and element.upper is None:
            return Dim(Affine(), None, text, True)
        lower = self.affine(element.lower) if element.lower is not None else Affine()
        upper = self.affine(element.upper) if element.upper is not None else None
        if lower is None or upper is None:
            return Dim(None, None, text)
        extent = upper - lower
        return Dim(lower, extent.constant, text) if not extent.terms else Dim(None, None, text)
