"""The children of a hosted backend as typed calls: real jails and compilers, and the values of their records."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import closing
from typing import Any

import pytest
import pytest_asyncio

from acceld.devices.cpu.driver import CpuDriver
from acceld.errors import WorkloadError
from acceld.evaluate.case import Failed
from acceld.evaluate.hosted.arena import Layout, Slot, lay_out
from acceld.evaluate.hosted.bench import Artefact, Bench, Draw, Kept, Terms, TimedSession, _counters, _timed
from acceld.evaluate.hosted.driver import job_of
from acceld.evaluate.hosted.referee import FINISHED
from acceld.evaluate.sandbox.jail import Level
from acceld.evaluate.sandbox.ladder import probe_level
from acceld.evaluate.sandbox.process import Outcome, SandboxError
from acceld.evaluate.sandbox.reply import Reply
from acceld.model import Kernel, Status
from acceld.workloads import load_workload
from tests.acceld.evaluate.hosted.test_hosted_evaluator import WORKLOAD

CPU = load_workload(WORKLOAD)
DRAWS = (Draw("own", 1), Draw("own", 2), Draw("own", 1, again=True), Draw("integers", 3))
TERMS = Terms(calls=4, least=4, budget_s=20.0, call_s=10.0)
RIGHT = (WORKLOAD / "kernel.c").read_text()
WRONG = RIGHT.replace("float sum = 0.0f", "float sum = 1.0f")
CRASH = RIGHT.replace("out[i * 192 + j] = sum;", "*(volatile int *)0 = 1;")
ENDLESS = RIGHT.replace("{\n    for", "{\n    for (volatile int go = 1; go;) { }\n    for", 1)


class ClaimingDriver(CpuDriver):
    """A driver whose kernels are timed by a clock of their own, so that the host's cores are free."""

    clock = "claimed"


