"""The state folder is found, private, refused if a database would not be safe there, and served by one daemon."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import pwd
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from acceld import origins
from acceld.child import child
from acceld.cli.diagnosis.machine import _state
from acceld.config import project_file
from acceld.errors import DaemonError, UsageError
from acceld.home import SOCKET_LIMIT, DaemonLock, Home, file_system, find_home, process_start
from acceld.private_files import other_owner
from acceld.store.database import Store

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


def test_what_lies_where_every_user_may_write_is_used_only_there(tmp_path: Path) -> None:
    shared, own = tmp_path / "shared", tmp_path / "shared" / "own"
    own.mkdir(parents=True)
    shared.chmod(0o1777)  # as /tmp
    (shared / ".acceld").mkdir()
    (shared / "acceld.toml").touch()
    assert find_home(folder=own).path == own / ".acceld" and project_file(own) != shared / "acceld.toml"
    assert find_home(folder=shared).path == shared / ".acceld" and project_file(shared) == shared / "acceld.toml"


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


def test_an_empty_file_that_a_full_disk_left_is_written_again(tmp_path: Path) -> None:
    home = Home(tmp_path / ".acceld")
    (home.prepare() / ".gitignore").write_text("")
    home.prepare()
    assert (home.path / ".gitignore").read_text() == "*\n"


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


ORDINARY = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search,-fowner"] if os.geteuid() == 0 else []
"""Begins a command that obeys the permissions of files, which root's commands would not."""
RUN_ALL = """
import sys
from acceld.cli.main import main
for command in sys.argv[2:]:
    code = main([*command.split(","), "--home", sys.argv[1]])
    sys.stdout.flush()
    print(f"code {code}", flush=True)
"""


def as_ordinary_user(folder: Path, *commands: str) -> list[tuple[int, str]]:
    """Run commands of a state folder in one process, as a user whom permissions bind. Return the exit code of each, and all
    that it prints. Commas separate the words of a command.
    """
    done = subprocess.run(
        [*ORDINARY, sys.executable, "-c", RUN_ALL, str(folder), *commands],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=True,
    )
    *said, end = re.split(r"code ([0-9]+)\n", done.stdout)
    assert (end, len(said)) == ("", 2 * len(commands))
    return [(int(code), text) for text, code in zip(said[::2], said[1::2], strict=True)]


def test_a_folder_that_can_not_be_looked_into_is_named_with_what_to_do(tmp_path: Path) -> None:
    home = Home(tmp_path / ".acceld")
    home.prepare()
    home.path.chmod(0)
    commands = ("runs", "query,SELECT 1", "status", "stop", "logs", "clean,--all", "doctor,database")
    try:
        *refused, (code, examined) = as_ordinary_user(home.path, *commands, "doctor")
    finally:
        home.path.chmod(0o700)
    for name, (exit_code, said) in zip(commands, refused, strict=True):
        assert exit_code == 2, name
        assert f"no access to {home.path}/" in said, name
        assert "Permission denied\n  Change its permissions, or name a place that you may use" in said, name
    assert code == 1
    assert f"no access to {home.database}" in examined
    assert "✓ sqlite" not in examined
    assert "sandbox" in examined, "the doctor goes on"


def test_a_history_that_can_not_be_written_is_read(tmp_path: Path) -> None:
    home = Home(tmp_path / ".acceld")
    home.prepare()
    Store.open(home.database).close_now()
    floors = home.path / "floors"
    floors.mkdir()
    (floors / "one.json").write_text("{}")
    floors.chmod(0o500)
    home.path.chmod(0o500)
    try:
        counted, listed, (code, said) = as_ordinary_user(
            home.path, "query,SELECT count(*) AS runs FROM runs,--csv", "runs,--json", "clean,--all"
        )
    finally:
        home.path.chmod(0o700)
        floors.chmod(0o700)
    assert counted == (0, "runs\n0\n")
    assert listed[0] == 0
    assert '"runs": []' in listed[1]
    assert code == 2
    assert f"no access to {floors}: Permission denied" in said


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to somebody else")
def test_the_owner_of_somebody_elses_folder_is_named(tmp_path: Path) -> None:
    folder = tmp_path / ".acceld"
    folder.mkdir(mode=0o700)
    os.chown(folder, 65534, 65534)
    owner = pwd.getpwuid(65534).pw_name
    assert other_owner(folder / "acceld.db") == owner
    ((code, said),) = as_ordinary_user(folder, "start")
    assert code == 2
    assert f"can not use {folder} as state folder: " in said
    assert f"; it belongs to {owner}\n" in said


def test_the_doctor_says_that_a_user_without_a_folder_can_own_no_state_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/proc/nowhere")
    (finding,) = [one for one in _state(argparse.Namespace(home=str(tmp_path))) if one.name == "state folder"]
    assert finding.state == "fail"
    assert "/proc/nowhere/acceld/histories" in finding.text
    assert finding.todo.startswith("XDG_STATE_HOME=DIR")


def test_a_process_that_has_ended_is_gone_before_its_parent_asks() -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as ended:
        assert process_start(ended.pid) is not None
        assert ended.stdin is not None
        ended.stdin.close()
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        assert process_start(ended.pid) is None
