"""Evaluate a save in tiers: first the checks that need no chip, then those on the chip.

Each result is reported as soon as it is known.
"""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from acceld import figures
from acceld.chips import CHIPS
from acceld.errors import AcceldError
from acceld.gains import Gain, gain
from acceld.model import Evaluation, Gate, Kernel, Profile, Source, Status
from acceld.watch.deltas import Delta, deltas, new_notes
from acceld.watch.hashes import Hashes

SHOWN_DELTAS = 6
LINE = 72
"""Number of characters of a failure's first line that fit beside its glyph and time in a terminal of 80 columns."""
SAME = 0.005
"""Relative difference of two latencies below which they are reported as equal."""


@dataclass(frozen=True, slots=True)
class SaveResult:
    """One result about a save. ``stage`` is the name of its tier or check, for programs."""

    path: Path
    stage: str
    text: str
    good: bool | None = None
    """True for good news, False for bad news, None for neither."""
    seconds: float = 0.0
    """Seconds since the save was noticed."""
    generation: int = 0
    data: Mapping[str, Any] = field(default_factory=dict)


class Evaluate(Protocol):
    """Interface that evaluates a version of a watched kernel before all other requests. A bad kernel gives a result,
    not an error.
    """

    async def __call__(self, watched: Watched, kernel: Kernel, gate: Gate) -> Evaluation: ...


@dataclass
class Watched:
    """A watched kernel file, and its latest results."""

    path: Path
    api: str
    workload: str = ""
    workload_folder: str = ""
    contract: tuple[Path, ...] = ()
    """Files of the reference and the workload. A change of such a file is a new interface."""
    entry: str = ""
    hashes: Hashes | None = None
    last: Evaluation | None = None
    """The newest prediction."""
    measured: Evaluation | None = None
    """The newest measurement on the device."""
    head: tuple[str, Evaluation] | None = None
    """Hash of the kernel's version in git HEAD, with the evaluation that timed this version."""
    kernel: Kernel | None = None
    run: int | None = None
    best: tuple[str, str] | None = None
    """Text from which the search of the newest win started, and the faster text that it found."""
    generation: int = 0
    seen: dict[str, Evaluation] = field(default_factory=dict)
    """Results by canonical and interface hash, so that a kernel that returns to an earlier state needs no evaluation.
    """


Report = Callable[..., None]
"""Called as ``report(stage, text, good=None, **figures)``."""


