"""Work that a program must not hide from the timeline."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from acceld.nki.frontend.tracing import TensorSpec, trace
from acceld.nki.ir.program import Access, Affine, Engine, Indirect, Instruction, Loop, Node, Pattern, Program, TileDim
from acceld.nki.timing.timeline import Timeline, timeline

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


_LEVELS = """
def kernel(x):
    out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p, f = nl.arange(128)[:, None], nl.arange(512)[None, :]
    tile = nl.load(x[p, f])
    best = nl.zeros((nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
    for i in nl.sequential_range(8):
        best[p, f] = nl.maximum(best[p, f], nl.exp(WORK))
    nl.store(out[p, f], value=best)
    return out
"""


@pytest.mark.parametrize(
    "work",
    [
        "nisa.tensor_scalar(data=tile, op0=nl.minimum, operand0=i)",
        "nisa.affine_select(pred=(f >= 64 * i), on_true_tile=tile[p, f], on_false_value=0.0)",
        "nl.add(tile, nisa.iota(0 * p + f + i, dtype=nl.float32))",
    ],
)
def test_work_that_only_the_loop_variable_tells_apart_is_done_in_each_iteration(work: str) -> None:
    program = trace(_HEAD + _LEVELS.replace("WORK", work), [TensorSpec((128, 512), "float32")])
    same = trace(_HEAD + _LEVELS.replace("WORK", "tile"), [TensorSpec((128, 512), "float32")])
    assert timeline(program).engines["scalar"] >= 8 * timeline(same).engines["scalar"] > 0


def test_transfers_are_priced_by_what_is_contiguous_in_one_order_at_both_ends() -> None:
    program = trace(_HEAD + _LEVELS.replace("WORK", "tile"), [TensorSpec((128, 512), "float32")])

    def priced(change: Callable[[Access], Access]) -> int:
        def load(node: Instruction) -> tuple[Instruction, ...]:
            source = node.srcs[0] if node.srcs else None
            if node.op != "dma_copy" or not isinstance(source, Access) or source.buffer not in program.inputs:
                return (node,)
            return (replace(node, srcs=(change(source),)),)

        found = timeline(replace(program, registers=1, body=changed(program.body, load)))
        return min(found.dma_descriptors)

    def backwards(source: Access) -> Access:
        columns = replace(source.dims[1], steps=(0, -1))
        return replace(source, start=(source.start[0], Affine(511)), dims=(source.dims[0], columns))

    def with_an_axis(source: Access) -> Access:
        return replace(source, dims=(source.dims[0], TileDim(4, (0, 128)), TileDim(128, (0, 1))))

    def columns_first(source: Access) -> Access:
        return replace(source, dims=(source.dims[0], TileDim(128, (0, 1)), TileDim(4, (0, 128))))

    def from_a_register(source: Access) -> Access:
        return replace(backwards(source), indirect=(Indirect(0, register=0),))

    changes = (lambda source: source, with_an_axis, backwards, columns_first, from_a_register)
    assert [priced(change) for change in changes] == [2048, 2048, 4, 4, 4]


def test_sbuf_holds_no_more_for_being_touched_in_small_pieces() -> None:
    source = """
def kernel(x):
    out = nl.ndarray((128, 98304), dtype=nl.float32, buffer=nl.shared_hbm)
    p, f, c = nl.arange(128)[:, None], nl.arange(512)[None, :], nl.arange(8)[None, :]
    tiles = nl.ndarray((192, nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
    for i in nl.affine_range(192):
        tiles[i, p, f] = nl.load(x[p, 512 * i + f])
    nl.store(out[p, c], value=nl.copy(tiles[0, p, 8 + c]))
    for i in nl.affine_range(192):
        nl.store(out[p, 512 * i + f], value=nl.exp(tiles[i, p, f]))
    return out
"""
    found = timeline(trace(_HEAD + source, [TensorSpec((128, 98304), "float32")]))
    assert found.sbuf_peak_bytes_per_partition <= 192 * 1024
    assert found.hbm_read_bytes > 1.3 * 128 * 98304 * 4


def test_gpsimd_gains_nothing_beside_the_vector_engine_where_they_share_a_port() -> None:
    source = """
def kernel(x):
    out = nl.ndarray((128, 4096), dtype=nl.float32, buffer=nl.shared_hbm)
    p, f = nl.arange(128)[:, None], nl.arange(4096)[None, :]
    tile = nl.load(x[p, f])
    one = nisa.tensor_scalar(data=tile, op0=nl.add, operand0=1.0, engine=nisa.vector_engine)
    two = nisa.tensor_scalar(data=tile, op0=nl.add, operand0=2.0, engine=nisa.ENGINE)
    nl.store(out[p, f], value=nisa.tensor_tensor(one, two, op=nl.multiply))
    return out
"""
    both, one = (
        timeline(trace(_HEAD + source.replace("ENGINE", engine), [TensorSpec((128, 4096), "float32")]))
        for engine in ("gpsimd_engine", "vector_engine")
    )
    spared = one.engines["vector"] - both.engines["vector"]
    assert both.latency_us is not None
    assert one.latency_us is not None
    assert one.latency_us - both.latency_us < spared / 2


def test_a_masked_instruction_of_a_loop_without_iterations_takes_no_time() -> None:
    program = trace(_HEAD + _LEVELS.replace("WORK", "tile"), [TensorSpec((128, 512), "float32")])
    [loop] = [node for node in program.body if isinstance(node, Loop)]

    def masked(node: Instruction) -> tuple[Instruction, ...]:
        return (replace(node, mask=(Pattern(Affine(7), (-1, 0)),)),)

    never = replace(loop, trips=0, body=changed(loop.body, masked))
    body = tuple(never if node is loop else node for node in program.body)
    assert timeline(replace(program, body=body)).engines["scalar"] == 0


_FOLDED = (
    _HEAD
    + """
def kernel(x):
    out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    total = nl.ndarray((nl.par_dim(128), 1), dtype=nl.float32, buffer=nl.sbuf)
    p, h, one = nl.arange(128)[:, None], nl.arange(256)[None, :], nl.arange(1)[None, :]
    tile = nl.load(x[0:128, 0:512])
    for step in nl.static_range(8):
        tile = nl.copy(tile)
    FIRST
    nisa.activation(op=nl.square, data=tile[p, 256 + h], reduce_op=nl.add, reduce_res=total, reduce_cmd=nisa.reduce_cmd.SECOND)
    nl.store(out[p, one], value=total)
    return out
"""
)


@pytest.mark.parametrize(
    ("first", "second", "more"),
    [
        ("", "reset_reduce", 0),
        ("data=tile[p, h], reduce_cmd=nisa.reduce_cmd.reset_reduce", "reset_reduce", 0),
        ("data=tile[p, h], reduce_cmd=nisa.reduce_cmd.reset_reduce", "reduce", 1),
        ("data=tile[p, h], reduce_cmd=nisa.reduce_cmd.reset", "reduce", 1),
    ],
)
def test_what_is_left_in_an_accumulator_counts_where_it_is_read(first: str, second: str, more: int) -> None:
    def latency(text: str) -> float:
        call = f"nisa.activation(op=nl.square, reduce_op=nl.add, {text})" if text else ""
        made = trace(_FOLDED.replace("FIRST", call).replace("SECOND", second), [TensorSpec((128, 512), "float32")])
        return timeline(made).engines["scalar"]

    without = latency("")
    assert (latency(first) > without) == bool(more)


def test_a_multiplication_by_one_makes_nothing_faster() -> None:
    source = """
def kernel(x):
    out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    tile = nl.load(x[0:128, 0:512])
    other = nl.copy(tile)
    nl.store(out, value=nisa.tensor_tensor(SCALED, other, op=nl.add))
    return out
"""

    def vector(scaled: str) -> float:
        return timeline(trace(_HEAD + source.replace("SCALED", scaled), [TensorSpec((128, 512), "float32")])).engines[
            "vector"
        ]

    straight = vector("tile")
    for number in ("1.0", "-1.0", "1.0000001"):
        assert vector(f"nisa.tensor_scalar(data=tile, op0=nl.multiply, operand0={number})") >= straight
    assert vector("nisa.tensor_scalar(data=tile, op0=nl.add, operand0=0.0, op1=nl.multiply, operand1=1.0)") >= straight
    for nothing in (
        "nisa.tensor_scalar(data=tile, op0=nl.multiply, operand0=2.0, op1=nl.multiply, operand1=0.5)",
        "nisa.tensor_scalar(data=nisa.tensor_scalar(data=tile, op0=nl.multiply, operand0=0.25), op0=nl.multiply, operand0=4.0)",
        "nisa.tensor_scalar(data=tile, op0=nl.subtract, operand0=3.0, op1=nl.add, operand1=3.0)",
        "nisa.tensor_scalar(data=tile, op0=nl.maximum, operand0=-3e38)",
        "nisa.tensor_scalar(data=tile, op0=nl.subtract, operand0=1.0, reverse0=True, op1=nl.subtract, operand1=1.0, reverse1=True)",
        "nisa.tensor_scalar(data=tile, op0=nl.add, operand0=1e-30)",
    ):
        assert vector(nothing) >= straight, nothing
    assert vector("nisa.tensor_scalar(data=tile, op0=nl.multiply, operand0=0.5)") < straight


def test_no_more_is_handed_over_than_banks_hold() -> None:
    source = """
def kernel(x):
    out = nl.ndarray((128, 8192), dtype=nl.float32, buffer=nl.shared_hbm)
    tile = nl.load(x[0:128, 0:512])
    other = nl.copy(tile)
    halves = []
    for k in nl.static_range(16):
        halves.append(nisa.tensor_scalar(data=tile, op0=nl.multiply, operand0=1.0 / (k + 2)))
        if NARROW:
            nl.store(out[0:128, 512 * k : 512 * k + 512], value=nisa.tensor_tensor(halves[k], other, op=nl.add))
    if not NARROW:
        for k in nl.static_range(16):
            nl.store(out[0:128, 512 * k : 512 * k + 512], value=nisa.tensor_tensor(halves[k], other, op=nl.add))
    return out
"""

    def vector(narrow: str) -> float:
        made = trace(_HEAD + source.replace("NARROW", narrow), [TensorSpec((128, 512), "float32")])
        return timeline(made).engines["vector"]

    straight, held = vector("True"), vector("False")
    assert held == pytest.approx(1.5 * straight, rel=0.2)  # eight of sixteen lie in SBUF, which takes twice as long


_SCALED = """
import neuronxcc.nki.compiler as ncc

def kernel(x):
    out = nl.ndarray((128, 2048), dtype=nl.float32, buffer=nl.shared_hbm)
    p, f = nl.arange(128)[:, None], nl.arange(512)[None, :]
    tile = nl.load(x[0:128, 0:512])
    other = nl.copy(tile)
    BEFORE
    for k in nl.affine_range(4):
        half = HALF
        nl.store(out[p, 512 * k + f], value=nisa.tensor_tensor(half, other, op=nl.add))
    AFTER
    return out
"""
_HALF = "nisa.tensor_scalar(data=tile, op0=nl.multiply, operand0=0.5)"


def _scaled(half: str = _HALF, before: str = "pass", after: str = "pass") -> Timeline:
    text = _SCALED.replace("HALF", half).replace("BEFORE", before).replace("AFTER", after)
    head = _HEAD.replace("@nki.jit\n", "")
    text = text.replace("def kernel", "@nki.jit\ndef kernel")
    return timeline(trace(head + text, [TensorSpec((128, 512), "float32")]))


def test_a_tile_that_a_kernel_places_in_sbuf_is_not_handed_over_in_psum() -> None:
    place = "nl.ndarray((nl.par_dim(128), 512), dtype=nl.float32, buffer=ncc.sbuf.mod_alloc(base_addr=8192))"
    placed = _scaled(half=f"{place}\n        half[p, f] = {_HALF}")
    plain = _scaled(half="nisa.activation(op=nl.copy, data=tile)")
    assert placed.engines["vector"] == pytest.approx(
        4 * plain.engines["vector"]
    )  # a place is written in each iteration
    assert placed.engines["vector"] > _scaled().engines["vector"]


def test_blocks_of_a_tile_in_sbuf_are_handed_over_like_tiles() -> None:
    blocks = "blocks = nl.ndarray((4, nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)"
    written = f"blocks[k, p, f]\n        half[...] = {_HALF}"
    # each block is written by an instruction of its own, one tile's four equal ones are merged
    assert _scaled(half=written, before=blocks).engines["vector"] == pytest.approx(4 * _scaled().engines["vector"])


@pytest.mark.parametrize("place", ["ncc.psum.mod_alloc(base_bank={bank})", "nl.psum"])
def test_banks_that_a_kernel_declares_are_not_there_to_hand_over_in(place: str) -> None:
    def held(banks: int) -> float:
        before, after = ["pass"], ["pass"]
        for bank in range(banks):
            tile = f"nl.ndarray((nl.par_dim(128), 512), dtype=nl.float32, buffer={place.format(bank=bank)})"
            before += [f"bank{bank} = {tile}", f"bank{bank}[p, f] = nl.copy(tile)"]
            after.append(f"nl.store(out[p, 512 + f], value=nl.copy(bank{bank}[p, f]))")
        return _scaled(before="\n    ".join(before), after="\n    ".join(after)).engines["vector"]

    assert held(7) == pytest.approx(held(0))
    assert held(8) > 1.3 * held(0)


def test_a_result_left_in_psum_costs_what_a_tile_declared_there_does() -> None:
    declared = "nl.ndarray((nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.psum)"
    left, by_hand = _scaled(), _scaled(half=f"{declared}\n        half[p, f] = {_HALF}")
    assert (left.latency_us, left.engines) == (by_hand.latency_us, by_hand.engines)
    assert left.psum_peak_banks == by_hand.psum_peak_banks == 1


_SUM_OF_SQUARES = (
    _HEAD
    + """
def kernel(x, g):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p, f = nl.arange(128)[:, None], nl.arange(512)[None, :]
    gain = nl.load(g.reshape((1, 512))[nl.arange(1)[:, None], f])
    zero = nl.zeros((nl.par_dim(128), 1), dtype=nl.float32, buffer=nl.sbuf)
    for row in nl.affine_range(2):
        tile = nl.load(x[128 * row + p, f])
        total = nl.ndarray((nl.par_dim(128), 1), dtype=nl.float32, buffer=nl.sbuf)
        SUM
        inverse = nl.rsqrt(nl.add(nl.multiply(total, 1.0 / 512), 1e-5))
        nl.store(out[128 * row + p, f], value=nl.multiply(nl.multiply(tile, inverse), gain.broadcast_to((128, 512))))
    return out
"""
)


def test_a_sum_that_stays_in_an_accumulator_costs_no_less_than_the_documented_fused_instruction() -> None:
    arguments = [TensorSpec((256, 512), "float32"), TensorSpec((512,), "float32")]

    def latency_us(written: str) -> float:
        found = timeline(trace(_SUM_OF_SQUARES.replace("SUM", written), arguments)).latency_us
        assert found is not None
        return found

    fused = latency_us("nisa.activation_reduce(op=nl.square, data=tile, reduce_op=nl.add, reduce_res=total)")
    kept = latency_us(
        "nisa.activation(op=nl.square, data=tile, reduce_op=nl.add, reduce_cmd=nisa.reduce_cmd.reset_reduce)\n        "
        "nisa.activation(op=nl.copy, data=zero, reduce_op=nl.add, reduce_res=total, reduce_cmd=nisa.reduce_cmd.reduce)"
    )
    parted = latency_us("total = nisa.tensor_reduce(nl.add, data=nisa.activation(op=nl.square, data=tile), axis=[1])")
    assert fused < kept < parted  # the vector engine's reduction of 512 elements is what both save


_REPEATED = (
    _HEAD
    + """
def kernel(x):
    out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p, f = nl.arange(128)[:, None], nl.arange(512)[None, :]
    tile = nl.load(x[p, f])
    many = nl.ndarray((nl.par_dim(128), 512, 8), dtype=nl.float32, buffer=nl.sbuf)
    for place in nl.static_range(8):
        many[:, :, place] = nisa.activation(op=nl.exp, data=tile, scale=SCALE)
    nl.store(out[p, f], value=nisa.tensor_reduce(nl.add, many, axis=[2]))
    return out
"""
)


def test_one_result_written_to_many_places_of_a_tile_costs_what_so_many_results_do() -> None:
    same, other = (
        timeline(trace(_REPEATED.replace("SCALE", scale), [TensorSpec((128, 512), "float32")]))
        for scale in ("2.0", "2.0 + place")
    )
    assert same.engines["scalar"] == pytest.approx(other.engines["scalar"])


def test_a_result_that_is_computed_again_as_a_whole_tile_is_kept() -> None:
    text = _REPEATED.replace("SCALE", "2.0").replace("many[:, :, place] = nisa", "total = nisa")
    text = text.replace("value=nisa.tensor_reduce(nl.add, many, axis=[2])", "value=total")
    once = text.replace("static_range(8)", "static_range(1)")
    engines = [timeline(trace(one, [TensorSpec((128, 512), "float32")])).engines["scalar"] for one in (text, once)]
    assert engines[0] == engines[1] > 0


def test_results_that_are_computed_again_and_read_one_by_one_are_kept() -> None:
    text = _REPEATED.replace("SCALE", "2.0")
    read = "value=nisa.tensor_reduce(nl.add, many, axis=[2])"
    apart = text.replace(read, "value=nl.add(many[:, :, 0], many[:, :, 7])")
    together = text.replace(read, "value=nl.add(many[:, :, 0], nisa.tensor_reduce(nl.add, many[:, :, 1:3], axis=[2]))")
    once = text.replace(read, "value=many[:, :, 0]").replace("static_range(8)", "static_range(1)")
    first, *others = [
        timeline(trace(one, [TensorSpec((128, 512), "float32")])).engines["scalar"] for one in (once, apart, together)
    ]
    assert others == [pytest.approx(first), pytest.approx(3 * first)]  # the other five are never read


_PARTS = """
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(weights, x):
    out = nl.ndarray((4, 4096), dtype=nl.float32, buffer=nl.shared_hbm)
    stationary = nl.ndarray((128, 4), dtype=nl.bfloat16, buffer=nl.sbuf)
    moving = nl.ndarray((128, 4096), dtype=nl.bfloat16, buffer=nl.sbuf)
    nisa.dma_copy(dst=stationary, src=weights)
    nisa.dma_copy(dst=moving, src=x)
    sums = nl.ndarray((128, 4096), dtype=nl.float32, buffer=nl.psum)
    for row in nl.affine_range(ROWS):
        for bank in nl.affine_range(8):
            nisa.nc_matmul(
                dst=sums[32 * row : 32 * row + 1, 512 * bank : 512 * bank + 512],
                stationary=stationary[:, row : row + 1], moving=moving[:, 512 * bank : 512 * bank + 512],
            )
    for row in nl.affine_range(ROWS):
        done = nl.ndarray((1, 4096), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_copy(dst=done, src=sums[32 * row : 32 * row + 1, :])
        nisa.dma_copy(dst=out[row : row + 1, :], src=done)
    return out
"""


@pytest.mark.parametrize("rows", [1, 2, 4])
def test_a_tile_in_psum_that_is_written_row_by_row_takes_its_banks_once(rows: int) -> None:
    specs = [TensorSpec((128, 4), "bfloat16"), TensorSpec((128, 4096), "bfloat16")]
    found, once = (
        timeline(trace(_PARTS.replace("ROWS", str(count)), specs, api="nki", chip="trn2")) for count in (rows, 1)
    )
    assert found.psum_peak_banks == 8
    copies = [one.engines["vector"] + one.engines["scalar"] for one in (found, once)]
    assert copies[0] <= rows * copies[1] + 1e-9  # one copy of each row and no spills; either engine may copy
