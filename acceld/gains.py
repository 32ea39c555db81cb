"""Decide whether one kernel is faster than another. Everything in acceld that names, counts, colors, teaches or
applies a win uses this rule. Only the order of candidates inside a run, and so its best candidate, follows
:func:`acceld.search.beam.beats`. The
functions are pure.

- A predicted speed-up is a win if it exceeds its band (:func:`simulated_band`). Both latencies need a validated
  interval, and must come from the same version of the performance model. A latency of which only the starts of
  transfers are in doubt needs no interval, if the gain holds however long the starts take (:func:`_however_started`).
- A measured speed-up is a win if both kernels were timed interleaved and the candidate was faster. A chain of steps
  counts too, if each step was timed against its parent. Without such timing the speed-up must exceed the band that
  both
  measurements state.
- Any other speed-up is a tie, or a loss if the kernel is slower by more than the band.

:data:`RULE` says what a person may conclude from a speed-up: it is certain, likely or a tie.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from acceld.model import (
    SIMULATED_LESS_WORK_PERCENT,
    SIMULATED_LESSON_PERCENT,
    SIMULATED_TIE_PERCENT,
    Candidate,
    Profile,
    Source,
    Status,
)

UNVALIDATED = "unvalidated"
"""Reason of a tie: a latency has no validated interval."""
TWO_MODELS = "two performance models"
"""Reason of a tie: the latencies come from different versions or calibrations of the performance model."""
TWO_SOURCES = "one simulated, one measured"
"""Reason of a tie: a simulated latency is not compared with a measured one."""
APART = "not timed interleaved"
"""Reason of a tie: the latencies were measured at different times, and state no band."""
MORE_WORK = 0.01
"""Additional busy time of an engine, as a share of the slower kernel's latency, up to which a faster kernel still
counts as working less: such small times come from the schedule.
"""
EXPLAINED = 0.25
"""Least share of a gain that has to come from the busy time saved by one engine, for the faster kernel to count as
working less.
"""


@dataclass(frozen=True, slots=True)
class Bands:
    """The percent by which a ratio of two predictions for one chip may be off, by what the two kernels have in common."""

    other: float
    """The percent if work moves between engines, or if only the schedule differs."""
    less_work: float
    """The percent if the faster kernel works less (:func:`simulated_band`)."""
    shared: float
    """The percent if the faster kernel works less and the two kernels share most of their program."""


UNTESTED = Bands(SIMULATED_TIE_PERCENT, SIMULATED_LESS_WORK_PERCENT, SIMULATED_LESS_WORK_PERCENT)
"""The bands of every chip without measured pairs of kernels that justify narrower bands than these."""
SIMULATED_BANDS: Mapping[str, Bands] = {"trn2": Bands(22.0, SIMULATED_LESS_WORK_PERCENT, 5.0)}
"""The bands of each chip for which measured pairs of kernels justify narrower bands than UNTESTED. On trn2, 189
development pairs in which the faster kernel does not work less are predicted more than 22 % apart: 188 of them were
measured in the predicted order. Of the pairs in which it works less and shares most of its program with the slower
kernel, 36, of two families of kernels, are predicted 5 to 17 % apart: all 36 were measured in the predicted order.
Trainium1 has too few such pairs.
"""
WORK = (
    "instruction_count", "dma_rows", "hbm_read_bytes", "hbm_write_bytes", "sbuf_read_bytes", "sbuf_write_bytes",
    "psum_read_bytes", "psum_write_bytes", "hardware_flops", "pe_passes",
)  # fmt: skip
"""Counters that count the work of a program."""
ALIKE = 0.7
"""Least ratio between the two values of each counter of :data:`WORK` for which two kernels share most of their program.
"""

DETAILS = ("paired", "prediction", "tie_percent")
"""The details of a profile on which a gain depends."""


def compared(details: Mapping[str, Any]) -> dict[str, Any]:
    """Return those details of a profile that decide whether its kernel is a win over another kernel."""
    return {name: details[name] for name in DETAILS if name in details}


class Verdict(StrEnum):
    """The degree of trust in a speed-up: certain, likely or a tie, as :data:`RULE` defines them; or slower; or
    untested.
    """

    CERTAIN = "certain"
    LIKELY = "likely"
    TIE = "tie"
    SLOWER = "slower"
    UNTESTED = "untested"
    """No verdict yet: the kernel was timed, and not run on data."""

    @property
    def worth_applying(self) -> bool:
        """Tell whether the faster kernel may be written over the slower one when its owner asks for that."""
        return self in (Verdict.CERTAIN, Verdict.LIKELY)


RULE = (
    "A speed-up is certain beyond tie_band percent; likely if it is less but the validated model predicts more than "
    f"{SIMULATED_LESSON_PERCENT:g} %; else a tie. certain and likely ones are worth applying; measure a likely one before you rely on it."
)
"""The rule on speed-ups, for answers, pages and prompts."""


def verdict(
    speedup: float | None, improved: object, band_percent: float | None, source: Source | str
) -> Verdict | None:
    """Return the verdict on a speed-up; None without a speed-up.

    ``improved`` says whether it is a win, ``band_percent`` is its band, ``source`` says whether it is simulated
    or measured. Without a band, as for latencies without a validated interval, a speed-up that is no win is a
    tie.
    """
    if speedup is None or speedup <= 0:
        return None
    if improved:
        return Verdict.CERTAIN
    if band_percent is None:
        return Verdict.TIE
    simulated = Source(source) is Source.SIMULATED
    enough = 1 + (min(SIMULATED_LESSON_PERCENT, band_percent) if simulated else band_percent) / 100
    if speedup < 1 / enough:
        return Verdict.SLOWER
    return Verdict.LIKELY if simulated and speedup > enough else Verdict.TIE


def judged(row: Mapping[str, Any]) -> Verdict | None:
    """Return the verdict on the speed-up over the baseline that a row of the history states; None without a
    speed-up.
    """
    return verdict(row["speedup"], row["improved"], row["tie_band"], row["source"])


def candidate_verdict(row: Mapping[str, Any], over: str, source: Source | str) -> Verdict | None:
    """Return the verdict on a candidate's speed-up over the baseline; over its parent if ``over`` is ``"parent_"``. None
    without a speed-up. ``row`` has the candidate's columns.
    """
    found = verdict(row[f"{over}speedup"], row[f"{over}improved"], row["tie_band"], source)
    return Verdict.UNTESTED if found is not None and row["status"] == Status.UNTESTED else found


def worth(stated: str | None, improved: object) -> Verdict:
    """Return the verdict that an event or a row of the history states.

    Events and rows of older versions state no verdict. There a win (``improved``) counts as certain, and anything
    else as a tie.
    """
    return Verdict(stated) if stated else Verdict.CERTAIN if improved else Verdict.TIE


@dataclass(frozen=True, slots=True)
class PairedSpeedup:
    """Speed-up of one kernel over another, measured interleaved on one device, with a 95 % interval."""

    ratio: float
    low: float
    high: float
    steps: int
    """Number of measured ratios that are multiplied: 1 if the two kernels were timed together, otherwise one for each
    step, which was timed against its parent.
    """
    faster: bool | None = None
    """True for a win, False for a loss, None for a tie."""


@dataclass(frozen=True, slots=True)
class Gain:
    """Speed-up of one kernel over another, and whether it is a win."""

    ratio: float
    faster: bool | None
    """True for a win, False if the kernel is slower by more than the band, None for a tie."""
    band_percent: float | None
    """Half width, in percent, inside which the speed-up is a tie; None if no band is known: then the speed-up is a tie.
    """
    reason: str = ""
    """Reason why no band is known; empty if there is one."""

    @property
    def improved(self) -> bool:
        """Tell whether the speed-up is a win."""
        return self.faster is True

    def verdict(self, source: Source | str) -> Verdict | None:
        """Return the verdict on the speed-up; None without a speed-up. ``source`` says whether the latencies are
        simulated or measured.
        """
        return verdict(self.ratio, self.improved, self.band_percent, source)


def gain(
    before: Profile | None,
    after: Profile | None,
    paired: PairedSpeedup | None = None,
    *,
    band_percent: float | None = None,
) -> Gain | None:
    """Return the speed-up of ``after`` over ``before`` and whether it is a win; None if a latency is missing.

    ``paired`` is the comparison of the two by interleaved measurements, if there was one. ``band_percent`` is
    the band for two measurements whose profiles state none.
    """
    if before is None or after is None or not before.latency_us or not after.latency_us:
        return None
    ratio = before.latency_us / after.latency_us
    if before.source is not after.source:
        return Gain(ratio, None, None, TWO_SOURCES)
    if after.source is Source.MEASURED:
        return _measured(ratio, before, after, paired, band_percent)
    if before.model != after.model:
        return Gain(ratio, None, None, TWO_MODELS)
    if not (validated(before) and validated(after)):
        return _however_started(ratio, before, after)
    stated: float | None = after.details.get("tie_percent")
    return _within(ratio, simulated_band(before, after) if stated is None else stated)


def simulated_band(one: Profile, other: Profile) -> float:
    """Return the percent by which the ratio of two predicted latencies may be off.

    The percentage is smaller if the faster kernel does less work on each engine. A wrongly modelled time of an
    instruction then changes the size of the gain, but hardly its sign. The percentage is smallest if the two kernels
    also share most of their program, because a wrong time then is in both latencies. If work moves from one engine to
    another, the sign depends on the modelled times of both engines. If only the schedule differs, the gain depends on
    waits, which are the least certain part of the model. Measured pairs of the chip decide each percentage.
    """
    if (one.chip, one.api) != (other.chip, other.api) or not one.latency_us or not other.latency_us:
        return SIMULATED_TIE_PERCENT
    if not one.engines_us or not other.engines_us:
        return SIMULATED_TIE_PERCENT
    bands = SIMULATED_BANDS.get(one.chip, UNTESTED)
    if not _works_less(one, other):
        return bands.other
    return bands.shared if _share_program(one.counters, other.counters) else bands.less_work


def _works_less(one: Profile, other: Profile) -> bool:
    """Tell whether the faster of two kernels is busy for less time on some engine, and on no engine for more."""
    assert one.latency_us is not None and other.latency_us is not None
    fast, slow = (one, other) if one.latency_us <= other.latency_us else (other, one)
    saved = [
        slow.engines_us.get(name, 0.0) - fast.engines_us.get(name, 0.0) for name in {*slow.engines_us, *fast.engines_us}
    ]
    gained_us = abs(one.latency_us - other.latency_us)
    slow_us = max(one.latency_us, other.latency_us)
    return min(saved, default=0.0) >= -MORE_WORK * slow_us and max(saved, default=0.0) >= EXPLAINED * gained_us


def _however_started(ratio: float, before: Profile, after: Profile) -> Gain:
    """Return the gain between two predictions of which at least one has no interval.

    The gain is a win or a loss under two conditions. First, only the time that starts of transfers take is in doubt.
    Second, the speed-up exceeds its band in both extreme cases: if starts take no time, and if each transfer waits for
    the transfer before it. In all other cases the speed-up lies between these two.
    """
    started_before, started_after = starts_us(before), starts_us(after)
    if not started_before or not started_after:
        return Gain(ratio, None, None, UNVALIDATED)
    band_percent = simulated_band(before, after)
    found, in_turn = (_within(one, band_percent) for one in (ratio, started_before / started_after))
    certain = found.faster is not None and found.faster is in_turn.faster
    return found if certain else Gain(ratio, None, None, UNVALIDATED)


def starts_us(profile: Profile | None) -> float | None:
    """Return the predicted latency in microseconds for the case that transfers start one after the other.

    Return None if the latency is measured, or if something else than the starts of transfers is in doubt too.
    """
    if profile is None or profile.source is not Source.SIMULATED:
        return None
    found: float | None = profile.details.get("prediction", {}).get("starts_us")
    return found if found is not None else profile.latency_us if validated(profile) else None


def _share_program(one: Mapping[str, float], other: Mapping[str, float]) -> bool:
    """Tell whether two kernels share most of their program: if no count of their work differs by more than
    :data:`ALIKE` allows.
    """
    pairs = [(one.get(name, 0.0), other.get(name, 0.0)) for name in WORK]
    return any(max(pair) for pair in pairs) and all(min(pair) >= ALIKE * max(pair) for pair in pairs)


def gain_of(child: Candidate, parent: Candidate) -> Gain | None:
    """Return the speed-up of a candidate over its parent; None if a latency is missing or the candidate has not
    passed.
    """
    before, after = parent.evaluation, child.evaluation
    if before is None or after is None or after.status is not Status.PASSED:
        return None
    line = ((child.kernel.sha256, after.profile), (parent.kernel.sha256, before.profile))
    return gain(before.profile, after.profile, paired_speedup(line))


def validated(profile: Profile | None) -> bool:
    """Tell whether a latency may count in a win: if it was measured, or predicted with a validated interval."""
    return profile is not None and (profile.source is Source.MEASURED or profile.interval_percent is not None)


def _measured(
    ratio: float, before: Profile, after: Profile, paired: PairedSpeedup | None, band_percent: float | None
) -> Gain:
    stated = after.tie_percent
    if paired is not None:
        if paired.steps == 1:
            return Gain(ratio, paired.faster, stated)
        beyond = ratio > 1 + (stated or 0.0) / 100 or paired.faster is not True
        return Gain(ratio, paired.faster if beyond else None, stated)
    if band_percent is None and stated is not None and before.tie_percent is not None:
        band_percent = max(stated, before.tie_percent)
    if band_percent is None:
        return Gain(ratio, None, None, APART)
    return _within(ratio, band_percent)


def _within(ratio: float, band_percent: float) -> Gain:
    beyond = 1 + band_percent / 100
    return Gain(ratio, True if ratio > beyond else False if 1 / ratio > beyond else None, band_percent)


def interleaved(pair: Mapping[str, Any]) -> bool | None:
    """Return True if an entry of ``paired`` states a win, False if a loss, None if a tie.

    An entry describes two kernels that were measured interleaved.
    """
    if pair["win"]:
        return True
    slower = pair["interval"][1] < 1 and pair["ratio"] * (1 + pair["band_percent"] / 100) < 1
    return False if slower else None


def paired_speedup(line: Sequence[tuple[str, Profile | None]]) -> PairedSpeedup | None:
    """Return the speed-up of the first kernel of ``line`` over the last, by interleaved measurements.

    ``line`` has the hash and the profile of a kernel and of its ancestors, in order. If the first kernel was timed
    against the last, that ratio is the result. Otherwise the ratios of the single steps are multiplied. The steps are
    independent measurements, so the squares of their relative half widths add up. The result is None if a step was not
    measured in this way.
    """
    logs: list[tuple[float, float, float]] = []
    for place, (_, profile) in enumerate(line[:-1]):
        if profile is None or profile.source is not Source.MEASURED:
            return None
        found = {one["against"]: one for one in profile.details.get("paired", ())}
        own = found.get(line[-1][0]) if not place else None
        if own is not None:
            return PairedSpeedup(own["ratio"], own["interval"][0], own["interval"][1], 1, interleaved(own))
        step = found.get(line[place + 1][0])
        if step is None or min(step["ratio"], *step["interval"]) <= 0:
            return None
        low, high = step["interval"]
        logs.append((math.log(step["ratio"]), math.log(step["ratio"] / low), math.log(high / step["ratio"])))
    if not logs:
        return None
    ratio = math.exp(sum(middle for middle, _, _ in logs))
    below, above = (math.exp(math.sqrt(sum(one[side] ** 2 for one in logs))) for side in (1, 2))
    low, high = ratio / below, ratio * above
    return PairedSpeedup(ratio, low, high, len(logs), True if low > 1 else False if high < 1 else None)
