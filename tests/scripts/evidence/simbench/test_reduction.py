"""A kernel made cheap for its mutants computes a part of its own results."""

from __future__ import annotations

import numpy as np
import pytest

from acceld.nki.execute.interpreter import execute
from acceld.nki.ir.codec import program_hash
from acceld.nki.ir.program import Program
from acceld.nki.verify.verifier import verify
from acceld.workloads import kernel_inputs, make_inputs
from scripts.evidence.simbench.kernels import NKIBENCH, own
from scripts.evidence.simbench.mutation.reduction import KEPT, STORES, reduced, whole
from tests.acceld.nki.programs import Kernel, Run, at, var

ROWS, WIDTH, TILES, BLOCKS = 16, 24, 6, 5


def shifted_squares() -> Program:
    """(x + the greatest of each row of the row's own block)**2: one nest makes the maxima, another one uses them."""
    kernel = Kernel()
    x, y = kernel.input((TILES, ROWS, WIDTH)), kernel.output((TILES, ROWS, WIDTH))
    most = kernel.sbuf((ROWS, TILES))
    with kernel.loop(TILES) as i:
        tile = kernel.sbuf((ROWS, WIDTH))
        kernel.op("dma_copy", at(tile), at(x, var(i), Run(0, ROWS), Run(0, WIDTH)))
        kernel.op("tensor_reduce", at(most, Run(0, ROWS), Run(var(i), 1)), at(tile), op="max", axes=(1,), negate=False)
    with kernel.loop(TILES) as i:
        tile = kernel.sbuf((ROWS, WIDTH))
        kernel.op("dma_copy", at(tile), at(x, var(i), Run(0, ROWS), Run(0, WIDTH)))
        kernel.op("tensor_scalar", at(tile), [at(tile), at(most, Run(0, ROWS), Run(var(i), 1))], op0="add")
        kernel.op("activation", at(tile), [at(tile), 0.0, 1.0], func="square")
        kernel.op("dma_copy", at(y, var(i), Run(0, ROWS), Run(0, WIDTH)), at(tile))
    return kernel.finish()


def sum_over_blocks() -> Program:
    """Sum all blocks, so that no iteration can be left out."""
    kernel = Kernel()
    x, y = kernel.input((BLOCKS, ROWS, WIDTH)), kernel.output((ROWS, WIDTH))
    held = kernel.sbuf((ROWS, WIDTH))
    kernel.op("memset", at(held), 0.0)
    with kernel.loop(BLOCKS) as i:
        tile = kernel.sbuf((ROWS, WIDTH))
        kernel.op("dma_copy", at(tile), at(x, var(i), Run(0, ROWS), Run(0, WIDTH)))
        kernel.op("tensor_tensor", at(held), [at(held), at(tile)], op="add")
    kernel.op("dma_copy", at(y), at(held))
    return kernel.finish()


def unrolled_copies() -> Program:
    """Double the rows, tile after tile, without a loop."""
    kernel = Kernel()
    x, y = kernel.input((12 * ROWS, WIDTH)), kernel.output((12 * ROWS, WIDTH))
    for i in range(12):
        tile = kernel.sbuf((ROWS, WIDTH))
        kernel.op("dma_copy", at(tile), at(x, Run(i * ROWS, ROWS), Run(0, WIDTH)))
        kernel.op("tensor_scalar", at(tile), [at(tile), 2.0], op0="multiply")
        kernel.op("dma_copy", at(y, Run(i * ROWS, ROWS), Run(0, WIDTH)), at(tile))
    return kernel.finish()


def drawn(program: Program) -> list[np.ndarray]:
    rng = np.random.default_rng(2)
    return [rng.standard_normal(program.buffers[n].shape).astype(np.float32) for n in program.inputs]


def test_loops_keep_their_last_iterations_and_arrays_what_those_use() -> None:
    program = shifted_squares()
    arrays = drawn(program)
    small = reduced(program)
    assert [loop.trips for loop in small.program.loops.values()] == [KEPT, KEPT]
    assert len(small.loops) == 2
    assert verify(small.program) == ()
    (right,) = execute(program, arrays)
    (part,) = execute(small.program, small.arguments(arrays))
    assert part.shape == (KEPT, ROWS, WIDTH)
    assert np.array_equal(part, right[-KEPT:])


def test_a_program_without_loops_keeps_its_last_stores() -> None:
    program = unrolled_copies()
    arrays = drawn(program)
    small = reduced(program)
    assert sum(1 for _ in small.program.walk()) == 3 * STORES
    (part,) = execute(small.program, small.arguments(arrays))
    assert np.array_equal(part, 2 * arrays[0][-STORES * ROWS :])


def test_an_iteration_that_others_need_stays() -> None:
    program = sum_over_blocks()
    arrays = drawn(program)
    small = reduced(program)
    assert [loop.trips for loop in small.program.loops.values()] == [BLOCKS]
    assert program_hash(small.program) == program_hash(program)
    (total,) = execute(small.program, small.arguments(arrays))
    assert np.allclose(total, arrays[0].sum(axis=0), atol=1e-5)


def test_the_whole_program_takes_whole_arguments() -> None:
    program = shifted_squares()
    (array,) = drawn(program)
    assert np.array_equal(whole(program).arguments([array])[0], array)


def test_a_smaller_workload_draws_the_smaller_arguments() -> None:
    kernel = own("rmsnorm_matmul")
    small = reduced(kernel.program())
    workload = small.workload(kernel.workload)
    drawn = kernel_inputs(workload, make_inputs(workload, 3, "row_scaled"))
    shapes = [one.shape for one in drawn]
    assert shapes == [small.program.buffers[n].shape for n in small.program.inputs]
    assert shapes[0] == (KEPT, 128, 1024)
    assert all(np.isfinite(one).all() for one in execute(small.program, drawn))


@pytest.mark.parametrize("name", NKIBENCH)
def test_every_kernel_of_ours_is_cut_to_a_legal_program(name: str) -> None:
    program = own(name).program()
    small = reduced(program).program
    assert verify(small) == ()
    assert sum(b.elements for b in small.buffers) <= sum(b.elements for b in program.buffers)
