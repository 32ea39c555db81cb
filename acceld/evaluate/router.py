"""Send each request to the evaluator of its backend."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from acceld.errors import UsageError
from acceld.evaluate.interface import EvaluationRequest, Evaluator
from acceld.model import Evaluation


class Router:
    """The evaluators of all backends. The first backend starts with the router, any other at its first request.

    Implements :class:`acceld.evaluate.interface.Evaluator`.
    """

    def __init__(self, first: str, makers: Mapping[str, Callable[[], Evaluator]]) -> None:
        self._first = first
        self._makers = dict(makers)
        self._started: dict[str, Evaluator] = {}
        self._starting = asyncio.Lock()

    async def start(self) -> None:
        """Start the first backend."""
        await self.ready(self._first)

    async def ready(self, backend: str) -> Evaluator:
        """Return the evaluator of a backend, and start it before if necessary.

        Raise UsageError for an unknown backend, DeviceError if the backend can not work on this machine.
        """
        if backend in self._started:
            # A started backend does not wait for another backend that is starting, which can take minutes.
            return self._started[backend]
        async with self._starting:
            if backend not in self._started:
                maker = self._makers.get(backend)
                if maker is None:
                    known = ", ".join(self._makers)
                    raise UsageError(
                        f"this daemon can not evaluate with backend {backend!r}", hint=f"Choose one of {known}."
                    )
                evaluator = await asyncio.to_thread(maker)
                await evaluator.start()
                self._started[backend] = evaluator
            return self._started[backend]

    async def evaluate(self, request: EvaluationRequest) -> Evaluation:
        """Evaluate a candidate on the backend that the request names, and return the result."""
        return await (await self.ready(request.backend)).evaluate(request)

    async def stop(self, grace_s: float) -> None:
        """Stop all started evaluators."""
        started, self._started = self._started, {}
        async with asyncio.TaskGroup() as tasks:
            for evaluator in started.values():
                tasks.create_task(evaluator.stop(grace_s))

    def statistics(self) -> dict[str, object]:
        """Return the figures of the first backend's evaluator. The figures of other started backends are under the key
        ``backends``.
        """
        own = self._started.get(self._first)
        others = {name: one.statistics() for name, one in self._started.items() if name != self._first}
        return {**(own.statistics() if own else {}), "backends": others}
