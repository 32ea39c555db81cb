"""Fixtures of the agents' tests: a folder with a small workload and a slow kernel, and a server of tools."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.standin_neuron.machine import KERNEL, small_silu

SLOW = KERNEL.replace("512", "8").replace("affine_range(4)", "affine_range(256)")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield a new folder with ``small_silu/`` and ``mine.py``. A daemon that the test started is stopped afterwards."""
    folder = tmp_path / "project"
    folder.mkdir()
    (tmp_path / "run").mkdir(mode=0o700)
    small_silu(folder, SLOW)
    (folder / "mine.py").write_text(SLOW)
    for name, value in {
        "XDG_RUNTIME_DIR": str(tmp_path / "run"),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "ACCELD_HOME": str(folder / ".acceld"),
        "ACCELD_EVALUATE_SLOTS": "1",
        "ACCELD_EVALUATE_BUILD_S": "10",
        "OPENBLAS_NUM_THREADS": "1",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(folder)
    yield folder
    subprocess.run([sys.executable, "-m", "acceld", "stop"], env=dict(os.environ), capture_output=True, check=False)
