"""Make inputs by a workload's own distribution, or by one of seven distributions derived from it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from acceld.cores import on_several_cores
from acceld.errors import WorkloadError, nearest_of
from acceld.workloads.oracle import load_reference
from acceld.workloads.records import DISTRIBUTIONS, Argument, Distribution, Workload

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Change = Callable[[NDArray[Any], Argument, np.random.Generator], NDArray[Any]]

Room = Callable[[int], "NDArray[Any]"]
"""A function ``room(position)`` that returns the array into which the argument at that position is drawn."""

PAPER_SEEDS = (0, 21, 42, 63, 84)
"""The seeds of the inputs on which AccelOpt's published gate checks a kernel."""
_INTEGER_LIMIT = 2
_SPARSE_KEPT = 0.1
_PART = 1 << 24
_SHARE = 1 << 20
"""Greatest number of an array's elements that are drawn by one random generator."""
_CONTINUOUS = ("normal", "uniform")


def supported_distributions(workload: Workload) -> list[str]:
    """Return the names of the distributions that a workload allows; ``own`` is the first."""
    return [name for name in DISTRIBUTIONS if workload.distributions[name].declared]


def make_inputs(
    workload: Workload, seed: int | None, distribution: str = "own", *, room: Room | None = None
) -> list[Any]:
    """Return a workload's inputs, in order and in the reference's layout; scalars are Python numbers.

    The same ``seed`` gives the same inputs; None draws a seed from the operating system. For ``own``, numpy's global
    generator is seeded as the published workloads do, and its state is put back, so :data:`PAPER_SEEDS` give the
    published inputs. For a workload with ``drawn``, only :data:`PAPER_SEEDS` give the published inputs; for other seeds
    the inputs come from the distributions of its arguments. Inputs that need no conversion are drawn into the arrays
    that ``room`` returns.

    Raise WorkloadError for an unknown distribution, or for a distribution that the workload refuses.
    """
    import numpy as np

    state = workload.distributions.get(distribution)
    if state is None:
        hint = nearest_of(distribution, DISTRIBUTIONS)
        raise WorkloadError(f"there is no input distribution {distribution!r}.", hint=hint)
    if not state.declared:
        raise WorkloadError(
            f"workload {workload.name!r} refuses {distribution!r} inputs: {state.reason}",
            hint="choose another distribution, or change its entry in workload.toml",
        )
    if seed is None:
        seed = int(np.random.SeedSequence().generate_state(1)[0])
    own = _own(workload, seed, room if distribution == "own" else None)
    rng = np.random.default_rng([seed, list(DISTRIBUTIONS).index(distribution)])
    change = _changes().get(distribution)
    made: list[Any] = []
    for argument, array in zip(workload.arguments, own, strict=True):
        if argument.is_scalar:
            made.append(argument.value)
            continue
        if change and argument.distribution and not argument.distribution.fixed:
            array = change(array.astype(np.float32), argument, rng).astype(array.dtype)
        made.append(np.asarray(array, order="C"))  # np.ascontiguousarray would give a single number an axis
    return made


def _own(workload: Workload, seed: int, room: Room | None) -> Sequence[Any]:
    import numpy as np

    reference = load_reference(workload.reference) if workload.reference else None
    if workload.sample is not None:
        with np.load(workload.sample, allow_pickle=False) as sample:
            return [a.value if a.is_scalar else sample[a.name] for a in workload.arguments]
    if workload.drawn and seed not in PAPER_SEEDS:
        return _drawn(workload, seed, room)
    if reference is None or reference.get_inputs is None or workload.reshaped:
        rng = np.random.default_rng(seed)
        drawn: dict[str, Any] = {}
        for a in workload.arguments:
            drawn[a.name] = a.value if a.is_scalar else draw(a, rng, drawn)
        return list(drawn.values())
    before = np.random.get_state()  # the published inputs come from numpy's global generator
    try:
        np.random.seed(seed % 2**32)
        inputs = list(reference.get_inputs())
    finally:
        np.random.set_state(before)
    if len(inputs) == sum(not a.is_scalar for a in workload.arguments):
        arrays = iter(inputs)
        inputs = [a.value if a.is_scalar else next(arrays) for a in workload.arguments]
    if len(inputs) != len(workload.arguments):
        raise WorkloadError(
            f"{workload.reference}: get_inputs returned {len(inputs)} values for {len(workload.arguments)} arguments",
            hint="return one value for each argument of workload.toml, in order, or one for each array",
        )
    inputs = [
        value if a.is_scalar else _narrowed(a, value) for a, value in zip(workload.arguments, inputs, strict=True)
    ]
    for argument, value in zip(workload.arguments, inputs, strict=True):
        if not argument.is_scalar and (value.shape, value.dtype.name) != (argument.shape, argument.dtype):
            raise WorkloadError(
                f"{workload.reference}: get_inputs made {argument.name} as {value.shape} {value.dtype.name}, "
                f"[arguments.{argument.name}] declares {argument.shape} {argument.dtype}",
                hint="change get_inputs or workload.toml, so that both agree",
            )
    return inputs


