"""Trace a numpy reference: it runs with arrays that record each operation as a node of a graph.

Views, stores and result types follow numpy's rules.
"""

from __future__ import annotations

import functools
import inspect
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import numpy as np

from acceld.lowering.bounds import NARROW_INTEGERS, bounds, in_type
from acceld.lowering.constants import FUNCTIONS as CONSTANT
from acceld.lowering.constants import compared, finite, placed, settled, shifted_index, values
from acceld.lowering.graph import (
    INDEX,
    Node,
    NotLowered,
    Operand,
    View,
    box,
    dense,
    elementwise,
    fill,
    product,
    steps_of,
    stored,
    whole,
)
from acceld.lowering.masked import Masked, Positions

Kind = Literal["b", "i", "f"]
"""Kind of an array's dtype: boolean (``b``), integer (``i``) or float (``f``).

A graph may hold booleans and integers in float32, so the kind is stored beside the dtype. numpy's arithmetic depends on
the kind.
"""

ELEMENTWISE = {
    "absolute": "abs",
    "add": "add",
    "divide": "div",
    "equal": "eq",
    "erf": "erf",
    "exp": "exp",
    "expit": "sigmoid",
    "fabs": "abs",
    "greater": "gt",
    "greater_equal": "ge",
    "less": "lt",
    "less_equal": "le",
    "log": "log",
    "logical_not": "not",
    "maximum": "max",
    "minimum": "min",
    "multiply": "mul",
    "negative": "neg",
    "not_equal": "ne",
    "positive": "copy",
    "power": "pow",
    "float_power": "pow",
    "reciprocal": "recip",
    "sign": "sign",
    "sqrt": "sqrt",
    "square": "square",
    "subtract": "sub",
    "tanh": "tanh",
    "true_divide": "div",
}
"""The name of the element-wise graph node that computes a numpy function, by numpy's name."""
COMPARISONS = frozenset({"eq", "ge", "gt", "le", "lt", "ne", "not"})
_TYPES: dict[str, np.dtype[Any]] = {"b": np.dtype(np.bool_), "i": np.dtype(np.int64), "f": np.dtype(np.float32)}
NARROW = frozenset({"bfloat16", "float16"})
_NUMBER_READ = "a Python number made of the values of an array is not lowered; keep the value in an array"
_INTEGERS = frozenset({"int32", "uint32", "int16", "uint16", "int8", "uint8"})

UFUNCS: dict[str, Callable[..., Any]] = {}
"""The function that lowers an element-wise function of numpy to several graph nodes, by numpy's name."""
FUNCTIONS: dict[str, Callable[..., Any]] = {}
"""The function that lowers a numpy function of arrays, by numpy's name.

If an array method has the same name, the function lowers the method, too.
"""
METHODS: dict[str, Callable[..., Any]] = {}
"""The function that lowers an array method, for methods that differ from numpy's function of the same name, such as
``x.sort()``.
"""
FOLDS: dict[tuple[str, str], str] = {
    ("add", "reduce"): "sum",
    ("multiply", "reduce"): "prod",
    ("maximum", "reduce"): "max",
    ("minimum", "reduce"): "min",
    ("logical_and", "reduce"): "all",
    ("logical_or", "reduce"): "any",
    ("add", "accumulate"): "cumsum",
    ("multiply", "accumulate"): "cumprod",
    ("maximum", "accumulate"): "cummax",
    ("minimum", "accumulate"): "cummin",
}
"""The numpy function that does the same as a method of a ufunc, by the names of the ufunc and the method.

For example, ``("add", "reduce")`` has ``"sum"``, because ``np.add.reduce`` does the same as ``np.sum``.
"""
Function = Callable[..., Any]


def lowers(*names: str, ufunc: bool = False) -> Callable[[Function], Function]:
    """Return a decorator that registers a function as the lowering of the numpy functions ``names``.

    The function has only the parameters that are lowered. A reference that passes any other argument gets NotLowered.
    ``ufunc`` is True for element-wise functions.
    """

    def entered(function: Function) -> Function:
        (UFUNCS if ufunc else FUNCTIONS).update(dict.fromkeys(names, function))
        return function

    return entered


_signature = functools.lru_cache(maxsize=1024)(inspect.signature)


