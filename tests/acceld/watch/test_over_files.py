"""A kernel is compared with the one that a file holds before it is written over that file."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Any

import pytest

from acceld.errors import UsageError
from acceld.model import Evaluation, Failure, Gate, Kernel, Status
from acceld.watch.apply import apply, backup_of, compared_with_file, seen
from tests.store.records import passed

BEST = Kernel("best", "nki", "kernel", filename="kernel.py")
ROW = {
    "id": 1,
    "best": 7,
    "workload": "geglu",
    "speedup": 1.43,
    "improved": True,
    "tie_band": 5.0,
    "source": "simulated",
}
WRONG = Evaluation(Status.INCORRECT_NUMERICAL, "x", failure=Failure("a rule", "wrong"))


async def compared(
    held: Evaluation, *known: tuple[str, Status], best_us: float = 50.0, even_if_tied: bool = False
) -> tuple[str, list[Gate]]:
    """Return the gain in words over a file whose kernel evaluates to ``held``, and the gates that the file's kernel met.

    ``known`` has workload and status of each candidate with the file's text.
    """
    gates: list[Gate] = []

    async def evaluate(kernel: Kernel, gate: Gate) -> Evaluation:
        assert (kernel.text, kernel.trusted, kernel.entry) == ("held", False, "kernel")
        gates.append(gate)
        return held

    rows: list[dict[str, Any]] = [{"id": 1, "workload": name, "status": status} for name, status in known]
    tried = passed(best_us)
    told = await compared_with_file(
        Path("mine.py"), "held", rows, ROW, BEST, tried, evaluate, even_if_tied=even_if_tied
    )
    return told, gates


async def test_the_factor_is_that_over_the_file() -> None:
    told, gates = await compared(passed(100.0), ("geglu", Status.PASSED))
    assert told.startswith("2.00x") and told.endswith("over what mine.py held")
    assert gates == [Gate.TIMING], "the history says that the file's kernel is right"


async def test_a_faster_file_is_not_replaced_unless_that_is_wanted() -> None:
    with pytest.raises(
        UsageError, match=r"mine\.py is predicted to take 44\.4 µs, and c7 50\.0 µs, which is slower; nothing"
    ) as told:
        await compared(passed(44.4), ("geglu", Status.PASSED))
    assert "--even-if-tied" in told.value.hint
    assert (await compared(passed(44.4), even_if_tied=True))[0].startswith("0.89x")


@pytest.mark.parametrize("known", [(), (("geglu", Status.COMPILE_ERROR),)])
async def test_a_text_that_is_not_known_to_be_right_runs_on_data(known: tuple[tuple[str, Status], ...]) -> None:
    assert (await compared(passed(100.0), *known))[1] == [Gate.SEARCH]
    with pytest.raises(
        UsageError, match="does not compute what c7 computes, the formula of geglu; nothing was written"
    ):
        await compared(WRONG, *known)


@pytest.mark.parametrize("even_if_tied", [False, True])
async def test_a_kernel_of_another_workload_is_not_replaced(even_if_tied: bool) -> None:
    with pytest.raises(
        UsageError, match="holds a kernel of workload silu, and c7 is one of geglu; nothing was written"
    ):
        await compared(passed(100.0), ("silu", Status.PASSED), even_if_tied=even_if_tied)
    told, _ = await compared(passed(100.0), ("silu", Status.PASSED), ("geglu", Status.PASSED))
    assert told.startswith("2.00x"), "two workloads may begin with one kernel"


async def test_a_file_that_can_not_be_timed_is_said_to_be_so() -> None:
    told, _ = await compared(Evaluation(Status.COMPILE_ERROR, "x", failure=Failure("a rule", "wrong")))
    assert told == "1.43x (1.36 – 1.50) over the baseline of r1; what mine.py held can not be timed"


async def test_a_file_that_is_as_fast_may_be_replaced() -> None:
    assert (await compared(passed(50.0), ("geglu", Status.PASSED)))[0].startswith("1.00x")


def test_a_kernel_that_does_not_fit_on_the_disk_leaves_the_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("old\n")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(UsageError, match="its content is as before") as told:
            apply(path, "x" * 2000, seen(path))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "make room on the disk" in told.value.hint
    assert path.read_text() == "old\n"
    assert {one.name for one in tmp_path.iterdir()} <= {path.name, backup_of(path, seen(path)).name}
    apply(path, "x" * 2000, seen(path))
    assert path.read_text() == "x" * 2000
