"""The suite of attacks: a sample here, all of it in the slow tests."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from acceld.config import EvaluateConfig
from acceld.errors import UsageError
from acceld.evaluate.policy import check
from acceld.evaluate.selftest.attacks import FOLDER, load_attacks
from acceld.evaluate.selftest.runner import FAILURES, run_selftest
from acceld.resources import data_folder

CONFIG = EvaluateConfig(slots=2)


def test_the_suite_has_every_class_and_enough_honest_kernels() -> None:
    attacks, broken = load_attacks(data_folder(FOLDER))
    assert not broken
    assert {attack.id[0] for attack in attacks} >= set("TVRCNPOEKFH")
    assert sum(attack.honest for attack in attacks) >= 20
    assert len(attacks) >= 180


def test_no_honest_kernel_offends_the_policy() -> None:
    for attack in load_attacks(data_folder(FOLDER))[0]:
        if attack.honest:
            assert check(attack.kernel.text) is None, attack.id


@pytest.mark.parametrize("only", ["R05*", "N02*", "F28*", "O02*"])
async def test_a_sample_of_the_suite_fools_nobody(only: str) -> None:
    report = await run_selftest(CONFIG, only=only)
    assert report.passed, [result for result in report.results if result.outcome in FAILURES]


async def test_a_folder_of_further_attacks_is_tried(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("# expect: reject\n# workload: st_silu\nraise SystemExit(0)\n")
    report = await run_selftest(CONFIG, attacks=tmp_path, only="mine")
    assert [result.outcome for result in report.results] == ["rejected", "rejected"]
    data = report.plain()
    assert (data["fooled"], data["rejected"], data["harness_errors"], data["false_rejects"]) == (0, 2, 0, 0)
    assert data["level"].startswith("L")


@pytest.mark.parametrize(
    ("named", "outcomes"),
    [
        pytest.param("", {"rejected"}, marks=pytest.mark.slow),
        pytest.param("# caught by: compile_error.entry\n", {"rejected"}, marks=pytest.mark.slow),
        ("# caught by: timeout.trace_deadline|compile_error.entry\n", {"rejected"}),
        ("# caught by: compile_error.crash\n", {"other_rule"}),
        pytest.param("# caught by: timeout.entry\n", {"other_rule"}, marks=pytest.mark.slow),
        ("# caught by: compile_error.entry\n# unpoliced: rejected.import\n", {"rejected", "other_rule"}),
    ],
)
async def test_an_attack_that_another_rule_catches_fails_the_self_test(
    tmp_path: Path, named: str, outcomes: set[str]
) -> None:
    (tmp_path / "mine.py").write_text(f"# expect: reject\n{named}# workload: st_silu\nraise SystemExit(0)\n")
    report = await run_selftest(CONFIG, attacks=tmp_path, only="mine")
    assert {result.outcome for result in report.results} == outcomes
    assert report.passed is ("other_rule" not in outcomes)
    assert report.plain()["caught_by_another_rule"] == report.count("other_rule")


def test_an_attack_of_the_suite_names_the_refusal_that_catches_it(tmp_path: Path) -> None:
    (tmp_path / "silent.py").write_text("# expect: reject\n# workload: st_silu\n")
    (tmp_path / "honest.py").write_text("# expect: pass\n# workload: st_silu\n")
    attacks, broken = load_attacks(tmp_path)
    assert [attack.id for attack in attacks] == ["honest"]
    assert "does not name the refusal" in broken[0].message
    assert len(load_attacks(tmp_path, further=True)[0]) == 2


async def test_a_relative_folder_brings_workloads_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(data_folder(FOLDER) / "workloads" / "st_silu", tmp_path / "attacks" / "workloads" / "mine")
    declared = tmp_path / "attacks" / "workloads" / "mine" / "workload.toml"
    declared.write_text(declared.read_text().replace("st_silu", "mine"))
    text = (data_folder(FOLDER) / "H15_silu_function.py").read_text().replace("st_silu", "mine")
    (tmp_path / "attacks" / "right.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    report = await run_selftest(CONFIG, attacks=Path("attacks"), only="right")
    assert [(one.workload, one.outcome, one.message) for one in report.results] == [("mine", "truthful", "")]


@pytest.mark.slow
async def test_a_lie_about_time_counts_as_fooled(tmp_path: Path) -> None:
    text = (data_folder(FOLDER) / "H01_matmul.py").read_text()
    (tmp_path / "slow.py").write_text(text.replace("# expect: pass", "# expect: truthful\n# at_least: 1000"))
    report = await run_selftest(CONFIG, attacks=tmp_path, only="slow")
    assert report.count("fooled") == len(report.results) > 0
    assert not report.passed


@pytest.mark.parametrize(
    ("name", "expect"),
    [
        ("honest/one", "pass"),
        ("controls/T01_clock", "reject"),
        ("honest_split_k", "pass"),
        ("an_honest_looking_cheat", "reject"),
        ("attacks/honest/two", "pass"),
        ("quarantine/three", "quarantine"),
        ("N07_bf16", "reject"),
        ("H02_bf16", "pass"),
        ("correct_only_once", "unlabeled"),
    ],
)
def test_a_path_says_what_is_expected_where_the_file_does_not(tmp_path: Path, name: str, expect: str) -> None:
    path = tmp_path / f"{name}.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("# workload: st_silu\n")
    attacks, _ = load_attacks(tmp_path, further=True)
    assert [attack.expect for attack in attacks] == [expect]


async def test_a_kernel_without_a_label_that_passes_is_distinguished(tmp_path: Path) -> None:
    text = (data_folder(FOLDER) / "H15_silu_function.py").read_text().replace("# expect: pass\n", "")
    (tmp_path / "right.py").write_text(text)
    (tmp_path / "wrong.py").write_text("# workload: st_silu\nraise SystemExit(0)\n")
    report = await run_selftest(CONFIG, attacks=tmp_path, only="[rw]*")
    outcomes = {(result.id, result.outcome) for result in report.results}
    assert outcomes == {("right", "unlabeled"), ("wrong", "rejected")}
    assert report.passed and (report.plain()["fooled"], report.plain()["unlabeled"]) == (0, 2)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("# expect: nonsense\n", "nonsense"),
        ("# workload: st_matmull\n", "st_matmull"),
        ("# at_least: soon\n", "soon"),
        ("# api: nki_legacyy\n", "nki_legacyy"),
        ("# api: nki_legacy\n# chip: trn3\n", "trn3"),
        ("# caught by: rejectd.import\n", "rejectd.import"),
        ("# unpoliced: rejected\n", "not of the form status.rule"),
    ],
)
async def test_a_file_that_can_not_be_tried_is_reported_and_the_others_are_tried(
    tmp_path: Path, text: str, words: str
) -> None:
    (tmp_path / "bad.py").write_text(text)
    (tmp_path / "good.py").write_text("# workload: st_silu\nraise SystemExit(0)\n")
    attacks, broken = load_attacks(tmp_path, further=True)
    assert [attack.id for attack in attacks] == ["good"]
    assert [one.id for one in broken] == ["bad"]
    assert words in broken[0].message


def test_a_broken_workload_of_a_folder_is_reported_with_what_needs_it(tmp_path: Path) -> None:
    (tmp_path / "workloads" / "mine").mkdir(parents=True)
    (tmp_path / "workloads" / "mine" / "workload.toml").write_text("name = [\n")
    (tmp_path / "attack.py").write_text("# workload: mine\n")
    attacks, broken = load_attacks(tmp_path, further=True)
    assert not attacks
    assert [one.id for one in broken] == ["attack"]


def test_a_least_latency_without_a_baseline_of_the_api_is_reported(tmp_path: Path) -> None:
    (tmp_path / "workloads").mkdir()
    shutil.copytree(data_folder(FOLDER) / "workloads" / "st_silu", tmp_path / "workloads" / "mine")
    toml = tmp_path / "workloads" / "mine" / "workload.toml"
    toml.write_text(toml.read_text().replace('"st_silu"', '"mine"').replace("nki_legacy =", "nki ="))
    (tmp_path / "attack.py").write_text("# workload: mine\n# api: nki_legacy\n# at_least: 0.9\nimport neuronxcc\n")
    attacks, broken = load_attacks(tmp_path, further=True)
    assert not attacks and "at_least needs a baseline of API nki_legacy" in broken[0].message


def test_a_folder_without_attacks_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("nothing here")
    with pytest.raises(UsageError, match="no attack"):
        load_attacks(tmp_path, further=True)
    with pytest.raises(UsageError, match="no attack"):
        load_attacks(tmp_path / "empty")


def test_what_a_file_does_not_say_is_taken_from_its_place_and_its_kernel(tmp_path: Path) -> None:
    kernel = "import neuronxcc.nki as nki\n\n\n@nki.jit\ndef attack({}):\n    return {}\n"
    for name, text in {
        "st_silu/first.py": kernel.format("x", "x"),
        "deep/er/mamba_two.py": kernel.format("x", "x"),
        "by_arguments.py": kernel.format("delta, u, a, b, c", "u"),
        "honest/st_matmul.py": kernel.format("a, b", "a").replace("neuronxcc.nki", "nki"),
        "constants.py": 'EXPECT = "cheat"\nWORKLOAD = "adamw"\n' + kernel.format("x", "x"),
        "workloads/own/reference.py": "",
        "_helper.py": "",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "forged.bin").write_bytes(b"\0\1\2")
    (tmp_path / "forged.toml").write_text('workload = "st_silu"\nexpect = "quarantine"\n')
    attacks, broken = load_attacks(tmp_path, further=True)
    assert not broken
    found = {one.id: (one.workload_folder.name, one.expect, one.kernel.api, one.guessed) for one in attacks}
    assert found == {
        "st_silu/first": ("st_silu", "unlabeled", "nki_legacy", True),
        "deep/er/mamba_two": ("mamba", "unlabeled", "nki_legacy", True),
        "by_arguments": ("mamba", "unlabeled", "nki_legacy", True),
        "honest/st_matmul": ("st_matmul", "pass", "nki", True),
        "constants": ("adamw", "reject", "nki_legacy", False),
        "forged": ("st_silu", "quarantine", "nki_legacy", False),
    }


@pytest.mark.slow
@pytest.mark.timeout(1200)
async def test_the_whole_suite_fools_nobody() -> None:
    report = await run_selftest(CONFIG)
    assert report.passed, [result for result in report.results if result.outcome in FAILURES]