class Traced(np.lib.mixins.NDArrayOperatorsMixin):
    """An array of the reference while the reference is traced. Each operation on it is recorded as a graph node.

    An array that is a view of another array (``base``) has no value of its own. Each use applies ``of`` to the present
    value of the other array, so later stores to that array are seen.
    """

    __array_priority__ = 1000

    def __init__(
        self,
        view: View | None,
        kind: Kind | None = None,
        base: Traced | None = None,
        of: Callable[[Any], Any] | None = None,
    ) -> None:
        self._view = view
        self._kind = kind
        self._base = base
        self._of = of

    @property
    def view(self) -> View:
        """Return the array's present value as a view of a graph node."""
        if self._base is None:
            assert self._view is not None
            return self._view
        assert self._of is not None
        return forwarded(self._base.view.mapped(self._of))

    @property
    def kind(self) -> Kind:
        """Return the kind of dtype that numpy would give the array: ``b``, ``i`` or ``f``."""
        if self._base is not None:
            return self._base.kind
        if self._kind is None:
            assert self._view is not None
            held = self._view.dtype
            self._kind = "b" if held == "bool" else "i" if held in _INTEGERS or self._view.node is INDEX else "f"
        return self._kind

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of the array."""
        return self.view.shape

    @property
    def ndim(self) -> int:
        """Return the number of axes of the array."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Return the number of elements of the array."""
        return math.prod(self.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Return the dtype that numpy would give the array."""
        held = self.view.dtype
        return dtype_named(held) if self.kind == "f" or held in _INTEGERS else _TYPES[self.kind]

    @property
    def itemsize(self) -> int:
        """Return the number of bytes of an element in numpy."""
        return self.dtype.itemsize

    @property
    def strides(self) -> tuple[int, ...]:
        """Return the distance in bytes between neighbors along each axis, as in a numpy array of this dtype."""
        return tuple(step * self.itemsize for step in self.view.strides)

    def known(self) -> np.ndarray[Any, Any] | None:
        """Return the array's values if they depend on shapes alone; None if they depend on an input of the reference."""
        found = values(self.view)
        return found if found is None or self.kind == "f" else found.astype(_TYPES[self.kind])

    @property
    def T(self) -> Traced:
        """Return the transposed array."""
        return self.part(lambda array: array.T)

    @property
    def mT(self) -> Traced:
        """Return the array with its last two axes swapped."""
        return self.part(lambda array: array.swapaxes(-1, -2))

    @property
    def real(self) -> Traced:
        """Return the array itself, because complex numbers are not lowered."""
        return self

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    def __iter__(self) -> Iterator[Traced]:
        return (self[index] for index in range(len(self)))

    def _number(self, refusal: str) -> Any:
        """Return the single element of the array as a Python number.

        Raise NotLowered, with the message ``refusal``, if the element depends on an input.
        """
        found = self.known()
        if found is None:
            raise NotLowered(refusal, line_now())
        return found.item()

    def __bool__(self) -> bool:
        return bool(self._number("a Python branch on the values of an array is not lowered; use np.where"))

    def __float__(self) -> float:
        return float(self._number(_NUMBER_READ))

    def __int__(self) -> int:
        return int(self._number(_NUMBER_READ))

    __index__ = __int__

    def __contains__(self, value: object) -> bool:
        raise NotLowered("'in' an array is not lowered; use np.any", line_now())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        found = self.known()
        if found is None:
            raise NotLowered(
                "this numpy function reads an array's values, so it is not lowered; use a function of the table in docs/lowering.md",
                line_now(),
            )
        return found if dtype is None else found.astype(dtype)

    def __getattr__(self, name: str) -> Any:
        if name in METHODS:
            return functools.partial(METHODS[name], self)
        if name in FUNCTIONS and hasattr(np.ndarray, name):
            return functools.partial(called, name, self)
        if name.startswith("_") or name not in dir(np.ndarray):
            raise AttributeError(f"an array has no attribute {name!r}")
        raise NotLowered(f"ndarray.{name} is not lowered; use a function of the table in docs/lowering.md", line_now())

    def part(self, of: Callable[[Any], Any]) -> Traced:
        """Return the view of this array that ``of`` selects; ``of`` is a function that returns a view of a numpy array
        of the same shape.

        A later store to the array or to the view changes both.
        """
        return Traced(None, None, self, of)

    def __getitem__(self, key: Any) -> Any:
        if (found := self._under_mask(key)) is not None:
            part, mask, lead = found
            under = mask.view if not lead else _behind(mask, part.ndim - lead - mask.ndim).view.broadcast(part.shape)
            return Masked(Traced(part.view, self.kind), Traced(under, "b"), line_now())
        keys = key if isinstance(key, tuple) else (key,)
        if any(isinstance(one, bool | np.bool_) for one in keys):
            refused("an index of True or False", "use None for a new axis, and np.where for a choice")
        if any(isinstance(one, (Traced, *LISTS)) for one in keys):
            named = self._named(key)
            return Traced(named.view, named.kind)  # numpy returns a copy here, not a view
        return self.part(lambda array: array[key if isinstance(key, tuple) and Ellipsis in key else _kept(array, key)])

    def _under_mask(self, key: Any) -> tuple[Traced, Traced, int] | None:
        """Return (part of this array, mask, number of axes before the mask's axes) for an index with one mask.

        The index selects the elements of the part at which the mask is True. Beside the mask there may be slices. If
        the mask comes first, there may also be numbers and new axes. Return None for any other index.
        """
        given = key if isinstance(key, tuple) else (key,)
        keys = tuple(one.mask if isinstance(one, Positions) else one for one in given)
        masks = [
            place
            for place, one in enumerate(keys)
            if isinstance(one, Traced | np.ndarray) and one.ndim and kind_of(one) == "b"
        ]
        if len(masks) != 1:
            return None
        at, every = masks[0], slice(None)
        mask = wrapped(keys[at])
        spread = [*keys[:at], *(every,) * mask.ndim, *keys[at + 1 :]]
        numbers = int | np.integer | None
        if not all(
            one is Ellipsis or isinstance(one, slice) or (not at and isinstance(one, numbers)) for one in spread
        ):
            return None
        if not any(one is Ellipsis for one in spread):
            spread.append(Ellipsis)
        dots = next(place for place, one in enumerate(spread) if one is Ellipsis)
        free = self.ndim - sum(one is not None for one in spread) + 1
        lead = at if dots >= at else at - 1 + free
        plain = all(one is Ellipsis or (isinstance(one, slice) and one == every) for one in spread)
        part = self if plain else self[tuple(spread)]
        if free < 0 or part.shape[lead : lead + mask.ndim] != mask.shape:
            return None
        return part, mask, lead

    def _named(self, key: Any) -> Traced:
        """Return a copy of the elements that ``key`` selects by arrays of positions."""
        found: Traced = FUNCTIONS["__getitem__"](self, key if isinstance(key, tuple) else (key,))
        return found

    def __setitem__(self, key: Any, value: Any) -> None:
        if (found := self._under_mask(key)) is not None:
            under, mask, lead = found
            behind = under.ndim - lead - mask.ndim
            spread = _behind(mask, behind)
            if isinstance(value, Masked):
                chosen = value.stored_by(Traced(spread.view.broadcast(under.shape), "b") if lead else mask)
            elif np.ndim(value) <= behind:
                chosen = value
            else:
                raise NotLowered(
                    "storing one value for each element that a mask selects is not lowered; use np.where",
                    line_now(),
                )
            under.assign(called("where", spread, chosen, under))
            return
        keys = key if isinstance(key, tuple) else (key,)
        if any(isinstance(one, Traced) and kind_of(one) == "i" and one.known() is None for one in keys):
            FUNCTIONS["__setitem__"](self, keys, value)
            return
        arrays = any(isinstance(one, (Traced, *LISTS)) for one in keys)
        part = root = self._named(key) if arrays else self[key]
        while root._base is not None and root is not self:
            root = root._base
        if root is not self:
            FUNCTIONS["__setitem__"](self, keys, value)
            return
        if not (
            isinstance(value, Traced) and value._base is not None and value.view == part.view
        ):  # nothing to store: for x[0] += 1 Python stores to the view first, and then assigns the view to itself
            part.assign(value)

    def assign(self, value: Any) -> None:
        """Store ``value`` to all elements of this array. A store to a view changes the array that it is a view of.

        ``value`` is broadcast to the array's shape, and converted to its type.
        """
        line = line_now()
        given = operand(cast(value, self.kind))
        if isinstance(given, View) and kind_of(value) == "i" and self.view.dtype in NARROW_INTEGERS:
            given = in_type(given, self.view.dtype, line)
        if self._base is None:
            shape, held = self.shape, self.view
            if isinstance(given, View):
                wide = given.broadcast(shape)
                alike = wide.dtype == held.dtype or not {wide.dtype, held.dtype} & NARROW
                self._view = wide if alike else whole(elementwise("copy", [wide], held.dtype, line))
            else:
                self._view = whole(fill(given, shape, held.dtype, line))
            return
        root = self
        steps = []
        while root._base is not None:
            steps.append(root._of)
            root = root._base
        held = root.view
        if held.node.kind != "buffer" or not held.whole:
            start = Node("buffer", "", (), held.shape, held.dtype, line)
            first_store = stored(None, held, whole(start), line)
            # The nodes of values that will be stored to parts of the array may exist already. The store of the whole
            # array has to come before them.
            first_store.order = held.node.order
            held = whole(first_store)
        target = View(held.node, held.shape, dense(held.shape))
        for of in reversed(steps):
            assert of is not None
            target = target.mapped(of)
        if not math.prod(target.shape):
            return
        if not isinstance(given, View):
            given = whole(fill(given, target.shape, held.dtype, line))
        while len(given.shape) > len(target.shape) and given.shape[0] == 1:
            given = given.mapped(lambda array: array[0])
        first = held.node.kind == "buffer" and not held.node.args
        root._view = View(
            stored(None if first else whole(held.node), given, target, line), held.shape, dense(held.shape)
        )

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *args: Any, out: Any = None, **further: Any) -> Any:
        name = ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}"
        kept = out[0] if isinstance(out, tuple) and len(out) == 1 else out
        if method != "__call__":
            if name in FUNCTIONS:
                return called(name, *args, out=kept, **further)
            if method == "outer":
                first, second = (wrapped(one) for one in args)
                return _into(kept, ufunc(first[(..., *(None,) * second.ndim)], second))
            folded = FOLDS.get((ufunc.__name__, method))
            if folded is None:
                return _into(kept, evaluated(getattr(ufunc, method), name, args, further))
            axis = further.pop("axis", 0)
            if further.get("dtype") is None:
                further.pop("dtype", None)
            return called(folded, args[0], axis=axis, out=kept, **further)
        where, dtype = further.pop("where", True), further.pop("dtype", None)
        unread = set(further) - {"order", "subok", "casting"}
        if where is not True or unread:
            raise NotLowered(
                f"np.{name}({'where' if where is not True else unread.pop()}=...) is not lowered; leave the argument out, and "
                "choose by np.where",
                line_now(),
            )
        if dtype is not None:
            args = tuple(wrapped(one).astype(dtype) for one in args)
        return _into(kept, computed(ufunc, *args))

    def __array_function__(self, function: Any, types: Any, args: Any, further: Any) -> Any:
        if function.__name__ in FUNCTIONS:
            return called(function.__name__, *args, **further)
        out = further.pop("out", None)
        name = ".".join([*function.__module__.split(".")[1:], function.__name__])
        return _into(out, evaluated(function, name, args, further))


