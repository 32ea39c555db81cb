"""The version of the performance model follows from its source, so that no change of a prediction keeps it."""

from __future__ import annotations

import ast
from pathlib import Path

from acceld import chips
from acceld.nki.timing import cost, parameters, uncertainty, version
from acceld.nki.timing.calibration import Calibration
from acceld.nki.timing.version import digest, model_of, model_version, sources


def test_every_file_that_a_prediction_depends_on_counts() -> None:
    found = sources()
    for module in (chips, cost, parameters, uncertainty):
        assert Path(str(module.__file__)) in found
    parts = {path.parent.name for path in found}
    assert {"timing", "ir", "verify", "execute", "core", "legacy", "current"} <= parts and not parts & {
        "port",
        "source",
    }
    assert model_version() == f"{parameters.PARAMS_VERSION}.{digest(found)}"


def test_nothing_that_a_prediction_depends_on_imports_what_is_left_aside() -> None:
    aside = tuple(f"acceld.nki.{name}" for name in version.ASIDE)
    for path in sources():
        for node in ast.walk(ast.parse(path.read_text())):
            modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            modules += [one.name for one in node.names] if isinstance(node, ast.Import) else []
            assert not any(f"{module}.".startswith(f"{one}.") for module in modules for one in aside), path


def test_a_changed_constant_changes_the_version_and_line_ends_do_not(tmp_path: Path) -> None:
    copies = []
    for path in sources():
        place = tmp_path / path.parent.name
        place.mkdir(exist_ok=True)
        copies.append(place / path.name)
        copies[-1].write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert digest(copies) == digest(sources())
    changed = next(path for path in copies if path.name == "parameters.py")
    changed.write_bytes(changed.read_bytes().replace(b"kernel_start_us: float = 8.0", b"kernel_start_us: float = 8.1"))
    assert digest(copies) != digest(sources())


def test_each_calibration_is_a_model_of_its_own() -> None:
    factors = {"overheads": 1.1, "transfers": 1.0, "slack": 1.0}
    made = Calibration("trn1", "nki_legacy", 7, factors, 9.0, 5.0)
    assert model_of(None) == model_version() == version.model_version()
    assert model_of(made).startswith(f"{model_version()}.c") and model_of(made) != model_of(None)
