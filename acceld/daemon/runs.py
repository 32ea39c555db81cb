"""Queue runs: a limited number of runs search at the same time, the other runs wait in order of arrival. An error in
a run never ends the daemon.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

from acceld.errors import AcceldError
from acceld.http.answers import ConflictError
from acceld.model import Run, RunState
from acceld.search.control import RunControl, control_from
from acceld.store.changes.runs import set_run_state, write_notice
from acceld.store.database import Store
from acceld.store.reads.records import load_run, steering_events

log = logging.getLogger(__name__)


STRICT_S = 1800.0
"""Most seconds that a pause waits for a strict gate that runs."""
PAUSES = f"pauses once the strict gate that runs has ended, in at most {STRICT_S / 60:.0f} minutes"
"""Message of a run that is about to pause."""


class Searching(Protocol):
    """Interface of one run's search."""

    async def run(self) -> RunState:
        """Search until the run ends or pauses, and return the run's state."""
        ...


SearchMaker = Callable[[Run, RunControl], Awaitable[Searching]]
"""Builds the search of a run. Raises AcceldError if the search can not be built."""


class _Places:
    """The places of runs that search at the same time. Other runs wait for a place in order of arrival."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._taken: dict[int, None] = {}
        self._line: dict[int, asyncio.Future[None]] = {}

    def take_now(self, run: int) -> bool:
        """Return True if the run has a place, or gets one without a wait."""
        if run not in self._taken and self._free:
            self._free -= 1
            self._taken[run] = None
        return run in self._taken

    async def take(self, run: int) -> None:
        """Wait until fewer runs search than may at once, then count this run as one of them."""
        if self.take_now(run):
            return
        self._line[run] = turn = asyncio.get_running_loop().create_future()
        try:
            await turn
        except asyncio.CancelledError:
            self._line.pop(run, None)
            self.give_back(run)
            raise

    def give_back(self, run: int) -> None:
        """Give a run's place to the next run. Do nothing if the run has no place."""
        if run not in self._taken:
            return
        del self._taken[run]
        while self._line:
            following = next(iter(self._line))
            turn = self._line.pop(following)
            if not turn.done():  # a run that was just taken out of the line has a cancelled turn
                self._taken[following] = None
                turn.set_result(None)
                return
        self._free += 1

    def ahead(self, run: int) -> tuple[list[int], list[int]]:
        """Return the runs that have a place, and the runs that get a place before this run. Both are empty if the run
        does not wait for a place.
        """
        if run not in self._line:
            return [], []
        return list(self._taken), list(itertools.takewhile(lambda one: one != run, self._line))


