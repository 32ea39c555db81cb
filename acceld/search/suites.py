"""Optimize many kernels in a common time, which is spent where the expected gain is greatest. Pure functions, except
that some read files.

A suite is searched in slices of time. A slice belongs to one kernel: it continues the run that the kernel's last slice
cut off, or else begins a new run from the kernel's best version so far. Every kernel gets a first slice, in the order
of increasing work, and time that a kernel does not use goes to later first slices. Then the next slice goes to the
kernel that is expected to gain most per second, weighted by the kernel's share of the whole and by the part of its time
that is not yet attained. When no kernel gained, kernels that ran out of time get longer slices.
"""

from __future__ import annotations

import math
import random
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

from acceld.errors import UsageError, no_file
from acceld.gains import Gain, Verdict, gain
from acceld.model import Profile, RunState
from acceld.workloads import DeclaredWork, Workload

FORM = "a suite is TOML: a name, and a [[kernel]] with a workload for each kernel"
"""Remedy for a file that is not a suite."""
LEAST_GAIN = 1.005
"""Speed-up below which a slice counts as a slice without gain."""
FRUITLESS_SLICES = 2
"""Number of slices without gain in a row after which a kernel gets no more slices, unless its first search goes on."""
_RESAMPLED = 2000


@dataclass(frozen=True, slots=True)
class Entry:
    """One kernel of a suite: its workload, its first kernel, and its share of the whole."""

    workload: str
    """Name or folder of the workload."""
    root: Path | None = None
    """File of the kernel to start from; None for the workload's baseline."""
    share: float = 1.0
    """The kernel's part of the time that all kernels together take, for example in one step of a model."""
    runs: int = 0
    """Number of times that one step of a model runs the kernel; 0 if the suite does not belong to a model."""


@dataclass(frozen=True, slots=True)
class Suite:
    """A list of kernels that are optimized together."""

    name: str
    entries: tuple[Entry, ...]


def read_suite(path: Path) -> Suite:
    """Return the suite that a TOML file describes. Raise UsageError for an invalid file.

    The file has a ``name``, and for each kernel a ``[[kernel]]`` with ``workload`` and optionally ``root``, ``share``
    and ``runs``. Folders and roots are relative to the file.
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
            raise UsageError(
                f"{path}: kernel {number} needs a workload, and may have a root, a share and runs",
                hint="such as [[kernel]] with workload = 'softmax'",
            )
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
    """Return the suite of all workloads of a family. Raise UsageError if there is no such family."""
    members = sorted(one.name for one in workloads.values() if one.family == name)
    if not members:
        known = ", ".join(sorted({one.family for one in workloads.values()}))
        raise UsageError(f"there is no suite {name!r}", hint=f"a .toml file, or a family of workloads: {known}")
    return Suite(name, tuple(Entry(member) for member in members))


def kernels_in(folder: Path, names: Sequence[str]) -> dict[str, Path]:
    """Return the kernel file in a folder for each workload, as a dict by the workload's name.

    A file belongs to a workload if it is called ``NAME.py``, or begins with the name and ``_``. If several names fit,
    the longest name counts. Raise UsageError if no file belongs to a workload.
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
    """Hold the result of one slice, which is one run of an entry or a part of the run."""

    run: int
    elapsed_s: float
    before_us: float
    after_us: float
    cut_short: bool = False
    """True if the slice used up its time, so that a longer slice may find more."""
    worth: float = 1.0
    """Worth of a gain of this kernel for the suite: its share, times the part of its time that is not yet attained."""
    goes_on: bool = False
    """True if the slice's end cut off its run, which the entry's next slice continues."""

    @property
    def gain(self) -> float:
        """Return the speed-up of the slice's best kernel over the kernel with which the slice began."""
        return self.before_us / self.after_us


