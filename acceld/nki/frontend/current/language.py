"""Provide ``nki.language``: declarations, loops, and functions that return a tile in SBUF."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from types import FrameType, MappingProxyType, SimpleNamespace
from typing import Any, cast

import numpy as np

from acceld.chips import chip_spec
from acceld.nki.errors import LegalityError, LimitExceeded
from acceld.nki.frontend.core import dtypes, language, memory
from acceld.nki.frontend.core.context import MAX_TRIPS, Retrace, refuse
from acceld.nki.frontend.core.signatures import answered, checked
from acceld.nki.frontend.core.state import current
from acceld.nki.frontend.current import sampling, snapshots
from acceld.nki.frontend.current.declarations import (
    empty_like,
    full,
    ndarray,
    ones,
    shared_identity_matrix,
    zeros,
    zeros_like,
)
from acceld.nki.frontend.current.grids import (
    NkiBlockGrid,
    NkiGrid,
    NkiTileGrid,
    alloc_blocks,
    alloc_tiles,
    blocks,
    tiles,
)
from acceld.nki.frontend.current.lifetimes import REGISTER_WHILE, TILE_SIZES_SINCE, tile_size
from acceld.nki.frontend.current.live_names import dead_names
from acceld.nki.frontend.current.loop_rerolling import Sample, mark
from acceld.nki.frontend.current.operands import whole
from acceld.nki.frontend.current.registers import register_alloc, register_move
from acceld.nki.frontend.current.state import CurrentTrace, current_trace
from acceld.nki.frontend.current.tensor import CountedLoop, LoopIndex, NkiTensor, Register
from acceld.nki.frontend.current.wrappers import WRAPPERS
from acceld.nki.frontend.session import Session, Site, call_site, caller, loop_variable
from acceld.nki.ir.program import Engine, LoopKind, Space

_HALF_SEEN = inspect.CO_OPTIMIZED | inspect.CO_GENERATOR
"""Flags of code that tell whether Python shows all variables that the code uses: code of a function which is no generator."""
PLAIN_VALUES = (bool, int, float, str, tuple)
"""Types of class attributes that are fields of an NKIObject although they have no annotation."""


def _bounds(start: object, stop: object = None, step: object = 1) -> tuple[object, ...]:
    """Return the arguments of Python's ``range`` for the arguments of a range function of this API."""
    return (start,) if stop is None and step == 1 else (0, start, step) if stop is None else (start, stop, step)


def _unrolled(function: str) -> Callable[..., Iterator[object]]:
    """Return the range function ``function``, whose iterations are marked in the program.

    After the trace, marked iterations are turned back into loops (:mod:`acceld.nki.frontend.current.loop_rerolling`).
    """

    def call(*args: Any, **kwargs: Any) -> Iterator[object]:
        trace = current()
        bounds = [operator.index(cast("Any", bound)) for bound in _bounds(*args, **kwargs)]
        numbers = range(*bounds)
        if len(numbers) > MAX_TRIPS:
            raise LimitExceeded(
                f"{function} has {len(numbers)} iterations; at most {MAX_TRIPS} are allowed",
                rule="trip_limit",
                line=trace.line(),
                hint="use larger tiles, or fewer iterations",
            )
        return _iterations(current_trace(), loop_variable(), numbers, call_site())

    call.__name__ = call.__qualname__ = function
    call.__dict__["__signature__"] = inspect.signature(_bounds)
    return call