class RunQueue:
    """The runs that search or wait. Their tasks belong to the given task group.

    A paused run gives its place to the next run. When it is resumed, it waits for a place again.
    """

    def __init__(
        self, store: Store, make: SearchMaker, tasks: asyncio.TaskGroup, *, at_once: int, changed: Callable[[], None]
    ) -> None:
        self._store = store
        self._make = make
        self._tasks = tasks
        self._places = _Places(at_once)
        self._changed = changed
        self._controls: dict[int, RunControl] = {}
        self._running: dict[int, asyncio.Task[None]] = {}
        self._searching: set[int] = set()
        """Runs that got a place and began to search. They may have given it back, because they pause."""
        self._returning: dict[int, asyncio.Task[None]] = {}
        """Tasks of searches that were paused and resumed, and wait for a place."""
        self._stopping = False

    @property
    def busy(self) -> bool:
        """Return True if a run searches or waits for its turn. Paused runs do not count once their strict gate ended."""
        return any(one.running.is_set() or not one.settled.is_set() for one in self._controls.values())

    def control(self, run: int) -> RunControl | None:
        """Return the record of what people have asked of a run (:class:`~acceld.search.control.RunControl`), for a
        run that waits or searches; None for any other run.
        """
        control = self.asked(run)
        return None if control is None or control.ended else control

    def asked(self, run: int) -> RunControl | None:
        """Return the record of :meth:`control` also for a run that decides nothing any more, until the run's end is
        stored.
        """
        return self._controls.get(run)

    def ahead(self, run: int) -> list[int]:
        """Return the runs for which a run waits, those that search first; [] for a run that does not wait for its turn."""
        taken, line = self._places.ahead(run)
        return [*taken, *(one for one in line if one in self._returning or not self._is_paused(one))]

    def _is_paused(self, run: int) -> bool:
        control = self._controls.get(run)
        return control is None or not control.running.is_set()

    async def take_up(self, run: int) -> None:
        """Put a run at the end of the queue, to begin or to continue."""
        if run in self._controls:
            self._controls[run].resume()
            return
        past = await self._store.read(steering_events, run)
        if run in self._controls:  # another caller took up the run during the read
            return
        self._controls[run] = control_from(past)
        self._running[run] = self._tasks.create_task(self._go(run), name=f"r{run}")

    async def pause(self, run: int, *, at_once: bool = False) -> str:
        """Stop a run before its next step, and return a message about it. Raise ConflictError if the run is not active.

        With ``at_once`` its running work is ended. A resumed run begins this work again, and keeps all that is stored.
        A strict gate that decides about a new best kernel is not ended: the run pauses after the decision.
        """
        control = self._going(run)
        control.pause()
        self._stop_returning(run)
        if not at_once:
            await self._paused(run)
            if not control.running.is_set():
                self._places.give_back(run)
        elif control.settled.is_set():
            await self._end_work(run)
        else:
            await self._store.change(set_run_state, run, RunState.RUNNING, PAUSES)
            self._tasks.create_task(self._pause_settled(run, control), name=f"r{run} pauses")
            self._changed()
            return PAUSES
        return "paused"

    async def _paused(self, run: int) -> None:
        await self._store.change(set_run_state, run, RunState.PAUSED, "paused")
        self._changed()

    async def _end_work(self, run: int) -> None:
        """End the running work of a run, and pause the run. Raise ConflictError if the run ended before."""
        if (task := self._running.get(run)) is not None:
            task.cancel()
            await asyncio.wait([task])
        record = await self._store.read(load_run, run)
        if record.state.ended:  # the run ended before its work could be ended
            raise ConflictError(f"r{run} has ended ({record.state})", hint="acceld optimize begins a new run")
        await self._paused(run)

    async def _pause_settled(self, run: int, control: RunControl) -> None:
        """Pause a run once its strict gate has ended and the decision is stored, unless it was resumed meanwhile."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(control.settled.wait(), STRICT_S)
        if (await self._store.read(load_run, run)).message == PAUSES:
            with contextlib.suppress(ConflictError):
                await self._end_work(run)

    async def resume(self, run: int) -> str:
        """Continue a paused or failed run, and return a message about it. Raise ConflictError for a run that is finished,
        cancelled, or about to be cancelled.
        """
        record = await self._store.read(load_run, run)
        if record.state in (RunState.FINISHED, RunState.CANCELLED):
            raise ConflictError(f"r{run} has ended ({record.state})", hint="Start a new run: acceld optimize.")
        control = self._controls.get(run)
        if control is not None and control.cancelled:
            raise ConflictError(f"r{run} is being cancelled", hint="Start a new run: acceld optimize.")
        if control is not None and control.ended:
            raise ConflictError(f"r{run} has just ended", hint="Start a new run: acceld optimize.")
        if run in self._returning or (control is not None and control.running.is_set()):
            return "is not paused: it runs, or waits for its turn"
        if control is not None:
            waits = run in self._searching and not self._places.take_now(run)
            goes_on = run in self._searching and not waits
            if waits:
                self._returning[run] = self._tasks.create_task(self._return(run, control), name=f"r{run} resumes")
            await self._store.change(set_run_state, run, RunState.RUNNING if goes_on else RunState.QUEUED)
            if not waits:
                control.resume()
        else:
            await self._store.change(set_run_state, run, RunState.QUEUED)
            await self.take_up(run)
        self._changed()
        return "resumed"

    async def cancel(self, run: int) -> str:
        """Cancel a run, and return a message about it. A run that waits ends at once. A run that searches ends when
        its current evaluations are done.

        Raise ConflictError if the run has ended.
        """
        control = self._controls.get(run)
        record = await self._store.read(load_run, run)
        if record.state.ended:
            raise ConflictError(f"r{run} has ended ({record.state})", hint="acceld optimize begins a new run")
        if control is not None and control.ended:
            raise ConflictError(f"r{run} has just ended", hint="acceld optimize begins a new run")
        if control is None or record.started_at is None:
            if control is not None:
                control.cancel()
                self._running[run].cancel()
            await self._store.change(set_run_state, run, RunState.CANCELLED, "cancelled")
            return "cancelled"
        control.cancel()
        return "ends once its running evaluations are done"

    def hold(self) -> None:
        """Stop every run before its next step, because the daemon will stop."""
        self._stopping = True
        for run, control in self._controls.items():
            control.pause()
            self._stop_returning(run)

    async def stop(self) -> None:
        """Cancel the tasks that still run. The store is not changed, so the next daemon continues the runs."""
        self._stopping = True
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _going(self, run: int) -> RunControl:
        control = self.control(run)
        if control is None:
            raise ConflictError(f"r{run} is not active", hint="acceld runs lists the active runs.")
        return control

    async def _go(self, run: int) -> None:
        control = self._controls[run]
        try:
            await self._turn(run, control)
            record = await self._store.read(load_run, run)
            if record.state.ended or self._stopping:
                return
            self._searching.add(run)
            search = await self._make(record, control)
            state = await search.run()
            log.info("r%d %s", run, state)
        except asyncio.CancelledError:
            if not self._stopping and asyncio.current_task() is not None:
                log.info("r%d was taken out of the queue", run)
        except AcceldError as error:
            await self._failed(run, error.message, error.hint, error.exit_code)
        except BaseExceptionGroup as group:
            await self._crashed(run, group)
        except Exception as error:  # noqa: BLE001 - one run's defect must not end the others
            await self._crashed(run, error)
        finally:
            self._stop_returning(run)
            self._searching.discard(run)
            self._places.give_back(run)
            self._controls.pop(run, None)
            self._running.pop(run, None)
            self._changed()

    async def _turn(self, run: int, control: RunControl) -> None:
        """Wait until a run has a place and is not paused."""
        while True:
            await control.running.wait()
            await self._places.take(run)
            if control.running.is_set():
                return
            self._places.give_back(run)

    async def _return(self, run: int, control: RunControl) -> None:
        """Let a resumed search go on once it has a place."""
        await self._places.take(run)
        self._returning.pop(run, None)
        control.resume()
        try:
            await self._store.change(set_run_state, run, RunState.RUNNING)
        except AcceldError as error:
            log.error("r%d goes on, and that could not be recorded: %s", run, error)

    def _stop_returning(self, run: int) -> None:
        task = self._returning.pop(run, None)
        if task is not None:
            task.cancel()

    async def _crashed(self, run: int, error: BaseException) -> None:
        if self._stopping:
            return
        first = _first(error)
        if isinstance(first, AcceldError):
            await self._failed(run, first.message, first.hint, first.exit_code)
            return
        log.error("r%d failed", run, exc_info=error)
        text = f"{type(first).__name__}: {first}"
        await self._failed(run, text, f"The log has the details: acceld logs. Then: acceld resume r{run}.")

    async def _failed(self, run: int, text: str, hint: str, exit_code: int = 1) -> None:
        if self._stopping:
            return
        try:
            await self._store.change(set_run_state, run, RunState.FAILED, text, exit_code)
            await self._store.change(write_notice, run, "error", f"r{run} failed: {text}", hint)
        except AcceldError as error:
            log.error("r%d failed (%s), and that could not be recorded: %s", run, text, error)


def _first(error: BaseException) -> BaseException:
    """Return the first single error inside nested exception groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
