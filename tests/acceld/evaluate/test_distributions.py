"""Inputs that are widened where a workload refuses to scale all of them."""

from __future__ import annotations

import numpy as np
import pytest

from acceld.errors import WorkloadError
from acceld.evaluate.correctness.distributions import boosted_variants, inputs_of, is_boosted
from acceld.workloads import workload as find_workload


def test_an_outlier_is_a_whole_vector_and_the_rest_stays_as_it_was() -> None:
    workload = find_workload("gqa_full")
    own, widened = inputs_of(workload, 5, "own")[1], inputs_of(workload, 5, "outliers/k-30")[1]
    changed = (own != widened).any(axis=-1)
    assert changed.sum() == 32 and own.shape[:-1] == changed.shape
    np.testing.assert_array_equal(widened[changed], own[changed] * np.float32(30))
    assert (inputs_of(workload, 5, "outliers/k-30")[1] == widened).all(), "the seed alone decides"
    assert (inputs_of(workload, 6, "outliers/k-30")[1] != widened).any()


def test_arguments_are_boosted_only_where_scaling_all_is_refused() -> None:
    gqa = boosted_variants(find_workload("gqa_full"))
    assert gqa == [kind for name in "qkv" for kind in (f"boosted/{name}-10", f"outliers/{name}-30")]
    assert all(is_boosted(variant) for variant in gqa) and not is_boosted("own")
    assert not boosted_variants(find_workload("silu"))
    with pytest.raises(WorkloadError, match="no argument 'w'"):
        inputs_of(find_workload("gqa_full"), 1, "outliers/w-30")
