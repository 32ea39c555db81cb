"""Rewards: evaluations as numbers, for trainers and rollouts."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from acceld import reward
from acceld.errors import UsageError
from acceld.report.datasets import NO_CODE
from acceld.reward import Edit, Environment, Score, Scorer, advantages
from tests.standin_neuron.machine import KERNEL, NARROW, small_silu

WRONG = KERNEL.replace("operand0=1.0", "operand0=1.5")
SLOW = KERNEL.replace("512", "8").replace("affine_range(4)", "affine_range(256)")
START = KERNEL.replace("512", "32").replace("affine_range(4)", "affine_range(64)")
"""Baseline that :data:`KERNEL` beats beyond a tie."""
ILLEGAL = KERNEL.replace("arange(128)", "arange(256)")


@pytest.fixture
def silu(tmp_path: Path) -> str:
    return str(small_silu(tmp_path, START))


def answer(text: str) -> str:
    return f"<think>wider tiles</think>\nHere it is:\n```python\n{text}```\n"


def test_answers_are_rewarded_by_their_evaluation(silu: str) -> None:
    with Scorer(silu, seed=1, slots=1) as scorer:
        answers = ["I can not.", answer("import os\n" + KERNEL), answer(ILLEGAL), WRONG, answer(SLOW), answer(KERNEL)]
        scores = scorer.score(answers)
        assert [one.status for one in scores] == [
            "no_code", "rejected", "compile_error", "incorrect_numerical", "passed", "passed",
        ]  # fmt: skip
        nothing, rejected, illegal, wrong, slow, fast = (one.reward for one in scores)
        assert (
            nothing is not None and rejected is not None and wrong is not None and slow is not None and fast is not None
        )
        assert nothing < rejected < wrong < slow < 0 < fast
        assert illegal == rejected
        assert fast == pytest.approx(math.log2(scores[-1].speedup or 0)) and scores[-1].improved
        assert scores[2].rule
        conversations = [[{"role": "assistant", "content": one}] for one in answers]
        assert scorer(prompts=[""] * 6, completions=conversations, workload=[silu] * 6) == [
            one.reward for one in scores
        ]
        assert scorer.__name__ == "acceld_reward"
        with pytest.raises(UsageError, match="6 answers need 6 workloads, not 1"):
            scorer.score(answers, [silu])


def test_a_tie_earns_nothing_whichever_side_it_leans_to(tmp_path: Path) -> None:
    with Scorer(str(small_silu(tmp_path, NARROW)), seed=1, slots=1) as scorer:
        (wide,) = scorer.score([KERNEL])
    assert wide.speedup is not None and 1 < wide.speedup < 1.17 and wide.tie_band == 17
    assert (wide.reward, wide.improved) == (0.0, False)


def test_a_seed_decides_the_data_in_every_process(silu: str) -> None:
    def scores(seed: int) -> list[float | None]:
        with Scorer(silu, seed=seed, slots=1) as scorer:
            (found,) = scorer.score([KERNEL])
            assert found.evaluation is not None
            assert found.evaluation.correctness is not None
            return [found.reward, found.evaluation.correctness.rel_l2]

    assert scores(3) == scores(3)
    assert scores(3)[1] != scores(4)[1]


def test_timing_alone_rewards_predictions_and_a_function_may_replace_the_reward(silu: str) -> None:
    def fast(score: Score) -> float | None:
        return score.speedup

    with Scorer(silu, gate="timing", slots=1, worth=fast) as scorer:
        same, wide = scorer.score([START, KERNEL])
        assert (same.status, same.reward) == ("untested", 1.0)
        assert wide.reward is not None
        assert wide.reward > 1


def test_rewards_are_held_against_those_of_their_group() -> None:
    assert advantages([1.0, 3.0, 5.0, 5.0], 2) == [-1.0, 1.0, 0.0, 0.0]
    assert advantages([1.0, None, 3.0], 3, scale=False) == [-1.0, 0.0, 1.0]
    with pytest.raises(UsageError, match="can not be divided into groups"):
        advantages([1.0], 2)


def test_verl_is_given_numbers(silu: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Scorer(seed=0, slots=1) as scorer:
        monkeypatch.setitem(reward._shared, "all", scorer)
        first = reward.compute_score(f"acceld/{silu}", answer(KERNEL), "", {"index": 0})
        batch = reward.compute_scores([f"acceld/{silu}"] * 2, [answer(KERNEL), "no"], ["", ""], [None, None])
        assert batch == [first, NO_CODE]


def test_an_episode_of_edits_earns_what_its_end_is_faster(silu: str) -> None:
    with Scorer(silu, seed=1, slots=1) as scorer:
        world = Environment(scorer, most_steps=4)
        first = world.reset()
        assert first.text == START
        widened = [
            Edit("f = nl.arange(32)[None, :]", "f = nl.arange(512)[None, :]"),
            Edit("affine_range(64)", "affine_range(4)"),
        ]
        widened += [
            Edit("nl.load(x[p, 32 * tile", "nl.load(x[p, 512 * tile"),
            Edit("out[p, 32 * tile", "out[p, 512 * tile"),
        ]
        seen, gained, ended, cut, _ = world.step(widened)
        assert (ended, cut) == (False, False)
        assert first.latency_us is not None and seen.latency_us is not None
        assert gained == pytest.approx(math.log2(first.latency_us / seen.latency_us))
        after, lost, _, _, reported = world.step(Edit("operand0=1.0", "operand0=1.5"))
        assert (reported["status"], after.text) == ("incorrect_numerical", seen.text)
        assert lost < 0
        _, none, _, _, reported = world.step(Edit("p", "q"))
        assert (reported["status"], none) == ("no_code", NO_CODE)
        assert world.step(first.text)[3]


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_a_thousand_rewards_are_those_of_acceld_evaluate(silu: str, tmp_path: Path) -> None:
    texts = []
    for number in range(1000):
        base = (KERNEL, NARROW, WRONG, ILLEGAL, "import os\n" + KERNEL, "def f(:")[min(number % 8, 5)]
        texts.append(base.replace("operand0=1.0", f"operand0={1 + number * 1e-10!r}") + f"# {number}\n")
    lines = [{"workload": "small_silu", "workload_folder": silu, "kernel": text} for text in texts]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "run").mkdir(mode=0o700)
    environment = os.environ | {
        "XDG_RUNTIME_DIR": str(tmp_path / "run"),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "ACCELD_HOME": str(tmp_path / ".acceld"),
    }
    options = ["evaluate", "--jsonl", "in.jsonl", "--out", "out.jsonl", "--gate", "search"]
    try:
        subprocess.run(
            [sys.executable, "-m", "acceld", *options], env=environment, cwd=tmp_path, check=True, capture_output=True
        )
    finally:
        subprocess.run([sys.executable, "-m", "acceld", "stop"], env=environment, cwd=tmp_path, check=True)
    with Scorer(silu, seed=1) as scorer:
        scores = scorer.score(texts)
    records = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert len(records) == len(scores) == 1000
    assert {one.status for one in scores} >= {"passed", "incorrect_numerical", "compile_error", "rejected"}
    for record, score in zip(records, scores, strict=True):
        assert (score.status, score.latency_us, score.speedup) == (
            record["status"],
            record["latency_us"],
            record["speedup"],
        )


def test_the_example_of_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[2] / "docs" / "agents.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(from acceld\.reward.*?)\n```\n\n\| for", page, re.DOTALL)
    shared: dict[str, object] = {}
    exec(compile(example, "docs/agents.md", "exec"), shared)  # noqa: S102  # our own page
    assert "['passed', 'no_code'] [1.0, -1.0]" in capsys.readouterr().out
    assert shared["more"] == {"status": "passed", "speedup": 1.0, "improved": False}
