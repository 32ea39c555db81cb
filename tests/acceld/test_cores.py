"""Work on arrays is shared by a fixed number of threads."""

from __future__ import annotations

import threading
from functools import cache

import pytest

from acceld import cores
from acceld.cores import on_several_cores


@pytest.fixture(autouse=True)
def three_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "THREADS", 3)
    monkeypatch.setattr(cores, "_pool", cache(cores._pool.__wrapped__))


def test_results_come_in_the_order_of_the_items() -> None:
    assert on_several_cores(lambda one: one * one, range(20)) == [one * one for one in range(20)]


def test_many_calls_need_no_more_threads_than_one_call() -> None:
    """A jail counts threads, and a thread that has ended may still count when the next one begins."""
    begun: set[threading.Thread] = set()
    for _ in range(20):
        on_several_cores(lambda _: begun.add(threading.current_thread()), range(6))
    assert len(begun) <= 3 and all(one.is_alive() for one in begun)


def test_a_call_within_a_call_runs_in_the_calling_thread() -> None:
    def outer(_: int) -> bool:
        return on_several_cores(lambda _: threading.current_thread(), range(3)) == [threading.current_thread()] * 3

    assert on_several_cores(outer, range(6)) == [True] * 6


def test_an_error_of_the_function_reaches_the_caller() -> None:
    with pytest.raises(ZeroDivisionError):
        on_several_cores(lambda one: 1 // one, range(3))
