"""A folder to run commands in, and a daemon with scripted parts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from acceld.home import Home
from tests.faults.harness import client_of, start


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with its own runtime, configuration and state folders, so that no folder above it is found."""
    (tmp_path / "run").mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    Home(tmp_path / ".acceld").prepare()
    return tmp_path


@pytest.fixture
def untried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the strict gate of a new workload, which takes seconds: the test is about something else."""
    monkeypatch.setattr("acceld.cli.declared.MOST_S", 0.0)


@pytest.fixture
def daemon(folder: Path) -> Iterator[str]:
    """Yield the state folder of a daemon whose judge and proposer are scripted."""
    home = str(folder / ".acceld")
    process = start("tests.acceld.daemon.scripted", "--home", home, environment=dict(os.environ))
    try:
        client_of(Home(folder / ".acceld"))
        yield home
    finally:
        process.terminate()
        process.wait(300)
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()
