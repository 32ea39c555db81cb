"""Kernels whose tiles change where a reader does not look: rules see no place there, or one that keeps the results."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest

from acceld.nki.source.launches import Launch
from acceld.nki.source.normal import as_before, normalized
from acceld.proposers.rules.proposer import moves
from tests.acceld.proposers.rules.kernels import run

KERNELS = sorted((Path(__file__).parents[3] / "kernels" / "hidden_effects").glob("*.py"))


@pytest.mark.parametrize("file", KERNELS, ids=[one.stem for one in KERNELS])
def test_no_rewrite_of_a_kernel_with_hidden_effects_changes_its_results(file: Path) -> None:
    source = file.read_bytes().decode()
    first = source.splitlines()[0]
    shapes = ast.literal_eval(first.partition("shapes:")[2].strip()) if "shapes:" in first else ((512, 512),)
    rng = np.random.default_rng(0)
    given = [rng.normal(size=shape).astype(np.float32) for shape in shapes]
    expected = run(source, *given)
    np.testing.assert_allclose(run(normalized(source), *given), expected, rtol=1e-4, atol=1e-4)
    for move in moves(source, Launch("nki", shapes, ("float32",) * len(shapes))):
        made = move.apply()
        if made is not None:
            for text in (made, as_before(source, made)):
                np.testing.assert_allclose(run(text, *given), expected, rtol=2e-2, atol=2e-2, err_msg=move.step)


def test_there_are_such_kernels() -> None:
    assert len(KERNELS) > 70
