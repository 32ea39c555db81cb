"""Predictions of kernels of our own in forms whose latencies AWS published."""

from itertools import pairwise
from pathlib import Path

from acceld.nki.frontend.tracing import trace
from acceld.nki.frontend.tracing_types import TensorSpec
from acceld.nki.timing.parameters import LEGACY_2_20
from acceld.nki.timing.timeline import timeline

KERNELS = Path(__file__).parents[2] / "kernels" / "legacy"
PUBLISHED_MS = {"tiled": 51.80, "hoisted": 42.96, "blocked_free": 22.07, "blocked": 6.97}
"""[4096, 8192] x [8192, 8192] in bfloat16 on trn1 (AWS Neuron documentation v2.26.1, matrix multiplication tutorial)."""


def test_four_forms_of_a_product_are_in_order_and_each_within_35_percent() -> None:
    operands = [TensorSpec((8192, 4096), "bfloat16"), TensorSpec((8192, 8192), "bfloat16")]
    predicted = {}
    for form in PUBLISHED_MS:
        path = KERNELS / f"matmul_bf16_{form}.py"
        latency_us = timeline(trace(path.read_text(), operands, filename=path.name), LEGACY_2_20).latency_us
        assert latency_us is not None
        predicted[form] = latency_us / 1000
    assert all(slower > faster for slower, faster in pairwise(predicted.values()))
    assert all(abs(predicted[form] / ms - 1) <= 0.35 for form, ms in PUBLISHED_MS.items()), predicted
