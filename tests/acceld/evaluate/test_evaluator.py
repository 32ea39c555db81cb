"""Evaluating end to end, in child processes, on the suite's small workloads."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from acceld.cli.reference import write_reference_workload
from acceld.config import EvaluateConfig
from acceld.drafts import DraftArgument
from acceld.errors import DeviceError, WorkloadError
from acceld.evaluate.correctness.errors import Errors
from acceld.evaluate.correctness.gates import Trial
from acceld.evaluate.interface import EvaluationRequest, Evaluator, Priority, started
from acceld.evaluate.sandbox.jail import Jail, Level
from acceld.evaluate.simulated import checking
from acceld.evaluate.simulated.children import Children, Traced, Tried
from acceld.evaluate.simulated.evaluator import SimulatedEvaluator
from acceld.model import Evaluation, Gate, Kernel, Status
from acceld.workloads import ArraySpec, load_workload, workload

WORKLOADS = Path(__file__).parents[2] / "adversarial" / "workloads"
CONFIG = EvaluateConfig(slots=2, build_s=2.0, memory_gib=2.0)


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module")
async def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SimulatedEvaluator]:
    """Yield an evaluator whose state and data sets lie in ``tmp_path``."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    made = SimulatedEvaluator(CONFIG, tmp_path)
    await made.start()
    yield made
    await made.stop(1.0)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SimulatedEvaluator]:
    """Yield an evaluator for tests that look at results alone."""
    folder = tmp_path_factory.mktemp("evaluator")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        made = SimulatedEvaluator(CONFIG, folder)
        await made.start()
        yield made
        await made.stop(1.0)


@pytest.fixture
def evaluator(running: SimulatedEvaluator) -> SimulatedEvaluator:
    """Return that evaluator, which remembers no result of another test."""
    running.forget()
    return running


def request(
    text: str | None = None, name: str = "st_matmul", gate: Gate = Gate.SEARCH, **more: object
) -> EvaluationRequest:
    folder = WORKLOADS / name
    if text is None:
        text = load_workload(folder).baselines["nki_legacy"].read_text(encoding="utf-8")
    trusted = bool(more.pop("trusted", False))
    kernel = Kernel(text, "nki_legacy", trusted=trusted)
    return EvaluationRequest(kernel, "", "trn1", workload_folder=str(folder), gate=gate, **more)  # type: ignore[arg-type]


def baseline(name: str = "st_matmul") -> str:
    return load_workload(WORKLOADS / name).baselines["nki_legacy"].read_text(encoding="utf-8")


async def test_an_honest_kernel_passes_the_strict_gate(evaluator: SimulatedEvaluator) -> None:
    found = await evaluator.evaluate(request(gate=Gate.STRICT))
    assert found.status is Status.PASSED
    assert found.gate is Gate.STRICT
    assert found.correctness is not None
    assert found.correctness.accelopt_passed is True
    names = [check.name for check in found.correctness.checks]
    assert names.count("own") + names.count("own/as timed") == 5 and "own/as timed" in names
    assert {"scaled_up", "scaled_down", "shifted", "integers", "row_scaled", "sparse", "special"} <= set(names)
    assert any(name.startswith("metamorphic/") for name in names)
    assert "own/shuffled" in names
    assert found.latency_us is not None
    assert found.latency_us > 0
    assert found.sandbox_level == evaluator.statistics()["sandbox_level"]
    assert {"trace", "verify", "timeline", "execute", "check"} <= set(found.seconds)


async def test_a_win_does_not_wait_for_a_slow_published_gate_which_a_person_gets(
    evaluator: SimulatedEvaluator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checking, "_PUBLISHED_BELOW_S", 0.0)
    found = await evaluator.evaluate(request(gate=Gate.STRICT))
    assert found.gate is Gate.STRICT and found.correctness and found.correctness.accelopt_passed is None
    evaluator.forget()
    found = await evaluator.evaluate(request(gate=Gate.STRICT, priority=Priority.PERSON))
    assert found.correctness and found.correctness.accelopt_passed is True


