"""Kernels are evaluated on the stand-in for a Trainium machine as they would be on one, failures included."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from acceld.config import DevicesConfig, EvaluateConfig
from acceld.devices.neuron.evaluator import NeuronEvaluator, Notice
from acceld.devices.neuron.proving import JailName
from acceld.errors import DeviceError
from acceld.evaluate.correctness.admission import Admission, Admissions
from acceld.evaluate.interface import EvaluationRequest
from acceld.evaluate.simulated.evaluator import SimulatedEvaluator
from acceld.model import Gate, Kernel, Source, Status
from acceld.workloads import DISTRIBUTIONS
from tests.acceld.evaluate.test_shapes import listed
from tests.standin_neuron.machine import KERNEL, NARROW, small_silu, stand_in_machine

ONE = EvaluateConfig(slots=1, check_s=5.0)
NARROWEST = KERNEL.replace("512", "8").replace("affine_range(4)", "affine_range(256)")
WRONG = KERNEL.replace("operand0=1.0", "operand0=1.5")


@asynccontextmanager
async def evaluating(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    backend: str = "neuron_legacy",
    compiler: str = "legacy",
    lnc: int = 1,
    scenario: str = "",
    cores: tuple[int, ...] = (),
    holder: dict[str, object] | None = None,
    on_notice: Notice | None = None,
    modes: dict[str, str] | None = None,
    compile_jail: JailName = "auto",
) -> AsyncIterator[NeuronEvaluator]:
    """Yield an evaluator of a stand-in machine; ``holder`` is a process that neuron-ls shows on its first chip."""
    machine = stand_in_machine(tmp_path, scenario=scenario, compiler=compiler, lnc=lnc, modes=modes)
    if holder is not None:
        machine.show_processes(holder)
    monkeypatch.setenv("PATH", str(machine.folder), prepend=":")
    state = tmp_path / "state"
    simulator = SimulatedEvaluator(ONE, state)
    starting: asyncio.Task[None] | None = None

    async def predicts() -> SimulatedEvaluator:
        nonlocal starting
        starting = starting or asyncio.create_task(simulator.start())
        await starting
        return simulator

    devices = DevicesConfig(
        compile_python=machine.compile_python,
        runner_python=machine.runner_python,
        cores=cores,
        compile_jail=compile_jail,
    )
    evaluator = NeuronEvaluator(backend, ONE, devices, state, predicts, on_notice=on_notice)
    try:
        await evaluator.start()
        yield evaluator
    finally:
        await evaluator.stop(0.0)
        if starting is not None:
            await starting
            await simulator.stop(0.0)


Asking = Callable[..., EvaluationRequest]


@pytest.fixture
def asking(tmp_path: Path) -> Asking:
    folder = str(small_silu(tmp_path))

    def ask(text: str, gate: Gate = Gate.SEARCH, **more: object) -> EvaluationRequest:
        kernel = Kernel(text, "nki_legacy")
        wanted = {"chip": "trn1", "backend": "neuron_legacy", "workload_folder": folder, "gate": gate, "run": 1}
        return EvaluationRequest(kernel, "small_silu", **(wanted | more))  # type: ignore[arg-type]

    return ask


async def test_a_kernel_is_compiled_checked_and_timed_against_its_parent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asking: Asking
) -> None:
    async with evaluating(tmp_path, monkeypatch) as evaluator:
        parent = Kernel(NARROW, "nki_legacy")
        found = await evaluator.evaluate(asking(KERNEL, Gate.STRICT, against=(parent,)))
        assert found.status is Status.PASSED
        assert found.gate is Gate.STRICT
        profile, correctness = found.profile, found.correctness
        assert profile is not None
        assert correctness is not None
        assert [check.name for check in correctness.checks].count("own") == 6
        assert correctness.checks[-1].name == "after timing"
        assert profile.source is Source.SIMULATED
        assert profile.method == "stand-in for nrtpy device"
        assert profile.details["simulated_latency_us"] == pytest.approx(profile.latency_us, rel=0.01)
        (pair,) = profile.details["paired"]
        assert pair["against"] == parent.sha256
        assert pair["win"]
        assert pair["interval"][0] <= pair["ratio"] <= pair["interval"][1]
        assert profile.tie_percent is not None and profile.tie_percent >= 2 * pair["resolution_percent"]
        assert await asyncio.to_thread(Path(profile.details["neff"]).is_file)
        monkeypatch.setattr(Admissions, "known", lambda _, loaded: Admission("a constant passes"))
        weak = await evaluator.evaluate(asking(KERNEL, Gate.STRICT))
        assert (weak.status, weak.failure and weak.failure.rule) == (Status.SUSPECT, "admission")
        dropped = await evaluator.evaluate(asking(NARROWEST, against=(Kernel(KERNEL, "nki_legacy"),), screen=True))
        assert dropped.status is Status.UNTESTED
        assert dropped.profile is not None
        assert dropped.profile.latency_us is None
        assert not dropped.profile.details["screen"]["measured"]
        wrong = await evaluator.evaluate(asking(WRONG))
        assert (wrong.status, wrong.failure and wrong.failure.rule) == (Status.INCORRECT_NUMERICAL, "tolerance")
        reported = evaluator.statistics()
        assert reported["compiled"] == 4
        devices = reported["devices"]
        assert isinstance(devices, dict)
        assert 0 < devices["utilization"] < 1
        monitor = reported["monitor"]
        assert isinstance(monitor, dict) and monitor["utilization_percent"] == {0: 42.0}


@pytest.mark.parametrize("gate", [Gate.SEARCH, pytest.param(Gate.STRICT, marks=pytest.mark.slow)])
async def test_a_kernel_for_several_shapes_is_compiled_checked_and_predicted_at_each(
    gate: Gate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = listed(tmp_path / "listed", "weight = 3.0\n[[shapes]]\nvalues = { M = 512 }\n")
    text = (folder / "kernel_legacy.py").read_text("utf-8")
    narrow = text.replace("128 * row + p", "64 * row + p").replace("rows // 128", "rows // 64").replace("(128)", "(64)")

    def asked(text: str, gate: Gate = Gate.SEARCH, **more: object) -> EvaluationRequest:
        kernel = Kernel(text, "nki_legacy")
        wanted = {"backend": "neuron_legacy", "workload_folder": str(folder), "gate": gate, "run": 1}
        return EvaluationRequest(kernel, "", "trn1", **(wanted | more))  # type: ignore[arg-type]

    async with evaluating(tmp_path, monkeypatch) as evaluator:
        against = (Kernel(narrow, "nki_legacy"),) if gate is Gate.STRICT else ()
        found = await evaluator.evaluate(asked(text, gate, against=against))
        assert found.status is Status.PASSED, found.failure
        assert found.profile is not None and found.correctness is not None
        own, other = (one["latency_us"] for one in found.profile.details["shapes"])
        assert found.latency_us == pytest.approx((own**3 * other) ** 0.25)
        assert found.profile.details["simulated_latency_us"] == pytest.approx(own, rel=0.02), "of its own shape alone"
        wrong = await evaluator.evaluate(asked(text.replace("rows // 128", "2")))
        assert wrong.status is not Status.PASSED and wrong.failure is not None
        assert "at the shape M=512" in wrong.failure.message
        if gate is Gate.SEARCH:
            return
        (pair,) = found.profile.details["paired"]
        assert pair["against"] == Kernel(narrow, "nki_legacy").sha256
        names = [check.name for check in found.correctness.checks]
        elsewhere = [name for name in names if "hidden" in name]
        assert {"M=256: hidden shape M=384", "M=256: hidden shape M=128, N=1024/scaled_up"} <= set(elsewhere)
        assert len(elsewhere) == 2 * len(DISTRIBUTIONS)
        fixed = await evaluator.evaluate(
            asked(text.replace("width = x.shape", "_ = x.shape\n    width = 512"), Gate.STRICT)
        )
        assert fixed.status is not Status.PASSED and fixed.failure is not None
        assert "at the hidden shape M=128, N=1024" in fixed.failure.message


NEVER_WRITTEN = """        never = nl.ndarray((nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
        x_tile = nl.add(x_tile, nisa.tensor_scalar(data=never, op0=nl.less, operand0=-1.0))
"""


async def test_what_a_chip_does_not_show_is_refused_by_the_rule_of_the_simulator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asking: Asking
) -> None:
    compute, store = "        decay =", "        nl.store(out"
    never = KERNEL.replace(compute, NEVER_WRITTEN + compute)
    written = "        nl.store(x[p, 512 * tile + f], value=nl.multiply(x_tile, 0.0))\n"
    async with evaluating(tmp_path, monkeypatch) as evaluator:
        assert (await evaluator.evaluate(asking(never))).status is Status.PASSED, "the device computes what is wanted"
        found = await evaluator.evaluate(asking(never, Gate.STRICT))
        assert found.failure is not None
        assert (found.failure.rule, found.failure.line) == ("undefined_read", 14)
        assert found.correctness is not None and found.correctness.checks, "its own checks passed before"
        changed = await evaluator.evaluate(asking(KERNEL.replace(store, written + store)))
        assert changed.status is Status.REJECTED and changed.failure is not None
        assert (changed.failure.rule, changed.failure.line) == ("input_written", 17)


@pytest.mark.slow
async def test_each_way_a_kernel_fails_is_a_result_and_the_machine_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asking: Asking
) -> None:
    expected = {
        "kernel_oob": (Status.RUNTIME_ERROR, "out_of_bounds"),
        "kernel_nan": (Status.INCORRECT_NUMERICAL, "not_finite"),
        "kernel_crash": (Status.RUNTIME_ERROR, "device_lost"),
        "kernel_lost_events": (Status.RUNTIME_ERROR, "no_proof"),
        "kernel_hang": (Status.TIMEOUT, "deadline"),
    }
    async with evaluating(tmp_path, monkeypatch) as evaluator:
        for name, result in expected.items():
            found = await evaluator.evaluate(asking(KERNEL.replace("def kernel(", f"def {name}(")))
            assert (found.status, found.failure and found.failure.rule) == result, name
        too_wide = KERNEL.replace("nl.arange(128)[:, None]", "nl.arange(256)[:, None]")
        found = await evaluator.evaluate(asking(too_wide))
        assert found.status is Status.COMPILE_ERROR
        assert found.failure is not None
        assert found.failure.line
        assert (await evaluator.evaluate(asking(KERNEL))).status is Status.PASSED


@pytest.mark.slow
async def test_a_candidate_that_touches_the_machine_is_refused_or_finds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asking: Asking
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("key")
    async with evaluating(tmp_path, monkeypatch) as evaluator:
        found = await evaluator.evaluate(asking("import socket\n" + KERNEL))
        assert found.status is Status.REJECTED
        trusted = Kernel(f"STOLEN = open({str(secret)!r}).read()\n" + KERNEL, "nki_legacy", trusted=True)
        request = asking(KERNEL)
        found = await evaluator.evaluate(
            EvaluationRequest(trusted, "small_silu", "trn1", "neuron_legacy", workload_folder=request.workload_folder)
        )
        assert found.status is Status.COMPILE_ERROR
        assert found.failure is not None
        assert "secret" in found.failure.message


async def test_a_machine_without_toolchain_or_cores_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nobody() -> SimulatedEvaluator:
        raise AssertionError

    with pytest.raises(DeviceError, match="no interpreter with neuronx-cc"):
        await NeuronEvaluator("neuron_legacy", ONE, DevicesConfig(), tmp_path, nobody).start()
    with pytest.raises(DeviceError, match="neuron-ls"):
        machine = stand_in_machine(tmp_path)
        devices = DevicesConfig(compile_python=machine.compile_python, runner_python=machine.runner_python)
        await NeuronEvaluator("neuron_legacy", ONE, devices, tmp_path, nobody).start()


@pytest.mark.slow
async def test_a_profiler_that_proves_nothing_is_no_kernels_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asking: Asking
) -> None:
    with pytest.raises(DeviceError, match="the device may not have run"):
        async with evaluating(tmp_path, monkeypatch, scenario="lost events") as evaluator:
            await evaluator.evaluate(asking(KERNEL))


@pytest.mark.slow
async def test_a_machine_whose_cores_add_wrongly_is_not_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(DeviceError, match="did not add"):
        async with evaluating(tmp_path, monkeypatch, scenario="oob"):
            pass
    assert not [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