@dataclass(frozen=True, slots=True)
class Row:
    """The result of one kernel of a suite over all its slices.

    ``percent_before`` and ``percent_after`` are percentages of the chip's peak, computed as the AccelOpt paper
    computes them.
    """

    workload: str
    before_us: float | None
    after_us: float | None
    percent_before: float | None
    percent_after: float | None
    elapsed_s: float
    runs: tuple[int, ...]
    competitor_us: float | None = None
    """Latency of a competitor's kernel, which was evaluated by the same gate."""
    note: str = ""
    improved: bool = False
    """True if the best kernel is faster than the first by more than the noise."""
    tie_band: float | None = None
    """Half width, in percent, of the band in which the speed-up is a tie; None if the band is not known."""
    tie_reason: str = ""
    verdict: Verdict | None = None
    """Verdict on the speed-up; None without a speed-up."""
    model: str = ""
    """Version and calibration of the performance model that gave the best kernel's latency."""

    @property
    def speedup(self) -> float | None:
        """Return the speed-up of the best kernel over the first kernel; None if one of the two has no latency."""
        return None if self.before_us is None or self.after_us is None else self.before_us / self.after_us


def least_work_first(works: Mapping[str, DeclaredWork | None]) -> list[str]:
    """Return the names of kernels in the order of their first slices: least work first, kernels of unknown work last.

    Small kernels come first, because the checks of a large kernel may take longer than its slice.
    """

    def size(name: str) -> float:
        work = works[name]
        return math.inf if work is None else work.vector_flops + work.matmul_flops + work.hbm_bytes

    return sorted(works, key=size)


def slice_s(share_s: float, left_s: float, slices: Sequence[Slice], without: int) -> float:
    """Return the length of a kernel's next slice, in seconds.

    ``share_s`` is the length of its first slice; it doubles with each slice without gain. ``without`` is the number of
    kernels that have had no slice yet. A first slice takes at most ``left_s / without`` seconds.
    """
    if not slices:
        return min(share_s, left_s / max(1, without))
    return min(left_s, share_s * 2.0 ** fruitless(slices))


def next_entry(done: Mapping[str, Sequence[Slice]], open_entries: Sequence[str]) -> str | None:
    """Return the name of the kernel for the next slice; None if no slice is worthwhile.

    Kernels without a slice come first, in order. Then comes the kernel that gains most per second, weighted by its worth:
    a kernel whose last slice gained is expected to gain as much again, and a kernel whose first search is not finished is
    expected to gain, in a slice twice as long, what other kernels gained in their first slices. If no kernel gained, the
    choice is among the kernels whose last slice used up its time: the kernel with the fewest slices so far.
    """
    for name in open_entries:
        if not done.get(name):
            return name
    first = [math.log(each[0].gain) for each in done.values() if each[0].gain >= LEAST_GAIN]
    rates = dict[str, float]()
    for name in open_entries:
        last = done[name][-1]
        if last.gain >= LEAST_GAIN:
            rates[name] = last.worth * math.log(last.gain) / max(last.elapsed_s, 1.0)
        elif first and _has_no_result(done[name]):
            rates[name] = last.worth * fmean(first) / max(2 * last.elapsed_s, 1.0)
    if rates:
        return max(rates, key=lambda name: rates[name])
    short = [
        name
        for name in open_entries
        if done[name][-1].cut_short and (fruitless(done[name]) < FRUITLESS_SLICES or _has_no_result(done[name]))
    ]
    return min(short, key=lambda name: (len(done[name]), -done[name][-1].worth), default=None)


def _has_no_result(slices: Sequence[Slice]) -> bool:
    """Tell whether all slices belong to one search that is not finished and has gained nothing so far."""
    return slices[-1].goes_on and fruitless(slices) == len(slices) and len({one.run for one in slices}) == 1


def first_slices_s(entries: Mapping[str, Entry], left_s: float, least_s: float) -> dict[str, float]:
    """Return the length of the first slice of each entry that has had no slice, in seconds.

    The length is the entry's share of ``left_s``, the time that is left for first slices, but at least ``least_s``.
    """
    whole = sum(entry.share for entry in entries.values())
    return {name: max(least_s, left_s * entry.share / whole) for name, entry in entries.items()}


def searched_s(states: Sequence[tuple[float, RunState]]) -> float:
    """Return the seconds in which a run was active, from the times at which it entered each state."""
    return sum(end - at for (at, state), (end, _) in pairwise(states) if state is RunState.RUNNING)


