"""Baselines of the repository are legal kernels, and right."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from acceld.nki.execute.interpreter import execute
from acceld.nki.frontend.tracing import trace
from acceld.nki.frontend.tracing_types import TensorSpec
from acceld.nki.ir.program import Program
from acceld.nki.verify.verifier import verify
from acceld.workloads import (
    ArraySpec,
    Workload,
    find_workloads,
    kernel_inputs,
    make_inputs,
    outputs_in_reference_layout,
    reference_outputs,
    workload,
)

CHIPS = {"nki_legacy": "trn1", "nki": "trn2"}
LEGACY = sorted(name for name, one in find_workloads().items() if "nki_legacy" in one.baselines)
BOTH = [(name, api) for name, one in find_workloads().items() for api in one.baselines if api in CHIPS]
VARIANTS = [(name, variant.name) for name, one in find_workloads().items() for variant in one.variants]


def traced(one: Workload, path: Path, api: str) -> Program:
    arguments = [TensorSpec(a.shape, a.dtype) if isinstance(a, ArraySpec) else a for a in one.kernel_arguments()]
    return trace(path.read_text(), arguments, filename=path.name, api=api, chip=(one.chips or (CHIPS[api],))[0])


def assert_right(one: Workload, program: Program) -> None:
    inputs = make_inputs(one, None)
    given = [array for array in kernel_inputs(one, inputs) if isinstance(array, np.ndarray)]
    results = outputs_in_reference_layout(one, execute(program, given))
    for result, exact in zip(results, reference_outputs(one, inputs), strict=True):
        distance = np.linalg.norm(result.astype(np.float64) - exact) / np.linalg.norm(exact)
        assert distance < one.tolerance


@pytest.mark.parametrize("name", LEGACY)
def test_a_legacy_baseline_is_legal(name: str) -> None:
    one = workload(name)
    program = traced(one, one.baselines["nki_legacy"], "nki_legacy")
    assert verify(program) == ()
    declared = [(output.kernel_shape, output.dtype) for output in one.outputs]
    assert [(program.buffers[i].shape, program.buffers[i].dtype) for i in program.outputs] == declared


@pytest.mark.parametrize("name", ["conv2d_maxpool_small", "rmsnorm_matmul"])
def test_a_baseline_is_right(name: str) -> None:
    one = workload(name)
    assert_right(one, traced(one, one.baselines["nki_legacy"], "nki_legacy"))


@pytest.mark.parametrize(("name", "variant"), [one for one in VARIANTS if one[0].endswith("small")])
def test_a_variant_is_right(name: str, variant: str) -> None:
    one = workload(name)
    found = next(v for v in one.variants if v.name == variant)
    assert_right(one, traced(one, found.path, found.api))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "api"), BOTH)
def test_every_baseline_is_legal_and_right(name: str, api: str) -> None:
    one = workload(name)
    program = traced(one, one.baselines[api], api)
    assert verify(program) == ()
    assert_right(one, program)
