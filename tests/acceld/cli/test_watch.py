"""``acceld watch --once`` with the real judge."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from acceld.cli.main import main
from acceld.workloads import workload

COMMAND = ["watch", "--once", "--json"]


def stages(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def copied(tmp_path: Path) -> Path:
    shutil.copytree(workload("silu").folder, tmp_path, dirs_exist_ok=True)
    return tmp_path / "kernel_legacy.py"


@pytest.mark.slow
def test_a_kernel_is_timed_then_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kernel = copied(tmp_path)
    assert main([*COMMAND, str(kernel), "--home", str(tmp_path / ".acceld")]) == 0
    told = stages(capsys)
    assert [one["stage"] for one in told][:1] == ["legal"] and told[-1]["stage"] == "correct"
    assert any(one["stage"] == "predicted" for one in told)


def test_a_broken_kernel_ends_with_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kernel = copied(tmp_path)
    kernel.write_text("def kernel(x:\n")
    assert main([*COMMAND, str(kernel), "--home", str(tmp_path / ".acceld")]) == 7
    (told,) = stages(capsys)
    assert told["stage"] == "syntax" and told["line"] == 1 and told["good"] is False


def test_a_file_without_a_workload_is_refused_with_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "kernel.py").write_text("def kernel(x):\n    return x\n")
    assert main([*COMMAND, str(tmp_path / "kernel.py"), "--home", str(tmp_path)]) == 2
    assert "acceld init" in capsys.readouterr().err


@pytest.mark.slow
def test_a_workload_may_be_named_by_a_relative_path(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = copied(tmp_path / "mine")
    kernel.rename(tmp_path / "kernel.py")
    shutil.copy(tmp_path / "kernel.py", kernel)
    monkeypatch.chdir(tmp_path)
    assert main([*COMMAND, "kernel.py", "--workload", "mine", "--home", str(tmp_path / ".acceld")]) == 0
    assert stages(capsys)[-1]["stage"] == "correct"
