"""Rules read kernels whose loops have steps, and whose work is in functions."""

from __future__ import annotations

import numpy as np
import pytest

from acceld.nki.source.bodies import bodies
from acceld.nki.source.counting import with_counted_loops
from acceld.nki.source.launches import Launch
from acceld.nki.source.normal import as_before, normalized
from acceld.nki.source.reading import KernelModule
from acceld.proposers.rules.proposer import moves
from tests.acceld.proposers.rules.kernels import arrays, current, run

HELPERS = """
ROWS = 128
LINE = 8


def _column(rows):
    return nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)


def _scaled_rows(x, scale, out, r0, rows):
    columns = x.shape[1]
    tile = nl.ndarray((ROWS, columns), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile[0:rows, 0:columns], src=x[r0:r0 + rows, 0:columns])
    total = _column(ROWS)
    nisa.tensor_reduce(dst=total[0:rows, :], op=nl.maximum, data=tile[0:rows, 0:columns], axis=1)
    wide = nl.ndarray((ROWS, columns), dtype=nl.float32, buffer=nl.sbuf)
    for p in range(ROWS):
        nisa.dma_copy(dst=wide[p:p + 1, 0:columns], src=scale[0:1, 0:columns])
    half = nl.ndarray((ROWS, columns), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=half[0:rows, 0:columns], data=tile[0:rows, 0:columns], op0=nl.multiply, operand0=total[0:rows, 0:1])
    made = nl.ndarray((ROWS, columns), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_tensor(dst=made[0:rows, 0:columns], data1=half[0:rows, 0:columns], data2=wide[0:rows, 0:columns], op=nl.multiply)
    nisa.dma_copy(dst=out[r0:r0 + rows, 0:columns], src=made[0:rows, 0:columns])
"""
BODY = """
    rows = x.shape[0]
    out = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.shared_hbm)
    for r0 in range(0, rows, ROWS):
        _scaled_rows(x, scale, out, r0, min(ROWS, rows - r0))
    return out
"""
HEAD, BEHIND = current("x, scale", BODY).split("@nki.jit", 1)
KERNEL = f"{HEAD}{HELPERS}\n\n@nki.jit{BEHIND}"
SHAPES, DTYPES = ((300, 256), (1, 256)), ("float32", "float32")


def test_the_work_in_a_function_is_rewritten_in_place() -> None:
    (body,) = bodies(KernelModule(normalized(KERNEL), Launch("nki", SHAPES, DTYPES)))
    assert (body.entry, body.shapes) == ("_scaled_rows", (*SHAPES, (300, 256), None, None))
    assert body.dtypes[:3] == ("float32",) * 3
    given = arrays(*SHAPES)
    expected, made = run(KERNEL, *given), {}
    for move in moves(KERNEL, Launch("nki", SHAPES, DTYPES)):
        if (text := move.apply()) is not None:
            made[move.rule] = text
            assert np.allclose(run(text, *given), expected, rtol=1e-5), move.step
    assert {"merge_transfers", "fold_scalars", "place_engine"} <= made.keys()
    changed = as_before(KERNEL, made["merge_transfers"]).splitlines()
    assert "    nisa.dma_copy(dst=wide[0:ROWS, 0:columns], src=scale.ap(pattern=[[0, ROWS], [1, columns]]))" in changed
    assert len(set(KERNEL.splitlines()) - set(changed)) == 2, "every other line is as it was"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("_scaled_rows(x, scale, out,", "_scaled_rows(x, x, out,"),  # two names of one tensor
        ("    return out\n", "    _scaled_rows(scale, x, out, 0, 1)\n    return out\n"),  # other shapes
        ("    return out\n", "    other = _scaled_rows\n    return out\n"),  # may be called elsewhere
        ("        _scaled_rows(x,", "        x = x\n        _scaled_rows(x,"),  # perhaps another tensor
        ("    columns = x.shape[1]\n", "    columns = x.shape[1]\n    if r0 > 5:\n        return\n"),
        ("def _scaled_rows(x, scale, out, r0, rows)", "def _scaled_rows(x, scale, out, r0, *rows)"),
        ("        _scaled_rows(x, scale,", "        _scaled_rows(x, [scale],"),
        ("        _scaled_rows(x, scale,", "        scales = scale\n        _scaled_rows(x, scales,"),
    ],
)
def test_a_function_that_may_be_called_with_something_else_is_no_place(old: str, new: str) -> None:
    source = KERNEL.replace(old, new)
    assert source != KERNEL
    assert not bodies(KernelModule(normalized(source), Launch("nki", SHAPES, DTYPES)))


