"""A state folder from elsewhere is neither continued nor executed until its user trusts it."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from acceld import origins
from acceld.cli.main import main
from acceld.errors import UsageError
from acceld.home import Home
from acceld.model import RunSpec, RunState, SearchParameters
from acceld.store.changes.runs import create_run, set_run_state
from acceld.store.database import Store
from acceld.workloads import workload


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """Return a state folder that this user made, with a history; the user's records are the test's own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    made = Home(tmp_path / "project" / ".acceld")
    made.path.parent.mkdir()
    made.prepare()
    made.database.write_bytes(b"")
    return made


def test_a_folder_that_this_user_made_is_used_again(home: Home) -> None:
    assert home.prepare() == home.path
    assert origins.trusted_histories() == [home.path]
    assert (home.path / origins.MARK).stat().st_mode & 0o077 == 0


def test_the_record_outside_does_not_tell_the_secret(home: Home) -> None:
    (record,) = origins.records().iterdir()
    assert (home.path / origins.MARK).read_text().strip() not in record.read_text()


@pytest.mark.parametrize(
    "how", ["copied", "moved", "in its place", "no mark", "a link", "another's record", "writable"]
)
def test_a_folder_from_elsewhere_is_refused(home: Home, tmp_path: Path, how: str) -> None:
    used, mark = home, home.path / origins.MARK
    if how == "copied":
        used = Home(tmp_path / "clone" / ".acceld")
        shutil.copytree(home.path, used.path)
    elif how == "moved":
        used = Home(home.path.rename(tmp_path / "elsewhere"))
    elif how == "in its place":
        shutil.rmtree(home.path)
        home.path.mkdir()
        (home.path / "acceld.db").write_bytes(b"theirs")
    elif how == "no mark":
        mark.unlink()
    elif how == "a link":
        mark.rename(tmp_path / "secret")
        mark.symlink_to(tmp_path / "secret")
    elif how == "another's record":
        (record,) = origins.records().iterdir()
        record.write_text(json.dumps({"folder": str(home.path), "sha256": "0" * 64}))
    else:
        mark.chmod(0o666)
    with pytest.raises(UsageError, match="not known to be yours") as refused:
        used.prepare()
    assert f"acceld config trust --history {used.path}" in refused.value.hint


def test_an_empty_folder_is_taken_and_one_with_anything_in_it_is_not(home: Home, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    Home(tmp_path / "empty").prepare()
    for name in ("acceld.db", "neuron", "floors", "best"):
        folder = tmp_path / f"with {name}"
        (folder / name).mkdir(parents=True)
        with pytest.raises(UsageError, match="not known to be yours"):
            Home(folder).prepare()


def test_processes_that_make_one_folder_at_once_agree(home: Home, tmp_path: Path) -> None:
    made = [Home(tmp_path / "shared") for _ in range(16)]
    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(Home.prepare, made)) == [tmp_path / "shared"] * 16
    assert origins.is_ours(tmp_path / "shared")


def test_without_a_place_for_records_nothing_is_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with pytest.raises(UsageError, match="XDG_STATE_HOME"):
        Home(tmp_path / ".acceld").prepare()
    assert not origins.is_ours(tmp_path / ".acceld")


def test_trust_is_given_listed_and_taken_back(
    home: Home, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    copied = Home(tmp_path / "copied")
    shutil.copytree(home.path, copied.path)
    assert main(["config", "trust", "--history", str(copied.path)]) == 0
    assert "its runs go on" in capsys.readouterr().out
    copied.prepare()
    assert main(["config", "trust", "--list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["histories"] == sorted([str(copied.path), str(home.path)])
    assert main(["config", "trust", "--history", str(copied.path), "--remove"]) == 0
    with pytest.raises(UsageError, match="not known to be yours"):
        copied.prepare()
    assert main(["config", "trust", "--history", str(tmp_path / "none")]) == 2
    monkeypatch.setenv("ACCELD_HOME", str(copied.path))
    assert main(["config", "trust", "--history"]) == 0
    copied.prepare()


async def fill(home: Home) -> None:
    """Write a history in which a run is under way."""
    store = await asyncio.to_thread(Store.open, home.database)
    spec = RunSpec(workload="conv2d_maxpool_small", search=SearchParameters(iterations=1))
    run = await store.change(create_run, spec)
    await store.change(set_run_state, run.id, RunState.RUNNING)
    await store.close()


def umask() -> int:
    """Return the umask of this process."""
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


def test_a_run_of_a_foreign_history_does_not_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    checkout = Home(tmp_path / "checkout" / ".acceld")
    checkout.path.mkdir(parents=True)
    asyncio.run(fill(checkout))
    before, mask = checkout.database.read_bytes(), umask()
    for command in (
        ["start"],
        ["start", "--foreground"],
        ["optimize", "conv2d_maxpool_small"],
        ["profile", "conv2d_maxpool_small"],
        ["watch", str(workload("conv2d_maxpool_small").folder), "--once"],
    ):
        capsys.readouterr()
        code = main([*command, "--home", str(checkout.path)])
        said = capsys.readouterr().err
        assert code == 2, (command, said)
        assert f"acceld config trust --history {checkout.path}" in said, command
    assert checkout.daemon() is None
    assert checkout.database.read_bytes() == before
    assert umask() == mask, "a daemon that refuses to start leaves files of its process readable"
    assert main(["runs", "--home", str(checkout.path)]) == 0  # reading executes nothing
    capsys.readouterr()
    assert main(["config", "trust", "--history", str(checkout.path)]) == 0
    assert "r1 will go on" in capsys.readouterr().err
    try:
        assert main(["start", "--home", str(checkout.path)]) == 0
    finally:
        main(["stop", "--now", "--home", str(checkout.path)])


def test_a_daemon_started_by_hand_refuses_too(home: Home, tmp_path: Path) -> None:
    copied = tmp_path / "copied"
    shutil.copytree(home.path, copied)
    words = [sys.executable, "-P", "-m", "acceld.daemon.process", "--home", str(copied)]
    ended = subprocess.run(words, env=os.environ, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert "not known to be yours" in ended.stderr
