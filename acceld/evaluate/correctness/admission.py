"""Examine whether a workload can tell right from wrong: a constant must not pass, and every input must matter.

Each array is cut into regions in C order. If one region is replaced by another draw, the reference's outputs must move
by more than the tolerance on some distribution. Otherwise a kernel that never reads that region would pass. Arguments
that are declared ``fixed`` (indices, masks) are left out. The result is stored by the workload's content.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acceld import figures
from acceld.errors import WorkloadError
from acceld.evaluate.correctness.distributions import inputs_of
from acceld.evaluate.correctness.gates import fresh_seed, splits
from acceld.evaluate.correctness.metrics import compare
from acceld.evaluate.correctness.tolerance import Tolerance, tolerance_from
from acceld.evaluate.sandbox.messages import BadMessage, clean, parse, send, unpack
from acceld.evaluate.sandbox.process import Outcome, Reply
from acceld.model import Failure
from acceld.workloads import Workload, load_workload, reference_outputs, supported_distributions

REGIONS = 4
"""Number of regions into which each array is cut; one if the reference is expensive."""
FINE_S = 30.0
"""Processor seconds for all regions of all arguments. If they would take more, an array is one region."""
MOST_S = 300.0
"""Processor seconds after which the remaining regions are not examined."""
_HINT = "Leave the argument out, declare it fixed, or give it a distribution that matters."

Expect = Callable[[Workload, Sequence[Any]], Sequence[Any]]
"""Returns the outputs in the reference's layout for a workload's inputs."""


@dataclass(frozen=True, slots=True)
class Admission:
    """Findings on one workload.

    ``complaint`` is the reason why passing means little on it, empty if there is none. ``regions`` is the number of
    parts of each array that were replaced, ``variants`` the distributions tried. ``left`` names the arguments that
    there was no time for. ``untried`` is the reason if nothing was tried.
    """

    complaint: str = ""
    regions: int = 0
    variants: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    seconds: float = 0.0
    untried: str = ""

    @property
    def text(self) -> str:
        """One line for people."""
        if self.complaint or self.untried:
            return self.complaint or f"not tried: {self.untried}"
        parts = f" in {self.regions} parts each" if self.regions > 1 else ""
        left = f"; no time for {', '.join(self.left)}" if self.left else ""
        return f"no constant passes, every input matters{parts}{left} ({figures.duration(self.seconds * 1e6)})"

    @classmethod
    def from_plain(cls, raw: dict[str, Any]) -> Admission:
        """Return the record from its fields as JSON. KeyError, TypeError or ValueError for an invalid one."""
        variants, left = (tuple(clean(one) for one in raw[name]) for name in ("variants", "left"))
        numbers = int(raw["regions"]), variants, left, float(raw["seconds"])
        return cls(clean(raw["complaint"]), *numbers, untried=clean(raw["untried"]))


Admit = Callable[[Workload, int], Awaitable[Admission]]
"""Examines a workload in a child process, from a seed."""


class Admissions:
    """Stored findings on workloads, as small JSON files under ``folder``, which also holds noise floors."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._locks: dict[str, asyncio.Lock] = {}
        self._untried: dict[str, Admission] = {}

    def known(self, loaded: Workload) -> Admission | None:
        """Return the stored finding; None if there is none."""
        try:
            return Admission.from_plain(json.loads(self._path(loaded).read_text("ascii")))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    async def of(self, loaded: Workload, admit: Admit) -> Admission:
        """Return the stored finding, or what ``admit`` finds now. WorkloadError from the workload's reference."""
        if loaded.reference is None:
            return Admission(untried="it has no reference")
        if loaded.sample is not None:
            return Admission(untried="its inputs are recorded, not drawn")
        async with self._locks.setdefault(loaded.hash, asyncio.Lock()):
            found = self._untried.get(loaded.hash) or await asyncio.to_thread(self.known, loaded)
            if found is None:
                found = await admit(loaded, fresh_seed())
                if found.untried:
                    self._untried[loaded.hash] = found  # not stored: elsewhere there may be time and memory for it
                else:
                    await asyncio.to_thread(self._store, loaded, found)
            return found

    async def refuse(self, loaded: Workload, admit: Admit) -> Failure | None:
        """Return the reason why no win on the workload can be trusted; None if it can."""
        complaint = (await self.of(loaded, admit)).complaint
        return Failure("admission", f"workload {loaded.name}: {complaint}", hint=_HINT) if complaint else None

    def _path(self, loaded: Workload) -> Path:
        return self._folder / f"{loaded.hash[:24]}-admission.json"

    def _store(self, loaded: Workload, found: Admission) -> None:
        self._folder.mkdir(0o700, parents=True, exist_ok=True)
        partial = self._path(loaded).with_suffix(".partial")
        partial.write_text(json.dumps(asdict(found)), "ascii")
        partial.replace(self._path(loaded))


