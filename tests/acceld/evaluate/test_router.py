"""Requests find the evaluator of their backend."""

import pytest

from acceld.errors import DeviceError, UsageError
from acceld.evaluate.interface import EvaluationRequest
from acceld.evaluate.router import Router
from acceld.model import Evaluation, Failure, Kernel, Status


class Named:
    """An evaluator that answers with its name and remembers its calls."""

    def __init__(self, name: str, *, broken: bool = False) -> None:
        self.name = name
        self.broken = broken
        self.done: list[str] = []

    async def start(self) -> None:
        self.done.append("start")
        if self.broken:
            raise DeviceError("no such device here")

    async def evaluate(self, request: EvaluationRequest) -> Evaluation:
        return Evaluation(Status.REJECTED, request.kernel.sha256, failure=Failure("seen", self.name))

    async def stop(self, grace_s: float) -> None:
        self.done.append("stop")

    def statistics(self) -> dict[str, object]:
        return {"name": self.name}


def asked(backend: str) -> EvaluationRequest:
    return EvaluationRequest(Kernel("x = 1", "c"), "matmul", "host", backend=backend)


async def test_each_request_goes_to_its_backend_and_only_what_is_needed_starts() -> None:
    simulator, cpu, cuda = Named("simulator"), Named("cpu"), Named("cuda")
    router = Router("simulator", {"simulator": lambda: simulator, "cpu": lambda: cpu, "cuda": lambda: cuda})
    await router.start()
    results = [await router.evaluate(asked(name)) for name in ("cpu", "simulator", "cpu")]
    assert [result.failure.message for result in results if result.failure] == ["cpu", "simulator", "cpu"]
    assert router.statistics() == {"name": "simulator", "backends": {"cpu": {"name": "cpu"}}}
    await router.stop(0.0)
    assert (simulator.done, cpu.done, cuda.done) == (["start", "stop"], ["start", "stop"], [])


async def test_a_backend_that_can_not_work_here_is_tried_again_and_an_unknown_one_is_named() -> None:
    broken = Named("cuda", broken=True)
    router = Router("simulator", {"simulator": lambda: Named("simulator"), "cuda": lambda: broken})
    for _ in range(2):
        with pytest.raises(DeviceError):
            await router.ready("cuda")
    assert broken.done == ["start", "start"]
    with pytest.raises(UsageError, match="tpu"):
        await router.evaluate(asked("tpu"))