def _iterations(trace: CurrentTrace, name: str, numbers: range, site: Site) -> Iterator[object]:
    """Yield each of ``numbers`` to a loop over ``name``, and mark each iteration in the program.

    In a long loop, only sampled iterations may be run. That requires a ``for`` statement inside of a function:
    snapshots do not see what a list, a comprehension or a kernel's own generator does with the numbers, or which
    variables of outer functions the body of a class uses.
    """
    line, frame = trace.line(), caller()
    alone = not name or frame is None or frame.f_code.co_flags & _HALF_SEEN != inspect.CO_OPTIMIZED
    del frame  # a kernel that keeps this iterator would otherwise keep its own frame, and the iterator with it
    if trace.samples is not None and len(numbers) >= sampling.LEAST and site not in trace.unroll and not alone:
        yield from _samples(trace, trace.samples, name, numbers, site)
        return
    name = name or "i"
    for number in numbers:
        trace.session.check_deadline()
        loop = trace.open(mark(name), 1, LoopKind.SEQUENTIAL, ("", name, line, 0), line)
        try:
            yield number
        finally:
            trace.end_iteration(loop)
        if trace.leaves_loop():
            return


def _samples(
    trace: CurrentTrace, samples: dict[int, Sample], name: str, numbers: range, site: Site
) -> Iterator[object]:
    """Yield the indices of sampled iterations, which stand for the other iterations of the loop.

    Raise Retrace if a sampled iteration changes Python values, because the other iterations may then differ.
    """
    line = trace.line()
    closely, repeated = trace.session.options.sample_closely, any(outer.is_repeated for outer in trace.sampled)
    chosen = sampling.Samples(closely, bool(trace.sampled), repeated)
    outer = trace.sampled[-1] if trace.sampled else None
    earlier = outer.repeated(len(numbers), site) if outer is not None and chosen.lone else None
    run = sampling.SampledLoop(len(numbers), site, len(trace.scope), chosen, earlier)
    if outer is not None and outer.now is not None:
        outer.inner.setdefault(outer.now, []).append(run)
    trace.sampled.append(run)
    taken: list[tuple[int, snapshots.Snapshot]] = []
    starts: list[int] = []
    dead = frozenset[str]() if closely or chosen.lone else _dead_names(trace, caller())
    begun: snapshots.Snapshot | None = None
    if dead:
        begun = snapshots.snapshot(caller(), name, [len(trace.builder.buffers)], dead)
        run.carries = False
    try:
        while (position := run.following()) is not None:
            trace.session.check_deadline()
            loop = trace.open(mark(name), 1, LoopKind.SEQUENTIAL, ("", name, line, 0), line)
            starts.append(len(trace.builder.buffers))
            samples[loop] = Sample(run, position)
            run.now = position
            try:
                yield sampling.SampledIndex(numbers[position], ((run, position, numbers.step),))
            finally:
                trace.end_iteration(loop)
            if trace.leaves_loop():
                return
            piece = run.piece
            if not taken or taken[0][0] < piece.start:
                taken = []
            alike = [one for one in taken if (one[0] - position) % run.period == 0]
            # unless ``sample_closely`` asks for more samples, only the first turn has a later snapshot to compare with
            compared = run.is_sampled and not run.is_last and not chosen.lone and (alike or not taken or closely)
            first = begun is not None and (position < piece.start + run.period or not run.is_sampled)
            if compared or (first and not run.carries):
                held = snapshots.snapshot(caller(), name, starts, dead)
                run.carries = run.carries or (first and held != begun)
                if compared:
                    taken.append((position, held))
                    if snapshots.changes([*alike, taken[-1]]):
                        raise Retrace(unroll=frozenset({site}))
    finally:
        run.now = None
        trace.sampled.remove(run)


def _dead_names(trace: CurrentTrace, frame: FrameType | None) -> frozenset[str]:
    """Return the variables of the loop's function whose values no iteration uses; none if another file, or a function of
    Python that sees all variables, might read them.
    """
    session = trace.session
    if frame is None or session.sees_all or frame.f_code.co_filename != session.filename:
        return frozenset()
    return dead_names(frame)


def fori_loop(lower: object, upper: object, body_fun: Callable[[object], object], step: object = 1) -> None:
    """Run a loop by calling ``body_fun`` with the index. The bounds may be registers. ``body_fun`` returns
    nothing.
    """
    _may_reorder(CountedLoop.FORI)
    for index in _run_time_indices(CountedLoop.FORI, lower, upper, step):
        if body_fun(index) is not None:
            refuse(
                "control_flow",
                f"the body of {CountedLoop.FORI} returns a value",
                "write results to tensors, and return nothing",
            )


