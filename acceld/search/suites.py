"""Optimize many kernels under one budget, which goes where the expected gain is greatest. Pure, except for reading
files.

A suite is searched in slices. A slice is a run of one kernel from its best version so far. Every kernel gets a first
slice, those with the least work first. Then the next slice goes to the kernel that gained most per second in its last one,
weighted by its share of the whole and by what is left between it and its attainable time. When none gained, kernels that
ran out of time get longer slices.
"""

from __future__ import annotations

import math
import random
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from acceld.errors import UsageError, no_file
from acceld.gains import Gain, Verdict, gain
from acceld.model import Profile, Source
from acceld.workloads import DeclaredWork, Workload

FORM = "a suite is TOML: a name, and a [[kernel]] with a workload for each kernel"
"""Remedy for a file that is no suite."""
LEAST_GAIN = 1.005
"""Gain below which a slice counts as having found nothing."""
FRUITLESS_SLICES = 2
"""Slices without gain, one after another, after which a kernel gets no more."""
_RESAMPLED = 2000


@dataclass(frozen=True, slots=True)
class Entry:
    """One kernel of a suite."""

    workload: str
    """A name or a folder."""
    root: Path | None = None
    """The kernel to start from; None means the workload's baseline."""
    share: float = 1.0
    """Part of the time that all kernels together take, such as that of a model's step."""
    runs: int = 0
    """Number of times that a model's step runs the kernel; 0 if the suite is of no model."""


@dataclass(frozen=True, slots=True)
class Suite:
    """Kernels that are optimized together."""

    name: str
    entries: tuple[Entry, ...]


def read_suite(path: Path) -> Suite:
    """Read a suite: ``name`` and a ``[[kernel]]`` with ``workload``, and optionally ``root``, ``share`` and ``runs``, for
    each. UsageError for an invalid file.

    Folders and roots are relative to the file.
    """
    if not path.is_file():
        raise no_file(path, hint=FORM)
    try:
        raw = tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} is not a suite: {error}", hint=FORM) from error
    listed = raw.get("kernel")
    if not isinstance(listed, list) or not listed or set(raw) - {"name", "kernel"}:
        raise UsageError(f"{path} is not a suite", hint=FORM)
    entries = []
    for number, one in enumerate(listed, 1):
        if (
            not isinstance(one, dict)
            or not isinstance(one.get("workload"), str)
            or set(one) - {"workload", "root", "share", "runs"}
        ):
            raise UsageError(f"{path}: kernel {number} needs a workload, and may have a root, a share and runs")
        share = one.get("share", 1.0)
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
            raise UsageError(f"{path}: the share of kernel {number} must be more than 0 and at most 1, not {share!r}")
        runs = one.get("runs", 0)
        if type(runs) is not int or runs < 0:
            raise UsageError(f"{path}: the runs of kernel {number} must be a whole number, not {runs!r}")
        folder = path.parent / one["workload"]
        known = str(folder) if (folder / "workload.toml").is_file() else one["workload"]
        entries.append(Entry(known, path.parent / one["root"] if "root" in one else None, float(share), runs))
    return Suite(str(raw.get("name", path.stem)), tuple(entries))


def family(name: str, workloads: Mapping[str, Workload]) -> Suite:
    """Return the suite of all workloads of a family. UsageError if the family has no workload."""
    members = sorted(one.name for one in workloads.values() if one.family == name)
    if not members:
        known = ", ".join(sorted({one.family for one in workloads.values()}))
        raise UsageError(f"there is no suite {name!r}", hint=f"a .toml file, or a family of workloads: {known}")
    return Suite(name, tuple(Entry(member) for member in members))


def kernels_in(folder: Path, names: Sequence[str]) -> dict[str, Path]:
    """Return the kernel file of each workload, by name. A file's name is a workload's name, or begins with it and
    ``_``; the longest match counts.
    """
    found: dict[str, Path] = {}
    for path in sorted(folder.glob("*.py")):
        fitting = [name for name in names if path.stem == name or path.stem.startswith(f"{name}_")]
        if fitting:
            found.setdefault(max(fitting, key=len), path)
    if not found:
        raise UsageError(f"{folder} has no kernel for any workload of the suite", hint="files are named WORKLOAD.py")
    return found


