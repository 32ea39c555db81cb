"""A workload on which passing says little is told apart."""

from __future__ import annotations

from pathlib import Path

import pytest

from acceld.evaluate.admission import complaint
from acceld.workloads import load_workload

TOML = """
name = "weak"
description = "For a test"
[values]
N = 64
[arguments.x]
shape = [32, "N"]
[arguments.y]
shape = [32, "N"]
{fixed}
[outputs.out]
shape = [32, "N"]
[distributions]
own = "declared"
""" + "".join(
    f'{name} = {{ refused = "small" }}\n'
    for name in "scaled_up scaled_down shifted integers row_scaled sparse special".split()
)


def workload(folder: Path, formula: str, fixed: str = "") -> str:
    """What is said of a workload whose reference returns ``formula``."""
    (folder / "workload.toml").write_text(TOML.replace("{fixed}", fixed))
    (folder / "reference.py").write_text(f"import numpy as np\n\ndef forward(x, y):\n    return {formula}\n")
    return complaint(load_workload(folder), 7, 4)


@pytest.mark.parametrize(
    ("formula", "said"),
    [
        ("x * y", ""),
        ("x + 0 * y", "argument 'y' (part 1 of 4)"),
        ("x + 1e-9 * y", "argument 'y' (part 1 of 4)"),
        ("x + np.where(np.arange(32)[:, None] < 16, y, 0)", "argument 'y' (part 3 of 4)"),
        ("np.ones_like(x) + 1e-12 * x * y", "a constant passes"),
    ],
)
def test_an_input_that_makes_no_difference_is_named(tmp_path: Path, formula: str, said: str) -> None:
    found = workload(tmp_path, formula)
    assert said in found and bool(said) == bool(found)


def test_an_argument_that_is_declared_fixed_need_not_matter(tmp_path: Path) -> None:
    assert workload(tmp_path, "x + 0 * y", "distribution = { kind = 'normal', fixed = true }") == ""
