"""Trace a numpy reference: call the reference with arrays that record its operations as a graph."""

from __future__ import annotations

import contextlib
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

# Importing these modules registers their functions in FUNCTIONS.
from acceld.errors import UsageError
from acceld.lowering import composed, contractions, elementary, functions, indexing, rows
from acceld.lowering.arrays import (
    ELEMENTWISE,
    SOURCE,
    Traced,
    applied,
    has_traced,
    kind_named,
    line_now,
    wrapped,
)
from acceld.lowering.constants import counted, placed
from acceld.lowering.functions import Parted, new
from acceld.lowering.graph import Graph, NotLowered, View, elementwise, entry, whole
from acceld.lowering.indexing import constant
from acceld.lowering.masked import Masked, Positions
from acceld.lowering.orders import ordered_rows

assert composed and contractions and elementary and functions and indexing and rows


_AS_STRIDED = np.lib.stride_tricks.as_strided


def _arange(start: Any, stop: Any = None, step: Any = 1, dtype: Any = None) -> Any:
    first, end = (0, start) if stop is None else (start, stop)
    if not all(isinstance(one, int | np.integer | Traced) for one in (first, end, step)):
        return _positioned(np.arange(*(float(one) for one in (first, end, step)), dtype=dtype))
    first, end, step = int(first), int(end), int(step)
    found = Traced(counted((max(0, -(-(end - first) // step)),), (step,), first))
    return found if dtype is None else found.astype(dtype)


def _positioned(array: np.ndarray[Any, Any]) -> Traced:
    """Return a constant array as a traced array. Raise NotLowered if no short formula of the positions describes the
    array.
    """
    return Traced(placed(array, "float32", line_now()), kind_named(array.dtype.kind))


def _grid(array: np.ndarray[Any, Any] | Sequence[np.ndarray[Any, Any]]) -> Any:
    """Return a grid of positions that numpy computed as one traced array; as a tuple of arrays if numpy returned a
    tuple.
    """
    parts = [_positioned(one) for one in array]
    return tuple(parts) if isinstance(array, tuple | list) else np.stack(parts)


def _window(*shares: float) -> Callable[[int], Any]:
    """Return a replacement for a window function of numpy, such as ``np.hanning``.

    The window is a sum of cosines with the coefficients ``shares``.
    """

    def made(M: int) -> Any:
        if M < 2:
            return np.ones(max(0, M))
        angle = _positioned(np.arange(1.0 - M, M, 2.0)) * (np.pi / (M - 1))
        return sum((np.cos(angle * at) * share for at, share in enumerate(shares) if at), start=shares[0])

    return made


class _Joined:
    """The replacement of ``np.r_`` (``rank`` 1) or ``np.c_`` (``rank`` 2), which also takes traced arrays."""

    def __init__(self, original: Any, rank: int) -> None:
        self._original, self._rank = original, rank

    def __getitem__(self, key: Any) -> Any:
        parts = key if isinstance(key, tuple) else (key,)
        if not any(isinstance(one, Traced) or has_traced(one) for one in parts):
            return self._original[key]
        if any(isinstance(one, str) for one in parts):
            raise NotLowered("a text in np.r_ or np.c_ is not lowered; use np.concatenate or np.stack", line_now())
        found = [wrapped(self._original[one] if isinstance(one, slice) else one) for one in parts]
        if self._rank == 1:
            return np.concatenate([np.atleast_1d(one) for one in found])
        return np.concatenate([one if one.ndim > 1 else one.reshape(-1, 1) for one in found], axis=-1)


class _Grids:
    """The replacement of ``np.mgrid`` or ``np.ogrid``, which returns traced arrays."""

    def __init__(self, original: Any) -> None:
        self._original = original

    def __getitem__(self, key: Any) -> Any:
        return _grid(self._original[key]) if isinstance(key, tuple) else _positioned(self._original[key])


def _empty(shape: Any, dtype: Any = float, order: str = "C") -> Any:
    return new(shape, dtype, None)


def _zeros(shape: Any, dtype: Any = float, order: str = "C") -> Any:
    return new(shape, dtype, 0)


def _ones(shape: Any, dtype: Any = float, order: str = "C") -> Any:
    return new(shape, dtype, 1)


def _full(shape: Any, fill_value: Any, dtype: Any = None, order: str = "C") -> Any:
    given = fill_value.dtype if isinstance(fill_value, Traced) else np.asarray(fill_value).dtype
    return new(shape, given if dtype is None else dtype, fill_value)


def _strided(x: Any, shape: Any = None, strides: Any = None, *, subok: bool = False, writeable: bool = True) -> Any:
    """Return what ``np.lib.stride_tricks.as_strided`` returns, also for a traced array."""
    array = wrapped(x)
    wanted = array.shape if shape is None else tuple(int(n) for n in shape)
    steps = [int(step) // array.itemsize for step in (array.strides if strides is None else strides)]
    reach = array.view.offset + sum(max(0, (n - 1) * step) for n, step in zip(wanted, steps, strict=True))
    if reach >= array.view.node.size:
        raise NotLowered("as_strided beyond the end of an array is not lowered; pad the array first", line_now())
    return array.part(lambda one: _AS_STRIDED(one, wanted, steps))


def _vectorized(pyfunc: Any, otypes: Any = None) -> Any:
    """Return what ``np.vectorize(pyfunc)`` returns, also for traced arrays. Only functions of ``math``, such as
    ``math.erf``, are lowered.
    """
    name = ELEMENTWISE.get(getattr(pyfunc, "__name__", ""))
    plain = np.vectorize(pyfunc, otypes)

    def over_arrays(*args: Any) -> Any:
        if not any(isinstance(one, Traced) for one in args):
            return plain(*args)
        if name is None or getattr(pyfunc, "__module__", "") != "math":
            raise NotLowered(
                "np.vectorize of a function from outside of the module math is not lowered; write the function on whole arrays",
                line_now(),
            )
        return Traced(applied(name, args))

    return over_arrays


def _given(original: Callable[..., Any], copies: bool) -> Callable[..., Any]:
    """Return a replacement for ``np.array`` or ``np.asarray`` that also takes traced arrays and lists of them.

    ``copies`` is the default of the function's argument ``copy``.
    """

    def made(value: Any, dtype: Any = None, **further: Any) -> Any:
        if has_traced(value):
            value = wrapped(value)
        if not isinstance(value, Traced):
            return constant(original(value, dtype, **further))
        copied = further.pop("copy", copies)
        if set(further) - {"order", "subok", "ndmin"} or further.get("ndmin", 0) > value.ndim:
            raise NotLowered(
                f"np.{original.__name__}({next(iter(further))}=...) is not lowered; leave the argument out", line_now()
            )
        return value.astype(value.dtype if dtype is None else dtype, copy=bool(copied))

    return made


def _placing(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a replacement for a numpy constructor, such as ``np.eye``, that returns a traced array.

    Unlike an array of numpy, a traced array can be indexed by other traced arrays.
    """

    return lambda *args, **further: _positioned(original(*args, **further))


class _Random:
    """The replacement of ``numpy.random`` or a part of it, which raises NotLowered when it is called.

    A kernel has no random numbers.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return _Random(f"{self._name}.{name}")

    def __call__(self, *args: Any, **further: Any) -> Any:
        raise NotLowered(
            f"{self._name} is not lowered, because a kernel has no random numbers; make the random array an argument",
            line_now(),
        )


def _random(value: Any) -> bool:
    """Tell whether a value is the module ``numpy.random``, a random generator, or a function of one of these."""
    named = getattr(value, "__name__", "") if isinstance(value, ModuleType) else getattr(value, "__module__", None)
    owner = getattr(value, "__self__", None)
    every = (named, type(value).__module__, type(owner).__module__)
    return any(isinstance(one, str) and one.partition("._")[0] == "numpy.random" for one in every)


def _for_references(made: Callable[..., Any], original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that calls ``original`` if numpy, acceld or scipy calls it, and ``made`` for all other callers."""

    def constructed(*args: Any, **further: Any) -> Any:
        caller = sys._getframe(1).f_globals.get("__name__", "").partition(".")[0]
        return (original if caller in ("numpy", "acceld", "scipy") else made)(*args, **further)

    return constructed


@contextlib.contextmanager
def _traced_constructors() -> Iterator[None]:
    """Replace numpy's constructors in the ``with`` block, so that a reference gets traced arrays from them.

    The module ``numpy`` itself is changed, so the process must do nothing but trace meanwhile.
    """
    indices = np.indices
    made: dict[str, Callable[..., Any]] = {
        "empty": _empty,
        "zeros": _zeros,
        "ones": _ones,
        "full": _full,
        "arange": _arange,
        "vectorize": _vectorized,
        "indices": lambda dimensions, dtype=int, sparse=False: _grid(indices(dimensions, dtype, sparse)),
        "hanning": _window(0.5, 0.5),
        "hamming": _window(0.54, 0.46),
        "blackman": _window(0.42, 0.5, 0.08),
        **{
            name: _placing(getattr(np, name))
            for name in ("eye", "identity", "tri", "linspace", "logspace", "geomspace")
        },
        **{name: _given(getattr(np, name), name == "array") for name in ("array", "asarray", "ascontiguousarray")},
    }
    apart: dict[str, Any] = {"random": _Random("np.random")}
    apart |= {"r_": _Joined(np.r_, 1), "c_": _Joined(np.c_, 2), "mgrid": _Grids(np.mgrid), "ogrid": _Grids(np.ogrid)}
    held = {name: getattr(np, name) for name in (*made, *apart)}
    try:
        for name, function in made.items():
            setattr(np, name, _for_references(function, held[name]))
        for name, other in apart.items():
            setattr(np, name, other)
        np.lib.stride_tricks.as_strided = _for_references(_strided, _AS_STRIDED)
        yield
    finally:
        np.lib.stride_tricks.as_strided = _AS_STRIDED
        for name, original in held.items():
            setattr(np, name, original)


def _in_own_type(output: Traced) -> View:
    """Return an output as a view, with integers converted to an integer type and booleans to bool.

    The engines may compute both in float32.
    """
    view = wrapped(output).view
    dtype = {"i": "int32", "b": "bool"}.get(output.kind, view.dtype)
    return (
        view
        if view.dtype == dtype or (output.kind == "i" and "int" in view.dtype)
        else whole(elementwise("copy", [view], dtype, line_now()))
    )


def traced(forward: Callable[..., Any], source: Path, arguments: Sequence[tuple[str, Any]]) -> Graph:
    """Return the graph of ``forward``, a function that the file ``source`` defines.

    ``arguments`` has (name, (shape, dtype)) for an array, and (name, number) for a number. Raise NotLowered for
    an operation that is not lowered.
    """
    SOURCE[0] = forward.__code__.co_filename
    inputs = [entry(name, *value) for name, value in arguments if isinstance(value, tuple)]
    by_name = {node.name: node for node in inputs}
    given = [Traced(whole(by_name[name])) if isinstance(value, tuple) else value for name, value in arguments]
    tables = {name: value for name, value in forward.__globals__.items() if type(value) is np.ndarray}
    random = {name: value for name, value in forward.__globals__.items() if _random(value)}
    strided = {name: value for name, value in forward.__globals__.items() if value is _AS_STRIDED}
    with _traced_constructors():
        try:
            forward.__globals__.update({name: constant(value) for name, value in tables.items()})
            forward.__globals__.update({name: _Random(name) for name in random})
            forward.__globals__.update(dict.fromkeys(strided, _strided))
            result = forward(*given)
        except UsageError:
            raise
        except Exception as error:  # anything may go wrong in a person's code
            frames = [one for one in traceback.extract_tb(error.__traceback__) if one.filename == SOURCE[0]]
            kind = "" if isinstance(error, TypeError | AttributeError) else f"{type(error).__name__}: "
            raise NotLowered(f"{kind}{error}".removesuffix(": "), frames[-1].lineno or 0 if frames else 0) from error
        finally:
            forward.__globals__.update(tables | random | strided)
    outputs = list(result) if isinstance(result, tuple | list) else [result]
    views = []
    for output in outputs:
        if isinstance(output, Masked | Parted | Positions):
            raise output.refusal()
        if has_traced(output):
            output = wrapped(output)
        if not isinstance(output, Traced):
            raise NotLowered(
                "forward returns something that does not depend on its arguments, which is not lowered; return arrays that do"
            )
        if not output.size:
            raise NotLowered(
                f"an output of shape {output.shape}, without elements, is not lowered; return the outputs that have elements"
            )
        views.append(_in_own_type(output))
    lines = tuple(source.read_text().splitlines())
    return ordered_rows(Graph(tuple(inputs), tuple(views), lines))
