"""Lease logical cores: fairly between runs, and never on a chip that another program uses.

A check needs one free core. A timing needs a core whose whole isolation group is idle. After work that ended uncleanly,
a core is leased again only when a known-good kernel (a canary) has passed on it. A core on which the canary fails is
out of service. A candidate is at fault if canaries failed on two cores after the candidate ran there.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from acceld.devices.neuron.runtime.cores import Core, Isolation, foreign_processes
from acceld.devices.neuron.tools.reports import NeuronDevice, NeuronProcess
from acceld.errors import DeviceError
from acceld.evaluate.case import Failed
from acceld.evaluate.queue import Occupancy
from acceld.model import Failure, Status

Canary = Callable[[Core], Awaitable[str]]
"""A function that runs a known-good kernel on a core. It returns the reason why the kernel failed; empty if the kernel
passes.
"""
OnChange = Callable[[Core, bool, str], Awaitable[object]]
"""A function that is called when a core goes out of service or comes back, with three arguments: the core, True if it
is in service now, and the reason.
"""
Devices = Callable[[], Awaitable[Sequence[NeuronDevice]]]
FAULTY_CORES = 2
"""Number of cores on which known-good kernels have to fail after a candidate has run there, before the candidate is at
fault.
"""


@dataclass(slots=True)
class Lease:
    """A leased core, with what the holder of the lease reports: the sessions of its processes, and whether the work
    ended uncleanly.
    """

    core: Core
    run: str
    timing: bool
    candidate: str
    sessions: set[int] = field(default_factory=set)
    clean: bool = True
    blameless: bool = False
    """True if something other than the candidate caused the unclean end."""

    def owns(self, session: int) -> None:
        """Record the session of a process that works on this core. Without this, acceld would take the process for
        another program.
        """
        self.sessions.add(session)

    def ended_unclean(self) -> None:
        """Record that the work on the core ended uncleanly, so that a known-good kernel has to pass on the core before
        its next lease.
        """
        self.clean = False


@dataclass(slots=True)
class _Waiter:
    run: str
    timing: bool
    candidate: str
    number: int
    turn: asyncio.Future[Lease]
    avoid: frozenset[int] = frozenset()


class CoreLeases:
    """Lease the cores of this machine. Raise DeviceError if ``cores`` is empty.

    ``devices`` runs neuron-ls again; ``canary`` runs a known-good kernel on a core.
    """

    def __init__(
        self,
        cores: Sequence[Core],
        *,
        isolation: Isolation,
        devices: Devices,
        canary: Canary,
        on_change: OnChange | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not cores:
            raise DeviceError(
                "there is no Neuron core to use: neuron-ls lists no core",
                hint="check that the driver is loaded: lsmod | grep neuron",
            )
        self._cores = tuple(cores)
        self._isolation = isolation
        self._devices = devices
        self._canary = canary
        self._on_change = on_change
        self._clock = clock
        self._held: dict[int, Lease] = {}
        self._checking: set[int] = set()
        self._sick: dict[int, str] = {}
        self._foreign: Mapping[int, NeuronProcess] = {}
        self._faults: dict[str, set[int]] = {}
        self._waiting: list[_Waiter] = []
        self._numbers = itertools.count()
        self._served: dict[str, int] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._started = clock()
        self._occupancy = Occupancy(len(cores), clock)
        self._since: dict[int, float] = {}
        self._busy_us: Counter[int] = Counter()

    @asynccontextmanager
    async def lease(
        self, run: str, *, timing: bool = False, candidate: str = "", avoid: Iterable[int] = ()
    ) -> AsyncIterator[Lease]:
        """Wait for a core, and lease it to ``run`` until the context ends.

        For a timing, wait for a core whose isolation group is idle. A core of ``avoid`` is leased only if no other core
        can be. If known-good kernels fail on the core after this lease, that counts against ``candidate``. Raise
        DeviceError, with the reason for each core, if every core is out of service or on a chip that another program
        uses.
        """
        await self.refresh()
        turn: asyncio.Future[Lease] = asyncio.get_running_loop().create_future()
        waiter = _Waiter(run, timing, candidate, next(self._numbers), turn, frozenset(avoid))
        self._waiting.append(waiter)
        self._serve()
        try:
            lease = await waiter.turn
        except asyncio.CancelledError:
            if waiter in self._waiting:
                self._waiting.remove(waiter)
            if waiter.turn.done() and not waiter.turn.cancelled() and waiter.turn.exception() is None:
                self._free(waiter.turn.result().core.id)
            self._serve()
            raise
        try:
            yield lease
        except BaseException:  # after a cancellation too: the state of the core is unknown until a canary passes
            lease.clean = False
            raise
        finally:
            await self._give_back(lease)

    async def refresh(self) -> None:
        """Read again which processes use the devices, and then lease cores to the waiting requests."""
        own = {session for lease in self._held.values() for session in lease.sessions}
        self._foreign = foreign_processes(await self._devices(), own)
        self._serve()

    async def _give_back(self, lease: Lease) -> None:
        self._free(lease.core.id)
        if lease.clean:
            self._serve()
            return
        await asyncio.shield(self._checked(lease.core, "" if lease.blameless else lease.candidate))

    def _checked(self, core: Core, candidate: str) -> asyncio.Task[None]:
        """Return a task that runs a known-good kernel (canary) on a core. The core is not leased until the task has
        ended.
        """
        self._checking.add(core.id)
        task = asyncio.create_task(self._check(core, candidate))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def doubt(self, device: int) -> None:
        """Require that a known-good kernel passes on each core of chip ``device``, because the chip reported errors.

        A free core is checked at once. A leased core is checked when its lease ends.
        """
        for core in self._cores:
            if core.device != device or core.id in self._sick or core.id in self._checking:
                continue
            if (lease := self._held.get(core.id)) is None:
                self._checked(core, "")
            elif lease.clean:
                lease.clean, lease.blameless = False, True

    async def _check(self, core: Core, candidate: str) -> None:
        why = "the core's check was interrupted"
        try:
            why = await self._canary(core)
        except DeviceError as error:
            why = error.message
        finally:
            self._checking.discard(core.id)
            if why:
                self._sick[core.id] = why
                if candidate:
                    self._faults.setdefault(candidate, set()).add(core.id)
            self._serve()
        if self._on_change is not None and why:
            await self._on_change(core, False, why)

    async def check_again(self) -> None:
        """Run a known-good kernel on each core that is out of service, and put the cores that pass back into service."""
        for core in self._cores:
            if core.id in self._sick:
                del self._sick[core.id]
                await self._checked(core, "")
                if self._on_change is not None and core.id not in self._sick:
                    await self._on_change(core, True, "a known-good kernel passed on this core again")

    @property
    def sick(self) -> tuple[int, ...]:
        """Return the numbers of the cores that are out of service."""
        return tuple(sorted(self._sick))

    @property
    def isolation(self) -> Isolation:
        """Return the group of cores that must be idle while one of them is timed."""
        return self._isolation

    def device_fault(self, candidate: str) -> Failed | None:
        """Return the failure of a candidate after which known-good kernels failed on FAULTY_CORES cores; None for any
        other candidate.
        """
        cores = sorted(self._faults.get(candidate, ()))
        if len(cores) < FAULTY_CORES:
            return None
        text = f"known-good kernels failed after this kernel on cores {', '.join(map(str, cores))}"
        return Failed(Status.RUNTIME_ERROR, Failure("device_fault", text))

    def _free(self, core: int) -> None:
        self._held.pop(core)
        self._busy_us[core] += int((self._clock() - self._since.pop(core)) * 1_000_000)

    def _serve(self) -> None:
        """Grant waiting requests. The run with the fewest cores comes first; among equals, the run that has waited
        longest.

        If no core is free for a timing, the requests after the timing get no core of the isolation group with the
        fewest leased cores. So the timing does not wait for ever.
        """
        self._refuse_hopeless()
        while (granted := self._first_grant()) is not None:
            waiter, core = granted
            self._waiting.remove(waiter)
            lease = Lease(core, waiter.run, waiter.timing, waiter.candidate)
            self._held[core.id] = lease
            self._since[core.id] = self._clock()
            self._served[waiter.run] = next(self._numbers)
            waiter.turn.set_result(lease)
        idle = sum(self._can_have(core, False, set()) for core in self._cores)
        usable = sum(map(self._usable, self._cores))
        self._occupancy.note(usable - idle + len(self._cores) - usable, waiting=bool(self._waiting))

    def _first_grant(self) -> tuple[_Waiter, Core] | None:
        holding = Counter(lease.run for lease in self._held.values())
        order = sorted(self._waiting, key=lambda w: (holding[w.run], self._served.get(w.run, -1), w.number))
        reserved: set[str] = set()
        for waiter in order:
            if waiter.turn.done():
                continue
            for core in sorted(self._cores, key=lambda core: core.id in waiter.avoid):
                if self._can_have(core, waiter.timing, reserved):
                    return waiter, core
            if waiter.timing and (group := self._stillest(reserved)):
                reserved.add(group)
        return None

    def _can_have(self, core: Core, timing: bool, reserved: set[str]) -> bool:
        group = core.group(self._isolation)
        if group in reserved or not self._usable(core) or core.id in self._held or core.id in self._checking:
            return False
        neighbors = self._in_group(group)
        if timing:
            return not neighbors and not any(
                other.id in self._checking for other in self._cores if other.group(self._isolation) == group
            )
        return not any(lease.timing for lease in neighbors)

    def _in_group(self, group: str) -> list[Lease]:
        return [lease for lease in self._held.values() if lease.core.group(self._isolation) == group]

    def _stillest(self, reserved: set[str]) -> str:
        groups = {core.group(self._isolation) for core in self._cores if self._usable(core)} - reserved
        return min(sorted(groups), key=lambda group: len(self._in_group(group)), default="")

    def _usable(self, core: Core) -> bool:
        return core.id not in self._sick and core.device not in self._foreign

    def _refuse_hopeless(self) -> None:
        if any(self._usable(core) for core in self._cores) or self._checking:
            return
        said = [f"core {core} failed its canary: {why}" for core, why in sorted(self._sick.items())]
        said += [f"device {index} is held by process {p.pid} ({p.command})" for index, p in self._foreign.items()]
        for waiter in self._waiting:
            if not waiter.turn.done():
                hint = "acceld ends no process it did not start: end that process yourself, or set devices.cores"
                waiter.turn.set_exception(DeviceError(f"no core can be used: {'; '.join(said)}", hint=hint))
        self._waiting.clear()

    def _share(self, core: int, now: float) -> float:
        busy_s = self._busy_us[core] / 1_000_000 + (now - self._since[core] if core in self._since else 0.0)
        return busy_s / max(now - self._started, 1e-9)

    def statistics(self) -> dict[str, object]:
        """Return figures for people: cores by state (numbers, or lists of cores), waiting requests, utilization.

        Shares of time, 0 to 1, count the time in which cores were leased.
        """
        now = self._clock()
        leased_us = sum(self._busy_us.values()) + sum(int((now - since) * 1_000_000) for since in self._since.values())
        whole_us = max(now - self._started, 1e-9) * len(self._cores) * 1_000_000
        return {
            "cores": len(self._cores),
            "lnc": self._cores[0].lnc,
            "leased": len(self._held),
            "timing": sum(lease.timing for lease in self._held.values()),
            "checking": len(self._checking),
            "out_of_service": sorted(self._sick),
            "out_of_service_reasons": {core: why[:500] for core, why in sorted(self._sick.items())},
            "foreign": {index: f"{p.pid} {p.command}" for index, p in self._foreign.items()},
            "waiting": len(self._waiting),
            "waiting_runs": dict(Counter(waiter.run for waiter in self._waiting)),
            "utilization": leased_us / whole_us,
            "busy_share": self._occupancy.share,
            "utilization_by_core": {core.id: self._share(core.id, now) for core in self._cores},
        }
