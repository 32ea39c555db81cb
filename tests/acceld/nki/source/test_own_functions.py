"""Functions of the kernel's own file: what they read and write, and what rules do with calls of them."""

from __future__ import annotations

import ast

import pytest

from acceld.nki.source.launches import Launch
from acceld.nki.source.own_functions import own_functions
from acceld.nki.source.reading import KernelModule
from acceld.proposers.rules.proposer import moves
from tests.acceld.proposers.rules.kernels import arrays, current, run

SPREAD = """
def spread(row, tile, copies=4):
    width = tile.shape[1]
    for block in range(copies):
        part = tile[block * 32 : (block + 1) * 32, 0:width]
        nisa.nc_stream_shuffle(dst=part, src=row[0:1, :], shuffle_mask=[0] * 32)
"""
SCALED = SPREAD + current(
    "x, w",
    """
    out = nl.ndarray((512, 256), dtype=nl.float32, buffer=nl.shared_hbm)
    weight = nl.ndarray((1, 256), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=weight, src=w)
    for i in range(4):
        start = 128 * i
        tile = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[start : start + 128, 0:256])
        weights = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.sbuf)
        spread(weight, weights)
        made = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_tensor(dst=made, data1=tile, data2=weights, op=nl.multiply)
        nisa.dma_copy(dst=out[start : start + 128, 0:256], src=made)
    return out
""",
)
SHAPES = ((512, 256), (1, 256))


def effects(body: str) -> tuple[set[str], set[str]] | None:
    """Return what a function of two tiles reads and writes; None if the function is not understood."""
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    found = own_functions(ast.parse(f"def own(a, b, n=2):\n{lines}def kernel(x):\n    return x\n"), "nki").get("own")
    return (set(found.reads), set(found.writes)) if found else None


@pytest.mark.parametrize(
    ("body", "reads", "writes"),
    [
        ("nisa.tensor_copy(b, a)", "a", "b"),
        ("nisa.nc_matmul(dst=b, stationary=a, moving=a)", "a b", "b"),
        ("part = b[0:64, :]\nnisa.activation(dst=part[:, 0:8], op=nl.exp, data=a)", "a", "b"),
        ("if n > 1:\n    nisa.memset(dst=b, value=0.0)\nelse:\n    nisa.tensor_copy(b, a)", "a n", "b"),
        ("mine = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)\nnisa.tensor_copy(mine, a)", "a", ""),
        ("half = n // 2\nnisa.tensor_copy(dst=b[:, 0:half], src=a)", "a n", "b"),
        ("nisa.tensor_copy(dst=b.reshape((1, 4)), src=a)", "a", "b"),
    ],
)
def test_a_functions_effect_is_read_from_its_statements(body: str, reads: str, writes: str) -> None:
    assert effects(body) == (set(reads.split()), set(writes.split()))


@pytest.mark.parametrize(
    "body",
    [
        "return b",
        "b[0:1] = a",
        "tiles = (a, b)\nnisa.tensor_copy(tiles[1], tiles[0])",
        "other(b)",
        "x = other(b)",
        "nisa.tensor_copy(dst=b, src=other(a))",
        "nisa.dropout(dst=b, data=a, prob=0.5)",
        "b = a[0:1]\nnisa.memset(dst=b, value=0.0)",
        "while n:\n    nisa.memset(dst=b, value=0.0)",
        "kept.append(b)",
    ],
)
def test_a_function_that_may_do_more_is_not_understood(body: str) -> None:
    assert effects(body) is None


def test_a_function_is_understood_through_another_one() -> None:
    inner = "def inner(dst, src):\n    nisa.tensor_copy(dst, src)\n"
    found = own_functions(ast.parse(f"def outer(a, b):\n    inner(b, src=a)\n{inner}"), "nki")
    assert (set(found["outer"].reads), set(found["outer"].writes)) == ({"a"}, {"b"})
    again = own_functions(ast.parse("def outer(a):\n    outer(a)\n"), "nki")
    assert not again, "a function that calls itself"


def test_what_a_call_repeats_moves_before_the_loop() -> None:
    found = {move.rule: move for move in moves(SCALED, Launch("nki", SHAPES))}
    source = found["hoist_work"].apply()
    assert source is not None and source.index("spread(weight, weights)") < source.index("for i in range(4)")
    given = arrays(*SHAPES, seed=1)
    assert run(source, *given).tobytes() == run(SCALED, *given).tobytes()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("nisa.dma_copy(dst=tile, src=x[start", "nisa.dma_copy(dst=weights, src=x[start"),
        ("spread(weight, weights)", "spread(tile, weights)"),
        ("spread(weight, weights)", "spread(weights[0:1, :], weights)"),
    ],
)
def test_a_call_whose_result_changes_stays(before: str, after: str) -> None:
    source = SCALED.replace(before, after)
    assert "hoist_work" not in {move.rule for move in moves(source, Launch("nki", SHAPES))}


def test_a_call_may_read_an_argument_of_the_kernel_and_write_only_a_tile() -> None:
    source = SCALED.replace("spread(weight, weights)", "spread(w, weights)")
    assert not KernelModule(source, Launch("nki", SHAPES)).ambiguous
    for call in ("spread(weight, out)", "spread(out, weights)", "spread(weight, x)"):
        assert KernelModule(SCALED.replace("spread(weight, weights)", call), Launch("nki", SHAPES)).ambiguous, call


def test_work_at_an_index_that_is_named_in_the_loop_stays() -> None:
    for index in ("pick(i)", "nl.ds(128 * i, 128)", "nl.ds(0, pick(i))"):
        named = SCALED.replace(
            "        start = 128 * i\n",
            f"        start = 128 * i\n        here = {index}\n        print(f'{{here}}')\n",
        )
        source = named.replace("spread(weight, weights)", "nisa.dma_copy(dst=weights, src=x[here, 0:256])")
        source = source.replace("data2=weights", "data2=more").replace(
            "        made = nl",
            "        more = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.sbuf)\n"
            "        nisa.tensor_scalar(dst=more, data=weights, op0=nl.multiply, operand0=2.0)\n        made = nl",
        )
        assert source.count("here") == 3
        assert "hoist_work" not in {move.rule for move in moves(source, Launch("nki", SHAPES))}, index


def test_the_memory_of_a_tile_that_an_unknown_function_returns_is_not_known() -> None:
    source = SCALED.replace(
        "        made = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.sbuf)", "        made = fresh(tile)"
    )
    kernel = KernelModule(source, Launch("nki", SHAPES))
    assert kernel.space_of("made") == "" and kernel.space_of("tile") == "sbuf"
    assert "place_engine" not in {move.rule for move in moves(source, Launch("nki", SHAPES))}
