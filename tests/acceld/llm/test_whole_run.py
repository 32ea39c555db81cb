"""A whole run on the host's processor with a model behind an OpenAI-compatible endpoint: roles, ledger, jail, referee.

With ``make test-llm`` and ACCELD_TEST_BASE_URL the endpoint is a real one (ACCELD_TEST_MODEL names the model there); without,
a scripted server on loopback answers as a good model would.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from acceld.cli.reference import write_reference_workload
from acceld.config import Config, LlmConfig, ModelConfig, RoleConfig
from acceld.daemon.build import SearchBuilder
from acceld.drafts import DraftArgument
from acceld.home import Home
from acceld.model import Run, RunSpec, RunState, SearchParameters, Status
from acceld.search.control import RunControl
from acceld.search.replay import differences, recording
from acceld.store.changes.runs import create_run
from acceld.store.database import Store
from acceld.store.reads.records import load_candidate, load_candidates, load_run
from tests.acceld.llm.server import Reply, ScriptedServer

BASE_URL = os.environ.get("ACCELD_TEST_BASE_URL", "")

FASTER = "import numpy as np\n\n\ndef kernel(a, b):\n    return np.matmul(a, b)\n"
WRONG = "import numpy as np\n\n\ndef kernel(a, b):\n    return np.matmul(a, b) + 1\n"


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    opened = await asyncio.to_thread(Store.open, tmp_path / "acceld.db")
    yield opened
    await opened.close()


async def whole_run(store: Store, base_url: str, model: str, **search: Any) -> Run:
    """Return a search on ``matmul_cpu`` in numpy, with the daemon's own parts."""
    served = ModelConfig(
        base_url=base_url,
        name=model,
        concurrency=1,
        context_tokens=8192,
        input_usd_per_mtok=0.0,
        output_usd_per_mtok=0.0,
    )
    llm = LlmConfig(
        planner=RoleConfig(("served",), 150, 0.7),
        executor=RoleConfig(("served",), 500, 0.7),
        first_token_s=900.0,
        total_s=1200.0,
    )
    config = Config(models={"served": served}, llm=llm)
    parts = await SearchBuilder(config, Home(store.path.parent), store, {}).parts()
    await parts.evaluator.start()
    try:
        sizes = {"beam_width": 1, "plans": 2, "attempts": 1, "iterations": 2, "fixer_steps": 1, "patience": 0}
        spec = RunSpec("matmul_cpu", "host", "numpy", "cpu", "llm", search=SearchParameters(**(sizes | search)))
        await parts.check(spec)
        run = await store.change(create_run, spec)
        search_of_it = await parts.make_search(run, RunControl())
        await search_of_it.run()
        return await store.read(load_run, run.id)
    finally:
        await parts.evaluator.stop(5.0)
        await parts.close()


async def check_rows(store: Store, run: Run) -> list[Status]:
    """Check what holds for any answers of the model; return the candidates' statuses."""
    assert run.state is RunState.FINISHED, run.message
    calls = await store.read(
        lambda connection: connection.execute("SELECT outcome, output_tokens FROM llm_calls").fetchall()
    )
    assert calls and all(row["outcome"] in ("answered", "empty", "context_too_long") for row in calls)
    assert any(row["output_tokens"] for row in calls)
    assert (await store.read(lambda connection: differences(recording(connection, run.id))))[0] == []
    best = await store.read(load_candidate, run.best or 0)
    assert best.evaluation is not None and best.evaluation.status is Status.PASSED
    return [c.evaluation.status for c in await store.read(load_candidates, run.id) if c.evaluation]


@pytest.mark.slow
async def test_a_scripted_server_drives_a_run_to_the_known_best(store: Store) -> None:
    def answer(body: dict[str, Any]) -> Reply:
        user = body["messages"][-1]["content"]
        if "You are the planner" in user:
            return Reply("Title: One product\nClass: fusion\nInsights: none\n\nUse one matrix product.")
        if "Its result: " in user:
            return Reply(f"```python\n{FASTER}```")
        return Reply(f"```python\n{WRONG}```")

    async with ScriptedServer(answer=answer) as server:
        run = await whole_run(store, server.base_url, "scripted")
    statuses = await check_rows(store, run)
    assert Status.INCORRECT_NUMERICAL in statuses, "the wrong kernels were evaluated before they were repaired"
    best = await store.read(load_candidate, run.best or 0)
    assert best.kernel.text == FASTER and best.order[3] == 1


