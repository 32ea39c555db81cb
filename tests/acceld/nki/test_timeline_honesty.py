"""What a program must not hide from the timeline."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from acceld.nki.program import Affine, Engine, Instruction, Loop, Node, Pattern, Program
from acceld.nki.timeline import Timeline, timeline
from acceld.nki.tracing import TensorSpec, trace

_HEAD = """
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
"""
_PRODUCT = (
    _HEAD
    + """
def kernel(a, b):
    out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p, c, f = nl.arange(128)[:, None], nl.arange(128)[None, :], nl.arange(512)[None, :]
    product = nl.zeros((nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.psum)
    for k in nl.affine_range(8):
        product += nl.matmul(nl.load(a[128 * k + p, c]), nl.load(b[128 * k + p, f]), transpose_x=True)
    nl.store(out[p, f], value=nl.copy(product))
    return out
"""
)
_ROWS = (
    _HEAD
    + """
def kernel(x):
    out = nl.ndarray((256, 4096), dtype=nl.float32, buffer=nl.shared_hbm)
    p, f, c = nl.arange(128)[:, None], nl.arange(4096)[None, :], nl.arange(WIDTH)[None, :]
    for row in nl.affine_range(2):
        tile = nl.ndarray((nl.par_dim(128), 4096), dtype=nl.float32, buffer=nl.sbuf)
        tile[p, f] = nl.load(x[128 * row + p, f])
        for part in nl.affine_range(4096 // WIDTH):
            done = nisa.activation(op=nl.silu, data=tile[p, WIDTH * part + c])
            nl.store(out[128 * row + p, WIDTH * part + c], value=done)
    return out
"""
)


def product() -> Program:
    return trace(_PRODUCT, [TensorSpec((1024, 128), "float32"), TensorSpec((1024, 512), "float32")])


def rows(width: int) -> Timeline:
    return timeline(trace(_ROWS.replace("WIDTH", str(width)), [TensorSpec((256, 4096), "float32")]))


def changed(body: tuple[Node, ...], change: Callable[[Instruction], tuple[Instruction, ...]]) -> tuple[Node, ...]:
    made: list[Node] = []
    for node in body:
        made += [replace(node, body=changed(node.body, change))] if isinstance(node, Loop) else change(node)
    return tuple(made)


@pytest.mark.parametrize("attrs", [(), (("accumulate", True),), (("accumulate", "auto"),)])
def test_products_that_accumulate_are_all_timed_however_that_is_written(attrs: tuple[tuple[str, bool], ...]) -> None:
    program = product()

    def rewritten(node: Instruction) -> tuple[Instruction, ...]:
        kept = tuple(pair for pair in node.attrs if pair[0] != "accumulate")
        return (replace(node, attrs=(*attrs, *kept)) if node.op == "matmul" else node,)

    found = timeline(replace(program, body=changed(program.body, rewritten)))
    assert found.engines["tensor"] == timeline(program).engines["tensor"] > 0


@pytest.mark.parametrize(
    ("op", "attrs", "mask"),
    [
        ("copy", (), (Pattern(Affine(0), (0, -1)),)),
        ("copy", (), (Pattern(Affine(0), (-1, -1)),)),
        ("shuffle", (("lanes", (255,) * 32),), ()),
    ],
)
def test_a_result_that_is_overwritten_in_part_still_needs_what_made_it(
    op: str, attrs: tuple[tuple[str, tuple[int, ...]], ...], mask: tuple[Pattern, ...]
) -> None:
    program = product()

    def overwritten(node: Instruction) -> tuple[Instruction, ...]:
        if node.op != "copy":
            return (node,)
        source = node.srcs[0] if op == "shuffle" else 0.0
        late = Instruction(op, Engine.VECTOR, node.dsts, (node.dsts[0] if op == "shuffle" else source,), attrs, mask)
        return node, late if op == "shuffle" else replace(late, op="memset")

    found = timeline(replace(program, body=changed(program.body, overwritten)))
    assert found.engines["tensor"] >= timeline(program).engines["tensor"] > 0


def test_each_piece_of_a_tile_is_paid_for_however_narrow() -> None:
    assert rows(16).engines["scalar"] > rows(64).engines["scalar"] > rows(512).engines["scalar"]


def test_a_transfer_that_turns_a_tile_moves_single_elements() -> None:
    source = """
def kernel(x):
    out = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.shared_hbm)
    p, f = nl.arange(128)[:, None], nl.arange(256)[None, :]
    tile = nl.load(x[INDEX])
    nl.store(out[p, f], value=tile)
    return out
"""
    straight = trace(_HEAD + source.replace("INDEX", "p, f"), [TensorSpec((128, 256), "float32")])
    turned = trace(_HEAD + source.replace("INDEX", "f, p"), [TensorSpec((256, 128), "float32")])
    assert timeline(straight).dma_descriptors == {1024: 256}
    assert timeline(turned).dma_descriptors == {4: 128 * 256, 1024: 128}
