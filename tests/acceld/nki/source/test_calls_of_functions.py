"""Facts of a function's arguments and results hold for every tile that its calls may pass or get."""

from __future__ import annotations

import numpy as np
import pytest

from acceld.nki.source.bodies import bodies
from acceld.nki.source.launches import Launch
from acceld.nki.source.normal import normalized
from acceld.nki.source.reading import KernelModule
from acceld.proposers.rules.proposer import functions, moves, refusals
from tests.acceld.proposers.rules.kernels import arrays, current, run

SHAPES, DTYPES = ((128, 512), (128, 512)), ("float32", "float32")
LAUNCH = Launch("nki", SHAPES, DTYPES, programs=())
BODY = """
    out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    made = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=made, src=tile)
{work}
    nisa.dma_copy(dst=out, src={result})
    return out
"""
SCALE = """
def scale(dst, src):
    half = nl.ndarray(src.shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=half, data=src, op0=nl.multiply, operand0=0.5)
    nisa.tensor_scalar(dst=dst, data=half, op0=nl.add, operand0=1.0)
"""
KEEPING = """
def shifted(src):
    half = nl.ndarray(src.shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=half, data=src, op0=nl.multiply, operand0=0.5)
    nisa.tensor_scalar(dst=KEPT, data=KEPT, op0=nl.add, operand0=3.0)
    more = nl.ndarray(src.shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=more, data=half, op0=nl.add, operand0=1.0)
    return more
"""
EITHER = """
def either(src, rows):
    if rows > src.shape[0]:
        part = nl.ndarray(src.shape, dtype=nl.float32, buffer=nl.sbuf)
    else:
        part = nl.ndarray(src.shape, dtype=nl.float32, buffer=nl.psum)
    nisa.tensor_copy(dst=part, src=src)
    return part
"""
PRODUCT = """
def product(total, left, right):
    nisa.nc_matmul(dst=total, stationary=left, moving=right)


def loaded(x):
    tile = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x[:, 0:128])
    return tile
"""


def with_functions(helpers: str, work: str, result: str = "made") -> str:
    """Return a kernel of two tensors that calls functions of its own file."""
    lines = "".join(f"    {line}\n" for line in work.splitlines()).rstrip()
    head, behind = current("x, y", BODY.format(work=lines, result=result)).split("@nki.jit", 1)
    return f"{head}{helpers}\n\n@nki.jit{behind}"


def assert_every_rewrite_is_right(source: str) -> set[str]:
    """Check all rewrites of a kernel, and return the names of their rules."""
    given, found = arrays(*SHAPES, seed=5), set[str]()
    expected = run(source, *given)
    for move in moves(source, LAUNCH):
        if (text := move.apply()) is not None:
            assert np.allclose(run(text, *given), expected, rtol=1e-3, atol=2e-3), move.step
            found.add(move.rule)
    return found


@pytest.mark.parametrize(
    ("given", "shape"),
    [
        ("[:, 0:256]", (128, 256)),
        ("[0:64, 0:256]", (64, 256)),
        ("", (128, 512)),
        ("[0, :]", None),  # a row of 512 elements in one partition
        ("[0:64]", None),
        ("[:, 0:-256]", None),
        ("[:, -256:]", None),
        ("[:, 0:512:2]", None),
    ],
)
def test_a_function_gets_the_shape_of_the_part_that_is_passed(given: str, shape: tuple[int, int] | None) -> None:
    source = with_functions(SCALE, f"scale(made{given}, tile{given})")
    found = [one.shapes for one in bodies(KernelModule(normalized(source), LAUNCH))]
    assert found == ([] if shape is None else [(shape, shape)])
    assert_every_rewrite_is_right(source)


@pytest.mark.parametrize("index", ["-1", "-1:", "-256:-128", "0:-256"])
def test_an_index_from_the_end_is_no_known_place(index: str) -> None:
    source = with_functions("", f"nisa.memset(dst=made[:, {index}], value=0.0)")
    (target,) = (one.made for one in KernelModule(source, LAUNCH).statements if one.op == "memset")
    assert target.dims is not None and target.dims[1].form is None and target.dims[1].width is None


@pytest.mark.parametrize(
    ("top", "kept", "keep"),
    [
        ("KEPT = []", "KEPT[0]", "KEPT[:] = [tile]"),
        ("KEPT = []", "KEPT[0]", "KEPT.clear()\nKEPT.append(tile)"),
        ("KEPT = {}", "KEPT[0]", "KEPT[0] = tile"),
        ("KEPT = []\n\n\ndef keep(kept, tile):\n    kept.insert(0, tile)", "KEPT[0]", "keep(KEPT, tile)"),
        ("KEPT = None", "KEPT", "global KEPT\nKEPT = tile"),
        ("class KEPT:\n    pass", "KEPT.tile", "KEPT.tile = tile"),
    ],
)
def test_a_tile_that_a_file_keeps_for_its_functions_has_two_names(top: str, kept: str, keep: str) -> None:
    source = with_functions(f"{top}\n\n{KEEPING.replace('KEPT', kept)}", f"{keep}\nmade = shifted(tile)")
    assert "fold_scalars" not in assert_every_rewrite_is_right(source)


def test_a_tile_of_a_function_is_in_one_memory_or_in_an_unknown_one() -> None:
    source = with_functions(EITHER, "part = either(tile, 128)\nnisa.tensor_copy(dst=made, src=part)")
    groups = functions(source, LAUNCH)
    spaces = [kernel.space_of("part") for group in groups for kernel in group if isinstance(kernel, KernelModule)]
    assert spaces == ["", "", "psum"], "the caller, the function, and the function with its branch decided"
    assert_every_rewrite_is_right(source)


