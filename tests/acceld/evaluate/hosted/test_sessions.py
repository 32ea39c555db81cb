"""Calls of the strict gate that share a worker."""

from __future__ import annotations

import pytest

from acceld.evaluate.hosted.bench import Draw
from acceld.evaluate.hosted.evaluator import mixed, sessions_of

FIRST = Draw("own", 7)
OTHERS = [Draw("special", seed) for seed in range(6)]


@pytest.mark.parametrize("room", [3, 4, 5, 8, 100])
@pytest.mark.parametrize("inputs", [0, 1, 4, 9])
def test_each_input_is_changed_behind_the_call_it_changes_however_few_calls_fit(room: int, inputs: int) -> None:
    parts = sessions_of(FIRST, inputs, OTHERS, room)
    assert all(0 < len(part) <= room for part in parts)
    made = [draw for part in parts for draw in part]
    assert [draw.changed for draw in made if draw.changed is not None] == list(range(inputs))
    assert [draw for draw in made if draw.variant == "special"] == OTHERS
    assert [part[-1].again for part in parts] == [True] + [False] * (len(parts) - 1)
    for part in parts:
        if any(draw.changed is not None or draw.again for draw in part):
            assert part[0] == FIRST


def test_sessions_where_a_kernel_was_timed_have_each_kind_of_data_in_any_call() -> None:
    others = [Draw(f"special/{number}", number) for number in range(20)]
    first = set()
    for _ in range(50):
        parts = mixed(others, 8)
        assert [len(part) for part in parts] == [8, 8, 4]
        assert {draw.variant for part in parts for draw in part} == {draw.variant for draw in others}
        first.add(parts[0][0].variant)
    assert len(first) > 10
