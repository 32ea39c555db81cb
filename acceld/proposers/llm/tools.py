"""Let an executor use tools inside one attempt. A call of a tool is a block in the executor's answer, so tools work
with every provider.

The tool ``check`` runs a kernel on a data set that no gate uses. No result of a tool accepts or refuses a kernel: the
final answer is evaluated like any other source. A tool's result depends only on the question, so that a continued run
asks no model the same question twice.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from acceld.config import ToolsConfig
from acceld.errors import AcceldError
from acceld.evaluate.interface import EvaluationRequest, Priority
from acceld.findings import finding, lines_of
from acceld.model import Evaluation, Gate, Kernel, Status
from acceld.model_calls import Usage
from acceld.nki.frontend import manual
from acceld.proposers.llm.presentation import failure_lines
from acceld.workloads import Workload, workload

MOST_BLOCKS: Final = 3
RESULT_CHARS: Final = 6_000
_BLOCK = re.compile(r"^```tool[ \t]+(\w+)[ \t]*\n(.*?)^```[ \t]*$", re.DOTALL | re.MULTILINE)

TEXTS: Final = {
    "look_up": "look_up: the name of one NKI call, such as nc_matmul, or dtypes, buffers, engines, limits, costs, tensor methods, "
    "example. Takes no time.",
    "trace": "trace: a whole kernel file. If it is legal on the chip, else rule and line; its counters. About a second.",
    "profile": "profile: a whole kernel file. Predicted latency, what binds it, who waits for which line. About a second.",
    "check": "check: a whole kernel file. Whether its results are right on one data set, which no gate uses. Seconds.",
}
"""The input, answer and run time of each tool, as prompts describe them."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call of a tool that an answer contains."""

    name: str
    text: str


@dataclass(slots=True)
class Spent:
    """The turns, tokens, seconds and USD that an attempt has used. ``usd`` is None as soon as the price of one call is
    not known.
    """

    turns: int = 0
    tokens: int = 0
    seconds: float = 0.0
    usd: float | None = 0.0

    def add(self, usage: Usage, usd: float | None, seconds: float) -> None:
        """Add one call of the model, and the time that its tools took."""
        self.turns += 1
        self.tokens += usage.input_tokens + usage.output_tokens
        self.seconds += seconds
        self.usd = None if self.usd is None or usd is None else self.usd + usd

    def exceeds(self, caps: ToolsConfig) -> str:
        """Return as text which limit of ``caps`` is used up; "" if no limit is."""
        if self.turns >= caps.turns:
            return f"{caps.turns} turns"
        if self.tokens >= caps.tokens:
            return f"{caps.tokens} tokens"
        if self.seconds >= caps.seconds:
            return f"{caps.seconds:g} seconds"
        if caps.usd is not None and (self.usd is None or self.usd >= caps.usd):
            return f"{caps.usd:g} USD"
        return ""


def tool_calls(answer: str) -> list[ToolCall]:
    """Return the calls of tools in an answer, in order, at most ``MOST_BLOCKS``."""
    return [ToolCall(name, text) for name, text in _BLOCK.findall(answer)][:MOST_BLOCKS]


def without_tools(answer: str) -> str:
    """Return an answer without its tool calls."""
    return _BLOCK.sub("", answer)


class Workbench:
    """Carry out calls of tools for one run. ``evaluate`` is the daemon's evaluator."""

    def __init__(
        self,
        evaluate: Callable[[EvaluationRequest], Awaitable[Evaluation]],
        *,
        workload: str,
        folder: str,
        chip: str,
        run: int,
    ) -> None:
        self._evaluate = evaluate
        self._request = EvaluationRequest(
            Kernel("", ""),
            workload,
            chip,
            run=run,
            workload_folder=folder,
            priority=Priority.SEARCH,
            practice=True,
        )

    async def use(self, call: ToolCall, parent: Kernel) -> str:
        """Return a tool's answer as text for the model. If the call has a mistake, the answer says what is wrong."""
        if call.name not in TEXTS:
            return f"there is no tool {call.name}; there are {', '.join(TEXTS)}"
        if call.name == "look_up":
            return await asyncio.to_thread(_looked_up, call.text.strip())
        if not call.text.strip():
            return f"{call.name} takes a whole kernel file"
        gate = Gate.SEARCH if call.name == "check" else Gate.TIMING
        kernel = replace(parent, text=call.text, trusted=False)
        try:
            found = await self._evaluate(replace(self._request, kernel=kernel, gate=gate))
        except AcceldError as error:
            return f"{call.name} does not work now: {error.message}"
        loaded = await asyncio.to_thread(self._workload)
        return _described(call.name, found, kernel, loaded, self._request.chip)[:RESULT_CHARS]

    def _workload(self) -> Workload | None:
        """Return the run's workload, for its floor and precision; None if its folder is gone."""
        with suppress(AcceldError):
            return workload(self._request.workload_folder or self._request.workload)
        return None


def _described(name: str, found: Evaluation, kernel: Kernel, loaded: Workload | None, chip: str) -> str:
    if found.failure is not None:
        return f"{found.status}\n{failure_lines(found, kernel.text)}"
    if name == "check":
        told = finding(found, kernel.text, loaded, chip, kernel.lnc)
        exact = "".join(f", {key} {told[key]}" for key in ("rel_l2", "tolerance", "tolerance_is") if key in told)
        return f"right on one data set{exact}" if found.status is Status.PASSED else str(found.status)
    profile = found.profile
    if name == "trace":
        counters = sorted(profile.counters.items()) if profile is not None else []
        return "\n".join(["legal", *(f"{counter}: {value:g}" for counter, value in counters if value)])
    return "\n".join(lines_of(finding(found, kernel.text, loaded, chip, kernel.lnc)))


def _looked_up(name: str) -> str:
    found = manual.looked_up(name)
    if found is None:
        return f"no NKI API documents {name[:80]!r}; near: {', '.join(manual.near(name[:80])) or 'none'}"
    return found
