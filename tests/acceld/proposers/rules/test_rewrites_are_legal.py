"""No rewrite of an accepted kernel of the current API is refused, over the baselines and every rule."""

from __future__ import annotations

from pathlib import Path

import pytest

from acceld.chips import NKI_DEFAULT
from acceld.nki.errors import KernelFailure
from acceld.nki.frontend.tracing import TensorSpec, TraceOptions, trace
from acceld.nki.source.launches import Launch
from acceld.nki.verify.verifier import verify
from acceld.proposers.rules.proposer import moves
from acceld.workloads import ArraySpec, find_workloads, workload

NAMES = sorted(name for name, one in find_workloads().items() if "nki" in one.baselines)
QUICK = ("rmsnorm_bf16", "silu")
"""Workloads whose baselines are traced in a moment."""


def refusals(name: str) -> list[str]:
    """Return the rewrites of a workload's baseline that the judge refuses, with its words."""
    one = workload(name)
    path: Path = one.baselines["nki"]
    arguments = [TensorSpec(a.shape, a.dtype) if isinstance(a, ArraySpec) else a for a in one.kernel_arguments()]
    tensors = [a for a in arguments if isinstance(a, TensorSpec)]
    shapes, dtypes = tuple(a.shape for a in tensors), tuple(a.dtype for a in tensors)
    chip = "trn3" if "mx" in name else "trn2"
    found = []
    for move in moves(path.read_text(encoding="utf-8"), Launch("nki", shapes, dtypes)):
        text = move.apply()
        if text is None:
            continue
        try:
            program = trace(
                text, arguments, filename=path.name, api="nki", chip=chip, options=TraceOptions(nki=NKI_DEFAULT)
            )
        except KernelFailure as failure:
            found.append(f"{move.step}: {failure.message}")
            continue
        found += [f"{move.step}: {finding.message}" for finding in verify(program)[:1]]
    return found


@pytest.mark.parametrize("name", QUICK)
def test_no_rewrite_of_a_small_baseline_is_refused(name: str) -> None:
    assert refusals(name) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in NAMES if name not in QUICK])
def test_no_rewrite_of_a_baseline_is_refused(name: str) -> None:
    assert refusals(name) == []
