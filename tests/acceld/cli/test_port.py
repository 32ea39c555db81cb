"""``acceld port`` as a person uses it: the file it writes, its messages and its exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from acceld.cli.main import main

KERNEL = """\
import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x, y):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    i, j = nl.mgrid[0:128, 0:64]
    total = nl.load(x[i, j]) + nl.load(y[i, j])  # both at once
    nl.store(out[i, j], total{mask})
    return out
"""


def port(tmp_path: Path, mask: str, *further: str) -> int:
    path = tmp_path / "add.py"
    path.write_text(KERNEL.replace("{mask}", mask), encoding="utf-8")
    home = ("--home", str(tmp_path / "state"))
    return main(["port", str(path), "--arg", "128x64:float32", "--arg", "y=128x64:float32", *further, *home])


def test_a_kernel_is_ported_traced_and_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert port(tmp_path, "", "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert said["holds"] and said["agreement"]["rel_l2"] == 0
    text = Path(said["file"]).read_text(encoding="utf-8")
    assert said["file"] == str(tmp_path / "add_nki.py")
    assert "# both at once" in text and "neuronxcc" not in text


def test_what_is_not_ported_is_reported_with_its_line_and_exit_7(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert port(tmp_path, ", mask=i + j < 100") == 7
    assert "add.py:10: not ported: the mask" in capsys.readouterr().out


def test_helpers_of_the_kernel_s_own_folder_are_ported_with_it_as_one_file(tmp_path: Path) -> None:
    helpers = KERNEL.partition("@nki.jit")[0] + "def both(a, b):\n    return nl.add(a, b)\n"
    (tmp_path / "helpers.py").write_text(f'"""Loads."""\n{helpers}', encoding="utf-8")
    path = tmp_path / "add.py"
    text = KERNEL.replace("{mask}", "").replace(
        "nl.load(x[i, j]) + nl.load(y[i, j])", "sums(nl.load(x[i, j]), nl.load(y[i, j]))"
    )
    arguments = [str(path), "--arg", "128x64:float32", "--arg", "y=128x64:float32", "--home", str(tmp_path / "state")]
    path.write_text(f"from helpers import both as sums\n{text}", encoding="utf-8")
    assert main(["port", *arguments]) == 0
    assert "neuronxcc" not in (tmp_path / "add_nki.py").read_text(encoding="utf-8")
    path.write_text(f"import helpers\n{text}".replace("sums(", "helpers.both("), encoding="utf-8")
    assert main(["port", *arguments, "--no-data"]) == 7
