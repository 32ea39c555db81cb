"""A kernel file brings the modules of its own package that it imports, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from acceld.errors import UsageError
from acceld.kernel_files import load_kernel, package_root, syntax_error
from acceld.workloads import workload


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_the_closure_follows_relative_and_absolute_imports(tmp_path: Path) -> None:
    write(tmp_path / "ops" / "__init__.py", "")
    write(tmp_path / "ops" / "tiles.py", "from . import sizes\n")
    write(tmp_path / "ops" / "sizes.py", "P = 128\n")
    write(tmp_path / "ops" / "unused.py", "raise SystemExit\n")
    kernel = write(tmp_path / "ops" / "kernel.py", "import torch\nfrom ops.tiles import x\nfrom .sizes import P\n")
    loaded = load_kernel(kernel, api="nki_legacy")
    assert set(loaded.closure) == {"ops/__init__.py", "ops/tiles.py", "ops/sizes.py"}
    assert loaded.trusted and loaded.filename == "ops/kernel.py"
    assert package_root(kernel, kernel.read_text()) == tmp_path.resolve()


def test_relative_imports_reach_folders_without_an_init_file(tmp_path: Path) -> None:
    write(tmp_path / "kernels" / "utils" / "sizes.py", "P = 128\n")
    write(tmp_path / "kernels" / "moe" / "parts.py", "from ..utils.sizes import P\n")
    kernel = write(
        tmp_path / "kernels" / "moe" / "kernel.py", "from ..utils.sizes import P\nfrom .parts import P as Q\n"
    )
    loaded = load_kernel(kernel, api="nki")
    assert set(loaded.closure) == {"kernels/utils/sizes.py", "kernels/moe/parts.py"}
    assert loaded.filename == "kernels/moe/kernel.py"
    assert package_root(kernel, kernel.read_text()) == tmp_path.resolve()


def test_absolute_imports_are_found_where_the_project_begins(tmp_path: Path) -> None:
    write(tmp_path / "project" / "pyproject.toml", "")
    write(tmp_path / "project" / "ops" / "norms.py", "P = 128\n")
    write(tmp_path / "stray.py", "P = 1\n")
    kernel = write(
        tmp_path / "project" / "tests" / "test_norm.py", "import os\nimport stray\nfrom ops.norms import P\n"
    )
    loaded = load_kernel(kernel, api="nki")
    assert set(loaded.closure) == {"ops/norms.py"}, "stray.py lies above the project"
    assert loaded.filename == "tests/test_norm.py"
    assert package_root(kernel, kernel.read_text()) == (tmp_path / "project").resolve()


def test_a_package_that_the_file_lies_in_is_found_without_a_project(tmp_path: Path) -> None:
    write(tmp_path / "models" / "llama" / "norms.py", "P = 128\n")
    kernel = write(tmp_path / "models" / "tests" / "kernel.py", "from models.llama.norms import P\n")
    assert set(load_kernel(kernel, api="nki").closure) == {"models/llama/norms.py"}


def test_an_import_beside_the_kernel_comes_before_one_of_the_project(tmp_path: Path) -> None:
    write(tmp_path / "setup.py", "")
    write(tmp_path / "sizes.py", "P = 1\n")
    write(tmp_path / "kernels" / "sizes.py", "P = 128\n")
    kernel = write(tmp_path / "kernels" / "kernel.py", "import sizes\n")
    assert load_kernel(kernel, api="nki").closure == {"sizes.py": "P = 128\n"}


def test_an_import_of_a_file_elsewhere_says_which_one_and_what_to_do(tmp_path: Path) -> None:
    write(tmp_path / "elsewhere" / "__init__.py", "")
    kernel = write(tmp_path / "here" / "kernel.py", "import linked\n")
    (tmp_path / "here" / "linked").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match=r"elsewhere/__init__\.py, which lies outside of .*/here") as caught:
        load_kernel(kernel, api="nki")
    assert "__init__.py into each folder" in caught.value.hint


def test_the_hash_covers_closure_entry_and_launch(tmp_path: Path) -> None:
    kernel = write(tmp_path / "kernel.py", "import helper\n")
    helper = write(tmp_path / "helper.py", "A = 1\n")
    hashes = [load_kernel(kernel, api="nki_legacy").sha256]
    helper.write_text("A = 2\n", encoding="utf-8")
    hashes.append(load_kernel(kernel, api="nki_legacy").sha256)
    hashes.append(load_kernel(kernel, api="nki_legacy", entry="f").sha256)
    hashes.append(load_kernel(kernel, api="nki_legacy", grid=(2,)).sha256)
    hashes.append(load_kernel(kernel, api="nki").sha256)
    assert len(set(hashes)) == 5


def test_cyclic_imports_end(tmp_path: Path) -> None:
    write(tmp_path / "a.py", "import b\n")
    write(tmp_path / "b.py", "import a\n")
    assert set(load_kernel(tmp_path / "a.py", api="nki").closure) == {"b.py"}


def test_a_missing_or_binary_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"nosuch\.py"):
        load_kernel(tmp_path / "nosuch.py", api="nki")
    (tmp_path / "binary.py").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="UTF-8"):
        load_kernel(tmp_path / "binary.py", api="nki")


def test_a_syntax_error_names_file_and_line(tmp_path: Path) -> None:
    error = syntax_error("x = 1\ndef f(:\n", tmp_path / "k.py")
    assert error is not None and "k.py:2" in error.message and "def f(:" in error.message
    assert syntax_error("x = 1\n", tmp_path / "k.py") is None


def test_a_notebook_is_refused_with_the_way_to_a_file(tmp_path: Path) -> None:
    notebook = write(tmp_path / "n.ipynb", "{}")
    for refused in (lambda: load_kernel(notebook, api="nki"), lambda: workload(str(notebook))):
        with pytest.raises(UsageError, match="is a notebook") as caught:
            refused()
        assert "%%writefile" in caught.value.hint
