"""``acceld watch --once`` with the real simulator."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path

import pytest

from acceld.cli.main import main
from acceld.cli.watch_runs import WatchRuns
from acceld.config import Config
from acceld.errors import DaemonError
from acceld.home import Home
from acceld.model import Kernel
from acceld.targets import Choice
from acceld.watch.tiers import SaveResult, Watched
from acceld.workloads import workload
from tests.acceld.daemon.conftest import serving

DOCUMENTED = Path(__file__).parents[3] / "docs" / "watch.md"
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
    reported = stages(capsys)
    assert [one["stage"] for one in reported][:1] == ["legal"] and reported[-1]["stage"] == "correct"
    (predicted,) = (str(one["text"]) for one in reported if one["stage"] == "predicted")
    assert predicted in DOCUMENTED.read_text(encoding="utf-8")


def test_a_broken_kernel_ends_with_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kernel = copied(tmp_path)
    kernel.write_text("def kernel(x:\n")
    assert main([*COMMAND, str(kernel), "--home", str(tmp_path / ".acceld")]) == 7
    (reported,) = stages(capsys)
    assert reported["stage"] == "syntax" and reported["line"] == 1 and reported["good"] is False


def test_a_file_without_a_workload_is_refused_with_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "kernel.py").write_text("def kernel(x):\n    return x\n")
    assert main([*COMMAND, str(tmp_path / "kernel.py"), "--home", str(tmp_path)]) == 2
    assert "acceld init" in capsys.readouterr().err


async def test_a_watch_opened_before_a_daemon_finds_it_and_the_next_one(folder: Path) -> None:
    home = Home(folder / ".acceld")
    await asyncio.to_thread(home.prepare)
    watched = Watched(folder / "kernel_legacy.py", "nki_legacy", "silu")
    kernel = Kernel("latency 100\n", "nki_legacy", filename="kernel_legacy.py")
    ended: asyncio.Queue[SaveResult] = asyncio.Queue()
    runs = WatchRuns(home, Config(), Choice("simulator", "nki_legacy", "trn1"), ended.put_nowait)
    assert not runs.reachable()
    with pytest.raises(DaemonError, match="no daemon runs"):
        await runs.start(watched, kernel, None)
    for number in (1, 2):  # the second has another token
        async with serving(home):
            assert runs.reachable()
            assert await runs.start(watched, kernel, None) == number
            step = await asyncio.wait_for(ended.get(), 300)
            assert step.stage == "optimized" and f"r{number}" in step.text
    await runs.close()


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
