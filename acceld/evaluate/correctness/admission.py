"""Store, for each workload's content, whether its checks can distinguish right outputs from wrong ones.

The findings are made by :mod:`acceld.evaluate.correctness.examination`, in a child process.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from acceld import figures
from acceld.errors import WorkloadError
from acceld.evaluate.correctness.gates import fresh_seed
from acceld.evaluate.sandbox.messages import BadMessage, clean, parse
from acceld.evaluate.sandbox.process import Outcome
from acceld.evaluate.sandbox.reply import Reply
from acceld.model import ADMISSION, Failure
from acceld.workloads import Workload


@dataclass(frozen=True, slots=True)
class Admission:
    """The findings on one workload's checks.

    - ``complaint``: why passing the checks would mean little; empty if the checks suffice.
    - ``regions``: the number of parts into which the examination divided each array.
    - ``variants``: the input distributions that were tried.
    - ``left``: the arguments that were not examined for lack of time.
    - ``untried``: why nothing was tried; empty if something was tried.
    - ``remedy``: what the user should change, given the complaint.
    """

    complaint: str = ""
    regions: int = 0
    variants: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    seconds: float = 0.0
    untried: str = ""
    remedy: str = ""

    @property
    def text(self) -> str:
        """Return the findings as one line for people."""
        if self.complaint or self.untried:
            return self.complaint or f"not tried: {self.untried}"
        parts = f" in {self.regions} parts each" if self.regions > 1 else ""
        left = f"; no time for {', '.join(self.left)}" if self.left else ""
        return f"no constant passes, every input matters{parts}{left} ({figures.duration(self.seconds * 1e6)})"

    @classmethod
    def from_plain(cls, raw: dict[str, Any]) -> Admission:
        """Return the record from its fields as JSON. Raise KeyError, TypeError or ValueError if the fields are
        invalid.
        """
        variants, left = (tuple(clean(one) for one in raw[name]) for name in ("variants", "left"))
        numbers = int(raw["regions"]), variants, left, float(raw["seconds"])
        return cls(
            clean(raw["complaint"]), *numbers, untried=clean(raw["untried"]), remedy=clean(raw.get("remedy", ""))
        )


Admit = Callable[[Workload, int], Awaitable[Admission]]
"""Function that examines a workload in a child process. Its arguments are the workload and a seed."""


class Admissions:
    """The findings on all workloads, as small JSON files in ``folder``, where noise floors are stored too."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._locks: dict[str, asyncio.Lock] = {}
        self._untried: dict[str, Admission] = {}

    def known(self, loaded: Workload) -> Admission | None:
        """Return the stored findings; None if no findings are stored."""
        try:
            return Admission.from_plain(json.loads(self._path(loaded).read_text("ascii")))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    async def of(self, loaded: Workload, admit: Admit) -> Admission:
        """Return the findings on a workload. Findings that are not stored yet are made by ``admit`` and stored.

        Raise WorkloadError if the workload's reference fails.
        """
        if loaded.reference is None:
            return Admission(untried="the workload has no reference")
        if loaded.sample is not None:
            return Admission(untried="the workload's inputs are recorded, not drawn")
        async with self._locks.setdefault(loaded.hash, asyncio.Lock()):
            found = self._untried.get(loaded.hash) or await asyncio.to_thread(self.known, loaded)
            if found is None:
                found = await admit(loaded, fresh_seed())
                if found.untried:
                    # the findings are not stored, because time and memory may suffice on another machine
                    self._untried[loaded.hash] = found
                else:
                    await asyncio.to_thread(self._store, loaded, found)
            return found

    async def refuse(self, loaded: Workload, admit: Admit) -> Failure | None:
        """Return a failure if a win on the workload can not be trusted; None if a win can be trusted."""
        found = await self.of(loaded, admit)
        if not found.complaint:
            return None
        return Failure(ADMISSION, f"workload {loaded.name}: {found.complaint}", hint=found.remedy)

    def _path(self, loaded: Workload) -> Path:
        return self._folder / f"{loaded.hash[:24]}-admission.json"

    def _store(self, loaded: Workload, found: Admission) -> None:
        self._folder.mkdir(0o700, parents=True, exist_ok=True)
        partial = self._path(loaded).with_suffix(".partial")
        partial.write_text(json.dumps(asdict(found)), "ascii")
        partial.replace(self._path(loaded))


def answered(workload: Workload, outcome: Outcome, reply: Reply) -> Admission:
    """Return the findings in a child's answer, and close ``reply``, the file with the answer."""
    if outcome.cause in ("deadline", "cpu"):
        reply.close()
        return Admission(untried=f"the workload's reference is too expensive here: its process {outcome.text}")
    with reply:
        try:
            header, _ = parse(reply)
        except BadMessage as error:
            raise WorkloadError(
                f"the examination of workload {workload.name!r} did not end: its process {outcome.text}",
                hint=f"acceld doctor workloads --admit {workload.name} tries again",
            ) from error
    if "error" in header:
        raise WorkloadError(clean(header["error"]), hint=clean(header.get("hint")))
    return Admission.from_plain(header)
