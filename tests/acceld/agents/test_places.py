"""Files that an agent may name: those below the roots, after links are resolved."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from acceld.agents.places import Places, opened
from acceld.config import Config
from acceld.errors import UsageError
from tests.acceld.agents.conftest import SLOW
from tests.standin_neuron.machine import small_silu


@pytest.fixture
def places(tmp_path: Path) -> Places:
    """An open folder ``open/`` with the workload ``small_silu/``, beside a closed one with an equal workload."""
    for name in ("open", "closed"):
        (tmp_path / name).mkdir()
        small_silu(tmp_path / name, SLOW)
    return opened([str(tmp_path / "open")], Config())


def test_a_workload_below_a_root_is_found_by_name_and_path(places: Places) -> None:
    assert places.workload("small_silu").folder == places.workload("./small_silu").folder
    assert places.own_workloads() == ["small_silu"]
    (places.roots[0] / "again").symlink_to("small_silu")
    assert places.workload("again").name == "small_silu"


def test_a_relative_path_counts_from_the_root_or_from_the_folder_that_holds_the_root(
    places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, own = places.roots[0], places.roots[0] / "small_silu"
    monkeypatch.chdir(tmp_path)
    assert places.file("small_silu/kernel_legacy.py") == places.file("open/small_silu/kernel_legacy.py")
    assert places.new_folder("open/new") == places.new_folder("new") == root / "new"
    for outside in ("closed/small_silu", "../open/../closed/small_silu"):
        with pytest.raises(UsageError):
            places.file(f"{outside}/kernel_legacy.py")
    monkeypatch.chdir(own)
    assert places.new_folder("new") == root / "new"


def test_a_folder_that_is_a_link_out_of_the_roots_is_no_workload_of_the_agent(places: Places, tmp_path: Path) -> None:
    (places.roots[0] / "linked").symlink_to(tmp_path / "closed" / "small_silu")
    for name in ("linked", "./linked", "small_silu/../linked"):
        with pytest.raises(UsageError, match="outside of the folders"):
            places.workload(name)
    assert places.own_workloads() == ["small_silu"]


@pytest.mark.parametrize("file", ["workload.toml", "reference.py", "kernel_legacy.py"])
def test_a_file_of_a_workload_that_is_a_link_out_of_the_roots_is_refused(
    places: Places, tmp_path: Path, file: str
) -> None:
    own = places.roots[0] / "small_silu"
    assert (own / file).is_file(), sorted(path.name for path in own.iterdir())
    (own / file).unlink()
    (own / file).symlink_to(tmp_path / "closed" / "small_silu" / file)
    with pytest.raises(UsageError, match="outside of the folders"):
        places.workload("small_silu")


def test_a_workload_may_not_name_files_above_the_roots(places: Places, tmp_path: Path) -> None:
    own = places.roots[0] / "small_silu"
    text = (own / "workload.toml").read_text()
    (own / "workload.toml").write_text('reference = "../../closed/small_silu/reference.py"\n' + text)
    with pytest.raises(UsageError, match="outside of the folders"):
        places.workload("small_silu")


def test_kernels_and_new_folders_may_not_lie_behind_a_link_out_of_the_roots(places: Places, tmp_path: Path) -> None:
    (tmp_path / "closed" / "kernel.py").write_text(SLOW)
    (places.roots[0] / "kernel.py").symlink_to(tmp_path / "closed" / "kernel.py")
    (places.roots[0] / "out").symlink_to(tmp_path / "closed")
    for path in ("kernel.py", "out/kernel.py", str(places.roots[0] / "out" / "kernel.py")):
        with pytest.raises(UsageError, match="outside of the folders"):
            places.kernel_file(path)
    with pytest.raises(UsageError, match="outside of the folders"):
        places.new_folder("out/new")
    shutil.copy(tmp_path / "closed" / "kernel.py", places.roots[0] / "mine.py")
    assert places.kernel_file("mine.py").name == "mine.py"
