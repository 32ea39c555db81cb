"""Read the output of Neuron's tools as records: neuron-ls, the profiler's summary, runtime and compile errors.

Field names and units are those of AWS's documentation (SDK 2.26 to 2.33). Times are in seconds. A ``*_percent`` field
of the profiler's summary is a fraction from 0 to 1. A missing key is None or left out, never zero. For example,
kernels without matrix products have no ``hardware_flops``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, cast

from acceld.errors import DeviceError
from acceld.model import Failure, Status

COUNTERS = (
    "hbm_read_bytes",
    "hbm_write_bytes",
    "psum_read_bytes",
    "psum_write_bytes",
    "sbuf_read_bytes",
    "sbuf_write_bytes",
    "spill_reload_bytes",
    "spill_save_bytes",
    "hardware_flops",
    "transpose_flops",
    "peak_flops_bandwidth_ratio",
    "mm_arithmetic_intensity",
    "hfu_estimated_percent",
    "scalar_engine_active_time_percent",
    "vector_engine_active_time_percent",
    "gpsimd_engine_active_time_percent",
)
"""Counters of the profiler's summary that acceld's profiles keep, in addition to the engines' busy time."""

VERSIONS = (
    "instance_type",
    "compiler_version",
    "runtime_version",
    "driver_version",
    "collectives_version",
    "profiler_version",
)
"""Fields of a summary that are kept as texts."""

ENGINES = ("tensor", "vector", "scalar", "gpsimd", "sync")


@dataclass(frozen=True, slots=True)
class NeuronProcess:
    """A process that has cores of a device open."""

    pid: int
    command: str


@dataclass(frozen=True, slots=True)
class NeuronDevice:
    """One chip as neuron-ls reports it. ``core_count`` counts logical cores."""

    index: int
    core_count: int
    core_ids: tuple[int, ...]
    memory_bytes: int
    logical_core_size: int
    """Physical cores of a logical one (LNC); 1 if neuron-ls does not report it, as on trn1."""
    processes: tuple[NeuronProcess, ...]


@dataclass(frozen=True, slots=True)
class ProfileSummary:
    """The profiler's summary of one execution."""

    total_us: float
    """Time from the start to the stop of the hardware. Idle time counts, the host's time does not."""
    engines_us: Mapping[str, float]
    """Time for which each engine, and ``dma``, was active, without the time that it waited on semaphores."""
    counters: Mapping[str, float]
    throttle: Mapping[str, float]
    """All figures about throttling, under the profiler's names: times in ns or s, ``_percent`` as fractions 0-1."""
    fields: Mapping[str, float]
    """Every number of the summary as reported: times in seconds, ``_percent`` as fractions 0-1."""
    versions: Mapping[str, str]
    """Instance type and versions of compiler, runtime, driver, collectives and profiler, if reported."""

    @property
    def compiler_version(self) -> str:
        """Return the version of the compiler that wrote the NEFF; an empty text if the summary has no version."""
        return self.versions.get("compiler_version", "")

    @property
    def throttled_percent(self) -> float | None:
        """Return the mean limit, 0-100, that throttling set to the tensor engine's utilization; None if the summary has
        no such limit.
        """
        reported = self.throttle.get("throttle_avg_util_limit_nc0_percent")
        return None if reported is None else 100 * reported

    @property
    def device_ran(self) -> bool:
        """Tell whether an engine or DMA was active. Without activity, the time of an execution is not a measurement."""
        return self.total_us > 0 and any(us > 0 for us in self.engines_us.values())


def parse_neuron_ls(text: str) -> tuple[NeuronDevice, ...]:
    """Return the devices in the output of ``neuron-ls --json-output``. Raise DeviceError if the output is invalid."""
    if any(line.strip() == "[]" for line in text.splitlines()):
        return ()
    raw = json_of(text, "neuron-ls --json-output", _lists_devices)
    return tuple(_device(entry) for entry in raw)


