"""Sources are parsed in several threads at once, as the daemon does."""

from __future__ import annotations

import ast
import gc
import time
from concurrent.futures import ThreadPoolExecutor

from acceld.parsing import parse

NESTED = "\n".join(
    f"x{number} = f({'(' * 20}a[{number}] + b.c{')' * 20}, [1, {{'k': (3, 4)}}])" for number in range(60)
)


def test_threads_that_parse_at_the_same_time_all_get_their_tree() -> None:
    wanted, threshold = ast.dump(ast.parse(NESTED)), gc.get_threshold()

    def give_way(phase: str, info: dict[str, int]) -> None:
        time.sleep(0)  # what a finalizer does that lets other threads run

    gc.callbacks.append(give_way)
    gc.set_threshold(50)
    try:
        with ThreadPoolExecutor(4) as pool:
            trees = list(pool.map(parse, [NESTED] * 12))
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(give_way)
    assert all(ast.dump(tree) == wanted for tree in trees)