async def test_a_kernel_may_have_more_arguments_than_a_process_usually_opens_files(
    evaluator: SimulatedEvaluator, tmp_path: Path
) -> None:
    names = [f"x{number}" for number in range(70)]
    reference = tmp_path / "total.py"
    reference.write_text(f"def forward({', '.join(names)}):\n    return {' + '.join(names)}\n")
    given = [DraftArgument(name, (2, 4), "float32") for name in names]
    write_reference_workload(reference, given, tmp_path / "total", name="total")
    loaded = load_workload(tmp_path / "total")
    text = loaded.baselines["nki_legacy"].read_text(encoding="utf-8")
    kernel = Kernel(text, "nki_legacy", loaded.entry or "")
    found = await evaluator.evaluate(EvaluationRequest(kernel, "", "trn1", workload_folder=str(loaded.folder)))
    assert found.status is Status.PASSED, found.failure


async def test_the_evaluator_keeps_its_protocol(evaluator: SimulatedEvaluator) -> None:
    kept: Evaluator = evaluator
    assert (await kept.evaluate(request(gate=Gate.TIMING))).status is Status.UNTESTED


@pytest.mark.parametrize(
    ("change", "status", "rule"),
    [
        (("def kernel(a, b):", "def kernel(a, b:"), Status.COMPILE_ERROR, "syntax"),
        (("def kernel", "def nothing"), None, None),
        (("import neuronxcc.nki as nki", "import os\nimport neuronxcc.nki as nki"), Status.REJECTED, "import"),
        (("128 * k + c", "64 * k + c"), Status.INCORRECT_NUMERICAL, "tolerance"),
        (("nl.ndarray((256, 512), dtype=nl.float32", "nl.ndarray((256, 512), dtype=nl.bfloat16"), Status.INCORRECT_DTYPE, "output_dtype"),
        (("nl.ndarray((256, 512)", "nl.ndarray((384, 512)"), Status.INCORRECT_SHAPE, "output_shape"),
        (("128 * row + p, 128", "128 * row + p + 9, 128"), Status.COMPILE_ERROR, "out_of_bounds"),
        (("    return out", "    while True:\n        pass"), Status.TIMEOUT, "trace_deadline"),
        (("    return out", "    raise SystemExit(0)"), Status.COMPILE_ERROR, "exception"),
        (("    return out", "    nl.no_such_call(a)\n    return out"), Status.COMPILE_ERROR, "unknown_call"),
    ],
)  # fmt: skip
async def test_a_bad_kernel_is_a_status(
    evaluator: SimulatedEvaluator, change: tuple[str, str], status: Status | None, rule: str
) -> None:
    found = await evaluator.evaluate(request(baseline().replace(*change)))
    if status is None:
        assert found.status is Status.PASSED  # the only jitted function is the kernel, whatever its name
        return
    assert found.status is status, found.failure
    assert found.failure is not None
    assert found.failure.rule == rule
    assert found.failure.message


RESHAPED = """
import neuronxcc.nki as nki
import neuronxcc.nki.language as nl

@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    wide, result = x.reshape((128, 1024)), out.reshape((128, 1024))
    nl.store(result, nl.silu(nl.load(wide)))
    return out
"""


async def test_an_argument_may_be_reshaped_into_other_factors(evaluator: SimulatedEvaluator) -> None:
    found = await evaluator.evaluate(request(RESHAPED, "st_silu"))
    assert found.status is Status.PASSED, found.failure


@pytest.mark.parametrize(
    "ending", ["import os\nos._exit(0)", "import os\nos.abort()", "import ctypes\nctypes.string_at(0)"]
)
async def test_a_kernel_that_ends_its_process_is_a_status(evaluator: SimulatedEvaluator, ending: str) -> None:
    found = await evaluator.evaluate(request(f"{ending}\n{baseline()}", trusted=True))
    assert found.status is Status.COMPILE_ERROR
    assert found.failure is not None
    assert found.failure.rule == "crash"
    assert (await evaluator.evaluate(request())).status is Status.PASSED


