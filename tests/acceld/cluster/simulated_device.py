"""Define a host whose device is a delay: a kernel's text is ``latency N``, and the host's clock, speed and faults are
set by name.

``SETTINGS`` in the environment names a JSON file of settings by host, read again at each evaluation.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
from pathlib import Path
from typing import Any

from acceld.cluster.remote import Setup
from acceld.evaluate.interface import EvaluationRequest
from acceld.evaluate.queue import SlotQueue
from acceld.model import Check, Correctness, Evaluation, Failure, Gate, Kernel, Profile, Source, Status

SETTINGS = "ACCELD_TEST_HOSTS"


class SimulatedDevice:
    """Reads the latency from the kernel's text; times interleaved with competitors if asked to."""

    def __init__(
        self,
        name: str,
        slots: int,
        *,
        delay_s: float = 0.0,
        clock: float = 1.0,
        wrong: str = "",
        wrong_once: str = "",
        log: Path | None = None,
    ) -> None:
        self.name, self.delay_s, self.clock, self.wrong, self.log = name, delay_s, clock, wrong, log
        self.wrong_once = wrong_once
        self.jitter = 0.0
        self.done: list[str] = []
        self._queue = SlotQueue(slots, 1 << 16)

    async def start(self) -> None:
        """Do nothing."""

    async def stop(self, grace_s: float) -> None:
        """Do nothing."""

    def statistics(self) -> dict[str, object]:
        """Return depth and age, with the real queue's keys."""
        return {**self._queue.statistics(), "sandbox_level": "L3"}

    async def evaluate(self, request: EvaluationRequest) -> Evaluation:
        """Return a result after the delay."""
        async with self._queue.place(request.priority):
            await asyncio.sleep(self.delay_s * random.uniform(1 - self.jitter, 1 + self.jitter))
        self.done.append(request.kernel.text)
        if self.log is not None:
            with self.log.open("a") as stream:
                stream.write(f"{self.name} {request.key}\n")
        sha256 = request.kernel.sha256
        if not request.kernel.text.startswith("latency"):
            return Evaluation(Status.COMPILE_ERROR, sha256, failure=Failure("syntax", "this is not a kernel", 1))
        wavers = (
            self.wrong_once and self.wrong_once in request.kernel.text and self.done.count(request.kernel.text) == 1
        )
        if wavers or (self.wrong and self.wrong in request.kernel.text):
            return Evaluation(
                Status.INCORRECT_NUMERICAL,
                sha256,
                program_sha256=sha256,
                failure=Failure("tolerance", "a broken core"),
                correctness=Correctness(request.gate, 1.0, 1e-5, checks=(Check("own", False),)),
            )
        mine_us = self._us(request.kernel)
        others = request.against if request.gate is Gate.STRICT or request.interleave else ()
        pairs = [
            {
                "against": one.sha256,
                "ratio": (ratio := self._us(one) / mine_us),
                "interval": [ratio, ratio],
                "band_percent": 0.0,
                "win": ratio > 1,
            }
            for one in others
        ]
        profile = Profile(
            Source.MEASURED, request.chip, request.kernel.api, mine_us, "a clock", details={"paired": pairs}
        )
        if request.gate is Gate.TIMING:
            return Evaluation(Status.UNTESTED, sha256, program_sha256=sha256, profile=profile)
        correctness = Correctness(request.gate, 1e-7, 1e-5, checks=(Check("own", True),))
        return Evaluation(Status.PASSED, sha256, program_sha256=sha256, profile=profile, correctness=correctness)

    def _us(self, kernel: Kernel) -> float:
        return float(kernel.text.split()[1]) * self.clock


class _Set(SimulatedDevice):
    """A device that follows the settings of its host."""

    async def evaluate(self, request: EvaluationRequest) -> Evaluation:
        """Return a result by the present settings."""
        reported = _reported(self.name)
        self.delay_s, self.clock = reported.get("delay_s", 0.0), reported.get("clock", 1.0)
        self.jitter = reported.get("jitter", 0.0)
        self.wrong, self.log = reported.get("wrong", ""), Path(reported["log"]) if "log" in reported else None
        return await super().evaluate(request)


def make(setup: Setup, name: str, folder: Path) -> SimulatedDevice:
    """Return the device of a host of a real cluster."""
    return _Set(name, setup.config.slots)


def _reported(name: str) -> dict[str, Any]:
    settings = json.loads(Path(os.environ[SETTINGS]).read_text(encoding="utf-8"))
    return {**settings.get("*", {}), **settings.get(name, {})}
