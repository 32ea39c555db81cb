"""The examples of docs/python.md run as they stand there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import acceld
from acceld import drafts
from acceld.errors import UsageError

PAGE = Path(__file__).parents[1] / "docs" / "python.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)

KERNEL = """
import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((128, 2048), dtype=nl.float32, buffer=nl.shared_hbm)
    p, f = nl.arange(128)[:, None], nl.arange(256)[None, :]
    for tile in nl.affine_range(8):
        nl.store(out[p, 256 * tile + f], nl.multiply(nl.load(x[p, 256 * tile + f]), 2.0))
    return out
"""
REFERENCE = "import numpy as np\n\n\ndef forward(x):\n    return x * 2\n"


def test_the_simulator_can_be_used_alone(capsys: pytest.CaptureFixture[str]) -> None:
    shared: dict[str, object] = {}
    for example in EXAMPLES[1:]:
        exec(compile(example, str(PAGE), "exec"), shared)  # noqa: S102  # our own page
    reported = capsys.readouterr().out.splitlines()
    assert reported[0] == "None there is no history in /no/such/history yet"
    assert re.fullmatch(r"[\d.]+ us on trn1, simulated", reported[2])
    assert "partition" in reported[3]


def test_a_value_that_is_no_choice_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="preset='fast'"):
        acceld.optimize("silu", preset="fast", home=tmp_path / "state")
    assert not (tmp_path / "state").exists()


@pytest.mark.slow
def test_a_run_is_followed_to_its_end(tmp_path: Path) -> None:
    folder = tmp_path / "workloads" / "scale"
    folder.mkdir(parents=True)
    argument = drafts.parse_argument("x=128x2048:float32", 0)
    outputs = [drafts.DraftOutput("out", (128, 2048), "float32")]
    toml = drafts.workload_toml(
        "scale", [argument], outputs, baselines={"nki_legacy": "kernel_legacy.py"}, reference="reference.py"
    )
    (folder / "workload.toml").write_text(toml)
    (folder / "kernel_legacy.py").write_text(KERNEL)
    (folder / "reference.py").write_text(REFERENCE)
    (tmp_path / "acceld.toml").write_text('[paths]\nworkloads = ["workloads"]\n')
    runtime = tmp_path / "run"
    runtime.mkdir(mode=0o700)
    environment = os.environ | {"XDG_RUNTIME_DIR": str(runtime), "XDG_CONFIG_HOME": str(tmp_path / "config")}

    def run(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, *words],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    try:
        reported = run("-c", EXAMPLES[0]).splitlines()
        state, source, speedup = reported[-1].split()
        assert (state, source) == ("finished", "simulated") and float(speedup) >= 1
        assert reported[0].startswith("c1: ")
    finally:
        run("-m", "acceld", "stop")
