"""A sorting network sorts any values, and its stages are few strided patterns."""

from __future__ import annotations

import numpy as np
import pytest

from acceld.lowering.network import rectangles, stages


@pytest.mark.parametrize("extent", [1, 2, 3, 5, 8, 9, 13, 16, 31, 64])
def test_every_row_of_zeros_and_ones_is_sorted(extent: int) -> None:
    generator = np.random.default_rng(extent)
    # a network that sorts zeros and ones sorts everything
    rows = (generator.random((200, extent)) < generator.random((200, 1))).astype(int)
    found = rows.copy()
    for distance, places in stages(extent):
        low, high = found[:, places], found[:, [at + distance for at in places]]
        found[:, places], found[:, [at + distance for at in places]] = np.minimum(low, high), np.maximum(low, high)
    assert (found == np.sort(rows, axis=1)).all()


@pytest.mark.parametrize("extent", [8, 13, 64, 100])
def test_patterns_have_the_positions_of_a_stage(extent: int) -> None:
    for _, places in stages(extent):
        found = []
        for start, axes in rectangles(places):
            steps = [np.arange(count) * step for step, count in axes]
            found += [start + int(sum(one)) for one in np.stack(np.meshgrid(*steps), -1).reshape(-1, len(axes))]
        assert sorted(found) == places


def test_a_stage_of_a_power_of_two_is_one_pattern() -> None:
    assert all(len(rectangles(places)) == 1 for _, places in stages(256))