@pytest.mark.llm
@pytest.mark.timeout(3600)
@pytest.mark.skipif(not BASE_URL, reason="ACCELD_TEST_BASE_URL is not set")
async def test_a_real_model_drives_a_whole_run(store: Store) -> None:
    """A small model may make nothing faster; the run is sound either way, and -s says what came of it."""
    run = await whole_run(store, BASE_URL, os.environ.get("ACCELD_TEST_MODEL", "default"))
    statuses = await check_rows(store, run)
    candidates = await store.read(load_candidates, run.id)
    baseline, best = candidates[0], await store.read(load_candidate, run.best or 0)
    assert baseline.evaluation is not None and best.evaluation is not None
    before, after = baseline.evaluation.latency_us or 0.0, best.evaluation.latency_us or 1.0
    reported = ", ".join(f"{statuses.count(status)} {status}" for status in dict.fromkeys(statuses))
    print(f"{len(statuses) - 1} candidates ({reported}); {before:.0f} us to {after:.0f} us: {before / after:.2f}x")  # noqa: T201


NKI = """import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((128, 4096), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange({partitions})[:, None]
    f = nl.arange({width})[None, :]
    for tile in nl.affine_range(4096 // {width}):
        t = nl.load(x[p, {width} * tile + f])
        nl.store(out[p, {width} * tile + f], value=nl.add(t, t))
    return out
"""


@pytest.mark.slow
async def test_a_first_kernel_is_written_from_a_reference_and_made_faster_in_batches(
    store: Store, tmp_path: Path
) -> None:
    """Through the executor's batch mode, evaluated by the simulator, on a workload that has no kernel at all."""
    reference = tmp_path / "twice.py"
    reference.write_text("def forward(x):\n    return x + x\n", encoding="utf-8")
    folder, given = tmp_path / reference.stem, [DraftArgument("x", (128, 4096), "float32")]
    await asyncio.to_thread(write_reference_workload, reference, given, folder, name=reference.stem)

    def answer(body: dict[str, Any]) -> Reply:
        user = body["messages"][-1]["content"]
        if "You are the planner" in user:
            return Reply("Title: Wider rows\nClass: tile_width\nInsights: none\n\nLoad more columns at a time.")
        if "you write the first one" in user:
            partitions = 128 if "partition_limit" in user else 256
            return Reply(f"```python\n{NKI.format(partitions=partitions, width=32)}```")
        return Reply(f"```python\n{NKI.format(partitions=128, width=2048)}```")

    async with ScriptedServer(answer=answer) as server:
        served = ModelConfig(base_url=server.base_url, name="m", input_usd_per_mtok=1.0, output_usd_per_mtok=1.0)
        llm = LlmConfig(
            planner=RoleConfig(("served",), 200),
            executor=RoleConfig(("served",), 800, batch=True),
            batch_quiet_s=0.05,
            batch_poll_s=0.02,
        )
        config = Config(models={"served": served}, llm=llm)
        parts = await SearchBuilder(config, Home(tmp_path), store, {}).parts()
        await parts.evaluator.start()
        try:
            sizes = {"beam_width": 1, "plans": 1, "attempts": 1, "iterations": 1, "fixer_steps": 1}
            search = SearchParameters(**sizes, from_reference=True)  # type: ignore[arg-type]  # by name
            spec = RunSpec("twice", proposer="llm", search=search, workload_folder=str(folder))
            await parts.check(spec)
            run = await store.change(create_run, spec)
            await (await parts.make_search(run, RunControl())).run()
        finally:
            await parts.evaluator.stop(5.0)
            await parts.close()
        roles = [request.body["messages"][0]["content"][:20] for request in server.seen]
        assert len(roles) == 1, "only the planner is asked call by call"
        assert len(server.shelf.bought) == 3 and len(server.shelf.batches) == 3
    run = await store.read(load_run, run.id)
    statuses = await check_rows(store, run)
    assert statuses == [Status.COMPILE_ERROR, Status.PASSED, Status.PASSED]
    best, baseline = (
        await store.read(load_candidate, run.best or 0),
        await store.read(load_candidate, run.baseline or 0),
    )
    assert "2048" in best.kernel.text and best.parent == baseline.id
    assert baseline.evaluation is not None and best.evaluation is not None
    assert (baseline.evaluation.latency_us or 0) > 1.3 * (best.evaluation.latency_us or 1)
