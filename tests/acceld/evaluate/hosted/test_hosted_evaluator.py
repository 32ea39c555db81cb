"""Evaluations of kernels on the host's processor: real jails, real compilers, real clocks."""

from __future__ import annotations

import math
import shutil
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from acceld.config import EvaluateConfig
from acceld.devices.cpu.driver import CpuDriver
from acceld.errors import DeviceError, UsageError
from acceld.evaluate.baselines import baseline_kernel
from acceld.evaluate.comparison import SESSIONS
from acceld.evaluate.correctness.admission import Admission, Admissions
from acceld.evaluate.hosted.bench import Terms
from acceld.evaluate.hosted.evaluator import HostedEvaluator
from acceld.evaluate.hosted.profiles import RESOLUTION, Overhead
from acceld.evaluate.interface import EvaluationRequest
from acceld.evaluate.selftest.attacks import load_attacks
from acceld.model import Evaluation, Gate, Kernel, Source, Status
from acceld.roofline import Peaks
from acceld.workloads import load_workload

ADVERSARIAL = Path(__file__).parents[3] / "adversarial"
WORKLOAD = ADVERSARIAL / "workloads" / "cpu_matmul"
ATTACKS = {attack.id: attack for attack in load_attacks(ADVERSARIAL / "cpu")[0]}
QUICK = (
    "C01_cache_by_pointer C08_early_answer N13_mutate_input N17_overrun S02_alarm H01_row_order R01_frame_walk".split()
)
pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc"),
]