async def test_the_same_program_is_not_run_twice(evaluator: SimulatedEvaluator) -> None:
    first = await evaluator.evaluate(request(run=1))
    again = await evaluator.evaluate(request(baseline() + "\n# another comment\n", run=1))
    assert not first.reused
    assert again.reused
    assert again.program_sha256 == first.program_sha256
    assert again.source_sha256 != first.source_sha256
    assert "execute" not in again.seconds


async def test_a_wrong_program_stays_wrong_without_being_run_again(evaluator: SimulatedEvaluator) -> None:
    wrong = baseline().replace("128 * k + c", "64 * k + c")
    first = await evaluator.evaluate(request(wrong))
    again = await evaluator.evaluate(request(wrong + "\n"))
    assert first.status is again.status is Status.INCORRECT_NUMERICAL
    assert again.reused


async def test_a_kernel_that_can_not_enter_the_beam_is_not_run(evaluator: SimulatedEvaluator) -> None:
    found = await evaluator.evaluate(request(useful_below_us=0.5))
    assert found.status is Status.UNTESTED
    assert found.profile is not None
    assert "execute" not in found.seconds


async def test_a_baseline_gets_its_data_set_while_it_is_timed_and_runs_once_it_is_legal(
    fresh: SimulatedEvaluator, tmp_path: Path
) -> None:
    early = await fresh.evaluate(request(priority=Priority.BASELINE, run=3))
    assert early.status is Status.PASSED and {"verify", "execute", "check"} <= set(early.seconds)
    assert len(list((tmp_path / "acceld" / "datasets").iterdir())) == 1
    again = await fresh.evaluate(request(baseline() + "\n", priority=Priority.BASELINE, run=3))
    assert again.reused and again.correctness == early.correctness and again.profile == early.profile
    assert len(list((tmp_path / "acceld" / "datasets").iterdir())) == 1


@pytest.mark.parametrize(
    ("change", "status"),
    [
        (("128 * row + p, 128", "128 * row + p + 9, 128"), Status.COMPILE_ERROR),
        (("nl.ndarray((256, 512)", "nl.ndarray((384, 512)"), Status.INCORRECT_SHAPE),
    ],
)
async def test_a_baseline_that_is_not_legal_leaves_no_data_set_behind(
    fresh: SimulatedEvaluator, tmp_path: Path, change: tuple[str, str], status: Status
) -> None:
    found = await fresh.evaluate(request(baseline().replace(*change), priority=Priority.BASELINE))
    assert found.status is status and "execute" not in found.seconds
    assert not [one for one in (tmp_path / "acceld" / "datasets").iterdir() if one.name.startswith(".")]
    assert (await fresh.evaluate(request(priority=Priority.BASELINE))).status is Status.PASSED


async def test_a_latency_below_physics_is_suspect(evaluator: SimulatedEvaluator, tmp_path: Path) -> None:
    folder = _copy_of(tmp_path, 'hbm_bytes = "(M*K + K*N + M*N)*4"', 'hbm_bytes = "1000000*(M*K + K*N + M*N)*4"')
    asked = EvaluationRequest(Kernel(baseline(), "nki_legacy"), "", "trn1", workload_folder=str(folder))
    found = await evaluator.evaluate(asked)
    assert found.status is Status.SUSPECT
    assert found.failure is not None
    assert found.failure.rule == "below_floor"