def admit(request: bytes, reply: int, expect: Expect | None = None) -> None:
    """Answer an :class:`Admission` as JSON, or ``{"error": text}``. Runs in an oracle's process."""
    raw, _ = unpack(request)
    try:
        with np.errstate(all="ignore"):
            send(reply, asdict(examine(load_workload(raw["workload"]), raw["seed"], expect or _reference)))
    except WorkloadError as error:
        send(reply, {"error": error.message, "hint": error.hint})
    except MemoryError:
        send(reply, asdict(Admission(untried="two sets of its inputs do not fit into [evaluate] memory_gib")))


def answered(workload: Workload, outcome: Outcome, reply: Reply) -> Admission:
    """Return the answer of :func:`admit`, and close the reply. WorkloadError if the workload is at fault."""
    if outcome.cause in ("deadline", "cpu"):
        reply.close()
        return Admission(untried=f"its reference is too expensive here: it {outcome.text}")
    with reply:
        try:
            header, _ = parse(reply)
        except BadMessage as error:
            raise WorkloadError(f"admitting workload {workload.name!r} did not end: it {outcome.text}") from error
    if "error" in header:
        raise WorkloadError(clean(header["error"]), hint=clean(header.get("hint")))
    return Admission.from_plain(header)


def examine(workload: Workload, seed: int, expect: Expect | None = None, most_s: float = MOST_S) -> Admission:
    """Return the admission, with the first reason found why passing means little. WorkloadError from the reference."""
    expect, began = expect or _reference, time.process_time()
    regions, dull, tried = 0, True, list[str]()
    silent, left = list[tuple[int, int]](), set[str]()
    for variant in supported_distributions(workload):
        if tried and not silent and not dull:
            break
        inputs, others = inputs_of(workload, seed, variant), inputs_of(workload, seed + 1, variant)
        started = time.process_time()
        expected = [np.asarray(one, np.float64) for one in expect(workload, inputs)]
        if not regions:
            moved = _moved(workload)
            regions = REGIONS if (time.process_time() - started) * len(moved) * REGIONS < FINE_S else 1
            silent = [(position, region) for position in moved for region in range(regions)]
        if not all(np.isfinite(one).all() for one in expected):
            continue
        tried.append(variant)
        limits = _limits(workload, variant, expected)
        dull = dull and _passes([np.full_like(one, one.mean()) for one in expected], expected, limits)
        for position, region in tuple(silent):
            if time.process_time() - began > most_s:
                left.add(workload.arguments[position].name)
                silent.remove((position, region))
                continue
            changed = list(inputs)
            changed[position] = _replaced(inputs[position], others[position], region, regions)
            if not _passes(expect(workload, changed), expected, limits):
                silent.remove((position, region))
    if not tried:
        return Admission(untried="its reference is finite on no inputs")
    complaint = _complaint(workload, dull, silent, regions)
    return Admission(complaint, regions, tuple(tried), tuple(sorted(left)), round(time.process_time() - began, 3))


def _reference(workload: Workload, inputs: Sequence[Any]) -> Sequence[Any]:
    return reference_outputs(workload, inputs, False)


def _moved(workload: Workload) -> list[int]:
    """Return the positions of the arguments that must matter."""
    return [
        position
        for position, argument in enumerate(workload.arguments)
        if argument.distribution is not None and not argument.distribution.fixed
    ]


def _complaint(workload: Workload, dull: bool, silent: Sequence[tuple[int, int]], regions: int) -> str:
    if dull:
        return "a constant passes: its outputs hardly vary"
    if not silent:
        return ""
    position, region = silent[0]
    where = "" if regions == 1 else f" (part {region + 1} of {regions})"
    return f"outputs do not react to argument {workload.arguments[position].name!r}{where}: a kernel may ignore it"


def _limits(workload: Workload, variant: str, expected: Sequence[NDArray[Any]]) -> list[Tolerance]:
    """Return the tightest possible tolerances: no floor is below the rounding of the outputs themselves."""
    rounded = [one.astype(np.float32).astype(np.float64) for one in expected]
    return [
        tolerance_from(floor, workload.tolerance, split=splits(workload, variant, floor))
        for floor in map(compare, rounded, expected)
    ]


def _passes(outputs: Sequence[Any], expected: Sequence[NDArray[Any]], limits: Sequence[Tolerance]) -> bool:
    return all(
        limit.admits(compare(np.asarray(one, np.float64), want))
        for one, want, limit in zip(outputs, expected, limits, strict=True)
    )


def _replaced(array: Any, other: Any, region: int, regions: int) -> Any:
    """Return ``array`` with one of its regions taken from ``other``."""
    flat = np.array(array).reshape(-1)
    low, high = flat.size * region // regions, flat.size * (region + 1) // regions
    flat[low:high] = np.asarray(other).reshape(-1)[low:high]
    return flat.reshape(np.shape(array))
