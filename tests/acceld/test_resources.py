"""acceld finds its own data in a checkout and in an installed wheel."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import acceld
from acceld.errors import AcceldError
from acceld.resources import data_folder, workloads_folder

PACKAGE = Path(acceld.__file__).parent


def test_a_checkout_has_its_workloads_beside_the_package() -> None:
    assert (workloads_folder() / "nkibench" / "silu" / "workload.toml").is_file()


def test_an_installed_package_has_them_inside(tmp_path: Path) -> None:
    site = tmp_path / "site"
    shutil.copytree(PACKAGE, site / "acceld", ignore=shutil.ignore_patterns("__pycache__", "_data"))
    shutil.copytree(workloads_folder(), site / "acceld" / "_data" / "workloads")
    (site / "workloads").mkdir()
    code = (
        "from acceld.workloads import find_workloads, workload; print(len(find_workloads()), workload('silu').folder)"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path.insert(0, {str(site)!r}); {code}"],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    count, folder = done.stdout.split()
    assert int(count) >= 18 and folder == str(site / "acceld" / "_data" / "workloads" / "nkibench" / "silu")


def test_a_folder_can_be_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "workloads").mkdir()
    monkeypatch.setenv("ACCELD_DATA", str(tmp_path))
    assert workloads_folder() == tmp_path / "workloads"
    with pytest.raises(AcceldError, match="prompts are missing"):
        data_folder("prompts")
