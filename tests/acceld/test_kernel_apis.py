"""The API of a kernel file is read from its name and imports."""

from __future__ import annotations

from pathlib import Path

import pytest

from acceld.cli.main import main
from acceld.kernel_files import api_of_file, api_of_text
from acceld.workloads import workload


@pytest.mark.parametrize(
    ("text", "api"),
    [
        ("import nki.language as nl\n", "nki"),
        ("from nki import isa as nisa\n", "nki"),
        ("import neuronxcc.nki as nki\n", "nki_legacy"),
        ("from neuronxcc.nki.language import ndarray\n", "nki_legacy"),
        ("import triton.language as tl\n", "triton"),
        ("import numpy as np\n", None),
        ("import nki_helpers\nfrom .nki import tiles\n", None),
        ("import nki\nimport neuronxcc.nki\n", None),
        ("# import nki\nx = 'import nki'\n", None),
        ("import nki\n  indented wrongly\n", None),
        ("import nki\0", None),
    ],
)
def test_imports_tell_the_api(text: str, api: str | None) -> None:
    assert api_of_text(text) == api


def test_a_file_that_can_not_be_read_tells_none(tmp_path: Path) -> None:
    latin = tmp_path / "latin.py"
    latin.write_bytes(b"import nki  # \xe9\n")
    assert api_of_file(latin) is None and api_of_file(tmp_path / "none.py") is None
    assert api_of_file(tmp_path / "kernel.c") == "c"


def test_suggestions_for_a_file_are_in_the_api_that_it_imports(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.py"
    file.write_text(workload("silu").baselines["nki"].read_text())
    assert main(["suggest", str(file), "--workload", "silu", "--json"]) == 0
    shown = capsys.readouterr().out
    assert '"api": "nki"' in shown and "nisa.activation(dst=" in shown