@dataclass(frozen=True, slots=True)
class Slice:
    """One run of an entry."""

    run: int
    elapsed_s: float
    before_us: float
    after_us: float
    cut_short: bool = False
    """True if it used up its time, so that a longer slice may find more."""
    worth: float = 1.0
    """Worth of a gain of this kernel to the whole: its share, times the part of its time that is not yet attained."""

    @property
    def gain(self) -> float:
        """Speed-up over the suite's first kernel."""
        return self.before_us / self.after_us


@dataclass(frozen=True, slots=True)
class Row:
    """The result of an entry. Percentages are of the paper's peak."""

    workload: str
    before_us: float | None
    after_us: float | None
    percent_before: float | None
    percent_after: float | None
    elapsed_s: float
    runs: tuple[int, ...]
    competitor_us: float | None = None
    """Latency of a competitor's kernel, evaluated by the same gate."""
    note: str = ""
    improved: bool = False
    """True if the best kernel is faster than the first beyond a tie."""
    tie_band: float | None = None
    """Half width, in percent, inside which the speed-up is a tie; None if it is not known."""
    tie_reason: str = ""
    verdict: Verdict | None = None
    """Worth of the speed-up; None without one."""
    model: str = ""
    """Version and calibration of the performance model of the best kernel's latency."""

    @property
    def speedup(self) -> float | None:
        """Speed-up of the best kernel over the first."""
        return None if self.before_us is None or self.after_us is None else self.before_us / self.after_us


def least_work_first(works: Mapping[str, DeclaredWork | None]) -> list[str]:
    """Return the names of entries in the order of their first slices. The checks of a large kernel may outlast its slice,
    so small ones come first; last are those of unknown work.
    """

    def size(name: str) -> float:
        work = works[name]
        return math.inf if work is None else work.vector_flops + work.matmul_flops + work.hbm_bytes

    return sorted(works, key=size)


def slice_s(share_s: float, left_s: float, slices: Sequence[Slice], without: int) -> float:
    """Return the length of an entry's next slice, in seconds.

    ``share_s`` is that of a first slice. Each slice without gain doubles it. ``without`` entries have no slice yet:
    a first slice leaves as much of the ``left_s`` for each other one.
    """
    if not slices:
        return min(share_s, left_s / max(1, without))
    return min(left_s, share_s * 2.0 ** fruitless(slices))


def next_entry(done: Mapping[str, Sequence[Slice]], open_entries: Sequence[str]) -> str | None:
    """Return the entry for the next slice; None if no slice is worthwhile.

    An entry without a slice comes first, in order; then the one whose last slice gained most per second; then those
    whose last slice gained nothing because its time was over.
    """
    for name in open_entries:
        if not done.get(name):
            return name
    rates = {
        name: last.worth * math.log(last.gain) / max(last.elapsed_s, 1.0)
        for name in open_entries
        if (last := done[name][-1]).gain >= LEAST_GAIN
    }
    if rates:
        return max(rates, key=lambda name: rates[name])
    short = [name for name in open_entries if done[name][-1].cut_short and fruitless(done[name]) < FRUITLESS_SLICES]
    return min(short, key=lambda name: (len(done[name]), -done[name][-1].worth), default=None)


def shares_s(entries: Mapping[str, Entry], total_s: float, least_s: float) -> dict[str, float]:
    """Return the length of each entry's first slice: its share of the time, and at least ``least_s``."""
    whole = sum(entry.share for entry in entries.values())
    return {name: max(least_s, total_s * entry.share / whole) for name, entry in entries.items()}


def worth(entry: Entry, percent_of_attainable: float | None) -> float:
    """Return what a gain of an entry is worth to the whole. A hundredth is left to a kernel at its attainable time."""
    left = 1.0 if percent_of_attainable is None else 1.0 - percent_of_attainable / 100
    return entry.share * max(0.01, left)