def test_a_default_of_the_module_is_not_read_as_the_kernels_own_number() -> None:
    shared = KERNEL.replace("out, r0, rows):", "out, r0, rows, line=LINE):")
    (body,) = bodies(KernelModule(normalized(shared), Launch("nki", SHAPES, DTYPES)))
    assert body.shapes[-1] == 8
    own = shared.replace("    rows = x.shape[0]\n", "    rows = x.shape[0]\n    LINE = 4\n")
    assert not bodies(KernelModule(normalized(own), Launch("nki", SHAPES, DTYPES)))


def test_what_a_step_loop_does_stays() -> None:
    source = current(
        "x",
        """
    out = nl.ndarray((300, 256), dtype=nl.float32, buffer=nl.shared_hbm)
    size = nl.tile_size.pmax
    for r0 in range(0, 300, size):
        h = min(size, 300 - r0)
        for c0 in range(64, 256, 64):
            tile = nl.ndarray((h, 64), dtype=nl.float32, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile, src=x[r0:r0 + h, c0:c0 + 64])
            for again in range(c0 // 64, 4):
                nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=0.5 * again - c0 * 2)
            nisa.dma_copy(dst=out[r0:r0 + h, c0 - 64:c0], src=tile)
        rest = nl.ndarray((h, 64), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=rest, src=x[r0:r0 + h, 0:64])
        nisa.dma_copy(dst=out[r0:r0 + h, 192:256], src=rest)
    return out
""",
    )
    counted = with_counted_loops(source)
    assert (
        "for i_r0 in range((300 + size - 1) // size):" in counted and "for i_c0 in range((192 + 63) // 64):" in counted
    )
    (given,) = arrays((300, 256))
    assert run(counted, given).tobytes() == run(source, given).tobytes()
    assert as_before(source, normalized(source)) == source
    kernel = KernelModule(normalized(source), Launch("nki", ((300, 256),)))
    assert [loop.trips for loop in kernel.loops[:2]] == [3, 3] and kernel.loops[0].kind == "affine_range"


def test_a_changed_line_of_a_step_loop_keeps_the_loops_variable() -> None:
    source = KERNEL.replace(
        "_scaled_rows(x, scale, out, r0, min(ROWS, rows - r0))",
        "tile = nl.ndarray((ROWS, 256), dtype=nl.float32, buffer=nl.sbuf)\n"
        "        nisa.dma_copy(dst=tile[0:44, :], src=x[r0:r0 + 44, :])\n"
        "        nisa.tensor_scalar(dst=tile[0:44, :], data=tile[0:44, :], op0=nl.multiply, operand0=0.5 + r0)\n"
        "        nl.store(out[r0:r0 + 44, 0:256], value=tile[0:44, :])",
    )
    changed = normalized(source).replace(
        "operand0=0.5 + (ROWS * i_r0))", "operand0=0.5 + (ROWS * i_r0), engine=nisa.engine.gpsimd)"
    )
    assert as_before(source, changed) == source.replace(
        "operand0=0.5 + r0)", "operand0=0.5 + r0, engine=nisa.engine.gpsimd)"
    )


@pytest.mark.parametrize(
    "loop",
    [
        "for r in range(0, 8, s):\n        f(r)",  # the step's sign is not known
        "for r in range(8, 0, -1):\n        f(r)",
        "for r in range(0, 8, 2):\n        f(r)\n    f(r)",  # the last value
        "for r in range(n, 8):\n        n = 3\n        f(r)",  # another first value for each use
        "for r in range(0, 8, 2):\n        r = r + 1\n        f(r)",
        "for r in range(0, 8, 2):\n        f(f'{r}')",
        "for r in range(0, 8, 2):\n        for r in range(r, 9):\n            f(r)",
        "for r in range(0, 8, 2):\n        f(i_r)",  # the new name is taken
        "for r in range(0, 8, 2):\n        f(r)\n    else:\n        f(1)",
        "for r in range(f(), 8):\n        f(r)",
        "for r in range(first, 8):\n        f(r)",  # f may change this name of the module
        "for r in range(s.first, 8):\n        s.first = 3\n        f(r)",
        "for r in range(8, 0, STEP):\n        f(r)",  # the module's number is hidden by a parameter
    ],
)
def test_a_loop_whose_values_may_differ_stays(loop: str) -> None:
    source = f"STEP = 2\n\n\ndef k(x, s, n, STEP=-2):\n    {loop}\n"
    assert with_counted_loops(source) == source


