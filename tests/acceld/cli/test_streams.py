"""Every command prints in every encoding: with similar characters where the encoding lacks one."""

from __future__ import annotations

import errno
import io
import json
import os
import resource
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from acceld.cli.main import COMMANDS, main
from acceld.cli.output import write_file
from acceld.cli.streams import SIMILAR
from acceld.errors import UsageError
from tests.store.records import state_with_runs

ENCODINGS = ("ascii", "latin-1")
KERNEL = """# Größe × 2 ≈ 4
from neuronxcc import nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.shared_hbm)
    tile = nl.load(x)
    nl.store(out, nl.multiply(tile, 2.0))
    return out
"""
WORKS = (
    "runs",
    "runs --json",
    "show r1",
    "show c2",
    "show i1",
    "show r1 --json",
    "tree r1",
    "diff r1",
    "best r1",
    "insights",
    "costs r1",
    "compare r1 r2",
    "export r1 -o report.html",
    "query --tables",
    "query 'select * from history'",
    "query --json 'select 1 as ≈'",
    "doctor database",
    "workloads",
    "workloads silu",
    "config",
    "doctor",
    "completion bash",
    "completion man",
    "profile kernel.py --arg x=128x64:float32",
    "suggest kernel.py",
    "port kernel.py --arg x=128x64:float32",
)
FAILS = (
    "replay r1",
    "no-such-command-≈",
    "show r1 --≈",
    "optimize ≈",
    "profile ≈.py",
)


def printed(monkeypatch: pytest.MonkeyPatch, encoding: str, words: list[str]) -> tuple[str, str, int]:
    """Return what a command prints on both streams in an encoding, and its exit code."""
    streams = [io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="strict") for _ in range(2)]
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", streams[0])
        patched.setattr(sys, "stderr", streams[1])
        try:
            code = main(words)
        except SystemExit as ended:  # --help
            code = int(ended.code or 0)
        for stream in streams:
            stream.flush()
    out, err = (stream.buffer.getvalue().decode(encoding) for stream in streams)
    return out, err, code


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with two finished runs and a kernel whose comment is not ASCII."""
    folder = tmp_path_factory.mktemp("history")
    state_with_runs(folder, runs=2)
    (folder / "kernel.py").write_text(KERNEL, encoding="utf-8")
    return folder


@pytest.fixture
def here(history: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    (tmp_path / "run").mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(history)
    return history


@pytest.mark.parametrize("line", [*WORKS, *FAILS])
def test_a_command_prints_in_every_encoding(here: Path, monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    words = shlex.split(line)
    out, err, code = printed(monkeypatch, "utf-8", words)
    assert (code == 0) is (line in WORKS), err
    for encoding in ENCODINGS:
        narrow = printed(monkeypatch, encoding, words)
        assert narrow[2] == code
        assert len(narrow[0].splitlines()) == len(out.splitlines())
        assert bool(narrow[1]) == bool(err)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_prints_in_ascii(here: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    out, err, code = printed(monkeypatch, "ascii", [name, "--help"])
    assert (code, err) == (0, "") and out.startswith(f"usage: acceld {name}")


def test_a_figure_has_the_nearest_characters_and_json_loses_nothing(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, _, code = printed(monkeypatch, "ascii", ["profile", "kernel.py", "--arg", "x=128x64:float32"])
    assert code == 0 and "latency" in out and "~ " in out and " us" in out
    out, _, _ = printed(monkeypatch, "ascii", ["query", "--json", "select '≈ ☃' as text"])
    assert json.loads(out)["rows"] == [{"text": "≈ ☃"}]


def test_a_name_that_is_no_unicode_is_printed(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, err, code = printed(monkeypatch, "utf-8", ["profile", os.fsdecode(b"\xff.py")])
    assert code == 2 and "?.py" in err


def test_each_similar_character_is_one_ascii_character() -> None:
    assert len(SIMILAR) > 40
    assert all(chr(number).isascii() for number in SIMILAR.values())


@pytest.mark.parametrize("options", [{"PYTHONIOENCODING": "ascii"}, {"PYTHONIOENCODING": "latin-1"}])
def test_a_process_prints_in_its_encoding(here: Path, options: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "acceld", "show", "r1"], env=os.environ | options, capture_output=True, check=False
    )
    assert done.returncode == 0 and b"Traceback" not in done.stderr
    assert b"~ 80" in done.stdout


def test_a_statement_in_another_encoding_is_an_error_that_says_so(here: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "acceld", "query", "-"],
        env=os.environ | {"PYTHONIOENCODING": "ascii"},
        input="select '≈'".encode(),
        capture_output=True,
        check=False,
    )
    assert done.returncode == 2 and b"standard input is not ascii" in done.stderr


@pytest.mark.parametrize("line", ["workloads", "workloads silu", "config show search.preset", "--help"])
def test_output_that_can_not_be_written_is_an_error_that_says_so(line: str, tmp_path: Path) -> None:
    """``/dev/full`` is a disk without room: short outputs fail only when they are flushed."""
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "acceld", *shlex.split(line)],
            check=False,
            cwd=tmp_path,
            stdout=full,
            stderr=subprocess.PIPE,
        )
    said = ended.stderr.decode()
    assert ended.returncode == 1
    assert "its output can not be written: No space left on device" in said and "Traceback" not in said


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_stream_takes_all_output(closed: str, tmp_path: Path) -> None:
    program = f"{shlex.quote(sys.executable)} -m acceld workloads silu {closed}"
    ended = subprocess.run(["/bin/sh", "-c", program], check=False, cwd=tmp_path, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ("silu" in ended.stdout) == (">&-" not in closed.replace("2>&-", ""))


def test_a_file_that_there_is_no_room_for_is_named(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/somewhere/log")

    monkeypatch.setattr("acceld.cli.commands.runs.run", full)
    assert main(["runs", "--no-pager"]) == 1
    said = capsys.readouterr().err
    assert "no room for /somewhere/log: No space left on device" in said and "Make room" in said


@pytest.mark.parametrize(("files", "code", "said"), [(20, 1, "may open 20 files"), (64, 0, "")])
def test_a_low_limit_on_open_files_suffices_or_is_named(here: Path, files: int, code: int, said: str) -> None:
    program = (
        f"ulimit -n {files}; exec {shlex.quote(sys.executable)} -m acceld profile kernel.py --arg x=128x64:float32"
    )
    ended = subprocess.run(["/bin/sh", "-c", program], check=False, capture_output=True, text=True)
    assert ended.returncode == code and said in ended.stderr, ended.stderr
    assert "Traceback" not in ended.stderr and "done again" not in ended.stderr


@pytest.mark.parametrize("mode", ["w", "x"])
def test_a_new_file_that_does_not_fit_is_not_left(tmp_path: Path, mode: str) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4, before[1]))
    try:
        with pytest.raises(UsageError, match="can not be written") as told:
            write_file(tmp_path / "new.py", "x" * 100, mode=mode)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "make room on the disk" in told.value.hint
    assert not (tmp_path / "new.py").exists()