async def test_a_run_draws_its_secret_after_the_first_program(fresh: SimulatedEvaluator, tmp_path: Path) -> None:
    await fresh.evaluate(request(gate=Gate.TIMING, run=7))
    assert list((tmp_path / "acceld" / "datasets").iterdir()) == []
    await fresh.evaluate(request(run=7))
    (kept,) = (tmp_path / "acceld" / "datasets").iterdir()
    await fresh.evaluate(request(baseline().replace("512)[None", "512 )[None"), run=7))
    assert list((tmp_path / "acceld" / "datasets").iterdir()) == [kept]
    first = json.loads((kept / "meta.json").read_text())["seed"]
    other = SimulatedEvaluator(CONFIG, tmp_path / "other")
    await other.start()
    try:
        await other.evaluate(request(run=7))
    finally:
        await other.stop(1.0)
    (theirs,) = set((tmp_path / "acceld" / "datasets").iterdir()) - {kept}
    assert json.loads((theirs / "meta.json").read_text())["seed"] != first


async def test_floors_are_measured_once_and_stored(fresh: SimulatedEvaluator, tmp_path: Path) -> None:
    await fresh.evaluate(request())
    (path,) = (tmp_path / "floors").glob("*-numpy.json")
    stored = json.loads(path.read_text())
    assert 1e-9 < stored["own"]["floors"][0][0] < 1e-6
    before = path.stat().st_mtime_ns
    await fresh.evaluate(request(baseline().replace("affine_range", "sequential_range")))
    assert path.stat().st_mtime_ns == before


async def test_a_reference_that_raises_is_an_error_that_names_it(evaluator: SimulatedEvaluator, tmp_path: Path) -> None:
    folder = _copy_of(tmp_path, "", "")
    (folder / "reference.py").write_text("def forward(a, b):\n    raise ValueError('broken on purpose')\n")
    asked = EvaluationRequest(Kernel(baseline(), "nki_legacy"), "", "trn1", workload_folder=str(folder))
    with pytest.raises(WorkloadError, match="broken on purpose"):
        await evaluator.evaluate(asked)
    assert (await evaluator.evaluate(request())).status is Status.PASSED


async def test_a_reference_that_ends_its_process_is_an_error_that_names_it(
    evaluator: SimulatedEvaluator, tmp_path: Path
) -> None:
    folder = _copy_of(tmp_path, "", "")
    (folder / "reference.py").write_text("import os\n\n\ndef forward(a, b):\n    os._exit(0)\n")
    asked = EvaluationRequest(Kernel(baseline(), "nki_legacy"), "", "trn1", workload_folder=str(folder))
    with pytest.raises(WorkloadError, match="did not finish"):
        await evaluator.evaluate(asked)


async def test_anyones_kernel_is_timed_without_a_reference(evaluator: SimulatedEvaluator) -> None:
    arguments = (ArraySpec((256, 256), "float32"), ArraySpec((256, 512), "float32"))
    found = await evaluator.time(Kernel(baseline(), "nki_legacy", trusted=True), arguments, "trn1")
    assert found.status is Status.UNCHECKED
    assert found.latency_us is not None


async def test_a_kernel_is_written_out_only_on_request(evaluator: SimulatedEvaluator) -> None:
    kernel = Kernel(workload("silu").baselines["nki"].read_text(), "nki", trusted=True)
    asked = EvaluationRequest(kernel, "", "trn2", gate=Gate.TIMING, arguments=workload("silu").kernel_arguments())
    plain, written = [await evaluator.evaluate(replace(asked, written_out=one)) for one in (False, True)]
    assert plain.profile is not None and "written_out" not in plain.profile.details
    assert written.profile is not None and "written out from a trace" in written.profile.details["written_out"]
    assert (written.program_sha256, written.latency_us) == (plain.program_sha256, plain.latency_us)


async def test_a_kernel_that_was_timed_before_is_not_traced_again(evaluator: SimulatedEvaluator) -> None:
    first, again = [await evaluator.evaluate(request(gate=Gate.TIMING)) for _ in range(2)]
    assert (first.reused, again.reused) == (False, True)
    assert "trace" in first.seconds and not again.seconds
    assert replace(again, reused=False, seconds=first.seconds) == first
    assert (await evaluator.evaluate(request(gate=Gate.SEARCH))).status is Status.PASSED
    other = await evaluator.evaluate(request(f"{baseline()}\n", gate=Gate.TIMING))
    assert not other.reused
    evaluator.forget()
    assert not (await evaluator.evaluate(request(gate=Gate.TIMING))).reused