def test_iterations_that_end_with_a_shorter_tile_are_independent() -> None:
    source = KERNEL.replace(
        "_scaled_rows(x, scale, out, r0, min(ROWS, rows - r0))",
        "h = min(ROWS, rows - r0)\n        tile = nl.ndarray((ROWS, 256), dtype=nl.float32, buffer=nl.sbuf)\n        nisa.dma_copy(dst=tile[0:h, :], src=x[r0:r0 + h, :])\n        nl.store(out[r0:r0 + h, 0:256], value=tile[0:h, :])",
    )
    assert KernelModule(normalized(source), Launch("nki", SHAPES)).loops[-1].kind == "affine_range"
    wider = source.replace("h = min(ROWS, rows - r0)", "h = min(ROWS + 1, rows - r0)")
    assert KernelModule(normalized(wider), Launch("nki", SHAPES)).loops[-1].kind == "range"


def test_work_on_a_tile_whose_size_the_loop_names_stays() -> None:
    source = current(
        "x",
        """
    out = nl.ndarray((300, 256), dtype=nl.float32, buffer=nl.shared_hbm)
    for r0 in range(0, 300, 128):
        h = min(128, 300 - r0)
        ones = nl.ndarray((h, 256), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=ones, value=1.0)
        half = nl.ndarray((h, 256), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=half, data=ones, op0=nl.multiply, operand0=0.5)
        tile = nl.ndarray((h, 256), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[r0:r0 + h, 0:256])
        nisa.tensor_tensor(dst=tile, data1=tile, data2=half, op=nl.multiply)
        nisa.dma_copy(dst=out[r0:r0 + h, 0:256], src=tile)
    return out
""",
    )
    (given,) = arrays((300, 256))
    expected = run(source, given)
    found = [(move.step, text) for move in moves(source, Launch("nki", ((300, 256),))) if (text := move.apply())]
    assert found
    for step, text in found:
        assert run(text, given).tobytes() == expected.tobytes(), step


def test_a_dtype_has_the_name_that_the_file_gives_it() -> None:
    source = current(
        "x",
        """
    f32, i32 = nl.float32, nl.int32
    out = nl.ndarray((128, 256), dtype=f32, buffer=nl.shared_hbm)
    tile = nl.ndarray((128, 256), dtype=i32, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.right_shift, operand0=1)
    made = nl.ndarray((128, 256), dtype=f32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=made, src=tile)
    nisa.tensor_scalar(dst=made, data=made, op0=nl.multiply, operand0=0.5)
    nisa.dma_copy(dst=out, src=made)
    return out
""",
    )
    kernel = KernelModule(normalized(source), Launch("nki", ((128, 256),), ("int32",)))
    assert (kernel.dtype_of("tile"), kernel.declared_dtype("made")) == ("int32", "nl.float32")
    places = {move.step for move in moves(source, Launch("nki", ((128, 256),), ("int32",)))}
    assert "place_engine gpsimd, line 16 (alone)" in places and not any("line 13" in one for one in places), places


