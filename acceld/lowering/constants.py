"""Replace arrays of constants by functions of the elements' positions.

A kernel has no tables. So the chip computes an array that depends on shapes alone, such as a mask, as an affine
function of positions or as a function with a few steps.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from acceld.lowering.graph import INDEX, Graph, Node, NotLowered, View, coordinates, dense, elementwise, fill, whole

Array = np.ndarray[Any, Any]

_GEOMETRIC = 2.0 * float(np.finfo(np.float32).eps)
"""Greatest relative error up to which a float32 array counts as a geometric sequence.

The error allows for the rounding of each element, and of the two elements from which the ratio is computed.
"""
LARGEST = 3e38
"""Number that replaces infinity, for example in masked scores.

It is below the greatest float32 value, so that adding a score does not overflow.
"""
MOST_STEPS = 16
"""Greatest number of steps of a step function of positions. Each step takes one instruction."""
MOST_STEPS_OF_FEW = 64
"""Greatest number of steps of a step function of at most :data:`FEW` positions, for which an instruction takes little
time.
"""
FEW = 4096
MOST_ELEMENTS = 2**24
"""Greatest number of elements of an array of constants. Greater positions are not exact in float32."""
MOST_PERIOD = 16
"""Greatest number of positions after which the steps between constant positions may repeat, as in an interpolation."""
FUNCTIONS: dict[str, Any] = {
    "abs": np.abs,
    "add": np.add,
    "arctan": np.arctan,
    "copy": np.positive,
    "div": np.divide,
    "eq": np.equal,
    "erf": np.vectorize(math.erf, otypes=[float]),
    "exp": np.exp,
    "ge": np.greater_equal,
    "gt": np.greater,
    "le": np.less_equal,
    "log": np.log,
    "lt": np.less,
    "max": np.maximum,
    "min": np.minimum,
    "mul": np.multiply,
    "ne": np.not_equal,
    "neg": np.negative,
    "not": np.logical_not,
    "pow": np.power,
    "recip": np.reciprocal,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "sign": np.sign,
    "sin": np.sin,
    "sqrt": np.sqrt,
    "square": np.square,
    "sub": np.subtract,
    "tanh": np.tanh,
    "where": np.where,
}
"""numpy's function that computes the same as an element-wise or reduction node, by the node's name."""


def finite(value: float, line: int = 0) -> float:
    """Return ``value``. For an infinity, return :data:`LARGEST` with the same sign, because kernels use no infinities.

    Raise NotLowered for NaN.
    """
    if math.isnan(value):
        raise NotLowered(
            "NaN as a constant is not lowered; instead of marking elements with NaN, keep a mask and give it to the reduction as where=",
            line,
        )
    return math.copysign(LARGEST, value) if math.isinf(value) else value


def counted(shape: tuple[int, ...], steps: tuple[int, ...], start: int) -> View:
    """Return an array of integers, as a view, whose elements are an affine function of their positions.

    The first element is ``start``. Along each axis, elements grow by the axis's step in ``steps``.
    """
    return View(INDEX, shape, steps, start)


def values(view: View) -> Array | None:
    """Return the values of a view; None if the view depends on an input or has more than ``MOST_ELEMENTS`` elements."""
    if view.node is INDEX:
        return _counted_values(view)
    if not view.node.constant or math.prod(view.shape) > MOST_ELEMENTS:
        return None
    held: dict[int, Array] = {}

    def read(part: View) -> Array:
        if part.node is INDEX:
            return _counted_values(part)
        base = held[id(part.node)].reshape(-1)
        steps = [step * base.itemsize for step in part.strides]
        return np.lib.stride_tricks.as_strided(base[part.offset :], part.shape, steps)

    for node in Graph((), (view,)).nodes():
        if node.kind not in ("index", "elementwise", "reduce", "buffer") or (
            node.kind != "index" and node.size > 2 * MOST_ELEMENTS
        ):
            return None
        if node.kind != "index":
            held[id(node)] = _value(node, [read(arg) if isinstance(arg, View) else arg for arg in node.args])
    return read(view).copy()


def _counted_values(view: View) -> Array:
    """Return the values of a view of :data:`INDEX`, the node of all positions."""
    found: Array = np.asarray(view.offset)
    for axis, (extent, step) in enumerate(zip(view.shape, view.strides, strict=True)):
        line = np.arange(extent)
        found = found + (line * step).reshape((extent,) + (1,) * (len(view.shape) - axis - 1))
    return np.broadcast_to(found, view.shape)


def _value(node: Node, args: list[Any]) -> Array:
    """Return the values of one graph node. ``args`` are the values of its operands."""
    if node.kind == "reduce":
        axes = tuple(range(len(node.shape), len(node.shape) + node.folded))
        reduced: Array = FUNCTIONS[node.name].reduce(args[0], axis=axes)
        return reduced
    if node.kind == "buffer":
        total = np.zeros(node.shape)
        if node.target is None:
            return total
        total[...] = args[0] if len(args) == 2 else 0.0
        base = total.reshape(-1)
        target = node.target
        steps = [step * base.itemsize for step in target.strides]
        np.lib.stride_tricks.as_strided(base[target.offset :], target.shape, steps)[...] = args[-1]
        return total
    with np.errstate(all="ignore"):
        found: Any = args[0] if node.name == "fill" else FUNCTIONS[node.name](*args)
        if node.name == "copy" and node.dtype.startswith("int"):
            found = np.rint(found)
    return np.array(np.broadcast_to(found, node.shape))


def placed(array: Array, dtype: str, line: int) -> View:
    """Return an array of constants as a view of a graph node that computes the array from positions.

    Raise NotLowered if no short function gives the array, or if the array has no elements.
    """
    if not array.size:
        raise NotLowered(
            "an array without elements is not lowered; leave out its statement, or give shapes with at least one element",
            line,
        )
    if bool((array == array.flat[0]).all()):
        return whole(fill(finite(float(array.flat[0]), line), array.shape, dtype, line))
    varying = [a for a, n in enumerate(array.shape) if n > 1 and bool((array != array.take([0], a)).any())]
    core = array[tuple(slice(None) if axis in varying else 0 for axis in range(array.ndim))]
    found = _function(np.asarray(core, dtype=np.float64), line)
    if found is None:
        raise NotLowered(
            f"an array of {core.size} constants is not lowered: no short formula of its indices gives it; pass it as an argument",
            line,
        )
    kept = tuple(n if axis in varying else 1 for axis, n in enumerate(array.shape))
    return found.reshaped(kept, line).broadcast(array.shape)


def _function(core: Array, line: int) -> View | None:
    """Return an array of constants as a function of positions; None if no function of this module gives the array."""
    with np.errstate(all="ignore"):
        return (
            _affine(core, line)
            or _clipped(core, line)
            or _stepped(core, line)
            or _in_blocks(core, line)
            or _repeated(core, line)
            or _geometric(core, line)
            or _separated(core, line)
        )


def _steps(core: Array) -> tuple[Array, list[float]]:
    """Return the affine function that fits an array's first elements: its value at each position, and its step along
    each axis.

    Each axis of ``core`` has at least two elements.
    """
    first = core.flat[0]
    steps = [float(np.moveaxis(core, axis, 0)[1].flat[0] - first) for axis in range(core.ndim)]
    found: Array = np.asarray(first)
    for axis, step in enumerate(steps):
        line = np.arange(core.shape[axis], dtype=np.float64)
        found = found + (line * step).reshape((-1,) + (1,) * (core.ndim - axis - 1))
    return found, steps


def _affine(core: Array, line: int) -> View | None:
    """Return an array as an affine function of positions; None if it is not affine."""
    found, steps = _steps(core)
    scale = float(np.abs(core).max())
    if not bool((np.abs(found - core) <= 1e-9 * scale).all()):
        return None
    first = float(core.flat[0])
    if all(step.is_integer() for step in (first, *steps)) and scale < MOST_ELEMENTS:
        return counted(core.shape, tuple(int(step) for step in steps), int(first))
    if core.ndim > 1:
        return None
    scaled = whole(elementwise("mul", [counted(core.shape, (1,), 0), steps[0]], line=line))
    return whole(elementwise("add", [scaled, first], line=line))


def _clipped(core: Array, line: int) -> View | None:
    """Return an array as an affine function of positions that is clipped to two bounds, such as clipped distances.

    Return None if the array does not have this form.
    """
    low, high = float(core.min()), float(core.max())
    inside = (core > low) & (core < high)
    steps = []
    for axis in range(core.ndim):
        turned, within = np.moveaxis(core, axis, 0), np.moveaxis(inside, axis, 0)
        found = np.diff(turned, axis=0)[within[1:] & within[:-1]]
        if not found.size or (found != found[0]).any() or not float(found[0]).is_integer():
            return None
        steps.append(int(found[0]))
    at = tuple(int(place) for place in np.argwhere(inside)[0])
    start = float(core[at]) - sum(step * place for step, place in zip(steps, at, strict=True))
    if not start.is_integer():
        return None
    affine = counted(core.shape, tuple(steps), int(start))
    if not bool((np.clip(_counted_values(affine), low, high) == core).all()):
        return None
    above = whole(elementwise("max", [affine, low], line=line))
    return whole(elementwise("min", [above, high], line=line))


def _stepped(core: Array, line: int) -> View | None:
    """Return an array as a step function with few steps; None if the array does not have this form.

    The step function takes one position, the difference or sum of two positions, or the number of an element.
    """
    if core.ndim == 1:
        return _thresholds(core, counted(core.shape, (1,), 0), 0, line)
    if core.ndim == 2 and bool((core[1:, 1:] == core[:-1, :-1]).all()):
        by_key = np.concatenate([core[::-1, 0], core[0, 1:]])
        return _thresholds(by_key, counted(core.shape, (-1, 1), 0), 1 - core.shape[0], line)
    if core.ndim == 2 and bool((core[1:, :-1] == core[:-1, 1:]).all()):
        by_key = np.concatenate([core[0], core[1:, -1]])
        return _thresholds(by_key, counted(core.shape, (1, 1), 0), 0, line)
    return None if core.ndim < 2 else _thresholds(core.reshape(-1), counted(core.shape, dense(core.shape), 0), 0, line)


def _thresholds(by_key: Array, key: View, first: int, line: int) -> View | None:
    """Return the step function of ``key`` that has the values ``by_key``; None if it would have too many steps.

    ``key`` is an affine function of positions. ``by_key`` has one value for each whole number from ``first`` on.
    """
    edges = [int(at) + 1 for at in np.flatnonzero(by_key[1:] != by_key[:-1])]
    most = MOST_STEPS_OF_FEW if math.prod(key.shape) <= FEW else MOST_STEPS
    if not edges or len(edges) > most:
        return None
    levels = [finite(float(by_key[at]), line) for at in (0, *edges)]
    found: View | float = levels[0]
    for edge, level in zip(edges, levels[1:], strict=True):
        shifted = View(key.node, key.shape, key.strides, key.offset - edge - first)
        beyond = elementwise("ge", [shifted, 0.0], "float32", line)
        if (found, level) == (0.0, 1.0):
            found = whole(beyond)
        elif (found, level) == (1.0, 0.0):
            found = whole(elementwise("lt", [shifted, 0.0], "float32", line))
        else:
            found = whole(elementwise("where", [whole(beyond), level, found], "float32", line))
    assert isinstance(found, View)
    return found


def _in_blocks(core: Array, line: int) -> View | None:
    """Return an array as a smaller array with each element repeated over a block; None if there are no equal blocks."""
    sizes = []
    for axis, extent in enumerate(core.shape):
        moved = np.moveaxis(core, axis, 0).reshape(extent, -1)
        edges = np.flatnonzero((moved[1:] != moved[:-1]).any(axis=1)) + 1
        sizes.append(math.gcd(extent, *(int(edge) for edge in edges)))
    if max(sizes) == 1:
        return None
    found = _function(core[tuple(slice(None, None, size) for size in sizes)], line)
    if found is None:
        return None
    spread = tuple(n for pair in zip(found.shape, sizes, strict=True) for n in pair)
    apart = found.reshaped(tuple(n for extent in found.shape for n in (extent, 1)), line).broadcast(spread)
    return whole(elementwise("copy", [apart], line=line)).reshaped(core.shape)


def _repeated(core: Array, line: int) -> View | None:
    """Return an array of one axis as repetitions of a shorter array; None if the array does not repeat."""
    if core.ndim != 1:
        return None
    extent = core.shape[0]
    for period in (d for d in range(2, min(extent // 2, 4096) + 1) if extent % d == 0):
        if bool((core[period:] == core[:-period]).all()):
            found = _function(core[:period], line)
            if found is None:
                return None
            spread = found.broadcast((extent // period, period))
            return whole(elementwise("copy", [spread], line=line)).reshaped(core.shape)
    return None


def _geometric(core: Array, line: int) -> View | None:
    """Return an array as a geometric sequence, such as the frequencies of rotary positions.

    Return None if the array does not have this form.
    """
    if core.ndim != 1 or not bool((core > 0).all()):
        return None
    # The step is computed from both ends. Computed from two neighbors, its rounding error would grow with each element.
    logs, places = np.log(core), np.arange(core.shape[0])
    step = float(logs[-1] - logs[0]) / max(1, core.shape[0] - 1)
    if not bool((np.abs(logs[0] + places * step - logs) <= _GEOMETRIC).all()):
        return None
    scaled = whole(elementwise("mul", [counted(core.shape, (1,), 0), step], line=line))
    shifted = whole(elementwise("add", [scaled, float(logs[0])], line=line))
    return whole(elementwise("exp", [shifted], line=line))


def _separated(core: Array, line: int) -> View | None:
    """Return an array as the sum or the product of a function of the first position and a function of the other
    positions.

    Return None if the array does not have this form.
    """
    if core.ndim < 2:
        return None
    pivot = coordinates(int(np.abs(core).argmax()), core.shape)
    across: tuple[Any, ...] = (slice(None), *pivot[1:])
    for name, join, inverse in (("add", np.add, np.subtract), ("mul", np.multiply, np.divide)):
        row = core[pivot[0]]
        first = inverse(core[across], core[pivot])
        spread = first.reshape((-1,) + (1,) * (core.ndim - 1))
        if not bool((np.abs(join(row, spread) - core) <= 1e-9 * np.abs(core).max()).all()):
            continue
        parts = [_function(first, line), _function(row, line)]
        if parts[0] is not None and parts[1] is not None:
            turned = parts[0].reshaped(spread.shape, line)
            return whole(elementwise(name, [turned, parts[1]], line=line))
    return None


def settled(view: View, line: int) -> View:
    """Return a view of a buffer of constants as a function of positions, if there is a short function for the
    constants.

    Any other view is returned unchanged.
    """
    known = values(view) if view.node.kind == "buffer" and view.node.constant else None
    if known is None:
        return view
    try:
        return placed(known, view.dtype, line)
    except NotLowered:
        return view


def shifted_index(name: str, args: list[Any]) -> View | None:
    """Return the result of an arithmetic function of affine functions of positions as one affine function.

    Return None if an operand is anything but positions or a whole number, or if the result is not affine.
    """
    views = [arg for arg in args if isinstance(arg, View)]
    if len(args) > 2 or not views or views[0].node is not INDEX or views[-1].node is not INDEX:
        return None
    if not all(isinstance(arg, View) or float(arg).is_integer() for arg in args):
        return None
    if name == "neg":
        return counted(views[0].shape, tuple(-s for s in views[0].strides), -views[0].offset)
    if name == "mul" and len(views) == 1:
        factor = int(next(arg for arg in args if not isinstance(arg, View)))
        return counted(views[0].shape, tuple(s * factor for s in views[0].strides), views[0].offset * factor)
    if name in ("add", "sub"):
        sides = [arg if isinstance(arg, View) else counted((), (), int(arg)) for arg in args]
        shape = np.broadcast_shapes(*(side.shape for side in sides))
        first, second = (side.broadcast(shape) for side in sides)
        sign = -1 if name == "sub" else 1
        strides = tuple(a + sign * b for a, b in zip(first.strides, second.strides, strict=True))
        return counted(tuple(shape), strides, first.offset + sign * second.offset)
    return None


def compared(name: str, args: list[Any], line: int) -> View | None:
    """Return a comparison of two affine functions of positions as a comparison of their difference with 0.

    Return None for any other operands.
    """
    difference = shifted_index("sub", args)
    return None if difference is None else whole(elementwise(name, [difference, 0.0], "float32", line))


def runs(positions: Array) -> list[tuple[int, int, int]]:
    """Return constant positions as runs with equal steps. A run is (first position, step, count)."""
    found: list[list[int]] = []
    for place in positions.tolist():
        last = found[-1] if found else None
        if last is not None and place != last[0] and (last[2] == 1 or place == last[0] + last[1] * last[2]):
            last[1] = place - last[0] if last[2] == 1 else last[1]
            last[2] += 1
        else:
            found.append([place, 1, 1])
    return [(first, step, count) for first, step, count in found]


def walks(positions: Array, most: int) -> list[tuple[int, tuple[tuple[int, int], ...]]] | None:
    """Return constant positions as at most ``most`` walks; None if that is not possible.

    A walk is (first position, loops). The loops (count, step), outermost first, give the positions in order.
    """
    whole_walk = nested(positions)
    if whole_walk is not None:
        return [whole_walk]
    found: list[tuple[int, tuple[tuple[int, int], ...]]] = []
    rest = positions
    while rest.size:
        if len(found) == most:
            return None
        longest: tuple[tuple[int, int], ...] = ((1, 1),)
        for period in range(1, min(MOST_PERIOD, rest.size) + 1):
            own = int(rest[1] - rest[0]) if period > 1 else 1
            if (rest[:period] != rest[0] + own * np.arange(period)).any():
                break
            blocks = rest[: rest.size // period * period].reshape(-1, period)
            step = int(blocks[1, 0] - blocks[0, 0]) if len(blocks) > 1 else 1
            alike = (blocks == blocks[0] + step * np.arange(len(blocks))[:, None]).all(axis=1)
            count = len(blocks) if alike.all() else int(alike.argmin())
            if count * period > math.prod(n for n, _ in longest):
                longest = ((count, step),) if period == 1 else ((count, step), (period, own))
        found.append((int(rest[0]), longest))
        rest = rest[math.prod(n for n, _ in longest) :]
    return found


def nested(positions: Array) -> tuple[int, tuple[tuple[int, int], ...]] | None:
    """Return positions as one walk, (first position, loops); None if no nested loops visit the positions in order."""
    loops: list[tuple[int, int]] = []
    starts = positions
    while starts.size > 1:
        steps = np.diff(starts)
        other = steps != steps[0]
        count = int(other.argmax()) + 1 if other.any() else starts.size
        if starts.size % count:
            return None
        blocks = starts.reshape(-1, count)
        if (blocks != blocks[:, :1] + steps[0] * np.arange(count)).any():
            return None
        loops.insert(0, (count, int(steps[0])))
        starts = blocks[:, 0]
    return (int(positions[0]), tuple(loops) or ((1, 1),)) if positions.size else None
