"""The suite of attacks: a sample here, all of it in the slow tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from acceld.config import EvaluateConfig
from acceld.errors import UsageError
from acceld.evaluate.policy import check
from acceld.evaluate.selftest import FOLDER, load_attacks, run_selftest
from acceld.resources import data_folder

CONFIG = EvaluateConfig(slots=2)


def test_the_suite_has_every_class_and_enough_honest_kernels() -> None:
    attacks = load_attacks(data_folder(FOLDER))
    assert {attack.id[0] for attack in attacks} >= set("TVRCNPOEKFH")
    assert sum(attack.honest for attack in attacks) >= 20
    assert len(attacks) >= 180


def test_no_honest_kernel_offends_the_policy() -> None:
    for attack in load_attacks(data_folder(FOLDER)):
        if attack.honest:
            assert check(attack.kernel.text) is None, attack.id


@pytest.mark.parametrize("only", ["R05*", "N02*", "F28*", "O02*"])
async def test_a_sample_of_the_suite_fools_nobody(only: str) -> None:
    report = await run_selftest(CONFIG, only=only)
    assert report.passed, [result for result in report.results if result.outcome in ("fooled", "death", "false_reject")]


async def test_a_folder_of_further_attacks_is_tried(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("# expect: reject\n# workload: st_silu\nraise SystemExit(0)\n")
    report = await run_selftest(CONFIG, attacks=tmp_path, only="mine")
    assert [result.outcome for result in report.results] == ["rejected", "rejected"]
    data = report.plain()
    assert (data["fooled"], data["rejected"], data["judge_deaths"], data["false_rejects"]) == (0, 2, 0, 0)
    assert data["level"].startswith("L")


@pytest.mark.slow
async def test_a_lie_about_time_counts_as_fooled(tmp_path: Path) -> None:
    text = (data_folder(FOLDER) / "H01_matmul.py").read_text()
    (tmp_path / "slow.py").write_text(text.replace("# expect: pass", "# expect: truthful\n# at_least: 1000"))
    report = await run_selftest(CONFIG, attacks=tmp_path, only="slow")
    assert report.count("fooled") == len(report.results) > 0
    assert not report.passed


@pytest.mark.parametrize(
    ("text", "words"),
    [("# expect: nonsense\n", "nonsense"), ("# workload: st_matmull\n", "st_matmull")],
)
def test_a_header_that_can_not_be_used_is_an_error(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "x.py").write_text(text)
    with pytest.raises(UsageError, match=words):
        load_attacks(tmp_path)
    with pytest.raises(UsageError, match="no attack"):
        load_attacks(tmp_path / "empty")


@pytest.mark.slow
@pytest.mark.timeout(1200)
async def test_the_whole_suite_fools_nobody() -> None:
    report = await run_selftest(CONFIG)
    assert report.passed, [result for result in report.results if result.outcome in ("fooled", "death", "false_reject")]