def _into(out: Any, found: Any) -> Any:
    """Return ``found``, the result of a function. If ``out`` is given, store the result to ``out`` and return ``out``,
    as numpy does.
    """
    if isinstance(found, tuple) and isinstance(out, tuple):
        return tuple(_into(*pair) for pair in zip(out, found, strict=True))
    if out is not None:
        wrapped(out).assign(found)
    return found if out is None else out


LISTS = (np.ndarray, list, tuple, range)
"""Types of an index's parts that give positions one by one, besides :class:`Traced`."""


def _kept(array: Any, key: Any) -> Any:
    """Return an index that selects the same elements as ``key``, but gives an array without axes where ``key`` gives a
    number.
    """
    return key if isinstance(array[key], np.ndarray) else (*(key if isinstance(key, tuple) else (key,)), Ellipsis)


def called(name: str, *args: Any, **further: Any) -> Any:
    """Return the result of the lowered numpy function ``name``. Raise NotLowered for an argument that is not lowered.

    An argument ``out`` gets the result, too.
    """
    function = FUNCTIONS[name]
    args, further = _named_out(name, args, further)
    out = further.pop("out", None)
    known = _signature(function).parameters
    unread = [key for key in further if key not in known]
    if unread and not any(one.kind is inspect.Parameter.VAR_KEYWORD for one in known.values()):
        raise NotLowered(f"np.{name}({unread[0]}=...) is not lowered; leave the argument out", line_now())
    try:
        _signature(function).bind(*args, **further)
    except TypeError as error:
        raise NotLowered(
            f"np.{name} with these arguments is not lowered ({error}); use no other arguments than "
            f"{', '.join(key for key in known if not key.startswith('_'))}",
            line_now(),
        ) from error
    return _into(out, function(*args, **further))