def worth(entry: Entry, percent_of_attainable: float | None) -> float:
    """Return how much the suite profits from a gain of one kernel: its share times the part of its time above the
    attainable time, at least 1 %.
    """
    left = 1.0 if percent_of_attainable is None else 1.0 - percent_of_attainable / 100
    return entry.share * max(0.01, left)


def fruitless(slices: Sequence[Slice]) -> int:
    """Return the number of slices in a row, up to the latest, that gained nothing."""
    gains = [one.gain >= LEAST_GAIN for one in slices]
    return gains[::-1].index(True) if True in gains else len(gains)


@dataclass(frozen=True, slots=True)
class Mean:
    """A geometric mean over the kernels of a suite, with a 95 % interval."""

    value: float
    low: float
    high: float
    count: int


def geometric_mean(values: Sequence[float]) -> Mean | None:
    """Return the geometric mean with a 95 % bootstrap interval; None if ``values`` is empty."""
    if not values:
        return None
    logs = [math.log(value) for value in values]
    rng = random.Random(0)
    means = sorted(sum(rng.choices(logs, k=len(logs))) / len(logs) for _ in range(_RESAMPLED))
    low, high = means[_RESAMPLED // 40], means[-_RESAMPLED // 40]
    return Mean(math.exp(sum(logs) / len(logs)), math.exp(low), math.exp(high), len(logs))


def suite_gain(outcome: Mapping[str, Any], before: Profile | None, after: Profile | None) -> Gain | None:
    """Return the gain of a suite's kernel over all its runs: of ``after``, the profile of the best kernel of the last run,
    over ``before``, the profile of the first run's first kernel.

    If both are None, there was one run only, and the gain is that of its ``outcome``. Return None without a latency.
    """
    if before is None and after is None:
        ratio = outcome["speedup"]
        return ratio and Gain(ratio, outcome["improved"] or None, outcome["tie_band"], outcome["tie_reason"])
    return gain(before, after)


@dataclass(frozen=True, slots=True)
class StepGain:
    """The gain of the kernels in one step of a model. ``before_us`` and ``after_us`` are sums of the kernels'
    latencies, each counted as often as the step runs the kernel.
    """

    before_us: float
    after_us: float
    band_percent: float | None
    """Half width, in percent, of the band in which the speed-up is a tie; None if the band of any kernel is not known.

    The figure is the mean of the kernels' bands, weighted by their time.
    """

    @property
    def speedup(self) -> float:
        """Return the speed-up of the kernels' time in one step."""
        return self.before_us / self.after_us


def step_gain(rows: Mapping[str, Row], entries: Mapping[str, Entry]) -> StepGain | None:
    """Return the gain of one step of the model; None if the suite belongs to no model, or a kernel has no latency."""
    found = [(rows[name], entry.runs) for name, entry in entries.items() if entry.runs]
    before = [row.before_us for row, _ in found if row.before_us is not None and row.after_us is not None]
    if not found or len(before) < len(found):
        return None
    after_us = sum(runs * (row.after_us or 0.0) for row, runs in found)
    bands = [runs * (row.after_us or 0.0) * row.tie_band for row, runs in found if row.tie_band is not None]
    band = sum(bands) / after_us if len(bands) == len(found) else None
    return StepGain(sum(runs * us for us, (_, runs) in zip(before, found, strict=True)), after_us, band)


def figures_of(name: str, rows: Sequence[Row], step: StepGain | None = None) -> dict[str, Any]:
    """Return a suite's figures as JSON-able data, which :func:`compared` reads."""
    mean = geometric_mean([row.speedup for row in rows if row.speedup is not None])
    listed = [asdict(row) | {"speedup": row.speedup} for row in rows]
    found = {"suite": name, "rows": listed, "geometric_mean": None if mean is None else asdict(mean)}
    return found | ({} if step is None else {"step": asdict(step) | {"speedup": step.speedup}})


def compared(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[tuple[str, float, float]]:
    """Return (workload, best latency in ``one``, best latency in ``other``) for every workload that the figures of
    both suites have.
    """
    theirs = {row["workload"]: row["after_us"] for row in other["rows"]}
    both = [(row["workload"], row["after_us"], theirs.get(row["workload"])) for row in one["rows"]]
    return [(name, here, there) for name, here, there in both if here and there]
