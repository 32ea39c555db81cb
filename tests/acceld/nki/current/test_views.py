"""Views of the current API and run-time positions against numpy, as the access-pattern documents define them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from acceld.nki.errors import KernelFailure, LegalityError
from acceld.nki.execute.interpreter import execute
from acceld.nki.frontend.tracing import TensorSpec, trace
from acceld.nki.timing.timeline import timeline
from acceld.nki.verify.verifier import verify
from tests.acceld.nki.current.test_current import PRELUDE, drawn, ran, traced

TILE = """
    t = nl.ndarray(x.shape, dtype=x.dtype)
    nisa.dma_copy(dst=t, src=x)
"""


def run(body: str, arguments: str, shape: str, *arrays: NDArray[Any]) -> NDArray[Any]:
    """Return the output of a kernel whose body fills ``out``."""
    lines = "\n".join(f"    {line}" for line in body.strip("\n").split("\n"))
    text = f"@nki.jit\ndef kernel({arguments}):\n    out = nl.ndarray({shape}, dtype=x.dtype, buffer=nl.shared_hbm)\n"
    program = trace(
        f"{PRELUDE}{text}{lines}\n    return out\n",
        [TensorSpec(a.shape, a.dtype.name) for a in arrays],
        api="nki",
        chip="trn2",
    )
    assert verify(program) == ()
    (out,) = execute(program, arrays)
    return out


ROWS = np.array([[70], [3], [383], [12]], np.int32)
NUMBER = np.array([[22]], np.int32)
LOADED = "n = nl.ndarray(at.shape, dtype=nl.int32)\nnisa.dma_copy(dst=n, src=at)\n"


def test_rows_by_a_vector_of_indices_ignore_the_first_stride() -> None:
    (x,) = drawn((128, 3, 8))
    for source in (
        "x.reshape((384, 8)).ap(pattern=[[1, 4], [1, 8]], vector_offset=n, indirect_dim=0)",
        "x.reshape((384, 8)).ap(pattern=[[8, 4], [1, 8]], vector_offset=n)",
        "x.reshape((384, 8)).vector_select(0, n)",
    ):
        body = f"{LOADED}t = nl.ndarray((4, 8), dtype=x.dtype)\nnisa.dma_copy(dst=t, src={source})\nnisa.dma_copy(dst=out, src=t)"
        assert np.array_equal(run(body, "x, at", "(4, 8)", x, ROWS), x.reshape(384, 8)[ROWS[:, 0]])


@pytest.mark.parametrize(
    "source", ["x.select(1, n)", "x.select(1, r)", "x.ap([[256, 8], [1, 4]], scalar_offset=r, indirect_dim=1)"]
)
def test_a_scalar_picks_one_position_of_an_axis(source: str) -> None:
    (x,) = drawn((8, 64, 4))
    body = f"{LOADED}r = nisa.scalar_load(n)\nt = nl.ndarray((8, 4), dtype=x.dtype)\nnisa.dma_copy(dst=t, src={source})\nnisa.dma_copy(dst=out, src=t)"
    assert np.array_equal(run(body, "x, at", "(8, 4)", x, NUMBER), x[:, 22])


@pytest.mark.parametrize(
    "loop", ["nl.fori_loop(3, high, body, step=4)", "for i in nl.dynamic_range(3, high, 4):\n    body(i)"]
)
def test_a_loop_between_registers_steps_as_a_range_does(loop: str) -> None:
    (x,) = drawn((128, 64))
    body = (
        LOADED
        + TILE.replace("\n    ", "\n")
        + """
high = nisa.register_alloc()
nisa.register_load(high, n)
def body(i):
    column = t.ap([[64, 128], [1, 1]], scalar_offset=i, indirect_dim=1)
    nisa.tensor_scalar(column, column, nl.multiply, 10.0)
{loop}
nisa.dma_copy(dst=out, src=t)
""".replace("{loop}", loop)
    )
    expected = x.copy()
    expected[:, 3:22:4] *= 10
    np.testing.assert_allclose(run(body, "x, at", "x.shape", x, NUMBER), expected, rtol=1e-6)


def test_registers_compute() -> None:
    (x,) = drawn((128, 64))
    body = (
        LOADED
        + TILE.replace("\n    ", "\n")
        + """