def _named_out(name: str, args: tuple[Any, ...], further: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of the numpy function ``name``, where ``out`` and all arguments after it are passed by name.

    The result is (positional arguments, named arguments).
    """
    try:
        known = _signature(getattr(np, name)).parameters
    except (AttributeError, TypeError, ValueError):
        return args, further
    apart = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.KEYWORD_ONLY)
    names = [key for key, one in known.items() if one.kind not in apart]
    at = names.index("out") if "out" in names else len(args)
    return args[:at], further | dict(zip(names[at:], args[at:], strict=False))


def refused(what: str, instead: str = "") -> Any:
    """Raise NotLowered for the construct ``what``, at the line of the reference that is being executed.

    ``instead`` tells the user what to write instead.
    """
    raise NotLowered(f"{what} is not lowered{instead and f'; {instead}'}", line_now())


def dtype_named(name: str) -> np.dtype[Any]:
    """Return numpy's dtype of this name. ``bfloat16`` and the 8-bit float dtypes are known, too."""
    if name == "bfloat16" or name.startswith("float8"):
        import ml_dtypes

        narrow: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
        return narrow
    found: np.dtype[Any] = np.dtype(name)
    return found


def held_as(dtype: np.dtype[Any]) -> str:
    """Return the dtype name that a graph uses for values of ``dtype``.

    64-bit types become 32-bit types, because kernels have no wider types. Booleans become 0.0 and 1.0 in float32.
    """
    return {"float64": "float32", "int64": "int32", "uint64": "uint32", "bool": "float32"}.get(dtype.name, dtype.name)


SOURCE = [""]
"""Path of the reference that is being traced, as the only element of a list.

The list lets other modules set the path.
"""


def line_now() -> int:
    """Return the number of the reference's line that is being executed; 0 if the reference is not running."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename != SOURCE[0]:
        frame = frame.f_back  # type: ignore[assignment]  # None ends the loop
    return frame.f_lineno if frame is not None else 0


def kind_named(letter: str) -> Kind:
    """Return the kind of a type by the letter ``dtype.kind`` of numpy: ``u`` for unsigned integers gives ``i``."""
    return "b" if letter == "b" else "i" if letter in ("i", "u") else "f"


def kind_of(value: Any) -> Kind:
    """Return the kind of the type of an array, list or number: ``b``, ``i`` or ``f``."""
    if isinstance(value, Traced):
        return value.kind
    if has_traced(value):
        return wrapped(value).kind
    found = value.dtype if hasattr(value, "dtype") else np.asarray(value).dtype
    return kind_named(found.kind)


def has_traced(value: Any) -> bool:
    """Tell whether a value is a list or tuple that contains a traced array, at any depth."""
    return isinstance(value, list | tuple) and any(isinstance(one, Traced) or has_traced(one) for one in value)


def wrapped(value: Any) -> Traced:
    """Return a value of the reference (an array, a list or a number) as a Traced array."""
    if isinstance(value, Traced):
        return value
    if has_traced(value):
        stacked: Traced = FUNCTIONS["stack"]([wrapped(one) for one in value])
        return stacked
    found = operand(value)
    return Traced(found if isinstance(found, View) else whole(fill(found, (), "float32", line_now())), kind_of(value))


def operand(value: Any) -> Operand:
    """Return a value of the reference as an operand of a graph node: a view or a number.

    Raise NotLowered for anything else.
    """
    if isinstance(value, Traced):
        view = settled(value.view, line_now())
        return view if view.node is not INDEX or any(view.strides) or view.shape else float(view.offset)
    if isinstance(value, bool | int | float | np.generic) or (isinstance(value, np.ndarray) and value.ndim == 0):
        return finite(float(value), line_now())
    if isinstance(value, np.ndarray | list | tuple):
        if has_traced(value):
            return wrapped(value).view
        array = np.asarray(value)
        if array.dtype.kind in "biuf" or array.dtype.name in ("bfloat16", "float16"):
            return placed(array, held_as(array.dtype) if array.dtype.kind not in "biu" else "float32", line_now())
    if isinstance(value, Masked):
        raise value.refusal()
    raise NotLowered(f"an operand of type {type(value).__name__} is not lowered; use arrays and numbers", line_now())


def array_of(value: Any) -> View:
    """Return an array of the reference as a view of a graph node. Raise NotLowered for a number."""
    found = operand(value)
    if not isinstance(found, View):
        raise NotLowered("a matrix product of a number is not lowered; multiply by * instead", line_now())
    return found


def cast(value: Any, kind: Kind) -> Any:
    """Return ``value`` converted to a kind of dtype as numpy converts it: integers drop the fraction, and booleans are
    True for all numbers but 0.
    """
    found = kind_of(value)
    if kind == "b" and found != "b":
        return np.not_equal(value, 0)
    if kind == "i" and found == "f":
        return np.trunc(value)
    return value


def computed(ufunc: np.ufunc, *args: Any) -> Any:
    """Return the result of an element-wise numpy function, with the kind of dtype that numpy would give it.

    Raise numpy's own TypeError if the function does not take arguments of these types.
    """
    name = ufunc.__name__
    if name == "divmod":
        return computed(np.floor_divide, *args), computed(np.remainder, *args)
    types = [type(one) if type(one) in (int, float) else _promoted(one) for one in args]
    resolved = ufunc.resolve_dtypes((*types, *(None,) * ufunc.nout))[len(args)]
    kind = kind_named(resolved.kind)
    found = _computed(ufunc, args, kind)
    if kind == "i" and resolved.name in NARROW_INTEGERS and isinstance(found, Traced):
        return Traced(in_type(found.view, resolved.name, line_now(), computed=True), kind)
    return found


def _promoted(value: Any) -> np.dtype[Any]:
    """Return the dtype with which an operand takes part in numpy's type promotion.

    Narrow integers keep their dtype. Any other operand gets bool, int64 or float32, by its kind.
    """
    kind = kind_of(value)
    held = value.dtype if kind == "i" and hasattr(value, "dtype") else None
    return held if held is not None and held.name in NARROW_INTEGERS else _TYPES[kind]


def _computed(ufunc: np.ufunc, args: Sequence[Any], kind: Kind) -> Any:
    """Return the result of an element-wise numpy function or of ``np.matmul``. ``kind`` is the kind of the result."""
    name = ufunc.__name__
    if name == "matmul":
        found = Traced(
            product(array_of(args[0]), array_of(args[1]), "float32" if kind != "f" else "", line_now()), kind
        )
        return Traced((found > 0).view, "b") if kind == "b" else found
    if name in UFUNCS:
        made = UFUNCS[name](*args)
        return Traced(made.view, kind) if isinstance(made, Traced) else made
    if name not in ELEMENTWISE:
        return evaluated(ufunc, name, args, {})
    node = ELEMENTWISE[name]
    if kind == "b" and node == "add":
        node = "max"  # the sum of booleans is a boolean in numpy
    return Traced(applied(node, args, kind), kind)


def applied(name: str, args: Sequence[Any], kind: Kind = "f") -> View:
    """Return the result of the element-wise graph function ``name`` as a view. ``kind`` is the kind of the result.

    Functions of numbers are computed at once. Raise NotLowered for a power whose base is a number that is not positive.
    """
    line = line_now()
    given = [operand(arg) for arg in args]
    if not any(isinstance(arg, View) for arg in given):
        with np.errstate(all="ignore"):
            return whole(fill(finite(float(CONSTANT[name](*given)), line), (), "float32", line))
    if (found := shifted_index(name, given)) is not None:
        return found
    if name in COMPARISONS and len(given) == 2 and (found := compared(name, given, line)) is not None:
        return found
    if name == "pow" and isinstance(given[0], float):
        exponent = given[1]
        assert isinstance(exponent, View)
        if given[0] <= 0:
            refused("a power of a number that is not positive", "use a positive base")
        return applied("exp", [Traced(applied("mul", [Traced(exponent), math.log(given[0])]))])
    if name == "pow" and isinstance(given[0], View) and isinstance(given[1], View) and kind == "f":
        return _power(given[0], given[1])
    dtypes = {view.dtype for view in given if isinstance(view, View)}
    if kind == "i" and dtypes & NARROW_INTEGERS and dtypes <= _INTEGERS:
        # compute in int32, because the narrow type may be too small for the result
        return whole(elementwise(name, given, "int32", line))
    narrow = dtypes <= _INTEGERS | {"bool"} and (kind != "i" or not dtypes <= _INTEGERS)
    return whole(elementwise(name, given, "float32" if narrow else "", line))


def _behind(mask: Traced, axes: int) -> Traced:
    """Return a mask with ``axes`` axes of one element appended."""
    found: Traced = mask.reshape((*mask.shape, *(1,) * axes))
    return found


LEAST_BASE = 1e-37
"""Number that replaces 0 as the base of a power, because 0 has no logarithm."""


def _power(base: View, exponent: View) -> View:
    """Return a power of two arrays as ``exp(exponent * log(abs(base)))``, with the sign of the base if the exponent is odd."""
    least = Traced(applied("max", [Traced(applied("abs", [Traced(base)])), LEAST_BASE]))
    size = np.exp(np.multiply(Traced(exponent), np.log(least)))
    found = values(base)
    if bounds(base)[0] >= 0 or (found is not None and found.size and found.min() >= 0):
        return wrapped(size).view
    odd = np.equal(np.mod(Traced(exponent), 2.0), 1.0)
    return wrapped(np.where(np.logical_and(np.less(Traced(base), 0.0), odd), -size, size)).view


def evaluated(function: Callable[..., Any], name: str, args: Any, further: Any) -> Any:
    """Call a numpy function with known values while tracing, and return its result.

    Raise NotLowered if an argument depends on an input. ``name`` is the function's name in the error.
    """

    def plain(value: Any) -> Any:
        if isinstance(value, Traced):
            found = value.known()
            if found is None:
                raise NotLowered(
                    f"np.{name} is not lowered; use a function of the table in docs/lowering.md", line_now()
                )
            return found
        return type(value)(plain(one) for one in value) if isinstance(value, tuple | list) else value

    given = plain(tuple(args))
    with np.errstate(all="ignore"):
        return function(*given, **{key: plain(value) for key, value in further.items()})


def by_formula(ufunc: np.ufunc, *args: Any) -> Any:
    """Return the result of an element-wise function of constants as a number or as a short formula of positions.

    Return None if an argument depends on an input, or if no short formula gives the result. Then the kernel has to
    compute the function.
    """
    if not known(*args):
        return None
    found = evaluated(ufunc, ufunc.__name__, args, {})
    if not np.ndim(found):
        return found
    try:
        return Traced(placed(found, "float32", line_now()), kind_named(found.dtype.kind))
    except NotLowered:
        return None


def known(*args: Any) -> bool:
    """Tell whether all arguments depend on shapes alone, and not on an input."""
    return all(one.known() is not None for one in args if isinstance(one, Traced))


def forwarded(view: View) -> View:
    """Return a view of a buffer as a view of the value that was stored there, if a single store wrote all elements of
    the view.

    Any other view is returned unchanged.
    """
    while view.node.kind == "buffer" and view.node.target is not None:
        target, value = view.node.target, view.node.args[-1]
        assert isinstance(value, View)
        read, held = box(view), box(target)
        if read is None or held is None:
            return view
        inside = all(h[0] <= r[0] and r[1] <= h[1] for r, h in zip(read, held, strict=True))
        apart = any(r[1] <= h[0] or h[1] <= r[0] for r, h in zip(read, held, strict=True))
        if apart and len(view.node.args) == 2:
            before = view.node.args[0]
            assert isinstance(before, View)
            view = View(before.node, view.shape, view.strides, view.offset)
            continue
        if not inside or target.strides != dense(view.node.shape) or len(target.shape) != len(view.node.shape):
            return view
        if value.dtype != view.node.dtype and (view.node.dtype != "float32" or value.dtype in NARROW):
            return view  # the store converts the value to another type
        # The stored value has the shape of the target, so steps in the target are steps in the value.
        start = tuple(r[0] - h[0] for r, h in zip(read, held, strict=True))
        places = steps_of(view, view.node.shape)
        if places is None:
            return view
        strides = tuple(sum(c * s for c, s in zip(place, value.strides, strict=True)) for place in places)
        offset = value.offset + sum(c * s for c, s in zip(start, value.strides, strict=True))
        view = View(value.node, view.shape, strides, offset)
    return view