def test_a_product_adds_to_the_product_of_a_function_before_it() -> None:
    work = """total = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
product(total, tile[:, 0:128], made)
nisa.nc_matmul(dst=total, stationary=tile[:, 0:128], moving=made)
nisa.tensor_copy(dst=made, src=total)"""
    source = with_functions(PRODUCT, work)
    kernel = KernelModule(source, LAUNCH)
    assert [one.augmented for one in kernel.writers("total")] == [True, True]
    assert_every_rewrite_is_right(source)


def test_the_parts_of_an_operand_are_declared_beside_the_operand() -> None:
    work = """left = loaded(x)
total = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
nisa.nc_matmul(dst=total, stationary=left, moving=tile)
nisa.tensor_copy(dst=made, src=total)"""
    source = with_functions(PRODUCT, work)
    assert_every_rewrite_is_right(source)
    copied = work.replace(
        "left = loaded(x)\n",
        "first = loaded(x)\nleft = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.sbuf)\nnisa.tensor_copy(dst=left, src=first)\n",
    )
    assert "split_products" in assert_every_rewrite_is_right(with_functions(PRODUCT, copied))


def test_a_dtype_that_a_condition_chooses_is_none() -> None:
    declared = "half = nl.ndarray((128, 512), dtype=nl.bfloat16 if y.shape[1] > 9 else nl.float32, buffer=nl.sbuf)\n"
    work = """nisa.tensor_scalar(dst=half, data=tile, op0=nl.multiply, operand0=1.1)
nisa.tensor_scalar(dst=made, data=half, op0=nl.add, operand0=1.0)"""
    source = with_functions("", declared + work)
    assert "fold_scalars" not in assert_every_rewrite_is_right(source)


OTHERS = """
def once(src, dst):
    nisa.tensor_copy(dst=dst, src=src)


def twice(dst, src):
    nisa.tensor_scalar(dst=dst, data=src, op0=nl.multiply, operand0=2.0)


def apply(dst, src, twice=once):
    twice(dst, src)
"""


def test_a_parameter_is_not_the_function_of_its_name() -> None:
    source = with_functions(OTHERS, "apply(made, tile)\ntwice(made, tile)")
    kernel = KernelModule(normalized(source), LAUNCH)
    assert "apply()" not in {one.op for one in kernel.statements} and "tile" in kernel.ambiguous
    assert [one.entry for one in bodies(kernel)] == []
    inner = "def inner(tile, made):\n    scale(made, tile)\nscale(made, tile)\ninner(tile[0:64, :], made[0:64, :])"
    assert not bodies(KernelModule(normalized(with_functions(SCALE, inner)), LAUNCH)), "inner() has a tile of its own"


def test_a_refusal_in_a_function_names_the_caller_s_tile() -> None:
    source = with_functions(
        SCALE.replace("src=src, ", "").replace("half,", "src,").replace("dst=half", "dst=src"), "scale(made, tile)"
    )
    (why,) = (one.obstacle for one in refusals(source, LAUNCH) if one.rule == "fold_scalars")
    assert why.startswith("the code that calls scale may read the tile src, which line 10 writes"), why


PAIR = """
def pair(first, second, src, *, factor, rows=128, again=False):
    half = nl.ndarray((rows, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=half, data=src, op0=nl.multiply, operand0=factor)
    nisa.tensor_scalar(dst=first, data=half, op0=nl.add, operand0=1.0)
    nisa.tensor_scalar(dst=second, data=src, op0=nl.add, operand0=2.0)


def counted(total, src):
    part = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=part, data=src, op0=nl.multiply, operand0=0.5)
    nisa.tensor_tensor(dst=total, data1=total, data2=src, op=nl.add)
    return part
"""


@pytest.mark.parametrize(
    ("call", "results", "augmented"),
    [
        ("pair(made, other, tile, factor=0.5)", ["made", "other"], False),
        ("pair(made, tile, tile, factor=0.5)", ["made", "tile"], True),
        ("part = counted(made, tile)", ["part", "made"], True),
        ("pair(made, made, tile, factor=0.5)", [], False),
        ("made = counted(made, tile)", ["made"], False),  # not understood: the name stands for two tiles
    ],
)
def test_a_call_may_write_two_tiles(call: str, results: list[str], augmented: bool) -> None:
    declared = "other = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)\nnisa.memset(dst=other, value=1.0)\n"
    after = "\nnisa.tensor_tensor(dst=other, data1=made, data2=tile, op=nl.multiply)"
    source = with_functions(PAIR, f"{declared}{call}{after}", "other")
    kernel = KernelModule(normalized(source), LAUNCH)
    (one,) = (one for one in kernel.statements if f"    {call}" == kernel.source.splitlines()[one.line - 1])
    assert [access.name for access in one.results] == results and one.augmented == augmented
    assert (one.kind == "op") == (len(results) == 2) == (not kernel.ambiguous & {"made", "tile"})
    assert_every_rewrite_is_right(source)


def test_arguments_that_only_have_a_name_are_read_too() -> None:
    source = with_functions(
        PAIR,
        "other = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)\npair(made, other, factor=0.5, src=tile)",
    )
    (body,) = bodies(KernelModule(normalized(source), LAUNCH))
    assert body.shapes == (*((128, 512),) * 3, None, 128, 0) and body.memories == ("sbuf",) * 3 + ("",) * 3
    assert KernelModule(normalized(source), body).buffers["half"].shape == (128, 512)
    assert "place_engine" in assert_every_rewrite_is_right(source)