class _Unmeasured(CpuDriver):
    """The driver without the measurement of this machine, which takes seconds."""

    def learn(self, folder: Path, *, again: bool = False) -> None:
        """Do nothing."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def evaluator(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[HostedEvaluator]:
    """Yield a running evaluator of host kernels."""
    config = replace(EvaluateConfig(), build_s=10, check_s=2, time_s=20, memory_gib=2)
    made = HostedEvaluator(config, tmp_path_factory.mktemp("state"), _Unmeasured())
    await made.start()
    yield made
    await made.stop(1)


async def _evaluated(
    evaluator: HostedEvaluator, text: str, api: str, *, gate: Gate = Gate.SEARCH, trusted: bool = False
) -> Evaluation:
    """Evaluate a kernel; repeat that if the clocks of a busy machine could not distinguish it from an empty call, as
    the hint asks.
    """
    kernel = Kernel(text, api, filename="kernel.c" if api == "c" else "kernel.py", trusted=trusted)
    request = EvaluationRequest(kernel, "", "host", backend="cpu", workload_folder=str(WORKLOAD), gate=gate)
    while True:
        found = await evaluator.evaluate(request)
        if found.failure is None or found.failure.rule != RESOLUTION:
            return found


async def _once(evaluator: HostedEvaluator, text: str) -> Evaluation:
    """Evaluate a numpy kernel once."""
    kernel = Kernel(text, "numpy", filename="kernel.py")
    return await evaluator.evaluate(EvaluationRequest(kernel, "", "host", backend="cpu", workload_folder=str(WORKLOAD)))


async def test_the_baseline_passes_every_distribution_with_a_measured_latency(evaluator: HostedEvaluator) -> None:
    loaded = load_workload(WORKLOAD)
    text = baseline_kernel(loaded, "c").text
    found = await _evaluated(evaluator, text, "c", gate=Gate.STRICT, trusted=True)
    assert found.status is Status.PASSED, found.failure
    assert found.profile is not None and found.correctness is not None
    assert found.profile.source is Source.MEASURED
    assert found.profile.latency_us is not None and found.profile.latency_us > 2 * found.profile.resolution_us > 0
    assert found.profile.samples_us and found.profile.interval_percent is not None
    names = {check.name.split(" ")[0] for check in found.correctness.checks}
    assert {"own", "integers", "special", "metamorphic/0-permute", "repeated"} <= names
    assert found.correctness.accelopt_passed is True
    admitted = evaluator._admissions.known(loaded)
    assert admitted is not None and "every input matters in 4 parts each" in admitted.text


async def test_a_win_on_a_workload_that_tells_nothing_is_suspect(
    evaluator: HostedEvaluator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Admissions, "known", lambda _, loaded: Admission("outputs do not react to argument 'b'"))
    found = await _evaluated(evaluator, ATTACKS["H01_row_order"].kernel.text, "c", gate=Gate.STRICT)
    evaluator.forget()  # other tests evaluate this kernel on the workload as it is
    assert found.status is Status.SUSPECT and found.failure is not None
    assert (
        found.failure.rule == "admission"
        and "cpu_matmul: outputs do not react to argument 'b'" in found.failure.message
    )


HOSTED = "acceld.evaluate.hosted.evaluator."
SHORT = Terms(calls=3, least=3, budget_s=0.1, call_s=10.0)


RIGHT = ATTACKS["H01_row_order"].kernel.text.rstrip().removesuffix("}")
"""A right kernel with room for one more statement."""
REFEREED = {
    "((float *)a)[7] += 1.0f;": (Status.RUNTIME_ERROR, "input_changed"),
    "((float *)b)[256 * 192 - 1] = -((float *)b)[256 * 192 - 1];": (Status.RUNTIME_ERROR, "input_changed"),
    "out[128 * 192] = 1.0f;": (Status.RUNTIME_ERROR, "out_of_bounds"),
    "out[-1] = 1.0f;": (Status.RUNTIME_ERROR, "out_of_bounds"),
    "for (;;) {}": (Status.TIMEOUT, "deadline"),
}


@pytest.mark.parametrize("statement", REFEREED)
async def test_right_outputs_do_not_excuse_what_the_referee_forbids(evaluator: HostedEvaluator, statement: str) -> None:
    assert (await _evaluated(evaluator, RIGHT + "}", "c")).status is Status.PASSED
    found = await _evaluated(evaluator, f"{RIGHT}{statement}\n}}", "c")
    assert (found.status, found.failure and found.failure.rule) == REFEREED[statement]


async def test_elements_that_are_never_written_are_named_as_such(evaluator: HostedEvaluator) -> None:
    found = await _evaluated(evaluator, ATTACKS["H01_row_order"].kernel.text.replace("i < 128", "i < 127"), "c")
    assert found.status is Status.INCORRECT_NUMERICAL and found.failure is not None
    assert found.failure.rule == "unwritten" and "192 elements" in found.failure.message


async def test_a_strict_gate_goes_by_parts_where_inputs_are_large(tmp_path: Path) -> None:
    loaded = load_workload(WORKLOAD)
    shapes = [*(one.shape for one in loaded.arguments), *(one.shape for one in loaded.outputs)]
    call_bytes = 4 * sum(math.prod(shape) for shape in shapes)
    driver = _Unmeasured()
    driver.batch_bytes = 4 * call_bytes
    made = HostedEvaluator(replace(EvaluateConfig(), build_s=10, check_s=2, time_s=20, memory_gib=2), tmp_path, driver)
    await made.start()
    try:
        found = await _evaluated(made, baseline_kernel(loaded, "c").text, "c", gate=Gate.STRICT, trusted=True)
        assert found.status is Status.PASSED, found.failure
        assert found.correctness is not None and found.correctness.accelopt_passed is True
        names = [check.name.split(" ")[0] for check in found.correctness.checks]
        assert {"own", "integers", "special", "metamorphic/0-permute", "repeated"} <= set(names)
        driver.batch_bytes = 2 * call_bytes
        with pytest.raises(UsageError, match="too much to time it"):
            await _evaluated(made, baseline_kernel(loaded, "c").text, "c", gate=Gate.STRICT, trusted=True)
    finally:
        await made.stop(1)


async def test_a_faster_kernel_is_timed_interleaved_with_the_baseline(evaluator: HostedEvaluator) -> None:
    text = ATTACKS["H01_row_order"].kernel.text
    found = await _evaluated(evaluator, text, "c", gate=Gate.STRICT)
    assert found.status is Status.PASSED and found.profile is not None, found.failure
    (pair,) = found.profile.details["paired"]
    assert pair["win"] and pair["ratio"] > 2
    assert pair["sessions"] == SESSIONS and pair["rounds"] > SESSIONS
    assert pair["against"] == baseline_kernel(load_workload(WORKLOAD), "c").sha256


async def test_the_search_gate_measures_one_session_which_is_no_win(evaluator: HostedEvaluator) -> None:
    found = await _evaluated(evaluator, ATTACKS["H01_row_order"].kernel.text + "/* once */", "c")
    assert found.status is Status.PASSED and found.profile is not None, found.failure
    (pair,) = found.profile.details["paired"]
    assert pair["sessions"] == 1 and pair["ratio"] > 2 and not pair["win"]


async def test_a_request_that_names_another_kernel_is_compared_with_that_one(evaluator: HostedEvaluator) -> None:
    fast, base = (
        Kernel(ATTACKS["H01_row_order"].kernel.text, "c", filename="kernel.c"),
        baseline_kernel(load_workload(WORKLOAD), "c"),
    )

    def asking(kernel: Kernel, other: Kernel) -> EvaluationRequest:
        return EvaluationRequest(kernel, "", "host", backend="cpu", workload_folder=str(WORKLOAD), against=(other,))

    first = await evaluator.evaluate(asking(fast, base))
    assert first.profile is not None and first.profile.details["paired"][0]["win"]
    again = await evaluator.evaluate(asking(fast, replace(base, text=base.text + "/* the same */")))
    assert not again.reused and again.profile is not None
    (pair,) = again.profile.details["paired"]
    assert pair["against"] != base.sha256 and pair["win"]
    assert (await evaluator.evaluate(asking(fast, replace(base, text=base.text + "/* the same */")))).reused
    lost = await evaluator.evaluate(asking(base, fast))
    assert lost.profile is not None
    (pair,) = lost.profile.details["paired"]
    assert pair["ratio"] < 0.5 and not pair["win"]


async def test_a_compile_error_names_the_kernels_own_line(evaluator: HostedEvaluator) -> None:
    text = "void kernel(const float *a, const float *b, float *out)\n{\n    out[0] = c[0];\n}\n"
    found = await _evaluated(evaluator, text, "c")
    assert found.status is Status.COMPILE_ERROR and found.failure is not None
    assert found.failure.line == 3 and "'c' undeclared" in found.failure.message


async def test_the_message_for_another_signature_names_the_right_one(evaluator: HostedEvaluator) -> None:
    found = await _evaluated(evaluator, "void kernel(float *a, float *out)\n{\n    out[0] = a[0];\n}\n", "c")
    assert found.status is Status.COMPILE_ERROR and found.failure is not None
    assert "void kernel(const float *a, const float *b, float *out);" in found.failure.hint


async def test_a_kernel_without_its_function_is_a_compile_error(evaluator: HostedEvaluator) -> None:
    found = await _evaluated(evaluator, "int helper(int x) { return x; }\n", "c")
    assert found.status is Status.COMPILE_ERROR and found.failure is not None
    assert found.failure.rule == "link"


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("def kernel(a, b):\n    return (a @ b).astype('float64')\n", Status.INCORRECT_DTYPE),
        ("def kernel(a, b):\n    return a[:3] @ b\n", Status.INCORRECT_SHAPE),
        ("def kernel(a, b):\n    return a @ b, a\n", Status.INCORRECT_SHAPE),
        ("def kernel(a, b):\n    raise ValueError('no')\n", Status.RUNTIME_ERROR),
        ("def other(a, b):\n    return a @ b\n", Status.COMPILE_ERROR),
        ("def kernel(a, b)\n    return a @ b\n", Status.COMPILE_ERROR),
        ("def kernel(a, b):\n    return a @ b\n", Status.PASSED),
    ],
)
async def test_numpy_kernels_end_in_the_status_that_says_what_is_wrong(
    evaluator: HostedEvaluator, text: str, status: Status
) -> None:
    assert (await _evaluated(evaluator, text, "numpy")).status is status


async def test_a_failing_numpy_kernel_names_its_line(evaluator: HostedEvaluator) -> None:
    found = await _evaluated(evaluator, "def kernel(a, b):\n    x = a\n    return x.nothing\n", "numpy")
    assert found.failure is not None and found.failure.line == 3


async def test_a_result_of_a_busy_machine_s_clock_is_not_remembered(
    evaluator: HostedEvaluator, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = Kernel("def kernel(a, b):\n    c = a @ b\n    return c\n", "numpy", filename="kernel.py")
    request = EvaluationRequest(kernel, "", "host", backend="cpu", workload_folder=str(WORKLOAD))
    with monkeypatch.context() as busy:
        busy.setattr(Overhead, "resolution_us", property(lambda _: 1e9))
        busy.setattr(HOSTED + "_TIMINGS", 2)
        busy.setattr(HOSTED + "SEARCH_TERMS", SHORT)
        found = await evaluator.evaluate(request)
    assert found.status is Status.SUSPECT and found.failure is not None and found.failure.rule == RESOLUTION
    again = await _evaluated(evaluator, kernel.text, "numpy")
    assert again.status is Status.PASSED and not again.reused


async def test_other_work_on_the_machine_makes_no_kernel_suspect(
    evaluator: HostedEvaluator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """First the clock of the empty call is slowed down, then the rates were measured beside other work."""
    slow, idle = (Peaks(rate, {"float32": rate}, math.inf, "") for rate in (1e3, 1e15))
    learned: list[bool] = []
    monkeypatch.setattr(Overhead, "resolution_us", property(lambda _: 0.0 if learned else 1e9))
    monkeypatch.setattr(CpuDriver, "limits", lambda driver, chip: slow if len(learned) < 2 else idle)
    monkeypatch.setattr(_Unmeasured, "learn", lambda driver, folder, *, again=False: learned.append(again))
    monkeypatch.setattr(HOSTED + "SEARCH_TERMS", SHORT)
    found = await _once(evaluator, "def kernel(a, b):\n    d = a @ b\n    return d\n")
    assert found.status is Status.PASSED, found.failure
    assert len(learned) >= 2 and all(learned)
    assert found.correctness is not None and len(found.correctness.checks) == 1


async def test_a_kernel_faster_than_the_machine_stays_suspect(
    evaluator: HostedEvaluator, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Peaks(1e3, {"float32": 1e3}, math.inf, "a machine that needs hours")
    monkeypatch.setattr(Overhead, "resolution_us", property(lambda _: 0.0))
    monkeypatch.setattr(CpuDriver, "limits", lambda driver, chip: slow)
    monkeypatch.setattr(HOSTED + "_TIMINGS", 2)
    monkeypatch.setattr(HOSTED + "SEARCH_TERMS", SHORT)
    found = await _once(evaluator, "def kernel(a, b):\n    e = a @ b\n    return e\n")
    assert (found.status, found.failure and found.failure.rule) == (Status.SUSPECT, "below_floor")


async def test_the_same_artefact_is_not_measured_twice(evaluator: HostedEvaluator) -> None:
    text = "def kernel(a, b):\n    return b.T.dot(a.T).T.copy()\n"
    assert not (await _evaluated(evaluator, text, "numpy")).reused
    assert (await _evaluated(evaluator, text, "numpy")).reused


async def test_without_a_compiler_c_is_refused_and_says_what_to_install(
    evaluator: HostedEvaluator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(evaluator._driver.__dict__, "compiler", None)
    with pytest.raises(DeviceError, match="no C compiler") as caught:
        await _evaluated(evaluator, "", "c", trusted=True)
    assert "--api numpy" in caught.value.hint


@pytest.mark.parametrize("name", QUICK)
async def test_no_attack_passes(evaluator: HostedEvaluator, name: str) -> None:
    await _try(evaluator, name)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(ATTACKS.keys() - set(QUICK)))
async def test_no_other_attack_passes(evaluator: HostedEvaluator, name: str) -> None:
    await _try(evaluator, name)


async def _in_time(
    evaluator: HostedEvaluator, text: str, api: str, *, trusted: bool, expected: tuple[str, ...]
) -> Evaluation:
    """Judge a kernel, and again up to twice if a busy machine ended it at its deadline, which no rule expects."""
    for _ in range(2):
        found = await _judged(evaluator, text, api, trusted=trusted)
        if found.status is not Status.TIMEOUT or "timeout.deadline" in expected:
            return found
    return await _judged(evaluator, text, api, trusted=trusted)


async def _judged(evaluator: HostedEvaluator, text: str, api: str, *, trusted: bool = False) -> Evaluation:
    """Evaluate a kernel as a search does: what passes the search gate has to pass the strict one."""
    found = await _evaluated(evaluator, text, api, trusted=trusted)
    if found.status is not Status.PASSED:
        return found
    return await _evaluated(evaluator, text, api, gate=Gate.STRICT, trusted=trusted)


async def _try(evaluator: HostedEvaluator, name: str) -> None:
    """Try an attack as a candidate, and again with the policy off, to test the protections behind the policy."""
    attack = ATTACKS[name]
    text, api = attack.kernel.text, attack.kernel.api
    as_candidate = await _in_time(evaluator, text, api, trusted=False, expected=attack.caught_by)
    if attack.honest:
        assert as_candidate.status is Status.PASSED, as_candidate.failure
        return
    unpoliced = await _in_time(evaluator, text, api, trusted=True, expected=attack.unpoliced)
    for found, named in ((as_candidate, attack.caught_by), (unpoliced, attack.unpoliced)):
        if found.failure is not None:
            assert f"{found.status.value}.{found.failure.rule}" in named, found.failure
        else:
            assert attack.expect == "truthful" or (attack.expect == "policy" and found is unpoliced)
    if unpoliced.status is Status.PASSED and attack.at_least:
        profile = unpoliced.profile
        assert profile is not None
        assert all(pair["ratio"] < 1 / attack.at_least for pair in profile.details["paired"]), (
            "faster than what it does"
        )
