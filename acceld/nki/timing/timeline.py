"""Predict a program's latency and its parts: the simulator's performance model.

``timeline(program)`` never reads the data of a kernel. The prediction takes four steps:

1. :mod:`acceld.nki.timing.cost` computes the cost of every instruction.
2. :mod:`acceld.nki.timing.value_numbering` unrolls the loops and numbers the values.
3. :mod:`acceld.nki.timing.sbuf_allocation` plans SBUF and spills.
4. :mod:`acceld.nki.timing.list_schedule` schedules the engines and DMA.

A very long program is timed twice with fewer iterations, and the figures are extended linearly.
"""

from __future__ import annotations

from bisect import bisect
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

from acceld.chips import ChipSpec, chip_spec
from acceld.model import DATA_DEPENDENT
from acceld.nki.ir.operations import DTYPE_BYTES, MEETINGS
from acceld.nki.ir.program import Engine, Loop, Node, Program
from acceld.nki.ir.turns import LEFT_OUT, OWN, made, taken
from acceld.nki.timing import compiler_current, compiler_legacy, cores, sbuf_allocation, uncertainty, value_numbering
from acceld.nki.timing.addresses import wait_for_places
from acceld.nki.timing.binding import Binding, PathStep, binding, plain
from acceld.nki.timing.cost import QUARTERS, CostModel
from acceld.nki.timing.expansion import Prepared, prepare, shape_variants
from acceld.nki.timing.list_schedule import Schedule
from acceld.nki.timing.loop_fusion import divide, fuse
from acceld.nki.timing.parameters import PARAMS_VERSION, TimelineParams, default_params
from acceld.nki.timing.passes import expand, plan, schedule
from acceld.nki.timing.sbuf_allocation import ENGINES, INDEX, Machine
from acceld.nki.timing.value_numbering import Stream

MAX_EVENTS = 500_000
"""Greatest number of executions that are unrolled in full. A longer program is extrapolated from two runs with fewer
iterations.
"""
MOST_EVENTS = 1_000_000
"""Greatest number of executions that can be unrolled in full within a minute or two."""


FIGURE_CLASS: Mapping[str, str] = {
    "latency_us": "predicted",
    "engines": "modelled",
    "hbm_read_bytes": "modelled",
    "hbm_write_bytes": "modelled",
    "sbuf_read_bytes": "modelled",
    "sbuf_write_bytes": "modelled",
    "psum_read_bytes": "modelled",
    "psum_write_bytes": "modelled",
    "spill_save_bytes": "modelled",
    "spill_reload_bytes": "modelled",
    "hardware_flops": "modelled",
    "transpose_flops": "modelled",
    "sbuf_peak_bytes_per_partition": "modelled",
    "psum_peak_banks": "modelled",
    "pe_passes": "exact",
    "instructions": "exact",
    "written_read_bytes": "exact",
    "written_write_bytes": "exact",
    "dma_descriptors": "exact",
}
"""The class of each figure. exact: the figure follows from the program alone. modelled: the figure depends on what the
compiler is assumed to do. predicted: the figure depends on an assumed schedule too.
"""


