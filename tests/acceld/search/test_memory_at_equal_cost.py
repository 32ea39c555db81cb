"""Searches with and without a memory at equal cost, by a scripted model that reads what its prompts show.

ACCELD_TEST_REPEATS sets how many runs each variant has (default 1). Figures are printed with ``-s``.
"""

from __future__ import annotations

import asyncio
import math
import os
import random
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from acceld.model import RunSpec, SearchParameters
from acceld.search.ablation import Cost, parse_vary, variants
from acceld.store.changes.runs import create_run
from acceld.store.database import Store
from acceld.store.reads.records import load_candidates, load_insights
from tests.acceld.llm.server import Reply, ScriptedServer
from tests.acceld.search.model_runs import is_plan, prompt_of, search_on, written

REPEATS = int(os.environ.get("ACCELD_TEST_REPEATS", "1"))
CANDIDATES = 32
GAINS = {
    "hoist": 0.75, "fuse": 0.8, "widen": 0.85, "stream": 0.9, "pack": 0.99, "skew": 1.0, "swap": 1.02, "split": 1.2,
    "spill": 1.3, "unroll": 1.25, "pad": 1.3, "serialize": 1.4, "gather": 1.25, "round": 1.2, "copy": 1.35, "wait": 1.2,
}  # fmt: skip
"""The factor on a latency of each idea, once in a kernel. The model does not know it; four of sixteen are worth having."""


class Reader:
    """Answer as a model that has sixteen ideas, leaves what its prompt calls slower, and follows every second time what
    its prompt calls faster: an insight, or an earlier proposal.
    """

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def answer(self, body: dict[str, Any]) -> Reply:
        """Return a plan, a kernel, or what a pair of kernels teaches."""
        text = prompt_of(body)
        if is_plan(body):
            idea = self._idea(text, kernel_in(body)[1])
            cited = ", ".join(re.findall(rf"^(i\d+) Prefer {idea}\b", text, re.MULTILINE)) or "none"
            return Reply(f"Title: Try {idea}\nClass: mixed\nInsights: {cited}\n\nDo it.")
        if "Write about the pattern" in text:
            slow, fast = (set(found.split()) for found in re.findall(r"^# [\d.]+ (.*)$", text, re.MULTILINE)[:2])
            won, lost = sorted(fast - slow), sorted(slow - fast)
            said = f"Prefer {won[0]}" if won else f"Avoid {lost[0]}" if lost else "NONE"
            return Reply(f"Title: {said}\nStrategy: {said} in this place.\nSlow:\na {said}\nFast:\nb {said}")
        idea = re.findall(r"Title: Try (\w+)|^Try (\w+)", text, re.MULTILINE)[0]
        name, (latency, has) = next(filter(None, idea)), kernel_in(body)
        return Reply(written(round(latency * (1 if name in has else GAINS[name]), 3), " ".join([*has, name])))

    def _idea(self, text: str, has: list[str]) -> str:
        outcomes = re.findall(r"^- Try (\w+): (?:slower: )?([\d.]+) times as fast", text, re.MULTILINE)
        slower = {name for name, ratio in outcomes if float(ratio) <= 1.0}
        avoided = slower | set(re.findall(r"Avoid (\w+)", text)) | set(has)
        left: list[str] = sorted(set(GAINS) - avoided) or sorted(GAINS)
        faster = {name for name, ratio in outcomes if float(ratio) > 1.0} | set(re.findall(r"Prefer (\w+)", text))
        preferred: list[str] = sorted(faster - set(has))
        return self.rng.choice(preferred if preferred and self.rng.random() < 0.5 else left)


def kernel_in(body: dict[str, Any]) -> tuple[float, list[str]]:
    """Return latency and ideas of the kernel that a request is about."""
    latency, ideas = re.findall(r"^# ([\d.]+) ?(.*)$", str(body["messages"][0]["content"]), re.MULTILINE)[-1]
    return float(latency), ideas.split()


async def run_of(store: Store, search: SearchParameters) -> tuple[float, int]:
    """Search once; return the speed-up and the number of candidates."""
    run = await store.change(create_run, RunSpec("toy", search=search, proposer="llm"))
    server = ScriptedServer()
    server.answer = Reader(search.seed).answer
    async with server:
        await search_on(store, run, server)
    judged = [one for one in await store.read(load_candidates, run.id) if one.parent is not None]
    best = min(one.evaluation.latency_us for one in judged if one.evaluation and one.evaluation.latency_us)
    return 100.0 / best, len(judged)


@pytest.mark.slow
@pytest.mark.timeout(3600)
async def test_runs_with_and_without_a_memory_judge_as_many_candidates(tmp_path: Path) -> None:
    base = SearchParameters(beam_width=3, plans=4, attempts=1, fixer_steps=0, memory="off")
    found = variants(base, parse_vary(["memory=off,fifo,value"]), Cost(CANDIDATES), repeats=REPEATS)
    store = await asyncio.to_thread(Store.open, tmp_path / "acceld.db")
    try:
        gains = {one.name: [await run_of(store, search) for search in one.searches] for one in found}
        known = [replace(search, memory="value", own_insights=False) for search in found[0].searches]
        gains["value, insights of earlier runs"] = [await run_of(store, search) for search in known]
        insights = await store.read(load_insights)
    finally:
        await store.close()
    assert {count for runs in gains.values() for _, count in runs} == {CANDIDATES}
    assert any(one.title.startswith("Prefer") for one in insights)
    for name, runs in gains.items():
        logs = [math.log(gain) for gain, _ in runs]
        mean = sum(logs) / len(logs)
        error = math.sqrt(sum((one - mean) ** 2 for one in logs) / max(1, len(logs) - 1) / len(logs))
        print(f"{name}: {math.exp(mean):.3f}x, standard error {100 * error:.1f} %, {len(runs)} runs")  # noqa: T201
