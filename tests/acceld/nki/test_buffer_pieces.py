"""Cells against sets of elements: a read reaches all its elements' cells, a write defines only cells it fills."""

from __future__ import annotations

from itertools import product
from math import prod

from hypothesis import given, settings
from hypothesis import strategies as st

from acceld.nki.ir.program import Access, Affine, Buffer, Space, TileDim
from acceld.nki.timing.buffer_pieces import Grid, cell_access, make_grids


def elements(access: Access, loop: int) -> set[tuple[int, ...]]:
    """The buffer elements an access denotes in one iteration."""
    found = set()
    for index in product(*(range(dim.count) for dim in access.dims)):
        found.add(
            tuple(
                start.at({0: loop}) + sum(i * dim.steps[d] for i, dim in zip(index, access.dims, strict=True))
                for d, start in enumerate(access.start)
            )
        )
    return found


def cell_of(element: tuple[int, ...], grid: Grid) -> int:
    return sum(x // grain * stride for x, grain, stride in zip(element, grid.grain, grid.strides, strict=True))


@st.composite
def accesses(draw: st.DrawFn) -> tuple[Buffer, list[Access], int]:
    """A buffer of two or three dimensions, and accesses inside of it for every iteration of one loop."""
    shape = tuple(draw(st.lists(st.integers(1, 24), min_size=2, max_size=3)))
    trips = draw(st.integers(1, 3))
    made = []
    for _ in range(draw(st.integers(1, 4))):
        room = list(shape)
        start = [0] * len(shape)
        terms: list[tuple[tuple[int, int], ...]] = [()] * len(shape)
        moved = draw(st.integers(-1, len(shape) - 1))
        if moved >= 0 and trips > 1 and room[moved] >= trips:
            coef = draw(st.integers(1, (room[moved] - 1) // (trips - 1)))
            terms[moved] = ((0, coef),)
            room[moved] -= coef * (trips - 1)
        dims = []
        for _ in range(draw(st.integers(1, 4))):
            steps = [0] * len(shape)
            count = draw(st.integers(1, 12))
            for d in draw(st.lists(st.integers(0, len(shape) - 1), max_size=2, unique=True)):
                steps[d] = draw(st.integers(0, 4))
            while count > 1 and any(step * (count - 1) >= room[d] for d, step in enumerate(steps)):
                count -= 1
            for d, step in enumerate(steps):
                room[d] -= step * (count - 1)
            dims.append(TileDim(count, tuple(steps)))
        start = [draw(st.integers(0, left - 1)) for left in room]
        made.append(
            Access(0, tuple(Affine(const, term) for const, term in zip(start, terms, strict=True)), tuple(dims))
        )
    return Buffer(0, "", Space.SBUF, "float32", shape, 0), made, trips


@given(accesses())
@settings(max_examples=400)
def test_reads_reach_too_much_rather_than_too_little_and_writes_the_other_way(
    drawn: tuple[Buffer, list[Access], int],
) -> None:
    buffer, made, trips = drawn
    grid = make_grids((buffer,), {0: made}, {0: trips})[0]
    whole: dict[int, set[tuple[int, ...]]] = {}
    for element in product(*(range(size) for size in buffer.shape)):
        whole.setdefault(cell_of(element, grid), set()).add(element)
    for access in made:
        cells = cell_access(access, buffer, grid, ((0, trips),))
        for loop in range(trips):
            reached = {cells.bases[loop] + offset for offset in cells.offsets}
            denoted = elements(access, loop)
            assert {cell_of(element, grid) for element in denoted} <= reached
            if not cells.partial:
                assert set().union(*(whole.get(cell, set()) for cell in reached)) <= denoted


def test_a_write_of_many_separate_runs_defines_none_of_the_cells_between() -> None:
    buffer = Buffer(0, "", Space.SBUF, "float32", (1, 10_000), 0)
    every_other = Access(0, (Affine(), Affine()), (TileDim(1, (0, 0)), TileDim(5000, (0, 2))))
    grid = make_grids((buffer,), {0: [every_other]}, {})[0]
    assert cell_access(every_other, buffer, grid, ()).partial


def test_a_diagonal_defines_no_square() -> None:
    buffer = Buffer(0, "", Space.SBUF, "float32", (8, 8), 0)
    diagonal = Access(0, (Affine(), Affine()), (TileDim(8, (1, 1)),))
    grid = make_grids((buffer,), {0: [diagonal]}, {})[0]
    assert cell_access(diagonal, buffer, grid, ()).partial
    assert prod(buffer.shape) == 64
