"""Ask AWS's own tools, where they are installed, about a kernel of ``nki`` that passed the strict gate.

These tools are a *second judge*. A second judge gets the kernel's text and public inputs, never a secret data set. If
it refuses a candidate, the candidate's evaluation fails, because the kernel would not compile for its user. A second
judge does not judge latency.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from acceld import plugins
from acceld.config import EvaluateConfig
from acceld.errors import DeviceError
from acceld.evaluate.correctness.datasets import DataSet
from acceld.evaluate.sandbox.ladder import SandboxReport
from acceld.model import Failure, Kernel
from acceld.targets import ALL_DEVICES
from acceld.workloads import Workload

RULE = "second_opinion"
"""The rule id of a failure because the second judge refuses the kernel, or gives no answer although an answer is
required.
"""
API = "nki"
"""The API whose kernels get a second opinion. The tools of ``neuronxcc.nki`` are not developed further."""


@dataclass(frozen=True, slots=True)
class Opinion:
    """The answer of one stage of a second judge about a kernel.

    The judge accepts the kernel, refuses it (``refusal``), or gives no answer (``silence``).
    """

    stage: str
    """``simulate`` or ``compile``."""
    judge: str
    """Name and version of the package, such as ``nki 0.6.0``."""
    seconds: float
    refusal: Failure | None = None
    silence: str = ""
    """The reason why there is no answer, such as a deadline or a tool that ended; empty if the judge answered. A
    missing answer is not the kernel's fault.
    """
    rel_l2: float | None = None
    """Relative L2 error of the outputs against the reference on public inputs."""
    warnings: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """Return the opinion as one line for people."""
        if self.refusal is not None:
            return (
                f"{self.judge} ({self.stage}) refuses what acceld accepts: {self.refusal.rule}: {self.refusal.message}"
            )
        if self.silence:
            return f"{self.judge} ({self.stage}) gave no answer: {self.silence}"
        error = f", relative L2 {self.rel_l2:.2g}" if self.rel_l2 is not None else ""
        return f"{self.judge} ({self.stage}) accepts the kernel{error}"

    def plain(self) -> dict[str, object]:
        """Return the record as a dict for JSON."""
        return {
            "stage": self.stage,
            "judge": self.judge,
            "seconds": self.seconds,
            "refused": self.refusal.rule if self.refusal else "",
            "silence": self.silence,
            "rel_l2": self.rel_l2,
            "warnings": list(self.warnings),
        }


class Judge(Protocol):
    """The interface of a second judge. The judge's child processes start at its first question."""

    async def ask(self, kernel: Kernel, loaded: Workload, chip: str, data: DataSet) -> Sequence[Opinion]:
        """Return the opinions of the stages that this machine has, up to the first stage that refuses the kernel.
        ``data`` is a public data set.
        """
        ...

    async def stop(self) -> None:
        """End the child processes."""
        ...


def find_judge(config: EvaluateConfig, state_folder: Path, report: SandboxReport) -> Judge | None:
    """Return the second judge of this machine; None if the machine has no second judge, or if second opinions are off.

    Raise DeviceError if the configuration requires second opinions and there is no judge.
    """
    if config.second_opinion == "off":
        return None
    for device in ALL_DEVICES:
        if device.judge and (found := plugins.named(device.judge)(config, state_folder, report)) is not None:
            judge: Judge = found
            return judge
    if config.second_opinion == "required":
        raise DeviceError(
            'evaluate.second_opinion = "required", and no interpreter with the package nki is found',
            hint="install nki in an environment of its own and name that environment's Python: evaluate.second_python; docs/trainium.md says how",
        )
    return None