class Tiers:
    """Evaluate a save, tier by tier.

    ``device`` evaluates on a chip that measures. With ``simulated`` False a save is only measured, not predicted.
    """

    def __init__(self, predict: Evaluate, device: Evaluate | None = None, *, simulated: bool = True) -> None:
        self._predictor, self._device, self._simulated = predict, device, simulated

    async def evaluated(self, watched: Watched, kernel: Kernel, report: Report) -> Evaluation | None:
        """Return the result of the last tier; None if the kernel is illegal, or if nothing could evaluate it."""
        found = await self._predict(watched, kernel, report) if self._simulated else None
        if self._device is None or (self._simulated and found is None):
            return found
        return await self._measure(watched, kernel, found, report)

    async def result(self, watched: Watched, kernel: Kernel) -> Evaluation:
        """Return the result of the last tier, and report nothing. Raise AcceldError if the kernel can not be
        evaluated.
        """
        return await (self._device or self._predictor)(watched, kernel, Gate.SEARCH)

    async def _predict(self, watched: Watched, kernel: Kernel, report: Report) -> Evaluation | None:
        """Run the tiers that need no chip: legality, changes, prediction, correctness.

        Return the result; None if the kernel is illegal.
        """
        timed = await self._predictor(watched, kernel, Gate.TIMING)
        if timed.profile is None:
            _report_failure(timed, report)
            return None
        await self._compare(watched, timed, report)
        evaluated = await self._predictor(watched, kernel, Gate.SEARCH)
        if evaluated.correctness is None or evaluated.status is not Status.PASSED:
            _report_failure(evaluated, report)
        else:
            error, limit = evaluated.correctness.rel_l2, evaluated.correctness.tolerance
            report("correct", f"correct: error {error:.1e} of {limit:.1e}", True)
        return evaluated

    async def _measure(
        self, watched: Watched, kernel: Kernel, predicted: Evaluation | None, report: Report
    ) -> Evaluation | None:
        """Run the tiers on the chip: compile, check, measure. Return the result; None if the device can not be used."""
        assert self._device is not None
        if predicted is not None and predicted.status not in (Status.PASSED, Status.UNSUPPORTED):
            return predicted
        try:
            compiled = await self._device(watched, kernel, Gate.TIMING)
            if compiled.profile is None:
                _report_failure(compiled, report)
                return compiled
            report("compiled", "compiles for the device")
            measured = await self._device(watched, kernel, Gate.SEARCH)
        except AcceldError as error:
            report("no_device", f"not measured: {error.message}", None)
            return predicted
        if measured.status is not Status.PASSED or measured.correctness is None:
            _report_failure(measured, report)
            return measured
        report("correct_on_device", f"correct on the device: error {measured.correctness.rel_l2:.1e}", True)
        text, good = latency_text(measured), None
        earlier = watched.measured
        before = earlier.latency_us if earlier else None
        if earlier is not None and before and measured.latency_us:
            ratio = before / measured.latency_us
            change = gain(earlier.profile, measured.profile, band_percent=noise_percent(earlier, measured))
            good = change.faster if change else None
            word = change.verdict(Source.MEASURED) if change else None
            text = f"{figures.duration(before)} -> {text}, {figures.brief_gain(ratio, word)}"
        report("measured", text, good, latency_us=measured.latency_us)
        watched.measured = measured
        beyond = disagreement(predicted, measured)
        if beyond and predicted is not None:
            reported = {
                "predicted_us": predicted.latency_us,
                "measured_us": measured.latency_us,
                "text_of": kernel.text,
            }
            report(
                "disagrees",
                f"the prediction is {beyond:+.0f} % off, beyond its band: stored for calibration",
                False,
                **reported,
            )
        return measured

    async def _compare(self, watched: Watched, timed: Evaluation, report: Report) -> None:
        assert timed.profile is not None
        report("legal", "parses and is legal", None)
        committed = await self._committed(watched)
        against = {"the last save": watched.last, "git HEAD": committed}
        reported: dict[tuple[Delta, ...], list[str]] = {}
        for name, other in against.items():
            if other is not None and other.profile is not None:
                reported.setdefault(deltas(other.profile, timed.profile), []).append(name)
        shown: dict[str, list[tuple[Delta, str]]] = {}
        # grouped by figure, so that a figure's changes against the last save and git HEAD stand together
        for found, names in reported.items():
            for one in found[:SHOWN_DELTAS]:
                shown.setdefault(one.name, []).append((one, " and ".join(names)))
        for one, name in (change for changes in shown.values() for change in changes):
            data = {"name": one.name, "before": one.before, "after": one.after, "exact": one.exact}
            report("delta", f"{one.text} against {name}", None, against=name, **data)
        known = watched.last or committed
        for note in new_notes(known.profile if known else None, timed.profile):
            report("warning", f"note: {note}", None)
        base = watched.last or committed
        text, good = latency_text(timed), None
        if base is not None and base.latency_us and timed.latency_us:
            ratio = base.latency_us / timed.latency_us
            change = gain(base.profile, timed.profile)
            good = change.faster if change else None
            word = change.verdict(timed.profile.source) if change else None
            text = f"{figures.duration(base.latency_us)} -> {text}, {figures.brief_gain(ratio, word)}"
        figures_of = {"latency_us": timed.latency_us, "interval_percent": timed.profile.interval_percent}
        report("predicted", text, good, **figures_of, memory=memory_text(timed.profile))
        watched.last = timed

    async def _committed(self, watched: Watched) -> Evaluation | None:
        """Return the evaluation of the version in git HEAD; None if git HEAD has no version of the file, or if that
        version is the present one.

        Each committed version is timed once.
        """
        words = ["git", "-C", str(watched.path.parent), "show", f"HEAD:./{watched.path.name}"]
        try:
            shown = await asyncio.to_thread(subprocess.run, words, capture_output=True, timeout=5, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return None
        if shown.returncode:
            return None
        text = shown.stdout.decode("utf-8", "replace")
        assert watched.kernel is not None
        kernel = Kernel(
            text, watched.api, watched.entry, filename=watched.path.name, trusted=True, closure=watched.kernel.closure
        )
        if watched.head is None or watched.head[0] != kernel.sha256:
            if text == watched.kernel.text:
                return None
            watched.head = (kernel.sha256, await self._predictor(watched, kernel, Gate.TIMING))
        return watched.head[1]


def noise_percent(one: Evaluation, other: Evaluation) -> float:
    """Return the percentage up to which two measurements count as a tie: the sum of their interval percentages, at least
    :data:`SAME`.
    """
    return max(100 * SAME, sum(each.profile.interval_percent or 0.0 for each in (one, other) if each.profile))


def carried(before: Evaluation, after: Evaluation) -> Gain | None:
    """Return the gain of ``after`` over ``before``; None if one of them did not pass."""
    if not before.status == after.status == Status.PASSED:
        return None
    return gain(before.profile, after.profile, band_percent=noise_percent(before, after))


def disagreement(predicted: Evaluation | None, measured: Evaluation) -> float:
    """Return by how many percent the predicted latency is above the measured latency; negative if it is below.

    Return 0 if the measured latency is within half the width of the prediction's band.
    """
    if predicted is None or predicted.profile is None or not predicted.latency_us or not measured.latency_us:
        return 0.0
    band = predicted.profile.interval_percent
    off = 100 * (predicted.latency_us / measured.latency_us - 1)
    return off if band is not None and abs(off) > band else 0.0


def _report_failure(found: Evaluation, report: Report) -> None:
    failure = found.failure
    if failure is None:
        report(found.status.value, found.status.value, False)
        return
    line = f"line {failure.line}: " if failure.line else ""
    short, rest = first_line(failure.message)
    more = [text for text in (rest, failure.hint) if text]
    report(found.status.value, f"{line}{short}", False, line=failure.line or 0, more=more)


def first_line(message: str) -> tuple[str, str]:
    """Return (beginning of a message that fits one line of a terminal, the rest). The message is cut after a sentence
    or a clause.
    """
    head, _, rest = message.partition("\n")
    if len(head) > LINE:
        marks = (at for at in range(LINE) if head[at : at + 2] in (". ", "; ", ": ", ", "))
        end = max((at for at in marks if _is_whole(head[:at])), default=0)
        if end > LINE // 3:
            head, rest = head[:end], "\n".join(filter(None, (head[end + 2 :], rest)))
    return head, " ".join(rest.split())


def _is_whole(text: str) -> bool:
    """Return True if ``text`` closes every bracket that it opens."""
    return all(text.count(one) == text.count(other) for one, other in ("()", "[]", "{}"))


def memory_text(profile: Profile) -> str:
    """Return the greatest shares of SBUF and PSUM that a program uses, such as ``SBUF 41 %, PSUM 25 %``; "" if they
    are unknown.
    """
    chip, counters = CHIPS.get(profile.chip), profile.counters
    if chip is None or "sbuf_peak_bytes_per_partition" not in counters:
        return ""
    sbuf = counters["sbuf_peak_bytes_per_partition"] / chip.sbuf_bytes_per_partition
    psum = counters.get("psum_peak_banks", 0.0) / chip.psum_banks
    return f"SBUF {100 * sbuf:.0f} %, PSUM {100 * psum:.0f} %"


def latency_text(evaluation: Evaluation) -> str:
    """Return a latency as text, with its source and interval; without a latency, the status."""
    profile = evaluation.profile
    if profile is None:
        return evaluation.status.value
    return figures.latency(profile.latency_us, profile.source, profile.chip, profile.interval_percent)