i = nisa.scalar_load(n)
j = 2 * (i - 7) + 1 - i
part = nl.ndarray((128, 8), dtype=x.dtype)
nisa.tensor_copy(part, t.ap([[64, 128], [1, 8]], scalar_offset=j, indirect_dim=1))
nisa.dma_copy(dst=out, src=part)
"""
    )
    assert np.array_equal(run(body, "x, at", "(128, 8)", x, NUMBER), x[:, 9:17])


@pytest.mark.parametrize(
    ("view", "shape", "pick"),
    [
        ("t.slice(1, 8, 40, 2)", "(128, 16)", lambda x: x[:, 8:40:2]),
        ("t[:, -8:]", "(128, 8)", lambda x: x[:, -8:]),
        ("t.reshape_dim(1, (4, -1)).permute((0, 2, 1))", "(128, 16, 4)", lambda x: x.reshape(128, 4, 16).swapaxes(1, 2)),
        ("t.rearrange(('p', ('a', 'b')), ('p', 'b', 'a'), {'a': 4})", "(128, 16, 4)", lambda x: x.reshape(128, 4, 16).swapaxes(1, 2)),
        ("t.reshape((128, 4, 16))[:, :, 3]", "(128, 4)", lambda x: x.reshape(128, 4, 16)[:, :, 3]),
        ("t[:, 8:24].ap(pattern=[[64, 128], [2, 8]])", "(128, 8)", lambda x: x[:, 8:24:2]),
        ("t[0:64].expand_dim(1).broadcast(1, 2)", "(64, 2, 64)", lambda x: np.repeat(x[:64, None], 2, axis=1)),
    ],
)  # fmt: skip
def test_views_read_what_numpy_reads(view: str, shape: str, pick: object) -> None:
    (x,) = drawn((128, 64))
    body = (
        TILE.replace("\n    ", "\n")
        + f"part = nl.ndarray({shape}, dtype=x.dtype)\nnisa.tensor_copy(part, {view})\nnisa.dma_copy(dst=out, src=part)"
    )
    assert callable(pick)
    assert np.array_equal(run(body, "x", shape, x), pick(x))


def test_integers_drop_axes_of_hbm_and_keep_two_on_chip() -> None:
    (x,) = drawn((4, 128, 8))
    body = """
assert x[1].shape == (128, 8) and x[-1, 3].shape == (8,)
t = nl.ndarray((128, 4, 8), dtype=x.dtype)
assert t[:, 0].shape == (128, 8) and t[:, 0, 3].shape == (128, 1) and t[5].shape == (1, 4, 8)
assert t[:, 1, 2:4].get_pattern() == [[32, 128], [1, 2]] and t[:, 1, 2:4].offset == 10
u = nl.ndarray((128, 8), dtype=x.dtype)
nisa.dma_copy(dst=u, src=x[-2])
nisa.dma_copy(dst=out, src=u)
"""
    assert np.array_equal(run(body, "x", "(128, 8)", x), x[2])


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("for i in nl.dynamic_range(nisa.register_alloc(3)):\n    break", "left early"),
        ("while nisa.register_alloc(1):\n    pass", "not known while tracing"),
        ("x.select(0, nl.ndarray((1, 1), dtype=nl.float32))", "pass a tile of integers"),
    ],
)
def test_what_can_not_be_traced_is_refused_with_its_line(body: str, why: str) -> None:
    (x,) = drawn((8, 8))
    with pytest.raises(KernelFailure, match=why) as refused:
        run(body, "x", "(8, 8)", x)
    assert refused.value.line == 9


def test_a_broadcast_of_many_elements_is_refused_with_the_view_that_works() -> None:
    (x,) = drawn((8, 16))
    with pytest.raises(LegalityError, match="axis 1 of 'x' has 16 elements") as refused:
        run("nisa.dma_copy(dst=out, src=x.broadcast(1, 4))", "x", "(8, 4, 16)", x)
    works = refused.value.hint.removeprefix("add an axis and repeat along it: ")
    assert works == ".expand_dim(1).broadcast(1, 4)"
    assert np.array_equal(run(f"nisa.dma_copy(dst=out, src=x{works})", "x", "(8, 4, 16)", x)[:, 3], x)


@pytest.mark.parametrize(
    ("index", "part"),
    [("nl.arange(4)[:, None], 0", "no index grids"), ("nl.affine_range(4), 0", "a range of loop iterations")],
)
def test_an_index_of_the_former_api_is_refused_with_what_replaces_it(index: str, part: str) -> None:
    body = f"@nki.jit\ndef kernel(x):\n    return nl.load(x[{index}])\n"
    with pytest.raises(LegalityError, match=part):
        trace("import nki\nimport nki.language as nl\n" + body, [TensorSpec((8, 4), "float32")], api="nki", chip="trn2")


@pytest.mark.parametrize("out", ["(1024,)", "(1, 1024)", "(2, 512)", "(1024, 1)"])
def test_a_row_stored_in_any_shape_of_hbm_is_one_run_of_memory(out: str) -> None:
    (x,) = drawn((1, 1024))
    body = f"""
@nki.jit
def kernel(x):
    row = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=row, src=x)
    out = nl.ndarray({out}, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=row)
    return out
"""
    program = traced(body, x.shape)
    np.testing.assert_array_equal(ran(program, [x]).ravel(), x.ravel())
    assert timeline(program).dma_descriptors == {4096: 2}