def dealt(driver: CpuDriver, draws: Sequence[Draw], cores: int, call_bytes: int = 1) -> list[list[int]]:
    bench = Bench(driver, Level.L1, "", build_s=1.0, memory_bytes=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("acceld.evaluate.hosted.bench.CORES", cores)
        return bench._dealt(Layout((Slot("x", 0, (call_bytes,), "uint8"),), (), 0), draws)


def test_calls_are_dealt_to_the_cores_and_a_repeated_one_stays_with_its_first() -> None:
    draws = (*DRAWS, Draw("own", 9))
    assert dealt(ClaimingDriver(), draws, 3) == [[0, 2, 4], [1], [3]]
    assert dealt(ClaimingDriver(), draws, 1) == [[0, 1, 2, 3, 4]] == dealt(CpuDriver(), draws, 8)
    assert dealt(ClaimingDriver(), draws, 64) == [[0, 2], [1], [3], [4]]
    assert len(dealt(ClaimingDriver(), draws, 64, 2 << 30)) == 2, "large inputs do not fill the memory"


class TestRecords:
    """Ends of a child as the bench reads them, without a real child."""

    @pytest.fixture
    def reply(self) -> Iterator[Reply]:
        """Yield an empty reply."""
        with Reply(os.memfd_create("reply")) as made:
            os.write(made.descriptor, b"\xff not a message")
            yield made

    def test_a_child_that_ended_for_want_of_memory_before_its_first_call_is_a_bad_kernel(self, reply: Reply) -> None:
        timed = _timed(Outcome(None, 9, "memory"), reply, b"")
        assert timed.calls == 0 and timed.failed is not None
        assert (timed.failed.status, timed.failed.failure.rule) == (Status.RUNTIME_ERROR, "memory")

    @pytest.mark.parametrize("said", [b"", b"{", b"{}", b'{"wall": 1}'])
    def test_a_referee_without_a_record_is_a_broken_harness(self, reply: Reply, said: bytes) -> None:
        with pytest.raises(SandboxError, match="left no record"):
            _timed(Outcome(1, None, ""), reply, said)

    @pytest.mark.parametrize(
        ("cause", "rule", "status"),
        [
            (FINISHED, "output_dtype", Status.INCORRECT_DTYPE),
            (FINISHED, "output_shape", Status.INCORRECT_SHAPE),
            (FINISHED, "protocol", Status.REJECTED),
            (FINISHED, "guard", Status.RUNTIME_ERROR),
            ("deadline", "", Status.TIMEOUT),
            ("cpu", "", Status.TIMEOUT),
            ("", "", Status.RUNTIME_ERROR),
        ],
    )
    def test_the_end_of_a_child_decides_the_status(self, reply: Reply, cause: str, rule: str, status: Status) -> None:
        record = {"wall_ns": [2000], "processor_ns": [1000], "claimed_us": [None], "unwritten": [0]}
        timed = _timed(Outcome(0, None, cause), reply, json.dumps(record | {"rule": rule, "message": "m"}).encode())
        assert (timed.wall_us, timed.processor_us, timed.calls) == ((2.0,), (1.0,), 1)
        assert timed.failed is not None and timed.failed.status is status

    @pytest.mark.parametrize("cause", ["deadline", "cpu"])
    async def test_a_build_that_takes_too_long_is_a_bad_kernel(
        self, cause: str, reply: Reply, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bench = Bench(CpuDriver(), Level.L3, "", build_s=1.0, memory_bytes=1)

        async def ended(*_: object, **__: object) -> tuple[Outcome, Reply]:
            return Outcome(None, 9, cause), reply

        monkeypatch.setattr(bench._evaluated, "run", ended)
        failed = await bench.build(job_of(Kernel(RIGHT, "c"), CPU.arguments, CPU.outputs, {}))
        assert isinstance(failed, Failed)
        assert (failed.status, failed.failure.rule) == (Status.TIMEOUT, "build_deadline")

    def test_a_child_that_kept_every_rule_did_not_fail(self, reply: Reply) -> None:
        record = {"wall_ns": [], "processor_ns": [], "claimed_us": [], "unwritten": [], "rule": "", "message": ""}
        assert _timed(Outcome(None, 9, FINISHED), reply, json.dumps(record).encode()).failed is None

    @pytest.mark.parametrize(
        ("reported", "kept"),
        [
            ({"registers": 40, "spilled": 1.5}, {"registers": 40.0, "spilled": 1.5}),
            ({"a": True, "b": "9", "c": None, "d": float("nan"), "e": float("inf"), "f": 1}, {"f": 1.0}),
            ({"x" * 100: 1}, {"x" * 60: 1.0}),
            ([1, 2], {}),
            (None, {}),
        ],
    )
    def test_of_a_builders_figures_only_finite_numbers_are_taken(self, reported: Any, kept: dict[str, float]) -> None:
        assert _counters({"counters": reported}) == kept

    def test_a_builder_can_not_fill_a_record(self) -> None:
        assert len(_counters({"counters": {f"n{number}": number for number in range(1000)}})) == 64


one_loop = pytest.mark.asyncio(loop_scope="module")
needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bench() -> AsyncIterator[Bench]:
    """Yield a bench of this machine's processor. Its folder is removed afterwards."""
    report = await probe_level()
    made = Bench(CpuDriver(), report.level, report.cgroup_folder, build_s=20.0, memory_bytes=2 << 30)
    await made.start()
    folder = made._folder
    yield made
    assert folder.is_dir()
    await made.stop()
    assert not folder.exists()


async def built(bench: Bench, text: str, api: str = "c") -> Artefact | Failed:
    kernel = Kernel(text, api, filename="kernel.c" if api == "c" else "kernel.py")
    return await bench.build(job_of(kernel, CPU.arguments, CPU.outputs, CpuDriver().settings(api)))


async def timed(bench: Bench, *texts: str, terms: Terms = TERMS) -> Any:
    """Build and time kernels; return the records, and the comparison of the first kernel's outputs."""
    artefacts = [await built(bench, text) for text in texts]
    assert all(isinstance(one, Artefact) for one in artefacts), artefacts
    layout = lay_out(artefacts[0].job["arguments"], artefacts[0].job["outputs"])  # type: ignore[union-attr]
    with closing(await bench.generate(CPU, layout, DRAWS)) as batches, closing(bench.keep(layout, len(DRAWS))) as kept:
        session = TimedSession(layout, batches, CpuDriver().leases()[0], terms)
        found = await bench.time(artefacts, session, kept)  # type: ignore[arg-type]
        checked = await bench.check(CPU, layout, DRAWS, kept, {}) if found[0].failed is None else []
    return found, checked


@needs_gcc
@one_loop
async def test_the_same_source_builds_the_same_artefact_and_another_another(bench: Bench) -> None:
    first, again, other = [await built(bench, text) for text in (RIGHT, RIGHT, WRONG)]
    assert isinstance(first, Artefact) and isinstance(again, Artefact) and isinstance(other, Artefact)
    assert first.sha256 == again.sha256 != other.sha256 and first.path == again.path != other.path


@needs_gcc
@one_loop
async def test_a_kernel_that_can_not_be_built_is_a_compile_error_at_its_line(bench: Bench) -> None:
    found = await built(bench, RIGHT.replace("float sum = 0.0f;", "float sum = nothing;"))
    assert isinstance(found, Failed) and (found.status, found.failure.line) == (Status.COMPILE_ERROR, 5)


@needs_gcc
@one_loop
async def test_every_call_is_timed_and_its_outputs_are_held_against_the_reference(bench: Bench) -> None:
    (record,), checked = await timed(bench, RIGHT)
    assert record.failed is None and record.calls == len(DRAWS) and min(record.wall_us) > 0
    assert record.unwritten == (0,) * len(DRAWS)
    assert all(one.errors[0].rel_l2 < CPU.tolerance for one in checked)
    assert checked[2].moved[0].rel_l2 == 0.0, "the repeated call has the bits of the first"
    assert checked[3].errors[0].rel_l2 == 0.0, "whole numbers are exact"


@needs_gcc
@one_loop
async def test_a_kernel_frees_each_block_that_it_allocates(bench: Bench) -> None:
    before = RIGHT.replace("{\n    for", "{\n    volatile float *kept = KEPT;\n    kept[0] = a[0];\n    for", 1)
    for kept, freed in (
        ("malloc(8)", "free((void *)kept);"),
        ("realloc(malloc(8), 80000)", "kept = realloc((void *)kept, 4); free((void *)kept); free(NULL);"),
        ("aligned_alloc(64, 640)", "if (realloc((void *)kept, 0)) kept[0] = 0;"),
        ("calloc(8, 8)", "free((void *)kept);"),
    ):
        text = "#include <stdlib.h>\n" + before.replace("KEPT", kept)
        (record,), _ = await timed(bench, text)
        assert record.failed is not None and record.failed.failure.rule == "kept_memory", kept
        assert "without freeing 1 of the blocks" in record.failed.failure.message
        end = text.rstrip().rindex("}")
        (record,), _ = await timed(bench, text[:end] + f"    {freed}\n}}\n")
        assert record.failed is None, kept


@needs_gcc
@one_loop
async def test_of_two_interleaved_kernels_the_first_ones_outputs_are_kept(bench: Bench) -> None:
    records, checked = await timed(bench, RIGHT, WRONG)
    assert [record.calls for record in records] == [len(DRAWS)] * 2 and not any(record.failed for record in records)
    assert all(one.errors[0].rel_l2 < CPU.tolerance for one in checked)
    _, checked = await timed(bench, WRONG, RIGHT)
    assert all(one.errors[0].rel_l2 > CPU.tolerance for one in checked[:3])


@needs_gcc
@pytest.mark.parametrize("bad_place", [0, 1])
@one_loop
async def test_of_two_interleaved_kernels_the_one_that_crashes_is_blamed_alone(bench: Bench, bad_place: int) -> None:
    texts = [RIGHT, RIGHT]
    texts[bad_place] = CRASH
    records, _ = await timed(bench, *texts)
    bad, good = records[bad_place], records[1 - bad_place]
    assert bad.failed is not None and bad.failed.status is Status.RUNTIME_ERROR and bad.calls == 0
    assert good.failed is None and good.calls == len(DRAWS)


@needs_gcc
@one_loop
async def test_a_call_without_end_is_a_timeout(bench: Bench) -> None:
    (record,), _ = await timed(bench, ENDLESS, terms=Terms(calls=4, least=4, budget_s=2.0, call_s=0.5))
    assert record.failed is not None and record.failed.status is Status.TIMEOUT and record.calls == 0


@needs_gcc
@one_loop
async def test_empty_calls_are_timed_without_a_kernel(bench: Bench) -> None:
    artefact = await built(bench, RIGHT)
    assert isinstance(artefact, Artefact)
    layout = lay_out(artefact.job["arguments"], artefact.job["outputs"])
    record = await bench.empty(layout, CpuDriver().leases()[0], 5)
    assert record.failed is None and record.calls == 5


@needs_gcc
@one_loop
async def test_no_descriptor_outlives_its_call(bench: Bench) -> None:
    await timed(bench, RIGHT, WRONG)
    before = set(os.listdir("/proc/self/fd"))
    await timed(bench, RIGHT, WRONG)
    await timed(bench, CRASH, RIGHT)
    assert len(os.listdir("/proc/self/fd")) <= len(before)


@one_loop
async def test_inputs_that_do_not_fit_their_place_are_the_workloads_fault(bench: Bench) -> None:
    job = job_of(Kernel("", "c", filename="kernel.c"), CPU.arguments, CPU.outputs, {})
    job["arguments"][0]["shape"] = [1, 1]
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(WorkloadError, match="the inputs of cpu_matmul have 131072 bytes for a"):
        await bench.generate(CPU, lay_out(job["arguments"], job["outputs"]), DRAWS)
    assert len(os.listdir("/proc/self/fd")) == before, "the memory of the inputs is freed"


def test_kept_memory_is_closed_once() -> None:
    kept = Kept("acceld-test", 4096)
    kept.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(kept.descriptor)
