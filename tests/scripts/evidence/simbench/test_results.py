"""Mutants' results survive on disk, and their tables add up."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from scripts.evidence.simbench.mutation import results
from scripts.evidence.simbench.mutation.reasons import NO_WORSE, reason
from scripts.evidence.simbench.mutation.results import EXPLAINED, PASSED, REFUSED, SAME, UNNOTICED, WRONG, Fate, Report

REPORT = Report(
    kernel="silu, ours",
    program="00",
    cut="32 at line 19",
    trials=10,
    mutants=(
        Fate("index_shift", 20, "dma_copy", REFUSED, "out of bounds"),
        Fate("index_shift", 21, "activation", WRONG, "own: relative L2 error 1 exceeds 1e-6"),
        Fate("constant_changed", 22, "tensor_scalar", WRONG, "scaled_down: relative L2 error 1 exceeds 1e-6"),
        Fate("dtype_lowered", 5, "declaration", SAME),
        Fate("dtype_lowered", 6, "declaration", EXPLAINED, "small whole numbers"),
        Fate("op_swapped", 9, "activation", UNNOTICED, noise=0.5),
    ),
    rewrites=(Fate("loop_split", 19, "loop", SAME), Fate("loop_reversed", 19, "loop", PASSED, noise=0.1)),
    cpu_s=2.5,
)


def test_a_report_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "mutants.json"
    assert results.read(path) == {}
    results.write(path, {REPORT.kernel: REPORT})
    assert results.read(path) == {REPORT.kernel: REPORT}
    other = replace(REPORT, kernel="mamba, ours", notes=("special decides nothing",))
    results.write(path, {REPORT.kernel: REPORT, other.kernel: other})
    assert results.read(path)["mamba, ours"] == other


def test_tables_count_each_program_once_and_name_what_went_unnoticed() -> None:
    row, every = results.table([REPORT])
    assert row["programs"] == every["programs"] == 6
    assert row["unnoticed"] == "op_swapped at line 9 (activation)"
    assert (row["refused"], row["wrong on the first data set"], row["wrong on another"]) == (1, 1, 1)
    assert row["false alarms"] == "none"
    operators = results.operator_table([REPORT])
    assert sum(one["programs"] for one in operators) == len(REPORT.mutants) + len(REPORT.rewrites)
    assert next(one for one in operators if one["operator"] == "dtype_lowered")["explained by"] == "small whole numbers"


def test_a_refused_equivalent_is_a_false_alarm() -> None:
    alarmed = replace(REPORT, rewrites=(Fate("loop_split", 19, "loop", WRONG, "own: too large"),))
    row, _ = results.table([alarmed])
    assert row["false alarms"] == "loop_split at line 19: own: too large"
    assert "1 false alarms" in alarmed.summary


def test_a_reason_is_believed_only_where_the_figures_bear_it_out() -> None:
    fate = Fate("dtype_lowered", 23, "declaration", UNNOTICED, noise=1.1)
    assert "1.10 times" in reason("bmm_softmax", fate)
    assert not reason("bmm_softmax", replace(fate, noise=1.01 * NO_WORSE))
    assert not reason("silu", fate)


def test_a_reason_of_many_mutants_is_told_once_and_without_their_errors() -> None:
    why = "columns beyond the edge are never stored"
    fates = tuple(
        Fate("mask_removed", line, "store", EXPLAINED, f"{why} (errors at most 1.0{line} times the kernel's own)")
        for line in (1, 2)
    )
    (row,) = results.operator_table([replace(REPORT, mutants=fates, rewrites=())])
    assert row["explained by"] == why


def test_a_kernel_without_a_finding_is_only_counted() -> None:
    clean = replace(REPORT, mutants=REPORT.mutants[:-1])
    (every,) = results.table([clean, clean])
    assert (every["kernel"], every["programs"], every["unnoticed"]) == ("all 2", 10, "none")