def _device(raw: Any) -> NeuronDevice:
    try:
        count = int(raw["nc_count"])
        return NeuronDevice(
            index=int(raw["neuron_device"]),
            core_count=count,
            core_ids=tuple(int(core) for core in raw.get("neuroncore_ids", range(count))),
            memory_bytes=int(raw["memory_size"]),
            logical_core_size=int(raw.get("logical_neuroncore_config") or 1),
            processes=tuple(
                NeuronProcess(int(one["pid"]), str(one.get("command", ""))) for one in raw.get("neuron_processes") or ()
            ),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise DeviceError(
            f"neuron-ls printed a device acceld does not understand: {error!r}",
            hint="update acceld or the Neuron tools: docs/trainium-sdks.md has the versions that fit",
        ) from error


def parse_summary(text: str) -> ProfileSummary:
    """Return the summary that the profiler's ``view`` printed with ``--output-format summary-json`` or ``json``.

    ``summary-json`` prints an object whose only entry is the summary; ``json`` prints an object with the summary
    under the key ``summary``. Raise DeviceError if the output is invalid, or if it has no ``total_time``, without
    which nothing proves that the device ran.
    """
    raw = json_of(text, "the profiler's summary-json", lambda one: _is_object(one) and _summary_in(one) is not None)
    found = _summary_in(raw)
    assert found is not None, "json_of returns only what has one"
    return summary_of(found)


def _summary_in(raw: Mapping[str, Any]) -> Mapping[str, Any] | None:
    listed = raw.get("summary")
    if isinstance(listed, list):
        return next((one for one in listed if _is_object(one)), None)
    return next((one for one in raw.values() if _is_object(one)), None)


def summary_of(summary: Mapping[str, Any]) -> ProfileSummary:
    """Return the fields of a summary as a record.

    Raise DeviceError if there is no ``total_time``, because then nothing proves that the device ran.
    """
    if not is_number(summary.get("total_time")):
        raise DeviceError("the profiler's summary has no total_time", hint="the trace may be cut off: capture it again")
    engines = {
        engine: 1e6 * summary[f"{engine}_engine_active_time"]
        for engine in ENGINES
        if is_number(summary.get(f"{engine}_engine_active_time"))
    }
    for engine in ENGINES:
        share = summary.get(f"{engine}_engine_active_time_percent")
        if engine not in engines and is_number(share):
            engines[engine] = 1e6 * summary["total_time"] * cast("float", share)
    if is_number(summary.get("dma_active_time")):
        engines["dma"] = 1e6 * summary["dma_active_time"]
    numbers = {name: float(reported) for name, reported in summary.items() if is_number(reported)}
    return ProfileSummary(
        total_us=1e6 * float(summary["total_time"]),
        engines_us=MappingProxyType(engines),
        counters=MappingProxyType({name: numbers[name] for name in COUNTERS if name in numbers}),
        throttle=MappingProxyType(
            {name: reported for name, reported in numbers.items() if name.startswith("throttle_")}
        ),
        fields=MappingProxyType(numbers),
        versions=MappingProxyType({name: str(summary[name]) for name in VERSIONS if summary.get(name)}),
    )


NRT_STATUS: Mapping[int, tuple[str, Status | None]] = MappingProxyType(
    {
        1: ("failure", None),
        2: ("invalid argument", None),
        3: ("invalid handle", None),
        4: ("out of resources", None),
        5: ("timeout", Status.TIMEOUT),
        6: ("hardware error", None),
        7: ("queue full", None),
        9: ("not enough cores to load", None),
        10: ("unsupported NEFF version", Status.COMPILE_ERROR),
        11: ("out of host memory", None),
        13: ("runtime not initialized", None),
        14: ("runtime closed", None),
        101: ("execution unit unrecoverable", None),
        1002: ("bad input", Status.RUNTIME_ERROR),
        1003: ("numerical error (NaN)", Status.INCORRECT_NUMERICAL),
        1004: ("completed with errors", Status.RUNTIME_ERROR),
        1005: ("core busy", None),
        1006: ("out-of-bounds access", Status.RUNTIME_ERROR),
        15: ("queue empty", None),
        1100: ("a collective is pending", None),
        **dict.fromkeys(range(1200, 1207), ("hardware error", None)),
    }
)
"""The meaning of each NRT_STATUS code, and the status that the kernel gets. The status is None if the device is at
fault.
"""

BUSY = 1005
_NRT = re.compile(r"NRT_\w+\((\d+)\)|NRT_STATUS[^0-9]{0,10}(\d+)")
_LOG_LINES: Sequence[tuple[re.Pattern[str], int]] = (
    (re.compile(r"NeuronCore\(s\) not available"), BUSY),
    (re.compile(r"execution timeout \(\d+ ms\)"), 5),
    (re.compile(r"INFER_ERROR_SUBTYPE_NUMERICAL"), 1003),
)
"""Patterns of lines of the runtime's log, each with its NRT_STATUS code, for output that does not state a code."""


def runtime_failure(text: str) -> tuple[Status, Failure] | None:
    """Return the status and the failure that a kernel gets for an error that the runtime reported.

    Return None if the error is no fault of the kernel: the device is at fault, or the way in which it was used.
    """
    code = nrt_code(text)
    if code is None or code not in NRT_STATUS:
        return None
    meaning, status = NRT_STATUS[code]
    if status is None:
        return None
    rule = {1003: "not_finite", 1006: "out_of_bounds", 5: "deadline"}.get(code, "runtime")
    return status, Failure(rule, f"the device reported {meaning} (NRT {code})")


def nrt_code(text: str) -> int | None:
    """Return the NRT_STATUS number in a log line or a message; None if the text has no such number.

    For example, ``NRT Error NRT_EXEC_OOB(1006): Failed to execute model`` gives 1006.
    """
    match = _NRT.search(text)
    if match:
        return int(match[1] or match[2])
    return next((code for pattern, code in _LOG_LINES if pattern.search(text)), None)


_COMPILE_RULES: Sequence[tuple[re.Pattern[str], str]] = tuple(
    (re.compile(pattern), rule)
    for pattern, rule in (
        (r"number of partitions \S+ exceed", "partition_limit"),
        (r"size of dimension \d+ .* exceed architecture limitation", "matmul_shape"),
        (r"Out-of-bound access", "out_of_bounds"),
        (r"to be in address space", "address_space"),
        (r"number of partitions .* mismatch", "partition_mismatch"),
        (r"Unexpected output dependencies", "output_dependency"),
        (r"referenced outside of its parent scope", "local_scope"),
        (r"mixing of basic and advanced indexing", "mixed_indexing"),
        (r"Insufficient rank", "insufficient_rank"),
        (r"\[GCA035\]|\[GCA046\]|couldn't be allocated in SB", "sbuf_capacity"),
        (r"\[NLA001\].*out of bound", "explicit_address"),
        (r"Matmult dst tensor is not psum", "address_space"),
        (r"in/out shape must match", "shape"),
        (r"NCC_EOOM00[12]", "hbm_capacity"),
        (r"NCC_(EVRF007|EBVF030|EXTP004)", "instruction_limit"),
        (r"NCC_EARG001|NCC_EVRF066", "lnc"),
        (r"NCC_EVRF065", "api_version"),
        (r"NCC_EVRF05[12]", "dtype"),
        (r"NCC_(EVRF015|EHCA005|EVRF059)", "custom_call"),
        (r"\[NKI005\].*mapping failed", "hbm_capacity"),
        (r"partition dimension \d+ exceeds maximum", "partition_limit"),
        (r"kernel failed verifier check", "verifier"),
    )
)
_LINE = re.compile(r'File "(?P<file>[^"]*)", line (?P<line>\d+)')


def compile_failure(text: str, filename: str) -> Failure:
    """Return a compiler's error as a failure.

    The failure's line is the innermost line of the kernel's file in the error; 0 if the error has no such line.
    Its rule is the simulator's name for the error, or ``compiler`` for an unknown error.
    """
    rule = next((rule for pattern, rule in _COMPILE_RULES if pattern.search(text)), "compiler")
    lines = [int(match["line"]) for match in _LINE.finditer(text) if match["file"].endswith(filename)]
    reported = [line.strip() for line in text.splitlines() if line.strip()]
    message = next(
        (line for line in reversed(reported) if any(p.search(line) for p, _ in _COMPILE_RULES)),
        reported[-1] if reported else "the compiler failed without a message",
    )
    return Failure(rule, message[:2000], line=lines[-1] if lines else 0)


def json_of(text: str, what: str, fits: Callable[[Any], bool]) -> Any:
    """Return the first JSON value in a text for which ``fits`` returns True. Tools print other lines around
    their JSON.

    Raise DeviceError if the text has no such value.
    """
    decoder = json.JSONDecoder()
    for match in re.finditer(r"[\[{]", text):
        try:
            found, _ = decoder.raw_decode(text, match.start())
        except ValueError:
            continue
        if fits(found):
            return found
    raise DeviceError(f"{what} printed no JSON that acceld understands", hint=f"it printed: {text.strip()[:500]!r}")


def _lists_devices(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(_is_object(one) and "nc_count" in one for one in value)


def _is_object(value: object) -> bool:
    return isinstance(value, dict)


def walk(raw: Any, *path: str) -> Any:
    """Return the value at a path of keys in nested objects; None if an object or a key of the path is missing."""
    for name in path:
        if not isinstance(raw, dict):
            return None
        raw = raw.get(name)
    return raw


def is_number(value: object) -> bool:
    """Return True for a number in JSON. ``true`` and ``false`` are not numbers."""
    return isinstance(value, int | float) and not isinstance(value, bool)