@dataclass(frozen=True, slots=True)
class HotSpot:
    """The microseconds for which one line of the kernel occupies one engine."""

    line: int
    engine: str
    busy_us: float
    share: float
    """Fraction of the latency, 0 to 1."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """The predicted latency of one program, with its parts and counters. Counters have the names and definitions of
    neuron-profile.
    """

    chip: str
    api: str
    model: str
    latency_us: float | None
    engines: Mapping[str, float]
    """Busy microseconds of each engine."""
    hbm_read_bytes: int
    hbm_write_bytes: int
    sbuf_read_bytes: int
    sbuf_write_bytes: int
    psum_read_bytes: int
    psum_write_bytes: int
    spill_save_bytes: int
    spill_reload_bytes: int
    hardware_flops: int
    transpose_flops: int
    instructions: Mapping[str, int]
    """Number of instructions as written in the source, by engine."""
    written_read_bytes: int
    """Bytes of all loads as written in the source, before the compiler merges or repeats loads."""
    written_write_bytes: int
    dma_descriptors: Mapping[int, int]
    """Number of DMA descriptors of the transfers as written in the source, by the number of contiguous bytes that a
    descriptor moves.
    """
    sbuf_peak_bytes_per_partition: int
    psum_peak_banks: int
    pe_passes: int
    critical_path: tuple[PathStep, ...]
    hot_spots: tuple[HotSpot, ...]
    binding: Binding | None
    """The parts of the latency by what the busiest engine does; None if there is no latency, or an extrapolated one."""
    unproven: tuple[str, ...]
    """Parts of the latency that no measured kernel confirms, in words."""
    bound: str
    """The bottleneck in a few words, such as ``DMA 84 %``; ``data_dependent`` if there is no latency."""
    warnings: tuple[str, ...]
    prediction: uncertainty.Prediction
    data_dependent: bool
    extrapolated: bool
    params: TimelineParams
    dropped: tuple[int, ...] = ()
    """Instructions whose results reach no store, by their number in the program that :func:`as_timed` returns."""
    with_dropped_us: float | None = None
    """The latency if the dropped instructions ran too; None if no instruction was dropped."""
    machine: Machine | None = field(default=None, repr=False, compare=False)
    """The machine operations, for :func:`chrome_trace`; None if the timeline was extrapolated."""
    schedule: Schedule | None = field(default=None, repr=False, compare=False)

    def to_json(self) -> dict[str, Any]:
        """Return all figures as data for JSON, without the machine operations and their schedule."""
        data = {
            name: getattr(self, name)
            for name in self.__slots__
            if name not in ("machine", "schedule", "prediction", "params", "critical_path", "hot_spots", "binding")
        }
        data["engines"] = dict(self.engines)
        data["instructions"] = dict(self.instructions)
        data["dma_descriptors"] = {str(size): count for size, count in sorted(self.dma_descriptors.items())}
        data["warnings"] = list(self.warnings)
        data["unproven"] = list(self.unproven)
        data["critical_path"] = list(map(plain, self.critical_path))
        data["hot_spots"] = list(map(plain, self.hot_spots))
        data["binding"] = None if self.binding is None else self.binding.to_json()
        data["prediction"] = {
            "class": self.prediction.kind,
            "interval": self.prediction.interval_percent,
            "validated_on": self.prediction.validated_on,
            "starts_us": self.prediction.starts_us,
        }
        data["figure_class"] = dict(FIGURE_CLASS)
        data["params"] = self.params.to_json()
        data["params_version"] = PARAMS_VERSION
        if not self.dropped:
            del data["dropped"], data["with_dropped_us"]
        return data


def timeline(program: Program, params: TimelineParams | None = None, *, max_events: int | None = None) -> Timeline:
    """Return the predicted latency of ``program`` on its chip, with all counters.

    ``params`` are by default those of the program's API and chip. Beyond ``max_events`` executions (default
    :data:`MAX_EVENTS`) the figures are extrapolated from the first executions. That is wrong for a program
    whose later iterations do more work.

    If some loop's number of iterations is known only at run time, ``latency_us`` is None. Every other figure
    then counts one iteration of each such loop. ``params.dynamic_trips`` can give the number to assume instead.

    Raise MissingRule for an operation without a cost rule.
    """
    chip = chip_spec(program.chip)
    max_events = max_events or MAX_EVENTS
    if params is None:
        params = default_params(program.api, program.chip)
    if program.lnc == cores.CORES:
        # keep dead instructions, because the other core may use their results
        params = replace(params, eliminate_dead=False)
    if params.fuse_loops:
        program = fuse(program)
    if params.divide_loops:
        program = divide(program, params.sbuf_reserved_bytes)
    if params.sums_apart:
        program = compiler_legacy.sums_apart(program)
    model = CostModel.of(program, params)
    loops = program.loops
    dynamic = [loop for loop in loops.values() if loop.at_run_time]
    full = {number: loop.trips for number, loop in loops.items()}
    for loop in dynamic:
        full[loop.id] = min(loop.trips, 1 if params.dynamic_trips is None else params.dynamic_trips)
    parts = [
        cores.Part(part.program, {number: min(full[number], trips) for number, trips in part.trips.items()})
        for part in cores.parts(program)
    ] or [cores.Part(program, full)]
    ran = [_extended_run(part, model, max_events) for part in parts]
    extended = any(one.extended for one in ran)
    if len(ran) > 1 and not extended:
        ran = _together(ran, model)
    if len(ran) > 1:
        ran = _on_one_stack(ran, chip)
    slowest = max(range(len(ran)), key=lambda core: ran[core].figures["total_us"])
    part, run = parts[slowest], ran[slowest]
    found = _assemble(part.program, chip, params, run, run.figures, part.trips, bool(dynamic), extended)
    if program.lnc == cores.CORES:
        found = replace(found, warnings=(_side_by_side(ran, slowest), *found.warnings))
    dropped = _as_read(part.program, run.machine.dropped)
    if not dropped or found.extrapolated or found.latency_us is None:
        return found
    whole = timeline(program, replace(params, eliminate_dead=False), max_events=max_events).latency_us
    count = len(dropped)
    text = f"{count} instruction{'s' * (count > 1)} whose results reach no output {'are' if count > 1 else 'is'} left out: "
    warning = f"{text}{found.latency_us:.4g} µs, {whole:.4g} µs with them"
    return replace(found, dropped=dropped, with_dropped_us=whole, warnings=(warning, *found.warnings))


def _as_read(program: Program, dropped: Sequence[int]) -> tuple[int, ...]:
    """Return the instructions ``dropped`` by their numbers in the program as the kernel wrote it.

    ``program`` may have further instructions, which :func:`compiler_legacy.sums_apart` added. These are left out.
    """
    added = [number for number, (node, _) in enumerate(program.walk()) if node.attr(compiler_legacy.TWIN)]
    if not added:
        return tuple(dropped)
    return tuple(number - bisect(added, number) for number in dropped if number not in added)


def as_timed(program: Program) -> tuple[Program, Mapping[int, Sequence[int]]]:
    """Return the program with fused loops, and whether the performance model counts, leaves out or merges each
    execution of each instruction.

    The second result maps an instruction's number in program order to a list with one entry for each execution:
    counted, left out or merged (:mod:`acceld.nki.ir.turns`). An instruction without an entry counts in full. The
    mapping is empty if the model drops and merges nothing, or if the model can not time the program in full.
    """
    params = default_params(program.api, program.chip)
    if program.lnc == cores.CORES:
        params = replace(params, eliminate_dead=False)
    if params.fuse_loops:
        program = fuse(program)
    loops = program.loops.values()
    trips = {loop.id: loop.trips for loop in loops}
    found: dict[int, list[int]] = {}
    if not (params.eliminate_dead or params.value_numbering) or any(loop.at_run_time for loop in loops):
        return program, found
    if _executions(program.body, trips) > MOST_EVENTS:
        return program, found
    _, stream, machine = _planned(program, CostModel.of(program, params), trips)
    shared = {outs[0] for outs, became in zip(stream.outputs, machine.became, strict=True) if became == 2}
    for event, (outs, became) in enumerate(zip(stream.outputs, machine.became, strict=True)):
        turn = LEFT_OUT if not became else taken(outs[0]) if became == 2 else OWN
        if became == 1 and outs and outs[0] in shared:
            turn = made(outs[0])
        if turn != OWN:
            template = stream.templates[event]
            if template.number not in found:
                found[template.number] = [OWN] * template.executions
            found[template.number][stream.turn[event]] = turn
    return program, found


@dataclass(frozen=True, slots=True)
class _Run:
    prepared: Prepared
    machine: Machine
    schedule: Schedule
    figures: dict[str, float]
    extended: bool = False


def _extended_run(part: cores.Part, model: CostModel, max_events: int) -> _Run:
    """Return the run of one core. Beyond ``max_events`` executions its figures are extrapolated from two
    shorter runs.
    """
    program, full = part.program, part.trips
    total = _executions(program.body, full)
    if total <= max_events:
        return _run(program, model, full)
    short = _shorter(program, full, max_events // 3)
    longer = {
        number: min(full[number], 2 * trips) if trips < full[number] else trips for number, trips in short.items()
    }
    first, run = _run(program, model, short), _run(program, model, longer)
    counts = _executions(program.body, short), _executions(program.body, longer)
    figures = _extended(first.figures, run.figures, (total - counts[0]) / max(1, counts[1] - counts[0]))
    return replace(run, figures=figures, extended=True)


def _together(ran: list[_Run], model: CostModel) -> list[_Run]:
    """Return the runs of two cores that wait for each other: at each exchange or barrier, the core that comes first
    waits for the other core.

    Each round schedules both cores again and moves the exchanges and barriers. After round n the first n of them have
    their final times, because the operations before them no longer change.
    """
    meetings = [[at for at, kind in enumerate(run.machine.kind) if kind in MEETINGS] for run in ran]
    common = min(map(len, meetings))
    meetings = [numbers[:common] for numbers in meetings]
    held: list[dict[int, float]] = [{} for _ in ran]
    both = [0.0] * common
    for _ in range(common):
        times = [[run.schedule.start_us[at] for at in numbers] for run, numbers in zip(ran, meetings, strict=True)]
        both = [max(pair) for pair in zip(*times, both, strict=True)]
        again = [dict(zip(numbers, both, strict=True)) for numbers in meetings]
        if again == held:
            break
        held = again
        made = [schedule(run.machine, model.params, model.chip, wait) for run, wait in zip(ran, held, strict=True)]
        ran = [
            replace(run, schedule=times, figures=_figures(run.machine, times))
            for run, times in zip(ran, made, strict=True)
        ]
    return ran


def _on_one_stack(ran: list[_Run], chip: ChipSpec) -> list[_Run]:
    """Return the runs of two cores, extended if the stack of HBM that they share needs more time to move the bytes of
    both.

    Trainium2 has four stacks for eight cores, of 716 GB/s each. The 16 DMA engines of two cores move 829 GB/s in long
    rows.
    """
    moved = sum(run.figures[name] for run in ran for name in ("hbm_read_bytes", "hbm_write_bytes"))
    least = moved / chip.hbm_bytes_per_us
    return [replace(run, figures=run.figures | {"total_us": max(run.figures["total_us"], least)}) for run in ran]


def _side_by_side(ran: Sequence[_Run], slowest: int) -> str:
    if len(ran) == 1:
        return "timed as on one core: a core reads what the other writes, or the launch is not one of two cores"
    times = " and ".join(f"{run.figures['total_us']:.4g}" for run in ran)
    return f"the two cores take {times} µs beside each other; every figure is core {slowest}'s"


def _run(program: Program, model: CostModel, trips: Mapping[int, int]) -> _Run:
    prepared, _, machine = _planned(program, model, trips)
    times = schedule(machine, model.params, model.chip)
    return _Run(prepared, machine, times, _figures(machine, times))


def _planned(program: Program, model: CostModel, trips: Mapping[int, int]) -> tuple[Prepared, Stream, Machine]:
    params = model.params
    compiler = compiler_legacy if params.model == "compiler_legacy" else compiler_current
    prepared = prepare(program, model, compiler.place, trips)
    if any(buffer.places for buffer in program.buffers):
        stream = value_numbering.expand(prepared, numbering=params.value_numbering)
        wait_for_places(stream, prepared)
        return prepared, stream, sbuf_allocation.plan(stream, model, params, model.chip)
    stream = expand(prepared, numbering=params.value_numbering)
    return prepared, stream, plan(stream, model, params, model.chip)


def _figures(machine: Machine, times: Schedule) -> dict[str, float]:
    busy = machine.engine_us()
    busy[INDEX[Engine.DMA]] = _dma_busy(machine, busy[INDEX[Engine.DMA]])
    figures = {f"busy.{engine.value}": us for engine, us in zip(ENGINES, busy, strict=True)}
    for name in (
        "hbm_read_bytes", "hbm_write_bytes", "spill_save_bytes", "spill_reload_bytes", "flops", "transpose_flops",
        "passes", "sbuf_read_bytes", "sbuf_write_bytes", "psum_read_bytes", "psum_write_bytes",
    ):  # fmt: skip
        figures[name] = float(getattr(machine, name))
    figures["total_us"] = times.total_us
    return figures


def _dma_busy(machine: Machine, total_us: float) -> float:
    """Return the busy microseconds of the busiest quarter of the DMA engines. ``total_us`` is the sum over all
    transfers.
    """
    if not machine.quarters:
        return total_us
    busy, times = [total_us] * QUARTERS, machine.busy_us
    for number, bits in machine.quarters.items():
        for at in range(QUARTERS):
            if not bits >> at & 1:
                busy[at] -= times[number]
    return max(busy)


def _extended(first: dict[str, float], second: dict[str, float], steps: float) -> dict[str, float]:
    """Return each figure extrapolated linearly: the value in ``first`` plus ``steps`` times the difference between
    ``second`` and ``first``. The result is never less than in ``second``.
    """
    return {name: max(second[name], value + (second[name] - value) * steps) for name, value in first.items()}


def _executions(body: tuple[Node, ...], trips: Mapping[int, int]) -> int:
    return sum(trips[n.id] * _executions(n.body, trips) if isinstance(n, Loop) else 1 for n in body)


def _shorter(program: Program, full: Mapping[int, int], budget: int) -> dict[int, int]:
    """Return a number of iterations for each loop with which the program has at most ``budget`` executions, if
    possible.

    Outer loops are shortened before inner loops.
    """
    trips = dict(full)
    level: tuple[Node, ...] = program.body
    while _executions(program.body, trips) > budget:
        found = [node for node in level if isinstance(node, Loop)]
        if not found:
            break
        ratio = budget / _executions(program.body, trips)
        for loop in found:
            if trips[loop.id] > 4:
                trips[loop.id] = max(2, int(trips[loop.id] * ratio))
        level = tuple(child for loop in found for child in loop.body)
    return trips


def _assemble(
    program: Program,
    chip: ChipSpec,
    params: TimelineParams,
    run: _Run,
    figures: dict[str, float],
    full: Mapping[int, int],
    dynamic: bool,
    extended: bool,
) -> Timeline:
    begin_us = params.kernel_start_us + (params.two_cores_us if program.lnc == cores.CORES else 0.0)
    latency = figures["total_us"] * params.latency_scale + begin_us + params.kernel_end_us
    known = not dynamic or params.dynamic_trips is not None
    written = _as_written(program, run.prepared, CostModel.of(program, params), full)
    bound_by: Binding | None = None
    engines = {engine.value: figures[f"busy.{engine.value}"] for engine in ENGINES}
    if known and not extended:
        bound_by = _binding(run, engines, begin_us, params.kernel_end_us, latency)
    indirect = any(access.indirect for node, _ in program.walk() for access in node.accesses)
    transfers = written.instructions.get(Engine.DMA.value, 0)
    starts_us = transfers * params.issue_us
    return Timeline(
        chip=chip.name,
        api=program.api,
        model=params.label,
        latency_us=latency if known else None,
        engines=engines,
        hbm_read_bytes=round(figures["hbm_read_bytes"]),
        hbm_write_bytes=round(figures["hbm_write_bytes"]),
        sbuf_read_bytes=round(figures["sbuf_read_bytes"]),
        sbuf_write_bytes=round(figures["sbuf_write_bytes"]),
        psum_read_bytes=round(figures["psum_read_bytes"]),
        psum_write_bytes=round(figures["psum_write_bytes"]),
        spill_save_bytes=round(figures["spill_save_bytes"]),
        spill_reload_bytes=round(figures["spill_reload_bytes"]),
        hardware_flops=round(figures["flops"]),
        transpose_flops=round(figures["transpose_flops"]),
        instructions=written.instructions,
        written_read_bytes=written.read_bytes,
        written_write_bytes=written.write_bytes,
        dma_descriptors=written.descriptors,
        sbuf_peak_bytes_per_partition=round(run.machine.sbuf_peak),
        psum_peak_banks=-(-round(run.machine.psum_peak) // chip.psum_bank_bytes),
        pe_passes=written.passes,
        critical_path=_critical_path(run.machine, run.schedule),
        hot_spots=_hot_spots(run.machine, figures["total_us"] / max(run.schedule.total_us, 1e-9), latency),
        binding=bound_by,
        unproven=(
            *((_issued(transfers, params),) if starts_us > latency else ()),
            *_unproven(program, params, bound_by, begin_us + params.kernel_end_us, latency),
        )
        if known
        else (),
        bound=_bound(engines, latency, written.descriptors) if known else DATA_DEPENDENT,
        warnings=(*_one_trip(program, params), *_warnings(program, run.machine, written.descriptors, extended)),
        prediction=uncertainty.prediction(
            chip=chip.name,
            engines=engines,
            latency_us=latency if known else None,
            unlike=dynamic or indirect or program.lnc == cores.CORES or not params.compared,
            starts_us=starts_us,
        ),
        data_dependent=dynamic,
        extrapolated=extended,
        params=params,
        machine=None if extended else run.machine,
        schedule=None if extended else run.schedule,
    )


@dataclass(frozen=True, slots=True)
class _Written:
    instructions: dict[str, int]
    read_bytes: int
    write_bytes: int
    descriptors: dict[int, int]
    passes: int


def _as_written(program: Program, prepared: Prepared, model: CostModel, full: Mapping[int, int]) -> _Written:
    """Return how many instructions, bytes and array passes the program has as its source is written, before the
    compiler changes it.
    """
    counts: dict[str, int] = defaultdict(int)
    rows: Counter[int] = Counter()
    read = write = passes = 0
    for number, (_, loops) in enumerate(program.walk()):
        template = prepared.templates[number]
        if template.clears or template.instruction.attr(compiler_legacy.TWIN):
            continue
        times = prod(full[loop.id] for loop in loops)
        costs, variants = template.costs, template.variants
        if variants is not None and times != template.executions:
            space = tuple((loop.id, full[loop.id]) for loop in loops)
            variants, shapes = shape_variants(template.instruction, space)
            costs = [model.cost(template.instruction, template.engine, shape) for shape in shapes]
        for variant, repeats in (Counter(variants) if variants is not None else {0: times}).items():
            if variant < 0:
                continue
            cost = costs[variant]
            counts[cost.engine.value] += repeats
            passes += cost.passes * repeats
            if cost.bytes_moved:
                rows[cost.row_bytes] += cost.descriptors * repeats
                if template.is_store:
                    write += cost.bytes_moved * repeats
                else:
                    read += cost.bytes_moved * repeats
    return _Written(dict(sorted(counts.items())), read, write, dict(sorted(rows.items())), passes)


def _critical_path(machine: Machine, times: Schedule) -> tuple[PathStep, ...]:
    """Return the 20 steps of the critical path that take the most time, longest first."""
    steps = [PathStep(line, ENGINES[engine].value, us) for (line, engine), us in times.path_us(machine).items()]
    return tuple(sorted(steps, key=lambda step: (-step.us, step.line, step.engine))[:20])


def _binding(
    run: _Run, engines: Mapping[str, float], begin_us: float, after_us: float, latency: float
) -> Binding | None:
    """Return the parts of the latency by what the busiest engine does, including the kernel's launch and end.

    The result is None if no operation runs on any engine.
    """
    found = binding(run.machine, run.schedule, max(engines, key=lambda engine: engines[engine]))
    if found is None:
        return None
    start_us, end_us = found.start_us + begin_us, found.end_us + after_us
    margin_us = latency - start_us - found.busy_us - found.waits_us - end_us
    return replace(found, start_us=start_us, end_us=end_us, margin_us=margin_us)


NOTED_SHARE = 0.01
"""Least share of the latency that an unproven part must have to be named."""


def _issued(transfers: int, params: TimelineParams) -> str:
    """Return the warning that the chip may start the kernel's transfers one after another, which takes longer than
    predicted.
    """
    issued_us = transfers * params.issue_us
    return (
        f"{transfers} transfers start one after the other, at least {params.issue_us:g} us apart, if their descriptors are made "
        f"at run time: {issued_us:.4g} us, which is not modelled. Move more with each transfer"
    )


def _unproven(
    program: Program, params: TimelineParams, found: Binding | None, launch: float, latency: float
) -> tuple[str, ...]:
    """Return a text for each part of the latency that no measured kernel confirms. ``launch`` is the time of the
    kernel's launch and end.
    """
    turned = sorted(
        {
            node.line
            for node, _ in program.walk()
            if node.op == "dma_transpose"
            and max(DTYPE_BYTES[program.buffers[one.buffer].dtype] for one in node.accesses) >= 4
        }
    )
    said = []
    if turned and not params.turns_on_tensor_engine:
        where = ", ".join(map(str, turned[:5]))
        said.append(
            f"line {where}: dma_transpose of 4-byte elements is timed as two copies; no measured kernel has one"
        )
    if found is None:
        return tuple(said)
    least = NOTED_SHARE * latency
    if found.cold_us > least:
        said.append(
            f"{found.cold_us:.1f} us are the tensor engine at half its rate after it stood idle; when it speeds up is fitted"
        )
    if sum(one.us for one in found.waits if one.for_engine == Engine.DMA.value) > least:
        said.append("waits for transfers assume that transfers run in the program's order")
    if launch > least:
        said.append(f"{launch:g} us are the kernel's launch and end, a fitted constant")
    return tuple(said)


def _hot_spots(machine: Machine, scale: float, latency: float) -> tuple[HotSpot, ...]:
    top = sorted(machine.line_us().items(), key=lambda item: (-item[1], item[0]))[:10]
    return tuple(HotSpot(line, ENGINES[e].value, us * scale, us * scale / latency) for (line, e), us in top)


def _bound(engines: Mapping[str, float], latency: float, rows: Mapping[int, int]) -> str:
    """Return a short text that names the bottleneck, such as ``DMA 84 %``."""
    name, second = sorted(engines, key=lambda engine: -engines[engine])[:2]
    percents = {one: round(100 * engines[one] / latency) for one in (name, second)}
    first, other = (f"{'DMA' if one == 'dma' else one} {percent} %" for one, percent in percents.items())
    text = first if percents[name] >= 60 else f"waiting: {first}, {other}"
    if name == "dma" and rows:
        common = max(rows, key=lambda size: rows[size] * max(size, 512))
        text += f", {common} B rows"
    return text


def _one_trip(program: Program, params: TimelineParams) -> tuple[str, ...]:
    lines = sorted({loop.line for loop in program.loops.values() if loop.at_run_time})
    if not lines or params.dynamic_trips is not None:
        return ()
    where = ", ".join(map(str, lines))
    return (f"line {where}: trips known at run time only; every figure is for one trip of such a loop",)


def _warnings(program: Program, machine: Machine, rows: Mapping[int, int], extended: bool) -> tuple[str, ...]:
    found = [f"line {notice.line}: {notice.text}" for notice in program.notices]
    for line, size in sorted(machine.spilled_lines.items(), key=lambda item: -item[1])[:5]:
        found.append(f"line {line}: {size / 1e6:.1f} MB do not fit SBUF and are spilled to HBM")
    small = sum(count for size, count in rows.items() if size < 512)
    if small > 0.1 * max(1, sum(rows.values())):
        found.append(f"{small} DMA rows are shorter than 512 B (shortest {min(rows)} B)")
    if extended:
        found.append("very many executions: figures are extended linearly from a part of them")
    return tuple(found)
