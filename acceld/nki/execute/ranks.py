"""Run one program on several ranks: cores that exchange data by collectives."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from acceld.errors import UsageError
from acceld.nki.execute.collectives import Ranks
from acceld.nki.execute.interpreter import execute
from acceld.nki.execute.machine import Member
from acceld.nki.ir.numerics import Array
from acceld.nki.ir.program import Program

MOST_RANKS = 128


def execute_ranks(program: Program, inputs: Sequence[Sequence[Array]]) -> list[list[Array]]:
    """Run the program on all ranks side by side. Return the outputs of each rank, for its own inputs.

    Raise the error of the rank that failed first. Raise UsageError if there are no ranks, or more than
    :data:`MOST_RANKS`.
    """
    world = len(inputs)
    if not 0 < world <= MOST_RANKS:
        raise UsageError(f"{world} ranks can not run together", hint=f"give inputs of 1 to {MOST_RANKS} ranks")
    ranks = Ranks(world)
    found: list[list[Array]] = [[] for _ in range(world)]
    failed: list[BaseException] = []

    def run(rank: int) -> None:
        try:
            found[rank] = execute(program, inputs[rank], member=Member(rank, ranks))
        except BaseException as error:  # noqa: BLE001  # raised again by the caller's thread
            failed.append(error)
            ranks.abort()

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(world)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
    return found
