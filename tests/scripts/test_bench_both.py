"""Answers that the comparison of proposers serves are kernels that the verifier accepts."""

from __future__ import annotations

from pathlib import Path

import pytest

from acceld.nki.frontend.tracing import trace
from acceld.nki.frontend.tracing_types import TensorSpec
from acceld.nki.verify.verifier import verify
from scripts.bench_both import ANSWERS
from tests.properties import one_in

SHAPES = {
    "bmm_softmax": (TensorSpec((16, 4096, 64), "float32"), TensorSpec((16, 64, 4096), "float32")),
    "gqa_full": (
        TensorSpec((32, 128, 16, 128), "float32"),
        TensorSpec((1, 8, 4, 128, 8, 128), "float32"),
        TensorSpec((1, 32, 128, 1024), "float32"),
    ),
    "matmul_bf16": (TensorSpec((4096, 2048), "bfloat16"), TensorSpec((4096, 4096), "bfloat16")),
}


@pytest.mark.parametrize(
    "path", one_in(4, sorted(ANSWERS.glob("*/*.py"))), ids=lambda path: f"{path.parent.name}/{path.stem}"
)
def test_each_answer_is_a_legal_kernel_of_its_workload(path: Path) -> None:
    program = trace(path.read_text("utf-8"), list(SHAPES[path.parent.name]), api="nki", chip="trn2")
    assert not verify(program)
