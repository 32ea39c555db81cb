"""A kernel that narrowly fails is allowed the noise that its inputs amplify, and none if they are whole numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from acceld.evaluate.correctness.bands import Piece
from acceld.evaluate.correctness.oracle import amplified, noise


def operands(inputs: Sequence[Any], float64: bool) -> list[NDArray[np.float64]]:
    return [np.asarray(one, np.float64 if float64 else np.float32) for one in inputs]


def softmax_of_product(inputs: Sequence[Any], float64: bool) -> list[NDArray[Any]]:
    left, right = operands(inputs, float64)
    logits = left @ right
    weight = np.exp(logits - logits.max(axis=1, keepdims=True))
    return [weight / weight.sum(axis=1, keepdims=True)]


def product(inputs: Sequence[Any], float64: bool) -> list[NDArray[Any]]:
    left, right = operands(inputs, float64)
    return [left @ right]


@pytest.mark.parametrize("split", [False, True])
def test_inputs_that_amplify_rounding_raise_the_floor_and_whole_numbers_do_not(split: bool) -> None:
    rng = np.random.default_rng(3)
    normal = [rng.normal(size=shape).astype(np.float32) for shape in ((32, 64), (64, 48))]
    whole = [rng.integers(-4, 5, shape).astype(np.float32) for shape in ((32, 64), (64, 48))]
    found = {}
    for name, oracle, inputs in (
        ("mild", softmax_of_product, normal),
        ("steep", softmax_of_product, [10 * one for one in normal]),
        ("whole", product, whole),
    ):
        expected = oracle(inputs, True)
        floors = noise(oracle, inputs, expected, ["float32"], [Piece(0)], "own")
        assert not isinstance(floors, str)
        (raised,) = amplified(oracle, inputs, expected, ["float32"], [Piece(0)], floors, 7, split=split)
        assert raised.rel_l2 >= floors[0].rel_l2 and raised.worst_row >= floors[0].worst_row
        found[name] = raised.rel_l2
    assert found["whole"] == 0.0 < found["mild"]
    assert found["steep"] > 10 * found["mild"]