def _may_reorder(loop: str) -> None:
    """Raise LegalityError for a run-time loop inside of ``nl.no_reorder``.

    AWS documents this on the pages about dynamic loops and about no_reorder.
    """
    if current_trace().keeps_order:
        refuse(
            "control_flow", f"{loop} can not stand inside of nl.no_reorder", "put nl.no_reorder into the loop's body"
        )


def _run_time_loop(loop: CountedLoop, lower: object, upper: object, by: int) -> Iterator[Register]:
    """Yield a register with the index of a run-time loop whose bounds may be registers. The body is traced once."""
    trace = current()
    if any(isinstance(bound, Register) and bound.dtype == "int64" for bound in (lower, upper)):
        refuse(
            "dtype",
            "a bound of the loop is an int64 register, and iterations are counted with 32 bits",
            "load the bound from an int32 tile",
        )
    trips = _register_of(upper).combined("subtract", lower)
    if by > 1:
        rounded = trips.combined("add", by - 1)
        trips = rounded.combined("subtract", rounded.combined("mod", by)).combined("divide", by)
    index = register_alloc()
    register_move(index, lower)
    with _looped("fori", LoopKind.DYNAMIC, trips, hides=loop.hides_locals):
        yield replace(index, loop=loop)
        trace.emit(
            "register_alu", Engine.SYNC, [], [by], attrs={"register": index.number, "source": index.number, "op": "add"}
        )


@contextmanager
def _looped(name: str, kind: LoopKind, register: Register, *, hides: bool = False) -> Iterator[None]:
    """Open a run-time loop for the time of a ``with`` block, which is traced once for all iterations.

    ``register`` has the number of iterations, or the condition of a while loop. ``hides`` tells whether the tensors
    declared in the loop end with it. If the block is left early, the trace ends with a LegalityError.
    """
    trace = current_trace()
    line = trace.line()
    loop = trace.builder.open_loop(name, MAX_TRIPS, kind, line=line, trips_register=register.number)
    trace.trips[loop.id], trace.kinds[loop.id] = MAX_TRIPS, kind
    if hides:
        trace.hide(loop.id)
    finished = False
    try:
        yield
        finished = True
    finally:
        if not finished and trace.broken is None:
            trace.broken = LegalityError(
                "the loop has run-time bounds and is left early, but its body is traced once for all iterations",
                rule="loop_exit",
                line=line,
                hint="let the loop run to its end: no break, no return",
            )
    trace.close(loop.id)


def _register_of(value: object) -> Register:
    """Return ``value`` if it is a register, else a new register that holds it."""
    return value if isinstance(value, Register) else register_alloc(value)


def while_loop(init: object, body_fun: Callable[[Register], object]) -> None:
    """Run a loop while the register ``init`` is not 0.

    ``body_fun`` gets the register, and returns the register with the next condition.
    """
    if not isinstance(init, Register):
        refuse("operand_type", "the condition of nl.while_loop must be a register", "load one with nisa.register_load")
    _may_reorder("nl.while_loop")
    held = register_alloc(init)
    with _looped("while", LoopKind.WHILE, held, hides=True):
        following = body_fun(held)
        if not isinstance(following, Register):
            refuse(
                "operand_type",
                f"the body of nl.while_loop returned {type(following).__name__}",
                "return the register that holds the next condition",
            )
        register_move(held, following)


def while_statement(test: Callable[[], object]) -> Iterator[None]:
    """Yield once for each iteration of a ``while`` statement whose condition is ``test``.

    If the condition is a register, the body is traced only once, for all iterations.
    """
    held = test()
    if isinstance(held, Register):
        current().session.need("while on a register", REGISTER_WHILE)
        with _looped("while", LoopKind.WHILE, held):
            yield
            if test() is not held:
                refuse(
                    "control_flow",
                    "the condition of the while is another register after the loop's body",
                    "write the next condition to the same register, with nisa.register_move",
                )
        return
    while held:
        yield
        held = test()


