"""Cells of the performance model against sets of elements."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acceld.nki.ir.program import Access, Affine, Buffer, Role, Space, TileDim
from acceld.nki.timing import buffer_pieces
from acceld.nki.timing.buffer_pieces import Grid, cell_access, make_grids
from tests.properties import examples


@st.composite
def accesses(draw: st.DrawFn, shape: tuple[int, ...]) -> Access:
    """Return an access of up to three axes that stays inside ``shape``; an axis may move along several dimensions."""
    rank = len(shape)
    start, room = [draw(st.integers(0, size - 1)) for size in shape], list(shape)
    dims = []
    for _ in range(draw(st.integers(1, 3))):
        steps = tuple(draw(st.integers(0, 9)) if draw(st.booleans()) else 0 for _ in range(rank))
        most = min([(room[d] - 1 - start[d]) // step for d, step in enumerate(steps) if step], default=2)
        count = draw(st.integers(1, 1 + most))
        for d, step in enumerate(steps):
            room[d] -= step * (count - 1)
        dims.append(TileDim(count, steps))
    return Access(0, tuple(Affine(value) for value in start), tuple(dims))


def elements(access: Access) -> set[tuple[int, ...]]:
    """Return the elements of an access, one by one."""
    starts = [start.const for start in access.start]
    return {
        tuple(
            start + sum(i * dim.steps[d] for i, dim in zip(at, access.dims, strict=True))
            for d, start in enumerate(starts)
        )
        for at in itertools.product(*(range(dim.count) for dim in access.dims))
    }


def cell_of(element: tuple[int, ...], grid: Grid) -> int:
    return sum(x // g * stride for x, g, stride in zip(element, grid.grain, grid.strides, strict=True))


SHAPES = ((40,), (300,), (12, 20), (5, 70))


@given(st.data(), st.sampled_from(SHAPES), st.sampled_from([1, 4, 64]), st.sampled_from([2, 16, 4096]))
@examples(80)
def test_reads_take_at_least_their_cells_and_writes_claim_whole_cells_only(
    data: st.DataObject, shape: tuple[int, ...], cells: int, starts: int
) -> None:
    found = [data.draw(accesses(shape)) for _ in range(data.draw(st.integers(1, 4)))]
    buffer = Buffer(0, "", Space.HBM, "float32", shape, -1, Role.SCRATCH)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(buffer_pieces, "MAX_CELLS", cells)
        patch.setattr(buffer_pieces, "MAX_STARTS", starts)
        grid = make_grids((buffer,), {0: found}, {})[0]
        made = [cell_access(access, buffer, grid, ()) for access in found]
    members: dict[int, set[tuple[int, ...]]] = {}
    for element in itertools.product(*map(range, shape)):
        members.setdefault(cell_of(element, grid), set()).add(element)
    for access, taken in zip(found, made, strict=True):
        exactly = elements(access)
        touched = {taken.bases[0] + offset for offset in taken.offsets}
        assert {cell_of(element, grid) for element in exactly} <= touched, "a read misses what it depends on"
        if not taken.partial:
            covered = set().union(*(members.get(cell, set()) for cell in touched))
            assert covered <= exactly, "a write claims what it leaves as it was"
