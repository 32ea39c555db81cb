"""Killed workers, trees that escape, bombs (quick forms)."""

from __future__ import annotations

import sys

import pytest

from tests.faults.jobs import end_trees, kill_jobs, set_off_bombs

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox needs Linux")


async def test_jobs_whose_processes_are_killed_end_in_words_or_are_done_again() -> None:
    result = await kill_jobs(8)
    assert result.jobs >= 8
    assert (result.wrong, result.left) == (0, 0), result
    assert result.descriptors <= 2


async def test_trees_that_leave_their_session_are_gone() -> None:
    assert await end_trees(2) < 5


async def test_bombs_end_and_cost_their_neighbors_nothing() -> None:
    result = await set_off_bombs(1)
    assert result.neighbor_failures == 0
    assert result.ends["allocate_in_children"].startswith("ended above its memory limit")
    # on a busy machine the deadline comes before the processor time is used up
    assert result.ends["spin"].startswith(("ended above its processor time limit", "ended at its deadline"))
    assert all("status 0" not in text for text in result.ends.values()), result.ends
    assert result.grown_bytes < 64 << 20
