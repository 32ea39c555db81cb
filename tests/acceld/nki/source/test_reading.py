"""Facts about a kernel that rules ask for."""

from __future__ import annotations

import pytest

from acceld.nki.source.launches import Launch
from acceld.nki.source.reading import KernelModule
from acceld.proposers.rules.proposer import moves
from tests.acceld.proposers.rules.kernels import arrays, current, run

TYPES = """
import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


def kernel(x, w):
    loaded = nl.load(x)
    copied = nl.copy(loaded)
    narrow = nl.copy(copied, dtype=nl.bfloat16)
    same = nl.ndarray((128, 512), dtype=narrow.dtype, buffer=nl.sbuf)
    unknown = nl.load(w)
    sum_of = nl.add(loaded, 1.0)
    twice = nl.load(x)
    twice = nl.load(w)
    own = nl.ndarray((128, 512), dtype=own.dtype, buffer=nl.sbuf)
    one = nl.copy(other)
    other = nl.copy(one)
"""


def test_the_dtype_of_a_tile_is_declared_or_that_of_what_it_is_loaded_or_copied_from() -> None:
    kernel = KernelModule(TYPES, Launch("nki_legacy", ((128, 512), (128, 512)), ("float32",)))
    known = {"x": "float32", "loaded": "float32", "copied": "float32", "narrow": "bfloat16", "same": "bfloat16"}
    assert {name: kernel.dtype_of(name) for name in known} == known
    assert not any(map(kernel.dtype_of, ("w", "unknown", "sum_of", "twice", "own", "one", "other", "no_such_name")))


LOOP = """
    out = nl.ndarray((512, 256), dtype=nl.float32, buffer=nl.shared_hbm)
    kept = nl.ndarray((128, 1024), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=kept, value=0.0)
    for i in range(4):
        tile = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[nl.ds(128 * i, 128), 0:256])
        nisa.tensor_tensor(dst=kept[0:128, nl.ds(256 * i, 256)], data1=tile, data2=tile, op=nl.multiply)
        nisa.dma_copy(dst=out[nl.ds(128 * i, 128), 0:256], src=kept[0:128, nl.ds(256 * i, 256)])
    return out
"""


def kind_of_loop(body: str, before: str = "") -> str:
    return KernelModule(before + current("x", body), Launch("nki", ((512, 256),))).loops[0].kind


def test_a_loop_over_range_with_independent_iterations_is_parallel() -> None:
    assert kind_of_loop(LOOP) == "affine_range"
    asserts = LOOP.replace("    out =", "    check(x.shape[0] % 128 == 0, 'rows')\n    out =").replace(
        "        tile =", "        check(i < 4, 'iterations')\n        tile ="
    )
    assert kind_of_loop(asserts) == "range", "a function of unknown origin may do anything"
    assert kind_of_loop(asserts, "from checks import check\n") == "affine_range", "it gets only numbers"
    for change in ("check(out)", "check()", "check(tile, 1)"):
        assert (
            kind_of_loop(
                LOOP.replace("        nisa.dma_copy(dst=out", f"        {change}\n        nisa.dma_copy(dst=out")
            )
            == "range"
        )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("data2=tile", "data2=kept[0:128, 0:256]"),  # reads what another iteration writes
        ("dst=out[nl.ds(128 * i, 128)", "dst=out[nl.ds(64 * i, 128)"),  # writes rows twice
        ("nl.ds(256 * i, 256)]", "0:256]"),  # one place for all iterations
        ("        nisa.dma_copy(dst=out", "        other = kept\n        nisa.dma_copy(dst=out"),
        ("        nisa.dma_copy(dst=out", "        unknown(kept)\n        nisa.dma_copy(dst=out"),
        ("range(4)", "nl.sequential_range(4)"),  # the author wants the order
    ],
)
def test_a_loop_whose_iterations_may_depend_on_each_other_is_not(before: str, after: str) -> None:
    assert before in LOOP
    assert kind_of_loop(LOOP.replace(before, after)) != "affine_range"


