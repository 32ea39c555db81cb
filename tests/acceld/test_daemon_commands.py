"""start, status, stop, restart, logs, db and query as a person uses them, in processes of their own."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from acceld import child
from acceld.cli.commands.status import lines
from acceld.cli.commands.stop import _serves, _Waiting, stop
from acceld.cli.main import main
from acceld.client import Client, not_running
from acceld.daemon.process import allow_open_files, check_addresses
from acceld.errors import DaemonError, StoreError
from acceld.home import DaemonLock, Home

SDKS = ("aiohttp", "anthropic", "openai", "pydantic", "textual", "sqlite3", "sqlite_utils", "numpy", "rich", "asyncio")


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Return an environment whose folders are the test's own."""
    runtime = tmp_path / "run"
    runtime.mkdir(mode=0o700)
    return os.environ | {
        "XDG_RUNTIME_DIR": str(runtime),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "ACCELD_HOME": str(tmp_path / ".acceld"),
        "ACCELD_EVALUATE_SLOTS": "1",
    }


def acceld(environment: dict[str, str], *words: str, code: int = 0) -> str:
    """Run one command; return its output."""
    done = subprocess.run(
        [sys.executable, "-m", "acceld", *words],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout if code == 0 else done.stderr


def test_stop_now_ends_a_daemon_that_hangs(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    started = json.loads(acceld(environment, "start", "--json"))
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("acceld.cli.commands.stop.HANG_S", 0.2)
    os.kill(started["pid"], signal.SIGSTOP)
    try:
        assert main(["stop", "--now"]) == 0
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(started["pid"], signal.SIGKILL)
    said = capsys.readouterr()
    assert f"stopped (pid {started['pid']})" in said.out and "hangs and is killed" in said.err
    assert "no daemon runs" in acceld(environment, "status", code=3)


def test_stop_says_stopped_of_a_daemon_that_ends_while_it_is_asked(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    started = json.loads(acceld(environment, "start", "--json"))
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    def gone(home: Home, **_: object) -> None:
        os.kill(started["pid"], signal.SIGKILL)
        while home.is_served():
            time.sleep(0.01)
        raise not_running(home)

    monkeypatch.setattr("acceld.cli.commands.stop.Client", gone)
    assert main(["stop"]) == 0
    assert f"stopped (pid {started['pid']})" in capsys.readouterr().out


def test_a_daemon_whose_history_can_not_be_read_is_stopped(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    started = json.loads(acceld(environment, "start", "--json"))
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    def broken(*_: object, **__: object) -> None:
        raise StoreError("the file is damaged")

    monkeypatch.setattr(Client, "get", broken)
    assert main(["stop"]) == 0
    assert f"stopped (pid {started['pid']})" in capsys.readouterr().out


def test_stop_waits_for_a_daemon_that_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = Home(tmp_path / ".acceld")
    home.prepare()
    lock = DaemonLock(home)
    with pytest.raises(DaemonError, match=r"has not begun to serve it within 0\.1 s"):
        stop(home, grace_s=None, timeout_s=0.1)
    lock.release()
    with pytest.raises(DaemonError, match="no daemon runs"):
        stop(home, grace_s=None, timeout_s=0.1)


def test_stop_does_not_wait_for_the_next_daemon(tmp_path: Path) -> None:
    home = Home(tmp_path / ".acceld")
    home.prepare()
    lock = DaemonLock(home)
    served = lock.announce(tmp_path / "socket", "1")
    assert _serves(home, served)
    assert not _serves(home, served | {"process_started": -1}), "another daemon serves the folder now"
    lock.release()
    assert not _serves(home, served | {"process_started": -1})


def test_stop_says_now_and_then_what_it_waits_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = iter([0.0, 0.5, 1.2, 5.0, 11.5, 12.0, 61.0])
    fake = SimpleNamespace(monotonic=lambda: next(clock), sleep=lambda _: None)
    monkeypatch.setattr("acceld.cli.commands.stop.time", fake)
    waiting = _Waiting(60.0)
    with pytest.raises(DaemonError, match="too long"):
        while True:
            waiting.look("its end", failed="too long", hint="")
    assert capsys.readouterr().err.splitlines() == ["waiting for its end (1 s)", "waiting for its end (12 s)"]


def test_the_life_of_a_daemon(environment: dict[str, str], tmp_path: Path) -> None:
    home = tmp_path / ".acceld"
    assert "no daemon runs" in acceld(environment, "status", code=3)
    assert "no daemon runs" in acceld(environment, "stop", code=3)
    started = json.loads(acceld(environment, "start", "--json"))
    try:
        assert f"(pid {started['pid']}) already serves" in acceld(environment, "start", code=3)
        status = json.loads(acceld(environment, "status", "--json"))
        assert (status["pid"], status["state"], status["home"]) == (started["pid"], "running", str(home))
        assert "running" in acceld(environment, "status")
        assert acceld(environment, "query", "SELECT kind FROM events", "--csv") == "kind\ndaemon_started\n"
        assert "can not be changed" in acceld(environment, "query", "DELETE FROM events", code=2)
        assert json.loads(acceld(environment, "db", "check", "--json"))["ok"] is True
        assert "a daemon uses" in acceld(environment, "db", "vacuum", code=2)
        assert "serving" in acceld(environment, "logs")
        again = json.loads(acceld(environment, "restart", "--json"))
        assert again["pid"] != started["pid"]
        copy = tmp_path / "copy.db"
        acceld(environment, "db", "backup", str(copy))
        assert copy.stat().st_size > 0
        assert "exists" in acceld(environment, "db", "backup", str(copy), code=1)
    finally:
        acceld(environment, "stop")
    assert not (home / "daemon.json").exists()
    assert list((tmp_path / "run" / "acceld").glob("*.sock")) == []
    kinds = acceld(environment, "query", "SELECT kind FROM events", "--csv").split()
    assert kinds == ["kind", "daemon_started", "daemon_stopped", "daemon_started", "daemon_stopped"]
    acceld(environment, "db", "vacuum")
    assert "0 runs" in acceld(environment, "db", "prune", "--older", "30d")


def test_cleaning_leaves_the_history_and_what_is_in_use(environment: dict[str, str], tmp_path: Path) -> None:
    home = tmp_path / ".acceld"
    for name in ("datasets/one/input0.bin", "floors/one.json", "neuron/one.neff", "best/kernel.py", "acceld.db"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_bytes(bytes(1024))
    assert "freed 1.0 KiB" in acceld(environment, "clean")
    assert not (home / "datasets" / "one").exists()
    assert json.loads(acceld(environment, "clean", "--all", "--json"))["freed_bytes"] == 2048
    left = sorted(str(path.relative_to(home)) for path in home.rglob("*") if path.is_file())
    assert left == ["acceld.db", "best/kernel.py"]


def test_a_state_folder_that_can_not_be_written_is_refused(environment: dict[str, str]) -> None:
    reported = acceld(environment, "start", "--home", "/proc/acceld", code=2)
    assert "can not use /proc/acceld as state folder" in reported
    assert "--home DIR" in reported


def test_a_misspelt_key_is_refused_with_the_nearest(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "acceld.toml").write_text("[search]\npresett = 'quick'\n")
    reported = acceld(environment, "start", code=2)
    assert "search.presett" in reported
    assert "Did you mean 'search.preset'?" in reported


def test_status_is_light(environment: dict[str, str]) -> None:
    code = (
        "import sys\nfrom acceld.cli.main import main\nmain(['status'])\n"
        f"print(sorted(name for name in {SDKS!r} if name in sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=300, check=True
    )
    assert done.stdout.strip() == "[]"


def test_an_older_span_must_be_given(environment: dict[str, str]) -> None:
    assert "--older SPAN" in acceld(environment, "db", "prune", code=2)


def test_the_service_file_names_home_and_interpreter(environment: dict[str, str], tmp_path: Path) -> None:
    shown = acceld(environment, "service", "show")
    (command,) = (line.removeprefix("ExecStart=") for line in shown.splitlines() if line.startswith("ExecStart="))
    words = [sys.executable, "-P", child.__file__, "acceld", "start", "--foreground", "--home"]
    assert shlex.split(command.replace("%%", "%").replace("$$", "$")) == [*words, str(tmp_path / ".acceld")]


def test_the_service_file_quotes_a_path_with_spaces(environment: dict[str, str], tmp_path: Path) -> None:
    home = tmp_path / 'a "b" 5 % $c' / ".acceld"
    shown = acceld(environment, "service", "show", "--home", str(home))
    written = str(home).replace("%", "%%").replace("$", "$$").replace('"', '\\"')
    assert f'--home "{written}"' in shown
    assert f"WorkingDirectory={str(home.parent).replace('%', '%%')}" in shown


def test_configuration_tells_where_values_come_from(environment: dict[str, str]) -> None:
    shown = json.loads(acceld(environment | {"ACCELD_SEARCH_PRESET": "quick"}, "config", "--changed", "--json"))
    assert shown["values"]["search.preset"] == {"value": "quick", "origin": "variable ACCELD_SEARCH_PRESET"}


def test_too_few_open_files_are_named_and_more_are_taken_where_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: taken.append(limits))
    for hard in (64, 150):
        monkeypatch.setattr(resource, "getrlimit", lambda _, hard=hard: (64, hard))
        with pytest.raises(DaemonError, match=f"may open {hard} files") as found:
            allow_open_files()
        assert "ulimit -n 1024" in found.value.hint
    assert taken == []
    for limits in ((64, 4096), (64, resource.RLIM_INFINITY), (1024, 4096)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, limits=limits: limits)
        allow_open_files()
    assert taken == [(4096, 4096), (256, resource.RLIM_INFINITY)]


def test_too_few_addresses_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (400 << 20, resource.RLIM_INFINITY))
    with pytest.raises(DaemonError, match="may use 400 MiB of addresses, and a daemon needs 1024") as found:
        check_addresses()
    assert "ulimit -v unlimited" in found.value.hint
    for soft in (1 << 30, resource.RLIM_INFINITY):
        monkeypatch.setattr(resource, "getrlimit", lambda _, soft=soft: (soft, soft))
        check_addresses()


def test_the_status_says_what_a_share_of_busy_slots_refers_to() -> None:
    storage = {"bytes": 1, "free_bytes": 1, "degraded": "", "data_bytes": 1, "data_cap_bytes": 1}
    told: dict[str, Any] = {"version": "1", "state": "running", "pid": 7, "uptime_s": 1, "home": "h", "runs": {}}
    told |= {"active": [], "storage": storage, "cost_usd": 0.0, "waits_for": [], "idle_exit_s": None}
    queue = {"slots": 2, "slots_in_use": 1, "waiting": 0, "sandbox_level": "L4"}

    def shown(**more: Any) -> str:
        return next(line for line in lines({**told, "queue": queue | more}) if line.startswith("queue"))

    assert shown(busy_share=None) == "queue     1/2 slots busy now, 0 waiting, sandbox L4"
    assert "1/2 slots busy now (100 % on average while kernels waited), 0 waiting" in shown(busy_share=1.0)