async def test_a_front_end_loaded_ahead_times_as_one_loaded_late(evaluator: SimulatedEvaluator, tmp_path: Path) -> None:
    ready = SimulatedEvaluator(CONFIG, tmp_path / "ready", preload=True)
    async with started(ready):
        found = await ready.evaluate(request(gate=Gate.TIMING))
    late = await evaluator.evaluate(request(gate=Gate.TIMING))
    assert replace(found, seconds=late.seconds) == late


async def test_modules_that_come_along_can_be_imported(evaluator: SimulatedEvaluator) -> None:
    text = "from parts.tiles import TILE\n" + baseline().replace("nl.arange(128)[None, :]", "nl.arange(TILE)[None, :]")
    kernel = Kernel(text, "nki_legacy", trusted=True, closure={"parts/tiles.py": "import torch\n\nTILE = 128\n"})
    asked = EvaluationRequest(kernel, "", "trn1", workload_folder=str(WORKLOADS / "st_matmul"))
    assert (await evaluator.evaluate(asked)).status is Status.PASSED


async def test_several_evaluations_share_the_slots(evaluator: SimulatedEvaluator) -> None:
    asked = [request(name=name, priority=Priority.SEARCH) for name in ("st_matmul", "st_silu", "st_softmax")]
    found: list[Evaluation] = await asyncio.gather(*map(evaluator.evaluate, asked))
    assert [one.status for one in found] == [Status.PASSED] * 3
    assert evaluator.statistics()["slots_in_use"] == 0


async def test_stopping_ends_what_runs(tmp_path: Path) -> None:
    evaluator = SimulatedEvaluator(CONFIG, tmp_path)
    await evaluator.start()
    endless = baseline().replace("    return out", "    while True:\n        pass")
    running = asyncio.create_task(evaluator.evaluate(request(endless)))
    await asyncio.sleep(0.3)
    await evaluator.stop(0.0)
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_without_a_sandbox_untrusted_code_is_not_run(tmp_path: Path) -> None:
    evaluator = SimulatedEvaluator(CONFIG, tmp_path, highest=Level.L0)
    await evaluator.start()
    try:
        with pytest.raises(DeviceError, match="untrusted code is not run"):
            await evaluator.evaluate(request())
        assert (await evaluator.evaluate(request(trusted=True))).status is Status.PASSED
    finally:
        await evaluator.stop(1.0)


async def test_a_level_below_the_one_demanded_refuses_to_start(tmp_path: Path) -> None:
    evaluator = SimulatedEvaluator(EvaluateConfig(sandbox="L3"), tmp_path, highest=Level.L1)
    with pytest.raises(DeviceError, match="demands L3"):
        await evaluator.start()


def _copy_of(tmp_path: Path, old: str, new: str) -> Path:
    folder = tmp_path / "copy" / "st_matmul"
    folder.mkdir(parents=True)
    for path in (WORKLOADS / "st_matmul").iterdir():
        if path.is_file():
            text = path.read_text(encoding="utf-8")
            (folder / path.name).write_text(text.replace(old, new) if old else text, encoding="utf-8")
    return folder


class _Lax(SimulatedEvaluator):
    """An evaluator whose policy refuses nothing."""

    def policy(self, kernel: Kernel) -> None:
        return None


