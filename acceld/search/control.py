"""Control an active run: pause it, steer it, end it.

Actions of people and decisions of the search are written by one queue of the store, first in, first out. Between
changing the control and queueing the event there is no ``await``, and neither is there one between reading the
control and queueing a decision's rows. So the number of a decision's event tells which actions it has followed:
exactly those whose events have lower numbers. :func:`control_from` and the replay rely on that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from acceld.errors import AcceldError, BudgetError, PriceError, UsageError
from acceld.events import REFUSED, Event, IterationStarted, Steered
from acceld.llm.errors import LLMError
from acceld.model import BUDGET_PREFIX, MODELS_PREFIX, RunState

LASTING = frozenset({"pin", "unpin", "veto", "unveto", "hint", "branch", "budget"})
"""Actions that change what a run decides from then on. A restarted daemon applies them again."""


class RunEnded(Exception):
    """Leave the search loop, and set the run's state. ``exit_code`` is for commands that wait for the run."""

    def __init__(self, state: RunState, message: str, exit_code: int = 0) -> None:
        super().__init__(message)
        self.state = state
        self.message = message
        self.exit_code = exit_code


def unanswered(message: str, error: AcceldError | None = None) -> RunEnded:
    """Return the exception that pauses a run whose models give no usable answers."""
    return RunEnded(RunState.PAUSED, f"{MODELS_PREFIX}{message}", error.exit_code if error else AcceldError.exit_code)


def end_of(ended: ExceptionGroup[RunEnded | BudgetError | LLMError]) -> RunEnded:
    """Return the RunEnded to which the first exception of a group leads. A refusal by a cap, or a model that does not
    answer, pauses the run.
    """
    end: BaseException = ended
    while isinstance(end, BaseExceptionGroup):
        end = end.exceptions[0]
    if isinstance(end, RunEnded):
        return end
    if isinstance(end, LLMError | PriceError):
        return unanswered(str(end), end)
    return RunEnded(RunState.PAUSED, f"{BUDGET_PREFIX}{end}", BudgetError.exit_code)


@dataclass
class RunControl:
    """The actions that people have asked of one run. The daemon adds them; the search loop reads them at each
    decision.
    """

    running: asyncio.Event = field(default_factory=asyncio.Event)
    """Event that is clear while the run is paused."""
    settled: asyncio.Event = field(default_factory=asyncio.Event)
    """Event that is clear from the begin of a strict gate, which decides about a new best candidate, until the decision
    is stored.
    """
    cancelled: bool = False
    pinned: set[int] = field(default_factory=set)
    vetoed: set[int] = field(default_factory=set)
    branches: list[int] = field(default_factory=list)
    """Candidates that join the next iteration's parents."""
    hints: list[str] = field(default_factory=list)
    """Hints for the planner from now on."""
    budget_usd: float | None = None
    """The run's cap in USD as a person set it last; None if nobody set a cap."""
    ended: bool = False
    """True once the run makes no more decisions."""
    unread: dict[str, str] = field(default_factory=dict)
    """Actions that no decision has read yet. A key is an action in words, such as ``pin c12``; its value is the
    action's name, such as ``pin``.
    """

    def __post_init__(self) -> None:
        self.running.set()
        self.settled.set()

    def pause(self) -> None:
        """Stop the run before its next step. Evaluations and calls that run already are finished."""
        self.running.clear()

    def resume(self) -> None:
        """Continue the run."""
        self.running.set()

    def cancel(self) -> None:
        """End the run once its running work is done."""
        self.cancelled = True
        self.running.set()

    async def checkpoint(self) -> None:
        """Wait while the run is paused. Raise RunEnded if the run was cancelled."""
        await self.running.wait()
        if self.cancelled:
            raise RunEnded(RunState.CANCELLED, "cancelled")

    def steer(self, action: str, arguments: Mapping[str, Any]) -> str:
        """Apply an action that stays in force, such as a pin or a veto, and return a message about it. Raise UsageError
        for an action of another kind.
        """
        candidate = arguments.get("candidate", 0)
        match action:
            case "pin":
                self.vetoed.discard(candidate)
                self.pinned.add(candidate)
                result = f"pinned c{candidate}"
            case "unpin":
                self.pinned.discard(candidate)
                result = f"c{candidate} is no longer pinned"
            case "veto":
                self.pinned.discard(candidate)
                self.vetoed.add(candidate)
                result = f"c{candidate} is never selected"
            case "unveto":
                self.vetoed.discard(candidate)
                result = f"c{candidate} may be selected"
            case "branch":
                if candidate not in self.branches:
                    self.branches.append(candidate)
                result = f"c{candidate} is a parent in the next iteration"
            case "hint":
                self.hints.append(arguments["text"].strip())
                result = "the planner gets the hint from its next plan on"
            case "budget":
                self.budget_usd = float(arguments["usd"])
                return f"the cap is {self.budget_usd:g} USD"
            case _:
                raise UsageError(
                    f"the action {action} is carried out once, so it can not stay in force",
                    hint="send it as an action of a run that is under way",
                )
        self.unread[f"{action} {f'c{candidate}' if candidate else arguments['text'].strip()}"] = action
        return result

    def read(self, *actions: str) -> None:
        """Mark the actions of the kinds ``actions`` as read, because a decision has taken them into account."""
        self.unread = {text: action for text, action in self.unread.items() if action not in actions}


def control_from(events: Iterable[Event]) -> RunControl:
    """Return the control of a run from its events, in order.

    The control has all actions that stay in force. Branches that an iteration has already taken are left out.
    """
    control = RunControl()
    for event in events:
        follow(control, event)
    control.unread.clear()
    return control


def follow(control: RunControl, event: Event) -> None:
    """Apply one event: an action that was carried out, or the start of an iteration, which takes the waiting branches."""
    match event.data:
        case Steered(action=action, result=result, arguments=arguments):
            if action in LASTING and not result.startswith(REFUSED):
                control.steer(action, arguments)
        case IterationStarted():
            control.branches.clear()