def is_statement(one: object, other: object) -> bool:
    """Return ``one is other``. Raise LegalityError for two tensors: compilers refuse that too, because ``is``
    does not compare values.
    """
    if isinstance(one, NkiTensor) and isinstance(other, NkiTensor):
        refuse(
            "control_flow",
            "'is' can not compare two tensors",
            "keep a number or a name with each, and compare that; 'is None' is fine",
        )
    return sampling.as_python(one, number=True) is sampling.as_python(other, number=True)


def is_hbm(buffer: object) -> bool:
    """Return True if ``buffer`` names a memory in HBM: ``nl.hbm``, ``nl.private_hbm`` or ``nl.shared_hbm``."""
    return memory.buffer_kind(buffer).space is Space.HBM


def is_sbuf(buffer: object) -> bool:
    """Return True if ``buffer`` is ``nl.sbuf``."""
    return memory.buffer_kind(buffer).space is Space.SBUF


def is_psum(buffer: object) -> bool:
    """Return True if ``buffer`` is ``nl.psum``."""
    return memory.buffer_kind(buffer).space is Space.PSUM


def is_on_chip(buffer: object) -> bool:
    """Return True if ``buffer`` is ``nl.sbuf`` or ``nl.psum``."""
    return not is_hbm(buffer)


class no_reorder:  # the API's name
    """Keep the instructions of a ``with`` block in program order, which the simulator always does."""

    def __enter__(self) -> None:
        current_trace().keeps_order += 1

    def __exit__(self, *error: object) -> None:
        current_trace().keeps_order -= 1


def _dynamic_range(*args: Any, **kwargs: Any) -> Iterator[object]:
    """Return the iterations of ``nl.dynamic_range``. If a bound is a register, the body is traced once for all
    iterations.
    """
    _may_reorder(CountedLoop.DYNAMIC)
    bounds = _bounds(*args, **kwargs)
    lower, upper = (0, bounds[0]) if len(bounds) == 1 else bounds[:2]
    return _run_time_indices(CountedLoop.DYNAMIC, lower, upper, bounds[2] if len(bounds) > 2 else 1)


def _run_time_indices(loop: CountedLoop, lower: object, upper: object, step: object) -> Iterator[object]:
    """Return the indices of a run-time loop. A kernel may use them only as run-time values.

    If a bound is a register, there is one index, and the body is traced once for all iterations.
    """
    if isinstance(step, Register):
        refuse("control_flow", f"the step of {loop} is a register, and must be known while tracing", "pass a number")
    by = whole(step, f"the step of {loop}")
    if by < 1:
        refuse("control_flow", f"{loop} has step {by}", "use a step of 1 or more")
    if isinstance(lower, Register) or isinstance(upper, Register):
        return _run_time_loop(loop, lower, upper, by)
    return _known_indices(loop, _unrolled(loop)(lower, upper, by))


def _known_indices(loop: CountedLoop, numbers: Iterator[object]) -> Iterator[LoopIndex]:
    """Yield ``numbers`` as the indices of a run-time loop. If the loop is left early, the trace ends with a
    LegalityError.
    """
    trace = current_trace()
    line, finished = trace.line(), False
    try:
        for number in numbers:
            if loop.hides_locals:
                trace.hide(trace.scope[-1])
            yield LoopIndex(number, loop)
        finished = True
    finally:
        if not finished and trace.broken is None:
            trace.broken = _left_early(line, loop)


def _left_early(line: int, loop: CountedLoop) -> LegalityError:
    """Return the error for a run-time loop that the kernel leaves before its end."""
    return LegalityError(
        f"{loop} is left early, but the chip runs its body the same way in all iterations",
        rule="loop_exit",
        line=line,
        hint="let the loop run to its end: no break, no return",
    )