def _narrowed(argument: Argument, value: NDArray[Any]) -> NDArray[Any]:
    """Return an array of 64-bit numbers in the 32-bit type that the argument declares, because no kernel takes 64
    bits. Other arrays are returned unchanged.
    """
    wide = value.dtype.name in ("float64", "int64", "uint64") and argument.dtype == value.dtype.name.replace("64", "32")
    return value.astype(argument.dtype) if wide else value


def draw(argument: Argument, rng: np.random.Generator, earlier: Mapping[str, Any] | None = None) -> NDArray[Any]:
    """Return an array for ``argument``, drawn from its declared distribution. ``earlier`` has the arguments before it,
    by name.

    Raise WorkloadError if the distribution is impossible, such as more distinct indices than there are numbers.
    """
    import numpy as np

    how = argument.distribution
    assert how is not None, f"{argument.name} is a scalar"
    array: NDArray[Any]
    if how.kind == "permutation":
        array = _distinct(argument, int(how.high), rng)
    elif how.kind == "indptr":
        array = _ends_of_parts(argument, how, rng, earlier or {})
    elif how.kind == "integers":
        array = rng.integers(int(how.low), int(how.high), argument.shape)
    elif how.kind == "values":
        array = np.asarray(how.values)[rng.integers(0, len(how.values), argument.shape)]
    else:
        return _continuous(argument, how, rng)
    return (np.abs(array) if how.absolute else array).astype(numpy_dtype(argument.dtype))


def _continuous(argument: Argument, how: Distribution, rng: np.random.Generator) -> NDArray[Any]:
    """Return an array of random numbers that is drawn part by part, with the numbers that drawing all at once would
    give.

    This saves memory: 1 GiB of bfloat16 weights would need 4 GiB in float64.
    """
    import numpy as np

    made = np.empty(math.prod(argument.shape), numpy_dtype(argument.dtype))
    for start in range(0, made.size, _PART):
        count = min(_PART, made.size - start)
        part = rng.uniform(how.low, how.high, count) if how.kind == "uniform" else rng.normal(how.mean, how.std, count)
        made[start : start + count] = np.abs(part) if how.absolute else part
    return made.reshape(argument.shape)


def _drawn(workload: Workload, seed: int, room: Room | None) -> list[Any]:
    """Return a workload's inputs. Each part of an array is drawn by a generator of its own, so that several cores can
    draw.
    """
    import numpy as np

    made: dict[str, Any] = {}
    parts: list[tuple[Distribution, NDArray[Any], tuple[int, int, int]]] = []
    for position, argument in enumerate(workload.arguments):
        how = argument.distribution
        if argument.is_scalar:
            made[argument.name] = argument.value
        elif how is not None and how.kind in _CONTINUOUS:
            empty = room(position) if room else np.empty(argument.shape, numpy_dtype(argument.dtype))
            array = made[argument.name] = empty
            flat = array.reshape(-1)
            for number, start in enumerate(range(0, flat.size, _SHARE)):
                parts.append((how, flat[start : start + _SHARE], (seed, position, number)))
        else:
            made[argument.name] = draw(argument, np.random.default_rng([seed, position]), made)
    on_several_cores(lambda part: _fill(*part), parts)
    return list(made.values())


