"""Choose the candidates from which the next iteration starts (the beam). Pure functions."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence

from acceld.gains import validated
from acceld.model import LEAST_STEP_PERCENT, Candidate, Source, Status


def rank(candidate: Candidate) -> tuple[float, float, str, tuple[int, int, int, int]]:
    """Return a sort key: lower latency first, then fewer instructions, then program hash, then place in the search.

    The order in which results arrived does not matter. A candidate without a latency sorts last.
    """
    evaluation = candidate.evaluation
    if evaluation is None or evaluation.profile is None or evaluation.latency_us is None:
        return (float("inf"), float("inf"), "", candidate.order)
    instructions = evaluation.profile.counters.get("instruction_count", float("inf"))
    return (evaluation.latency_us, instructions, evaluation.program_sha256, candidate.order)


def latency_us(candidate: Candidate) -> float:
    """Return the latency of a candidate in microseconds; infinity if it has none."""
    latency = candidate.evaluation.latency_us if candidate.evaluation else None
    return float("inf") if latency is None else latency


def beats(candidate: Candidate, best: Candidate) -> bool:
    """Return True if a candidate is faster than the best candidate by more than the noise, and replaces it as the best.

    This orders the candidates of one run. Whether a person may call the difference a win is decided by
    :mod:`acceld.gains`, with wider bands.

    For simulated latencies the noise is :data:`acceld.model.LEAST_STEP_PERCENT`. For measured latencies it is the
    greatest of three times: the half widths of both latencies' intervals, and twice the timer's resolution. A
    candidate that was timed interleaved with its parent must also have won against its parent. A latency without a
    validated interval never replaces a latency with such an interval. Of two latencies without an interval, the lower
    latency wins.
    """
    if is_validated(best) and not is_validated(candidate):
        return False
    band_us = max(_band_us(candidate), _band_us(best))
    return latency_us(candidate) < latency_us(best) - band_us and not _tied_with_parent(candidate)


def is_validated(candidate: Candidate) -> bool:
    """Return True if the latency of a candidate is measured, or predicted with an uncertainty interval."""
    return candidate.evaluation is not None and validated(candidate.evaluation.profile)


def challenger(beam: Sequence[Candidate], best: Candidate) -> Candidate | None:
    """Return the candidate of ``beam`` that the strict gate must compare with the best so far; None if no comparison is
    needed.

    The challenger is the first candidate that beats the best. If no candidate does, the challenger is the head of a
    measured beam, because the strict gate times the head interleaved with its parent and may find the head faster. The
    head of a simulated beam is not compared again.
    """
    head = beam[0] if _is_measured(beam[0]) else None
    return next((one for one in beam if beats(one, best)), head)


def _is_measured(candidate: Candidate) -> bool:
    profile = candidate.evaluation.profile if candidate.evaluation else None
    return profile is not None and profile.source is Source.MEASURED


def _tied_with_parent(candidate: Candidate) -> bool:
    profile = candidate.evaluation.profile if candidate.evaluation else None
    pairs: Sequence[Mapping[str, bool]] = profile.details.get("paired", ()) if profile is not None else ()
    return bool(pairs) and not pairs[0]["win"]


def _band_us(candidate: Candidate) -> float:
    profile = candidate.evaluation.profile if candidate.evaluation else None
    if profile is None or profile.latency_us is None:
        return 0.0
    if profile.source is Source.SIMULATED:
        return profile.latency_us * LEAST_STEP_PERCENT / 100
    return max(profile.latency_us * (profile.interval_percent or 0.0) / 100, 2 * profile.resolution_us)


def is_selectable(candidate: Candidate) -> bool:
    """Return True if the candidate passed at least the search gate and has a latency."""
    evaluation = candidate.evaluation
    return evaluation is not None and evaluation.status is Status.PASSED and evaluation.latency_us is not None


def select(
    candidates: Iterable[Candidate],
    width: int,
    *,
    pinned: frozenset[int] = frozenset(),
    vetoed: frozenset[int] = frozenset(),
) -> tuple[Candidate, ...]:
    """Return the beam: at most ``width`` candidates with different programs, sorted by :func:`rank`.

    Pass parents and children alike, so that good parents stay in the beam. Selectable candidates in ``pinned`` are kept
    before faster candidates. Candidates in ``vetoed`` are never chosen. Of several candidates with the same program
    only one counts: a pinned candidate, else the first by :func:`rank`.
    """
    usable = sorted((c for c in candidates if is_selectable(c) and c.id not in vetoed), key=rank)
    distinct: dict[str, Candidate] = {}
    for candidate in usable:
        identity = _identity(candidate)
        if identity not in distinct or (candidate.id in pinned and distinct[identity].id not in pinned):
            distinct[identity] = candidate
    kept = sorted(distinct.values(), key=lambda c: (c.id not in pinned, rank(c)))[:width]
    return tuple(sorted(kept, key=rank))


def _identity(candidate: Candidate) -> str:
    """Return the hash of an evaluated candidate's program, or of its source if no program was built."""
    assert candidate.evaluation is not None
    return candidate.evaluation.program_sha256 or candidate.evaluation.source_sha256


def fastest_beam(
    pool: Mapping[int, Candidate], width: int, baseline: Candidate, pinned: frozenset[int], vetoed: frozenset[int]
) -> tuple[Candidate, ...]:
    """Return the beam of :func:`select`; the baseline alone if that beam is empty."""
    return select(pool.values(), width, pinned=pinned, vetoed=vetoed) or (baseline,)


def parents_of(
    chosen: Sequence[Candidate], baseline: Candidate, branches: Iterable[Candidate], vetoed: Container[int]
) -> tuple[Candidate, ...]:
    """Return the parents of an iteration: first the strategy's choice without vetoed candidates, then the branches.

    If every chosen candidate is vetoed, the baseline takes their place. Branches are candidates from which people asked
    the run to continue; only branches that passed count.
    """
    parents = tuple(one for one in chosen if one.id not in vetoed) or (baseline,)
    known = {one.id for one in parents}
    return (*parents, *(one for one in branches if one.id not in known and is_selectable(one)))


def could_enter(candidate: Candidate, beam: tuple[Candidate, ...], width: int) -> bool:
    """Return True if a candidate is fast enough to enter ``beam``, which has room for ``width`` candidates.

    ``beam`` holds candidates that passed, the fastest first.
    """
    if latency_us(candidate) == float("inf"):
        return False
    return len(beam) < width or rank(candidate) < rank(beam[-1])


def is_untested(candidate: Candidate) -> bool:
    """Return True if a candidate was timed, but its results were not checked on data."""
    return candidate.evaluation is not None and candidate.evaluation.status is Status.UNTESTED


def first_distinct(candidates: Iterable[Candidate], count: int) -> list[Candidate]:
    """Return the first ``count`` candidates with different programs. Every candidate must have been evaluated."""
    seen: dict[str, Candidate] = {}
    for candidate in candidates:
        seen.setdefault(_identity(candidate), candidate)
    return list(seen.values())[:count]
