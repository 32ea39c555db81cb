"""Drawn programs follow from their seed and number, are numpy that runs, and hold no size in their formula."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from acceld.dataset.programs import FAMILIES, SIZES, drawn
from acceld.lowering.kernels import LARGEST, Pieces, lowered
from acceld.lowering.numpy_reference import traced
from acceld.lowering.spelling import printed
from acceld.report.datasets import TEST_SHARE, split, three_way_split

MANY = 300


def test_a_program_follows_from_its_seed_and_number_alone() -> None:
    assert [drawn(3, number) for number in reversed(range(40))] == [drawn(3, number) for number in range(40)][::-1]
    assert drawn(3, 0).text != drawn(4, 0).text


def test_every_family_and_size_is_drawn_about_as_often_as_stated() -> None:
    programs = [drawn(0, number) for number in range(2 * MANY)]
    total = sum(weight for weight, _ in FAMILIES.values())
    for name, (weight, _) in FAMILIES.items():
        assert abs(sum(one.family == name for one in programs) / len(programs) - weight / total) < 0.06
    for name, size in SIZES.items():
        assert abs(sum(one.size == name for one in programs) / len(programs) - size.share) < 0.06


def test_a_formula_holds_no_size() -> None:
    extents = {extent for size in SIZES.values() for extent in (*size.rows, *size.columns, *size.inner) if extent > 128}
    for number in range(MANY):
        formula = drawn(0, number).formula
        assert not extents & set(map(int, re.findall(r"(?<![\w.])\d+(?![\w.]|\*\*)", formula))), formula


def test_every_small_program_is_numpy_that_gives_finite_numbers() -> None:
    for number in range(60):
        program = drawn(1, number)
        if program.size != "small":
            continue
        module: dict[str, object] = {}
        exec(compile(program.text, program.name, "exec"), module)  # noqa: S102  # drawn by acceld
        np.random.seed(0)
        with np.errstate(all="raise", under="ignore"):
            inputs = module["get_inputs"]()  # type: ignore[operator]
            result = module["forward"](*inputs)  # type: ignore[operator]
        assert np.isfinite(np.asarray(result, dtype=np.float64)).all(), program.text


def test_a_split_for_validation_leaves_the_test_split_as_it_is() -> None:
    keys = [f"formula {number}" for number in range(2000)]
    assert {key for key in keys if split(key) == "test"} == {key for key in keys if three_way_split(key) == "test"}
    validation = sum(three_way_split(key) == "validation" for key in keys)
    assert abs(validation / len(keys) - 1 / TEST_SHARE) < 0.03


def softmax_of_a_sum(x: np.ndarray, y: np.ndarray) -> object:
    e = np.exp(x + y - (x + y).max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("api", ["nki", "nki_legacy"])
def test_smaller_pieces_send_more_values_through_memory_of_the_kernel_alone(api: str) -> None:
    arguments = [("x", ((128, 256), "float32")), ("y", ((128, 256), "float32"))]
    graph = traced(softmax_of_a_sum, Path(__file__), arguments)

    def text(pieces: Pieces) -> str:
        return printed(lowered(graph, api, pieces=pieces), api)

    held = [text(pieces).count("private_hbm") for pieces in (LARGEST, Pieces(nodes=2), Pieces(nodes=1))]
    assert held[0] == 0 < held[1] < held[2]
    narrow = "64 * column"
    assert narrow in text(Pieces(columns=64)) and narrow not in text(LARGEST)