async def test_a_candidate_is_the_program_of_its_text_whatever_the_policy_missed(tmp_path: Path) -> None:
    rules = {
        "    for step in range('repeatable' in str(set)):\n        nl.zeros((128, 1), dtype=nl.float32)": "interpreter",
        "    for step in range(len(str({1, 2}))):\n        nl.zeros((128, 1), dtype=nl.float32)": "",
        "    [getattr][0](a, 'scope')": "interpreter",
        "    assert a.shape[0] > 0": "",
    }
    async with started(_Lax(CONFIG, tmp_path)) as evaluator:
        for line, rule in rules.items():
            text = baseline().replace("def kernel(a, b):\n", f"def kernel(a, b):\n{line}\n")
            found = await evaluator.evaluate(request(text, gate=Gate.STRICT))
            known = await evaluator.evaluate(request(text, gate=Gate.STRICT))
            given = await evaluator.evaluate(request(text, gate=Gate.STRICT, trusted=True))
            for one in (found, known):
                assert one.status is (Status.REJECTED if rule else Status.PASSED)
                assert (one.failure.rule if one.failure else "") == rule
            assert given.status is Status.PASSED


async def test_a_candidate_whose_second_trace_gives_another_program_is_rejected(
    evaluator: SimulatedEvaluator, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = Children.trace

    async def changed(self: Children, kernel: Kernel, *rest: Any, guarded: bool = False, **more: Any) -> Any:
        text = (
            kernel.text.replace("):\n", "):\n    nl.zeros((128, 1), dtype=nl.float32)\n", 1) if guarded else kernel.text
        )
        return await trace(self, replace(kernel, text=text), *rest, guarded=guarded, **more)

    monkeypatch.setattr(Children, "trace", changed)
    found = await evaluator.evaluate(request(gate=Gate.STRICT))
    assert found.status is Status.REJECTED
    assert found.failure is not None and found.failure.rule == "another_program"


async def test_the_strict_gate_says_how_a_kernel_of_approximated_functions_would_fare_on_the_chip(
    evaluator: SimulatedEvaluator,
) -> None:
    found = await evaluator.evaluate(request(name="st_softmax", gate=Gate.STRICT))
    assert found.status is Status.PASSED and found.profile is not None and found.correctness is not None
    (note,) = [note for note in found.profile.notes if "functions less exactly" in note]
    assert "it would pass there" in note and "(modelled)" in note
    assert found.correctness.rel_l2 < 2e-6, "the result is of the exact run"
    again = await evaluator.evaluate(request(name="st_softmax", gate=Gate.STRICT))
    assert again.reused and again.profile is not None and note in again.profile.notes
    product = await evaluator.evaluate(request(gate=Gate.STRICT))
    assert product.profile is not None and not [note for note in product.profile.notes if "less exactly" in note]


async def test_the_same_program_runs_on_the_same_data_only_once(
    evaluator: SimulatedEvaluator, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[tuple[str, bool, tuple[Errors, ...]]] = []
    attempt = Children._attempt

    async def noted(self: Children, traced: Traced, folder: str, trial: Trial, jail: Jail, **more: Any) -> Any:
        found = await attempt(self, traced, folder, trial, jail, **more)
        assert isinstance(found, Tried)
        tried.append((trial.name, "execute" in found.seconds, found.errors))
        return found

    monkeypatch.setattr(Children, "_attempt", noted)
    monkeypatch.setattr(checking, "EXPENSIVE_S", 0.0)
    in_order = baseline().replace("affine_range", "sequential_range")
    one = await evaluator.evaluate(request(in_order, run=3, gate=Gate.STRICT))
    runs = {name: (executed, errors) for name, executed, errors in tried}
    assert one.status is Status.PASSED and one.correctness is not None
    assert runs["own"][0] and runs["scaled_up"][0]
    assert runs["own/shuffled"] == (False, runs["own"][1]), "its loops run in one order only"
    assert runs["own/as timed"][0], "the model does not count the instruction that zeroes the sums"
    assert {"own/as timed", "own/shuffled"} <= {check.name for check in one.correctness.checks}
    tried.clear()
    other = await evaluator.evaluate(request(run=3, gate=Gate.STRICT))
    assert other.status is Status.PASSED
    assert ("own/shuffled", True) in [(name, executed) for name, executed, _ in tried], "its loops have an order"
