"""The cost of a first check is measured on real checks, beside the products of the workload's reference."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from acceld.workloads import load_workload
from scripts.evidence.simbench import checks
from scripts.evidence.simbench.kernels import Kernel

FOLDER = Path(__file__).resolve().parents[3] / "adversarial" / "workloads"


def kernel(name: str) -> Kernel:
    """Return the baseline of a small workload."""
    spec = load_workload(FOLDER / name)
    path = spec.baselines["nki_legacy"]
    return Kernel(name, path.read_text(), path.name, spec)


def test_a_row_has_the_cost_of_a_check_and_of_its_products() -> None:
    product, silu, together = checks.table([kernel("st_matmul"), kernel("st_silu")], say=lambda text: None)
    assert float(product["wall s"]) > 0 and float(product["peak GiB"]) > 0
    assert silu["ratio"] == "-"
    assert together["kernel"] == "together" and float(together["peak GiB"]) >= float(silu["peak GiB"])


def test_a_check_that_fails_ends_the_measurement() -> None:
    with pytest.raises(RuntimeError, match="no kernel"):
        checks.table([replace(kernel("st_silu"), source="import nki")], say=lambda text: None)
