"""Read a captured profile of a whole program and rank its operators by the time that a better kernel could save.

Two forms are read, each by the profiler's documented schema: the folder of Parquet tables of Neuron Explorer (schema
7.4 of SDK 2.31 to 12.0 of SDK 2.33), and the full profile as JSON, which SDK 2.33 is the last to write.

The time of a program is divided among its operators. Each moment belongs, in equal parts, to the operators whose
instructions run at that moment. A moment without an instruction belongs to the operator whose instruction comes next,
because that operator waits. So the operators' times add up to the program's.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec

from acceld.chips import CHIPS, ChipSpec
from acceld.devices.neuron.tools.reports import ProfileSummary, summary_of
from acceld.errors import UsageError
from acceld.roofline import ATTAINABLE_PEAKS, FLOAT32_PASSES

CHIP_OF_INSTANCE: Mapping[str, str] = MappingProxyType(
    {"trn1": "trn1", "trn1n": "trn1", "inf2": "trn1", "trn2": "trn2", "trn2u": "trn2", "trn3": "trn3"}
)
"""The chip of an instance, by the family of the instance. The instance has the NeuronCore of that chip."""
UNNAMED = "without a name"
"""Name of the operator of instructions that have no name at all: no operator of a framework, layer, HLO or source line.
"""
_NO_NAMES = frozenset({"", "Unknown", "unknown", "[]"})
_WAITS = frozenset({"EVENT_SEMAPHORE"})
"""Opcodes that only wait for another engine."""
_SPLIT_FLOAT32 = "src=fp32"
"""Text that marks a float32 matrix product in the JSON form. The Parquet form has ``adjusted_flops`` instead."""


class ExecutedInstruction(msgspec.Struct, frozen=True):
    """One executed instruction. Times are in nanoseconds."""

    start: int
    end: int
    engine: str
    opcode: str
    operator: str
    line: str
    """Source line of an NKI kernel; empty if the program was compiled without ``NKI_DEBUG_INFO``."""
    core: str
    hbm_bytes: int
    flops: float
    """Floating-point operations of matrix products, counted as if in bfloat16: a float32 product counts four times.

    Transposes on the tensor engine only move data, so they do not count.
    """
    spill_bytes: int


@dataclass(frozen=True, slots=True)
class InterfaceTensor:
    """An input, an output or a weight of the captured program."""

    name: str
    role: str
    """``IN``, ``OUT`` or ``WEIGHT``."""
    shape: tuple[int, ...]
    size_bytes: int

    @property
    def dtype(self) -> str:
        """Return a dtype of the tensor's element size, as a guess: profiles do not store the dtype."""
        count = 1
        for length in self.shape:
            count *= length
        return {4: "float32", 2: "bfloat16", 1: "float8_e4m3"}.get(self.size_bytes // count if count else 0, "float32")


@dataclass(frozen=True, slots=True)
class OperatorCost:
    """Cost of one operator, layer or source line. Times are in microseconds."""

    name: str
    time_us: float
    """The part of the program's time that belongs to the operator."""
    least_us: float
    """Least time of the operator at the rates that kernels reach on this chip.

    ``least_us`` is the longer of two times: for the bytes that the operator moves, and for its products.
    """
    bound: str
    """The limit behind ``least_us``: ``DMA`` or ``tensor``; ``neither`` if the operator moves no bytes and computes no
    products.
    """
    engines_us: Mapping[str, float]
    """Time of the operator's instructions by engine, without waiting."""
    hbm_bytes: int
    flops: float
    spill_bytes: int
    instructions: int

    @property
    def gain_us(self) -> float:
        """Return the most time that a better kernel could save: ``time_us`` minus ``least_us``, at least 0."""
        return max(0.0, self.time_us - self.least_us)


@dataclass(frozen=True, slots=True)
class Captured:
    """A captured program: its time, divided among its operators."""

    summary: ProfileSummary
    chip: str
    cores: int
    """Number of physical cores that move data or multiply."""
    operators: tuple[OperatorCost, ...]
    """All operators, greatest ``gain_us`` first."""
    lines: tuple[OperatorCost, ...]
    """Source lines of NKI kernels, greatest ``gain_us`` first."""
    opcodes: tuple[tuple[str, str, int, float], ...]
    """Engine, opcode, count and microseconds of each kind of instruction, the longest time first."""
    tensors: tuple[InterfaceTensor, ...]
    warnings: tuple[str, ...]
    """Texts of the profiler that cast doubt on its data."""


def read_captured(place: Path) -> Captured:
    """Return the program in a profile: a folder of Parquet tables or a JSON file.

    Raise UsageError if ``place`` is something else, or if the profile lacks data that are needed.
    """
    if place.is_dir():
        return _assembled(*_understood(_of_tables, place))
    try:
        data = place.read_bytes()
    except OSError as error:
        raise UsageError(
            f"{place}: {error.strerror}", hint="give the profiler's JSON file or its Parquet folder"
        ) from error
    try:
        raw = json.loads(data)
    except ValueError as error:
        raise UsageError(f"{place} is no JSON: {error}", hint=_HOW) from error
    if not isinstance(raw, dict) or not isinstance(raw.get("instruction"), list):
        raise UsageError(f"{place} has no list `instruction`, so it is not a full profile", hint=_HOW)
    return _assembled(*_understood(_of_json, raw))


_HOW = (
    "neuron-explorer view -n FILE.neff -s FILE.ntff --output-file DIR writes Parquet; up to SDK 2.33"
    " --output-format json writes one file"
)

_Parts = tuple[dict[str, Any], list[ExecutedInstruction], list[InterfaceTensor], list[str]]


def _understood(read: Callable[[Any], _Parts], raw: object) -> _Parts:
    try:
        return read(raw)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(f"an entry of the profile has another form than acceld reads: {error!r}", hint=_HOW) from error


def _of_json(raw: Mapping[str, Any]) -> _Parts:
    steps = []
    for one in raw["instruction"]:
        begin = int(one["timestamp"])
        steps.append(
            ExecutedInstruction(
                begin,
                begin + int(one["duration"]),
                _engine(str(one.get("label", ""))),
                str(one.get("opcode", "")),
                _named(one.get("layer"), one.get("hlo_name")),
                "",
                str(one.get("subgraph", "")),
                int(one.get("hbm_read_bytes") or 0) + int(one.get("hbm_write_bytes") or 0),
                _flops(one),
                int(one.get("spill_save_bytes") or 0) + int(one.get("spill_reload_bytes") or 0),
            )
        )
    summaries = raw.get("summary")
    fields = dict(summaries[0]) if isinstance(summaries, list) and summaries else {}
    tensors = [found for one in raw.get("neff_node") or () if (found := _tensor(one)) is not None]
    return fields, steps, tensors, [str(one.get("message", "")) for one in raw.get("warnings") or ()]


def _flops(raw: Mapping[str, Any]) -> float:
    if "TRANSPOSE" in str(raw.get("instruction_type")):
        return 0.0
    passes = FLOAT32_PASSES if _SPLIT_FLOAT32 in str(raw.get("operands")) else 1
    return 2.0 * passes * int(raw.get("elements") or 0)


def _of_tables(folder: Path) -> _Parts:
    if not _files(folder, "Instruction"):
        inner = sorted(found.parent for found in folder.glob("profiles/global/*/Instruction*.parquet"))
        if not inner:
            raise UsageError(f"{folder} holds no Instruction.parquet", hint=_HOW)
        folder = inner[0]
    names = {
        one["raw_framework_id"]: str(one.get("framework_name") or "")
        for one in _rows(folder, "FrameworkInstruction", ("raw_framework_id", "framework_name"))
    }
    columns = (
        "start_ts end_ts engine opcode layer hlo_name raw_framework_id nki_source_location pcore_idx hbm_read_bytes"
        " hbm_write_bytes adjusted_flops adjusted_flops_transpose spill_save_bytes spill_reload_bytes"
    )
    steps = [
        ExecutedInstruction(
            int(one["start_ts"]),
            int(one["end_ts"]),
            _engine(str(one["engine"])),
            str(one["opcode"]),
            _named(names.get(one.get("raw_framework_id")), one.get("layer"), one.get("hlo_name")),
            _first(one.get("nki_source_location")),
            str(one.get("pcore_idx") or 0),
            int(one.get("hbm_read_bytes") or 0) + int(one.get("hbm_write_bytes") or 0),
            float(one.get("adjusted_flops") or 0) - float(one.get("adjusted_flops_transpose") or 0),
            int(one.get("spill_save_bytes") or 0) + int(one.get("spill_reload_bytes") or 0),
        )
        for one in _rows(folder, "Instruction", columns.split())
    ]
    fields: dict[str, Any] = {}
    for table in ("Metadata", "Summary"):
        for one in _rows(folder, table, None):
            fields |= {name: found for name, found in one.items() if found is not None}
    tensors = [found for one in _rows(folder, "TensorInfo", None) if (found := _tensor(one)) is not None]
    return fields, steps, tensors, [str(one.get("message", "")) for one in _rows(folder, "Warning", None)]


def _files(folder: Path, table: str) -> list[Path]:
    """Return the files of a table. The profiler may split a table into numbered files."""
    return sorted({*folder.glob(f"{table}.parquet"), *folder.glob(f"{table}_[0-9]*.parquet")})


def _rows(folder: Path, table: str, columns: Sequence[str] | None) -> Iterable[dict[str, Any]]:
    """Yield the rows of a table, with only those of ``columns`` that the table has (None: all). A missing table
    has no rows.
    """
    files = _files(folder, table)
    if not files:
        return
    try:
        from pyarrow import ArrowInvalid, parquet
    except ImportError as error:
        raise UsageError("reading Parquet needs pyarrow", hint="pip install 'acceld[parquet]'") from error
    for file in files:
        try:
            known = set(parquet.read_schema(file).names)
            if table == "Instruction" and not known >= {"start_ts", "end_ts", "engine", "opcode"}:
                raise UsageError(f"{file} lacks start_ts, end_ts, engine or opcode", hint=_HOW)
            wanted = None if columns is None else [name for name in columns if name in known]
            yield from parquet.read_table(file, columns=wanted).to_pylist()
        except (ArrowInvalid, OSError) as error:
            raise UsageError(f"{file} can not be read as Parquet: {error}", hint=_HOW) from error


def _named(*names: object) -> str:
    return next((str(one) for one in names if one is not None and str(one) not in _NO_NAMES), UNNAMED)


def _first(location: object) -> str:
    """Return the first source line of an instruction. The lines are a list, or a text that looks like a list."""
    if isinstance(location, list):
        return str(location[0]) if location else ""
    text = str(location or "").strip("[] ")
    return "" if text in _NO_NAMES else text.split(",")[0].strip("\"' ")


def _engine(track: str) -> str:
    """Return the name of the engine that a track (a row) of the timeline shows, such as ``tensor`` for
    ``TensorMatrix``.
    """
    return track.lower().removesuffix("matrix")


def _tensor(raw: Mapping[str, Any]) -> InterfaceTensor | None:
    """Return an entry of the profile as a tensor of the program's interface; None if the entry is not such a tensor."""
    name, role = str(raw.get("variable_name") or ""), str(raw.get("type") or "")
    digits = str(raw.get("shape") or "").replace("[", " ").replace("]", " ").replace(",", " ").split()
    if not name or not role or not digits or not all(one.isdigit() for one in digits):
        return None
    return InterfaceTensor(name, role, tuple(int(one) for one in digits), int(raw.get("size") or 0))


def _assembled(
    fields: dict[str, Any], steps: list[ExecutedInstruction], tensors: list[InterfaceTensor], warnings: list[str]
) -> Captured:
    if not steps:
        raise UsageError("the profile holds no instruction", hint="Capture the program again while it runs.")
    instance = str(fields.get("instance_type") or "")
    chip = CHIP_OF_INSTANCE.get(instance.split(".")[0])
    if chip is None:
        raise UsageError(
            f"the profile is of {instance or 'an unnamed instance'}, whose chip acceld does not know",
            hint=f"acceld knows the instances {', '.join(CHIP_OF_INSTANCE)}.",
        )
    if not isinstance(fields.get("total_time"), int | float) or fields["total_time"] <= 0:
        fields["total_time"] = (max(one.end for one in steps) - min(one.start for one in steps)) / 1e9
    if fields["total_time"] <= 0:
        raise UsageError("no instruction of the profile takes time", hint="Capture the program again while it runs.")
    cores = max(1, len({one.core for one in steps if one.hbm_bytes or one.flops}))
    kernels = [msgspec.structs.replace(one, operator=one.line) for one in steps if one.line]
    counts: Counter[tuple[str, str]] = Counter()
    spent: defaultdict[tuple[str, str], int] = defaultdict(int)
    for one in steps:
        if one.opcode not in _WAITS:
            counts[one.engine, one.opcode] += 1
            spent[one.engine, one.opcode] += one.end - one.start
    return Captured(
        summary_of(fields),
        chip,
        cores,
        _ranked(steps, CHIPS[chip], cores),
        _ranked(kernels, CHIPS[chip], cores),
        tuple((*key, counts[key], spent[key] / 1e3) for key in sorted(spent, key=lambda key: -spent[key])),
        tuple(tensors),
        tuple(warnings),
    )


def _ranked(steps: Sequence[ExecutedInstruction], chip: ChipSpec, cores: int) -> tuple[OperatorCost, ...]:
    peaks = ATTAINABLE_PEAKS[chip.name]
    parts = divided(steps)
    of: defaultdict[str, list[ExecutedInstruction]] = defaultdict(list)
    for one in steps:
        of[one.operator].append(one)
    found = []
    for name, own in of.items():
        moved, flops = sum(one.hbm_bytes for one in own), sum(one.flops for one in own)
        dma_us = 1e6 * moved / (cores * peaks.hbm_bytes_per_s)
        tensor_us = 1e6 * flops / (cores * peaks.matmul_flops_per_s["bfloat16"])
        engines: defaultdict[str, float] = defaultdict(float)
        for one in own:
            if one.opcode not in _WAITS:
                engines[one.engine] += (one.end - one.start) / 1e3
        found.append(
            OperatorCost(
                name,
                parts.get(name, 0.0) / 1e3,
                max(dma_us, tensor_us),
                "neither" if not moved and not flops else "DMA" if dma_us >= tensor_us else "tensor",
                MappingProxyType(dict(engines)),
                moved,
                flops,
                sum(one.spill_bytes for one in own),
                len(own),
            )
        )
    return tuple(sorted(found, key=lambda one: (-one.gain_us, one.name)))


def divided(steps: Sequence[ExecutedInstruction]) -> dict[str, float]:
    """Return the nanoseconds of each operator. Added up, they are the time from the first start to the last end.

    No time is given to instructions that only wait, or that take no time.
    """
    busy = (one for one in steps if one.opcode not in _WAITS and one.end > one.start)
    working = sorted(busy, key=lambda one: (one.start, one.end))
    events = sorted([(one.end, 0, one.operator) for one in working] + [(one.start, 1, one.operator) for one in working])
    parts: defaultdict[str, float] = defaultdict(float)
    active: Counter[str] = Counter()
    now = working[0].start if working else 0
    for moment, begins, operator in events:
        span = moment - now
        if span > 0:
            if active:
                for name in active:
                    parts[name] += span / len(active)
            else:
                parts[operator] += span
            now = moment
        if begins:
            active[operator] += 1
        else:
            active[operator] -= 1
            if not active[operator]:
                del active[operator]
    return dict(parts)
