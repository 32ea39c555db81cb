"""The legacy compiler fuses loops that pass values on, if the order of iterations allows it."""

from acceld.nki.ir.program import Affine, Engine, Loop, LoopKind, Program, Role
from acceld.nki.timing.loop_fusion import fuse
from acceld.nki.timing.timeline import timeline
from tests.acceld.nki.tiles import Writer, tile, times

TILES = 160


def producer_and_consumer(*, backwards: bool = False, kind: LoopKind = LoopKind.AFFINE) -> Program:
    """Make tiles in one loop, and use them in a second one, in the same order or backwards."""
    w = Writer()
    source, target = w.hbm(128, TILES * 512), w.hbm(128, TILES * 512, role=Role.OUTPUT)
    made = w.sbuf(TILES, 128, 512, axis=1)
    with w.loop("i", TILES, kind) as i:
        a = w.sbuf(128, 512)
        w.load(tile(a), tile(source, (0, 128), (times(i.id, 512), 512)))
        w.do("activation", tile(made, times(i.id, 1)), tile(a), 0.0, 1.0, engine=Engine.SCALAR, func="exp")
    with w.loop("j", TILES, kind) as j:
        b = w.sbuf(128, 512)
        index = times(j.id, -1) + Affine(TILES - 1) if backwards else times(j.id, 1)
        w.do("tensor_scalar", tile(b), tile(made, index), 2.0, engine=Engine.VECTOR, op0="multiply")
        w.store(tile(target, (0, 128), (times(j.id, 512), 512)), tile(b))
    return w.done()


def loops(program: Program) -> int:
    return sum(isinstance(node, Loop) for node in program.body)


def test_loops_over_the_same_tiles_become_one() -> None:
    fused = fuse(producer_and_consumer())
    assert loops(fused) == 1
    assert [i.op for i, _ in fused.walk()] == ["dma_copy", "activation", "tensor_scalar", "dma_copy"]
    assert {loop for b in fused.buffers for loop in b.scope} <= set(fused.loops)


def test_fusing_avoids_the_spill() -> None:
    assert timeline(producer_and_consumer()).spill_save_bytes == 0
    assert timeline(producer_and_consumer(kind=LoopKind.SEQUENTIAL)).spill_save_bytes > 0


def test_loops_that_meet_in_different_iterations_stay_apart() -> None:
    program = producer_and_consumer(backwards=True)
    assert fuse(program) is program
    assert timeline(program).spill_save_bytes > 0


def test_sequential_loops_stay_apart() -> None:
    program = producer_and_consumer(kind=LoopKind.SEQUENTIAL)
    assert fuse(program) is program
