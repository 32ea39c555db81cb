"""A wheel holds code, prompts and workloads, and works in an empty folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.acceld.nki.implementations import compiled

ROOT = Path(__file__).parents[2]


NAMES = "acceld store tui prompts workloads docs skills pyproject.toml setup.py MANIFEST.in README.md LICENSE acceld.toml".split()


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of this checkout, so that no build folder is left in it. Its compiled part is short: to compile the
    real one takes most of a build's time, and the installation of the checkout has done that.
    """
    copy = tmp_path_factory.mktemp("checkout")
    subprocess.run(["cp", "-r", *(str(ROOT / name) for name in NAMES), str(copy)], check=True)
    (copy / "tests").mkdir()
    subprocess.run(["cp", "-r", str(ROOT / "tests" / "adversarial"), str(copy / "tests")], check=True)
    (copy / "acceld" / "nki" / "timing" / "native.pyx").write_text("SHORT = True\n", encoding="utf-8")
    return copy


def build(source: Path, folder: Path, **environment: str) -> Path:
    """Make a wheel of a source folder. Nothing of an earlier build in that folder gets into the wheel."""
    shutil.rmtree(source / "build", ignore_errors=True)
    options = ["-q", "--no-deps", "--no-build-isolation", "-w", str(folder)]
    command = [sys.executable, "-m", "pip", "wheel", *options, str(source)]
    subprocess.run(command, check=True, capture_output=True, env=os.environ | environment)
    (built,) = folder.glob("acceld-*.whl")
    return built


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the wheel of this checkout."""
    return build(source, tmp_path_factory.mktemp("wheel"))


def test_the_wheel_has_packages_and_data_and_no_tests(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert "acceld/_data/workloads/nkibench/silu/workload.toml" in names
    assert {"acceld/_data/prompts/shared/planner.md", "acceld/_data/docs/rules.md"} <= set(names)
    assert "acceld/_data/skills/acceld/SKILL.md" in names
    assert any(name.startswith("acceld/tui/") and name.endswith(".tcss") for name in names)
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"acceld"}
    assert not [name for name in names if name.startswith("tests") or "__pycache__" in name]


@compiled
def test_the_wheel_has_compiled_passes_for_every_python_of_this_platform(wheel: Path) -> None:
    assert "-abi3-" in wheel.name
    assert "acceld/nki/timing/native.abi3.so" in zipfile.ZipFile(wheel).namelist()


@pytest.mark.slow
def test_a_wheel_without_the_compiled_part_is_one_for_every_platform(source: Path, tmp_path: Path) -> None:
    made = build(source, tmp_path, CC="false", CXX="false")
    assert made.name.endswith("-py3-none-any.whl")
    assert not [name for name in zipfile.ZipFile(made).namelist() if name.endswith(".so")]


@pytest.mark.slow
def test_a_wheel_made_from_the_source_distribution_has_the_same_files(
    source: Path, wheel: Path, tmp_path: Path
) -> None:
    make = "import setuptools.build_meta as backend; backend.build_sdist('dist')"
    subprocess.run([sys.executable, "-c", make], cwd=source, check=True, capture_output=True)
    (archive,) = (source / "dist").glob("acceld-*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path, filter="data")
    (unpacked,) = tmp_path.glob("acceld-*")
    again = build(unpacked, tmp_path / "wheel")

    def code(path: Path) -> set[str]:
        return {name for name in zipfile.ZipFile(path).namelist() if ".dist-info/" not in name}

    assert code(again) == code(wheel)


def test_commands_work_from_the_wheel_in_an_empty_folder(wheel: Path, tmp_path: Path) -> None:
    target, empty = tmp_path / "site", tmp_path / "empty"
    empty.mkdir()
    options = ["-q", "--no-deps", "--no-compile", "--target", str(target)]
    install = [sys.executable, "-m", "pip", "install", *options, str(wheel)]
    subprocess.run(install, check=True, capture_output=True)
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(target), "HOME": str(tmp_path)}
    for words, expected in ((["workloads"], "rmsnorm_matmul"), (["workloads", "silu"], str(target))):
        command = [sys.executable, "-P", "-m", "acceld", *words]
        done = subprocess.run(command, cwd=empty, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert expected in done.stdout