@pytest.mark.parametrize(
    ("place", "kind"),
    [
        ("out.ap(pattern=[[256, 128], [1, 256]], offset=128 * 256 * i)", "affine_range"),
        ("out.ap([[256, 128], [1, 256]], (128 * i) * 256)", "affine_range"),
        (
            "out.ap(pattern=[[256, 128], [1, 256]], offset=128 * 255 * i)",
            "range",
        ),  # the last elements are written again
        ("out.ap(pattern=[[512, 128], [1, 256]], offset=256 * i)", "range"),  # in turn, which is not proved
        ("out.ap(pattern=[[256, 128], [1, 256]])", "range"),
        ("out.ap(pattern=[[256, 128], [1, 256]], offset=128 * 256 * i, vector_offset=kept)", "range"),
        ("out.ap(pattern=[[256, rows], [1, 256]], offset=128 * 256 * i)", "range"),
    ],
)
def test_a_loop_that_writes_by_patterns_is_parallel_if_their_elements_are_apart(place: str, kind: str) -> None:
    assert kind_of_loop(LOOP.replace("out[nl.ds(128 * i, 128), 0:256]", place)) == kind


TAILS = """
    out = nl.ndarray((600, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    for i in nl.affine_range(5):
        rows = min(128, 600 - 128 * i)
        tile = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile[0:rows, 0:256], src=x[nl.ds(128 * i, rows), 0:256])
        squares = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation(dst=squares[0:rows, 0:256], op=nl.square, data=tile[0:rows, 0:256])
        total = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_reduce(dst=total[0:rows, 0:1], op=nl.add, data=squares[0:rows, 0:256], axis=1)
        nisa.dma_copy(dst=out[nl.ds(128 * i, rows), 0:1], src=total[0:rows, 0:1])
    return out
"""


@pytest.mark.parametrize(
    ("rows", "offered"),
    [
        ("data=squares[0:rows,", True),
        ("data=squares[nl.ds(0, rows),", True),
        ("data=squares[0:min(600 - 128 * i, 128),", True),
        ("data=squares[0:rows - 1,", False),
        ("data=squares[0:min(128, 599 - 128 * i),", False),
        ("data=squares[nl.ds(0, other),", False),
    ],
)
def test_slices_of_as_many_rows_as_are_left_are_the_same_elements(rows: str, offered: bool) -> None:
    source = current("x, other", TAILS.replace("data=squares[0:rows,", rows))
    found = {move.rule: move for move in moves(source, Launch("nki", ((600, 256), None)))}
    assert ("reduce_in_activation" in found) is offered
    if offered:
        made = found["reduce_in_activation"].apply()
        given = arrays((600, 256))
        assert made is not None
        kernels = [one.replace("kernel(x, other)", "kernel(x)") for one in (source, made)]
        before, after = (run(one, *given) for one in kernels)
        assert abs(after - before).max() < 1e-3


def test_slices_of_sizes_that_are_not_known_are_not_the_same() -> None:
    body = "    t = nl.ndarray((128, 8), dtype=x.dtype, buffer=nl.sbuf)\n    nisa.memset(dst=t[nl.ds(0, a), 0:8], value=0.0)"
    kernel = KernelModule(
        current("x, a, b", f"{body}\n    nisa.tensor_copy(dst=x, src=t[nl.ds(0, b), 0:8])"), Launch("nki", (None,))
    )
    (_, first), (_, second) = kernel.uses["t"]
    assert first.dims is not None and not first.same_as(second) and not first.same_as(first)
    assert first.dims[0].width is None and not first.dims[0].is_point


def test_a_slice_of_one_column_is_a_column_also_of_a_tile_whose_shape_is_not_known() -> None:
    source = current(
        "w",
        """
    out = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    taps = loaded(w)
    first = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=first, data=taps[:, 1:2], op0=nl.multiply, operand0=2.0)
    nisa.dma_copy(dst=out, src=first)
    return out
""",
    ).replace(
        "@nki.jit",
        "def loaded(src):\n    tile = nl.ndarray(src.shape, dtype=nl.float32, buffer=nl.sbuf)\n"
        "    nisa.dma_copy(dst=tile, src=src)\n    return tile\n\n\n@nki.jit",
    )
    kernel = KernelModule(source, Launch("nki", ((128, 4),)))
    scaled = next(one for one in kernel.statements if one.op == "tensor_scalar")
    assert "taps" in kernel.returned and kernel.is_column(scaled.reads["data"])
