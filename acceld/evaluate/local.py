"""Build the evaluators of one machine: its simulator and its devices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from acceld import plugins
from acceld.config import Config
from acceld.device import Finding
from acceld.errors import AcceldError
from acceld.evaluate.interface import Evaluator, Workplace
from acceld.evaluate.router import Router
from acceld.evaluate.simulated.evaluator import SimulatedEvaluator
from acceld.targets import ALL_DEVICES, DEVICE_OF, SIMULATOR


def local(workplace: Callable[[], Workplace]) -> Router:
    """Return a router to the evaluators of this machine, one for each backend.

    The simulator starts with the router, a device at its first request. ``workplace`` is called each time an
    evaluator is built.
    """

    def simulator() -> Evaluator:
        place = workplace()
        return SimulatedEvaluator(
            place.config,
            place.state_folder,
            workload_folders=place.workload_folders,
            on_start=place.on_start,
            preload=True,
        )

    def on_device(backend: str) -> Evaluator:
        place = replace(workplace(), simulator=partial(router.ready, SIMULATOR))
        made: Evaluator = plugins.named(DEVICE_OF[backend].evaluator)(place, backend)
        return made

    makers: dict[str, Callable[[], Evaluator]] = {SIMULATOR: simulator}
    router = Router(SIMULATOR, makers | {backend: partial(on_device, backend) for backend in DEVICE_OF})
    return router


def findings(config: Config, folder: Path) -> Iterator[Finding]:
    """Yield what ``acceld doctor`` shows of each device on this machine. No kernel is timed."""
    for device in ALL_DEVICES:
        if not device.doctor:
            continue
        try:
            yield from plugins.named(device.doctor)(config, folder)
        except AcceldError as error:
            yield Finding(device.name, "fail", error.message, error.hint)
        except Exception as error:  # noqa: BLE001  a device from a plug-in may raise anything
            yield Finding(device.name, "note", f"the device's own check failed: {type(error).__name__}: {error}")