def _functions() -> Mapping[str, object]:
    """Return the functions of ``nl`` that only the current API has, as a dict by name."""
    own = {
        "affine_range": _unrolled("nl.affine_range"),
        "sequential_range": _unrolled("nl.sequential_range"),
        "static_range": _unrolled("nl.static_range"),
        "fori_loop": fori_loop,
        "while_loop": while_loop,
        "dynamic_range": _dynamic_range,
        "par_dim": language.par_dim,
        **{one.__name__: checked("nl", one) for one in (ndarray, full, zeros, ones, empty_like, zeros_like)},
        **{one.__name__: checked("nl", one) for one in (tiles, blocks, alloc_tiles, alloc_blocks)},
        **{one.__name__: one for one in (NkiGrid, NkiTileGrid, NkiBlockGrid)},
        "shared_identity_matrix": shared_identity_matrix,
        "is_hbm": is_hbm,
        "is_sbuf": is_sbuf,
        "is_psum": is_psum,
        "is_on_chip": is_on_chip,
        "no_reorder": no_reorder,
        "range": _unrolled("nl.range"),
    }
    return MappingProxyType(
        {name: answered("nl", value) if inspect.isfunction(value) else value for name, value in own.items()}
    )


# The functions are wrapped once in each process, because reading their signatures takes longer than a small trace.
_FUNCTIONS = _functions()


def namespace(chip: str = "trn2") -> dict[str, object]:
    """Return the names of ``nki.language`` that the simulator has, with their values. ``nl.tile_size`` depends on the
    chip.
    """
    types = dict(dtypes.EVERY)
    types["bool_"] = types.pop("bool")
    values = {
        "NKIObject": NKIObject,
        "NkiTensor": NkiTensor,
        "bypass": "bypass",
        "average": "average",
        "prelu": "prelu",
        "sbuf": memory.SBUF,
        "psum": memory.PSUM,
        "hbm": memory.HBM,
        "private_hbm": memory.PRIVATE_HBM,
        "shared_hbm": memory.SHARED_HBM,
        "tile_size": language.TileSize(chip_spec(chip)),
        "fp32": SimpleNamespace(min=float(np.finfo(np.float32).min), max=float(np.finfo(np.float32).max)),
    }
    return {**WRAPPERS, **types, **_FUNCTIONS, **values}


class VersionedSizes(language.TileSize):
    """``nl.tile_size``, whose later limits only some versions of ``nki`` have."""

    def __init__(self, session: Session) -> None:
        super().__init__(chip_spec(session.chip))
        self._session = session

    def __getattr__(self, name: str) -> int:
        found = super().__getattr__(name)
        if name in TILE_SIZES_SINCE:
            self._session.need(f"nl.tile_size.{name}", tile_size(name))
        return found


class NKIObject:
    """The base of a kernel's own classes, which behave as data classes with and without ``@dataclass`` (NKI
    language guide).

    With ``@dataclass`` every plain class attribute is a field, even without an annotation. A field without a
    default value is None if the caller does not give it.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        typed: dict[str, Any] = inspect.get_annotations(cls)
        plain = [
            name
            for name, value in vars(cls).items()
            if not name.startswith("_") and name not in typed and (value is None or isinstance(value, PLAIN_VALUES))
        ]
        for name in typed:
            if name not in vars(cls):
                setattr(cls, name, None)
        if plain:
            cls.__annotations__ = {**typed, **dict.fromkeys(plain, Any)}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        annotated = [inspect.get_annotations(one) for one in reversed(type(self).__mro__)]
        names = list(dict.fromkeys(name for one in annotated for name in one))
        if len(args) > len(names):
            raise TypeError(f"{type(self).__name__} has {len(names)} fields, and {len(args)} values were given")
        self.__dict__.update(zip(names, args, strict=False), **kwargs)
        self.__post_init__()

    def __post_init__(self) -> None:
        """Do nothing. A kernel's class may override this to run code after construction."""