def fruitless(slices: Sequence[Slice]) -> int:
    """Return the number of slices without gain since the last gain. Each next slice is twice as long."""
    gains = [one.gain >= LEAST_GAIN for one in slices]
    return gains[::-1].index(True) if True in gains else len(gains)


@dataclass(frozen=True, slots=True)
class Mean:
    """A geometric mean with a 95 % interval over the kernels of the suite."""

    value: float
    low: float
    high: float
    count: int


def geometric_mean(values: Sequence[float]) -> Mean | None:
    """Return the geometric mean with a bootstrap interval over kernels; None without values."""
    if not values:
        return None
    logs = [math.log(value) for value in values]
    rng = random.Random(0)
    means = sorted(sum(rng.choices(logs, k=len(logs))) / len(logs) for _ in range(_RESAMPLED))
    low, high = means[_RESAMPLED // 40], means[-_RESAMPLED // 40]
    return Mean(math.exp(sum(logs) / len(logs)), math.exp(low), math.exp(high), len(logs))


def suite_gain(first: Mapping[str, Any], last: Mapping[str, Any]) -> Gain | None:
    """Return the gain of the best kernel of an entry's last run over the first kernel of its first run, from their
    outcomes. The band of one run's prediction does not hold over several runs.
    """

    def profile(outcome: Mapping[str, Any], latency: str, interval: str) -> Profile:
        stated = outcome["tie_band"] if first is last or outcome["source"] == Source.MEASURED else None
        details = {} if stated is None else {"tie_percent": stated}
        return Profile(
            Source(outcome["source"]),
            outcome["chip"],
            outcome["api"],
            outcome[latency],
            outcome["method"],
            model=outcome["model"],
            interval_percent=outcome[interval],
            details=details,
        )

    if first is last and first["source"] == Source.MEASURED:
        ratio = first["speedup"]
        return ratio and Gain(ratio, first["improved"] or None, first["tie_band"], first["tie_reason"])
    before = profile(first, "baseline_latency_us", "baseline_interval_percent")
    return gain(before, profile(last, "best_latency_us", "interval_percent"))


@dataclass(frozen=True, slots=True)
class StepGain:
    """Gain of a model's step: the latencies of its kernels, each as often as a step runs it."""

    before_us: float
    after_us: float
    band_percent: float | None
    """Half width, in percent, inside which the speed-up is a tie: the bands of the kernels by their time; None if one is
    not known.
    """

    @property
    def speedup(self) -> float:
        """Speed-up of the step's kernels together."""
        return self.before_us / self.after_us


def step_gain(rows: Mapping[str, Row], entries: Mapping[str, Entry]) -> StepGain | None:
    """Return what a step gains; None if the suite is of no model, or a kernel has no latency."""
    found = [(rows[name], entry.runs) for name, entry in entries.items() if entry.runs]
    before = [row.before_us for row, _ in found if row.before_us is not None and row.after_us is not None]
    if not found or len(before) < len(found):
        return None
    after_us = sum(runs * (row.after_us or 0.0) for row, runs in found)
    bands = [runs * (row.after_us or 0.0) * row.tie_band for row, runs in found if row.tie_band is not None]
    band = sum(bands) / after_us if len(bands) == len(found) else None
    return StepGain(sum(runs * us for us, (_, runs) in zip(before, found, strict=True)), after_us, band)


def figures_of(name: str, rows: Sequence[Row], step: StepGain | None = None) -> dict[str, Any]:
    """Return a suite's figures as JSON-able data; :func:`compared` reads them."""
    mean = geometric_mean([row.speedup for row in rows if row.speedup is not None])
    listed = [asdict(row) | {"speedup": row.speedup} for row in rows]
    found = {"suite": name, "rows": listed, "geometric_mean": None if mean is None else asdict(mean)}
    return found | ({} if step is None else {"step": asdict(step) | {"speedup": step.speedup}})


def compared(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[tuple[str, float, float]]:
    """Return workload and best latencies of two suites' figures, for workloads in both."""
    theirs = {row["workload"]: row["after_us"] for row in other["rows"]}
    both = [(row["workload"], row["after_us"], theirs.get(row["workload"])) for row in one["rows"]]
    return [(name, here, there) for name, here, there in both if here and there]