def _fill(how: Distribution, into: NDArray[Any], seed: tuple[int, int, int]) -> None:
    import numpy as np

    rng = np.random.default_rng(seed)
    part: NDArray[Any]
    if how.kind == "normal" and (how.mean, how.std) == (0.0, 1.0):
        part = rng.standard_normal(
            dtype=np.float32, out=into if into.dtype == np.float32 else np.empty(into.size, "f4")
        )
    elif how.kind == "normal":
        part = how.mean + how.std * rng.standard_normal(into.size)
    else:
        part = rng.uniform(how.low, how.high, into.size)
    if how.absolute:
        np.abs(part, out=part)
    if part is not into:
        into[...] = part


def _distinct(argument: Argument, below: int, rng: np.random.Generator) -> NDArray[Any]:
    """Return distinct whole numbers from 0 to ``below`` - 1, in random order."""
    count = math.prod(argument.shape)
    if count > below:
        raise WorkloadError(
            f"argument {argument.name} has {count} elements, and there are only {below} distinct numbers below {below}",
            hint=f"Raise high in [arguments.{argument.name}], or give it fewer elements.",
        )
    return rng.permutation(below)[:count].reshape(argument.shape)


def _ends_of_parts(
    argument: Argument, how: Distribution, rng: np.random.Generator, earlier: Mapping[str, Any]
) -> NDArray[Any]:
    """Return an array of the distribution ``indptr``: 0, then the end of each part. The last end is ``how.high``."""
    import numpy as np

    parts = argument.shape[0] - 1
    if how.over and how.over not in earlier:
        raise WorkloadError(
            f"[arguments.{argument.name}] over = {how.over!r} must name an argument before {argument.name}"
        )
    least = np.full(parts, int(how.low)) if not how.over else np.maximum(np.diff(earlier[how.over]), int(how.low))
    rest = int(how.high) - int(least.sum())
    if parts < 1 or rest < 0:
        raise WorkloadError(
            f"[arguments.{argument.name}] high = {int(how.high)} is too low: the settings low and over ask for {parts} parts with {int(least.sum())} elements together",
            hint="raise high, or lower low",
        )
    lengths = least + rng.multinomial(rest, rng.dirichlet(np.ones(parts)))
    return np.concatenate([[0], np.cumsum(lengths)])


def numpy_dtype(name: str) -> np.dtype[Any]:
    """Return numpy's dtype for a name, from ml_dtypes if numpy has none."""
    import ml_dtypes
    import numpy as np

    return np.dtype(getattr(ml_dtypes, name)) if hasattr(ml_dtypes, name) else np.dtype(name)


def _changes() -> dict[str, Change]:
    return {
        "scaled_up": lambda a, _, __: a * 30,
        "scaled_down": lambda a, _, __: a * 1e-3,
        "shifted": lambda a, _, __: a + 3,
        "integers": _integers,
        "row_scaled": _row_scaled,
        "sparse": lambda a, _, rng: a * (rng.random(a.shape) < _SPARSE_KEPT),
        "special": _special,
    }


def _integers(array: NDArray[Any], argument: Argument, rng: np.random.Generator) -> NDArray[Any]:
    """Return whole numbers from -2 to 2, or from 0 to 2 for an array that is never negative. Such numbers are exact
    in bfloat16 and in sums.
    """
    low = 0 if argument.distribution and argument.distribution.absolute else -_INTEGER_LIMIT
    return rng.integers(low, _INTEGER_LIMIT + 1, array.shape).astype(array.dtype)


def _row_scaled(array: NDArray[Any], argument: Argument, rng: np.random.Generator) -> NDArray[Any]:
    import numpy as np

    rows = array.shape[:-1] if array.ndim > 1 else array.shape
    powers = np.exp2(rng.integers(-6, 7, rows)).astype(array.dtype)
    scaled: NDArray[Any] = array * (powers[..., None] if array.ndim > 1 else powers)
    return scaled


def _special(array: NDArray[Any], argument: Argument, rng: np.random.Generator) -> NDArray[Any]:
    """Set about one element in 64 to 0, 1, the smallest normal float32, or 80 (where exp nearly overflows), each with
    either sign. Return the array.
    """
    import numpy as np

    values = np.array([0.0, -0.0, 2.0**-126, -(2.0**-126), 1.0, -1.0, 80.0, -80.0], array.dtype)
    if argument.distribution and argument.distribution.absolute:
        values = np.abs(values)
    chosen = rng.random(array.shape) < 1 / 64
    return np.where(chosen, rng.choice(values, array.shape), array)
