"""The state folder is found, private, refused if a database would not be safe there, and served by one daemon."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from acceld import origins
from acceld.child import child
from acceld.errors import DaemonError, UsageError
from acceld.home import SOCKET_LIMIT, DaemonLock, Home, file_system, find_home, process_start

WORKLOADS = Path(__file__).parents[1] / "adversarial" / "workloads"


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a runtime folder of the test's own."""
    folder = tmp_path / "run"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    monkeypatch.delenv("ACCELD_HOME", raising=False)
    return folder


def test_the_nearest_folder_upward_is_found(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / ".acceld").mkdir()
    assert find_home(folder=tmp_path / "a" / "b").path == tmp_path / "a" / ".acceld"
    assert find_home(tmp_path / "x").path == tmp_path / "x"


def test_a_file_of_that_name_is_no_state_folder(tmp_path: Path) -> None:
    (tmp_path / ".acceld").write_text("")
    (tmp_path / "b").mkdir()
    assert find_home(folder=tmp_path / "b").path != tmp_path / ".acceld"


def test_the_folder_is_for_its_owner_alone(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        home = Home(tmp_path / ".acceld")
        home.prepare()
        lock = DaemonLock(home)
        lock.new_token()
        lock.announce(home.socket(), "1")
    finally:
        os.umask(old)
    for path, mode in (
        (home.path, 0o700),
        (home.log_file.parent, 0o700),
        (home.token_file, 0o600),
        (home.daemon_file, 0o600),
        (home.lock_file, 0o600),
        (home.socket().parent, 0o700),
    ):
        assert stat.S_IMODE(path.stat().st_mode) == mode, path
    assert (home.path / ".gitignore").read_text() == "*\n"
    lock.release()


def test_a_folder_that_can_not_be_made_is_refused_with_what_to_do() -> None:
    with pytest.raises(UsageError, match="can not use /proc/acceld") as caught:
        Home(Path("/proc/acceld")).prepare()
    assert "--home" in caught.value.hint


def test_network_file_systems_are_recognized_by_their_mount() -> None:
    mounts = (
        "22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw\n"
        "40 22 0:35 / /home/shared rw shared:1 - nfs4 server:/export rw\n"
        "41 40 8:2 / /home/shared/local rw - xfs /dev/sdb1 rw\n"
        "42 22 0:36 / /mnt/with\\040space rw - cifs //server/x rw\n"
    )
    assert file_system(Path("/home/me/.acceld"), mounts) == "ext4"
    assert file_system(Path("/home/shared/me/.acceld"), mounts) == "nfs4"
    assert file_system(Path("/home/shared/local/.acceld"), mounts) == "xfs"
    assert file_system(Path("/mnt/with space/x"), mounts) == "cifs"


def test_a_network_file_system_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("acceld.home.file_system", lambda path: "nfs4")
    with pytest.raises(UsageError, match="network file system"):
        Home(tmp_path / ".acceld").prepare()


def test_sockets_stay_short_in_deep_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path / ("d" * 60) / ("e" * 60) / ".acceld"
    assert len(os.fsencode(Home(deep).socket())) <= SOCKET_LIMIT
    long_runtime = tmp_path / ("r" * 100)
    long_runtime.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(long_runtime))
    assert len(os.fsencode(Home(deep).socket())) <= SOCKET_LIMIT


def test_a_second_daemon_names_the_first(tmp_path: Path) -> None:
    home = Home(tmp_path / ".acceld")
    home.prepare()
    assert home.daemon() is None
    lock = DaemonLock(home)
    lock.announce(home.socket(), "1")
    assert home.is_served()
    with pytest.raises(DaemonError, match=f"pid {os.getpid()}.*already serves"):
        DaemonLock(home)
    lock.release()
    assert home.daemon() is None
    DaemonLock(home).release()


def test_one_of_many_at_once_wins(tmp_path: Path) -> None:
    home = Home(tmp_path / ".acceld")
    home.prepare()
    spawn = multiprocessing.get_context("fork")
    for _ in range(5):
        first = DaemonLock(home)
        first.release()
        ready, results = spawn.Barrier(6), spawn.Queue()
        others = [spawn.Process(target=_one, args=(str(home.path), ready, results)) for _ in range(6)]
        for process in others:
            process.start()
        answers = [results.get(timeout=300) for _ in others]
        for process in others:
            process.join(300)
        assert sorted(answers) == ["lost"] * 5 + ["won"]


def _one(path: str, ready: object, results: object) -> None:
    """Try to get the lock at the same moment as the others, and hold it until all have tried."""
    home = Home(Path(path))
    ready.wait()  # type: ignore[attr-defined]
    try:
        lock = DaemonLock(home)
        lock.announce(Path("/x"), "1")
        answer = "won"
    except DaemonError:
        answer = "lost"
    ready.wait()  # type: ignore[attr-defined]
    results.put(answer)  # type: ignore[attr-defined]


def test_a_pid_is_distinguished_from_its_successor() -> None:
    assert process_start(os.getpid()) == process_start(os.getpid())
    assert process_start(2**22 + 1) is None


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(["watch", "--once"], marks=pytest.mark.slow),
        ["profile"],
        pytest.param(["check", "--all"], marks=pytest.mark.slow),
        ["start"],
        ["mcp"],
    ],
    ids=" ".join,
)
def test_every_command_makes_the_same_private_folder_that_git_ignores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    checkout = tmp_path / "checkout"
    shutil.copytree(WORKLOADS / "st_matmul", checkout)
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@example.org", "-C", str(checkout)]
    for step in (["init", "-q"], ["add", "."], ["commit", "-qm", "x"]):
        subprocess.run([*git, *step], check=True)
    monkeypatch.chdir(checkout)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    start = child("acceld", *words, *([] if words[0] in ("start", "mcp") else ["kernel_legacy.py"]))
    subprocess.run(start.command, env=start.environment, check=False, stdin=subprocess.DEVNULL, capture_output=True)
    made = Home(checkout / ".acceld")
    try:
        left = subprocess.run([*git, "status", "--porcelain"], check=True, capture_output=True, text=True).stdout
        assert left == ""
        assert made.path.stat().st_mode & 0o777 == 0o700
        assert origins.is_ours(made.path)
        assert not (made.path / "datasets").exists()
    finally:
        if made.daemon() is not None:
            stop = child("acceld", "stop", "--now")
            subprocess.run(stop.command, env=stop.environment, check=True, capture_output=True)