TILED = """
P = 128


def _loaded(x, r0, columns):
    tile = nl.ndarray((P, columns), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x[r0:r0 + P, 0:columns])
    return tile


def _combined(left, right):
    total = nl.ndarray(left.shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_tensor(dst=total, data1=left, data2=right, op=nl.add)
    twice = nl.ndarray(left.shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=twice, data=total, op0=nl.multiply, operand0=2.0)
    made = nl.ndarray(left.shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=made, data=twice, op0=nl.add, operand0=1.0)
    return made


def _normalize(dst, src, columns):
    square = nl.ndarray((P, columns), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_tensor(dst=square, data1=src, data2=src, op=nl.multiply)
    total = nl.ndarray((P, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_reduce(dst=total, op=nl.add, data=square, axis=1)
    mean = nl.ndarray((P, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=mean, data=total, op0=nl.multiply, operand0=1.0 / columns)
    shifted = nl.ndarray((P, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=shifted, data=mean, op0=nl.add, operand0=1e-5)
    scale = nl.ndarray((P, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.activation(dst=scale, op=nl.rsqrt, data=shifted)
    nisa.tensor_scalar(dst=dst, data=src, op0=nl.multiply, operand0=scale)


def _finished(dst, tile, bias):
    twice = nl.ndarray(tile.shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=twice, data=tile, op0=nl.multiply, operand0=2.0)
    nisa.tensor_tensor(dst=tile, data1=twice, data2=bias, op=nl.add)
    nisa.tensor_copy(dst=dst, src=tile)
"""
TILED_BODY = """
    rows, columns = x.shape
    out = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.shared_hbm)
    more = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.shared_hbm)
    for t in nl.affine_range(rows // P):
        added = _loaded(y, 128 * t, columns)
        first = _loaded(x, 128 * t, columns)
        both = _combined(first, added)
        done = nl.ndarray((P, columns), dtype=nl.float32, buffer=nl.sbuf)
        _normalize(done, both, columns)
        ended = nl.ndarray((P, columns), dtype=nl.float32, buffer=nl.sbuf)
        _finished(ended[:, 0:columns], done, added)
        nisa.dma_copy(dst=out[128 * t:128 * t + P, 0:columns], src=ended)
        nisa.dma_copy(dst=more[128 * t:128 * t + P, 0:columns], src=done)
    return out, more
"""
TILED_KERNEL = f"{HEAD}{TILED}\n\n@nki.jit{current('x, y', TILED_BODY).split('@nki.jit', 1)[1]}"
TILED_SHAPES = ((256, 256), (256, 256))


def test_functions_of_tiles_are_read_with_the_shapes_of_their_calls() -> None:
    kernel = KernelModule(normalized(TILED_KERNEL), Launch("nki", TILED_SHAPES, DTYPES))
    found = {one.entry: one for one in bodies(kernel)}
    assert list(found) == ["_loaded", "_combined", "_normalize", "_finished"], "in the order of their calls"
    tile = (128, 256)
    assert found["_loaded"].memories == ("hbm", "", "") and found["_combined"].memories == ("sbuf", "sbuf")
    assert found["_combined"].shapes == (tile, tile) and found["_normalize"].shapes == (tile, tile, 256)
    assert found["_finished"].dtypes == ("float32",) * 3
    assert kernel.extents(kernel.uses["both"][0][1]) == tile and kernel.dtype_of("both") == "float32"
    (finished,) = (one for one in kernel.statements if one.op == "_finished()")
    assert [one.name for one in finished.results] == ["ended", "done"] and finished.augmented
    assert not kernel.ambiguous, "_finished() writes these two tiles"


def test_every_rewrite_in_a_function_of_tiles_is_right() -> None:
    given, made = arrays(*TILED_SHAPES, seed=3), dict[str, str]()
    first, second = "return out, more", "return more, out"
    expected = run(TILED_KERNEL, *given), run(TILED_KERNEL.replace(first, second), *given)
    for move in moves(TILED_KERNEL, Launch("nki", TILED_SHAPES, DTYPES)):
        if (text := move.apply()) is not None:
            made[move.rule] = text
            results = run(text, *given), run(text.replace(first, second), *given)
            assert np.allclose(results, expected, rtol=1e-4, atol=1e-5), move.step
    assert {"fold_scalars", "reduce_in_activation", "place_engine"} <= made.keys()
    changed = as_before(TILED_KERNEL, made["reduce_in_activation"])
    assert "_combined(first, added)" in changed and "def _combined(left, right):" in changed


def test_a_tile_that_a_function_changes_keeps_what_its_caller_reads() -> None:
    launch = Launch("nki", ((128, 256),) * 3, ("float32",) * 3, "_finished", ("sbuf", "sbuf", "sbuf"))
    kernel = KernelModule(normalized(TILED_KERNEL), launch)
    assert kernel.ambiguous == {"dst", "tile"} and kernel.space_of("bias") == "sbuf"
    assert kernel.extents(kernel.uses["bias"][0][1]) == (128, 256)
