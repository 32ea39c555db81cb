"""Run two cores with different programs that wait for each other. Only one core runs at a time; when it has to wait,
the other continues.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue

import numpy as np

from acceld.nki.errors import KernelCrash
from acceld.nki.ir.numerics import Array

_HINT = "give both cores the same barriers and exchanges, in the same order"
CoreState = tuple[list[int | float | None], dict[str, Array]]
"""Registers and accumulators of one core; each core has its own."""
_Sent = tuple[object, Array]
"""The pipe that a core names, and the tile that the core sends to the other core."""
_BARRIER: _Sent = (None, np.empty(0))
"""The message of a core that reaches a barrier, in place of a tile."""


class Pair:
    """Run two cores in turns, always in the same order.

    The first core begins. When a core waits for a tile or at a barrier, the other core continues.
    """

    def __init__(self, set_aside: Callable[[], CoreState], resume: Callable[[CoreState], None]) -> None:
        self._set_aside, self._resume = set_aside, resume
        self._running = threading.Lock()
        self._sent: tuple[SimpleQueue[_Sent | None], SimpleQueue[_Sent | None]] = (SimpleQueue(), SimpleQueue())
        self._second = threading.Thread(target=self._run_second, daemon=True)
        self._core: dict[int, int] = {}
        self._failure: BaseException | None = None
        self._work: Callable[[], None] = lambda: None

    def run(self, first: Callable[[], None], second: Callable[[], None]) -> None:
        """Run ``first`` and ``second`` to their ends, each as one core. Raise the error of the core that failed first."""
        self._work = second
        self._core[threading.get_ident()] = 0
        with self._running:
            self._second.start()
            try:
                first()
            finally:
                self._sent[0].put(None)
        self._second.join()
        if self._failure is not None:
            raise self._failure

    def _run_second(self) -> None:
        self._core[threading.get_ident()] = 1
        with self._running, np.errstate(all="ignore"):
            self._set_aside()
            try:
                self._work()
            except BaseException as error:  # noqa: BLE001  # raised again by the first core's thread
                self._failure = error
            finally:
                self._sent[1].put(None)

    def meet(self, line: int) -> None:
        """Wait until the other core is at a barrier too. Raise KernelCrash if that core has ended or sends a tile."""
        if self._swap(_BARRIER, line) is not _BARRIER:
            raise KernelCrash(
                "the other core sends a tile while this core waits at a barrier",
                rule="exchange_cores",
                line=line,
                hint=_HINT,
            )

    def swap(self, values: Array, pipe: object, line: int) -> Array:
        """Send ``values`` to the other core, and return the tile that the other core sends. Raise KernelCrash if the
        other core has ended, is at a barrier, names another pipe, or sends a tile of another shape.
        """
        received = self._swap((pipe, values), line)
        if received is _BARRIER:
            raise KernelCrash(
                "the other core waits at a barrier while this core sends a tile",
                rule="exchange_cores",
                line=line,
                hint=_HINT,
            )
        other, tile = received
        wrong = "" if other == pipe else f"by pipe {other}, and this core by pipe {pipe}"
        if tile.shape != values.shape:
            wrong = f"a tile of shape {list(tile.shape)}, and this core one of shape {list(values.shape)}"
        if wrong:
            raise KernelCrash(
                f"the other core sends {wrong}",
                rule="exchange_cores",
                line=line,
                hint="give both cores equal pipe_ids and tiles of one shape",
            )
        return tile

    def _swap(self, sent: _Sent, line: int) -> _Sent:
        core = self._core[threading.get_ident()]
        self._sent[core].put(sent)
        received: _Sent | None = None
        waiting = self._sent[1 - core]
        with suppress(Empty):
            received = waiting.get_nowait()
            return self._checked(received, line)
        held = self._set_aside()
        self._running.release()
        try:
            received = waiting.get()
        finally:
            self._running.acquire()
            self._resume(held)
        return self._checked(received, line)

    def _checked(self, received: _Sent | None, line: int) -> _Sent:
        if received is None:
            raise KernelCrash(
                "this core waits for the other core, which failed or has ended",
                rule="exchange_cores",
                line=line,
                hint=_HINT,
            )
        return received
