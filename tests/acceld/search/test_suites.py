"""Suites: their kernels, the choice of the next slice, and their figures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from acceld.errors import UsageError
from acceld.gains import TWO_MODELS, gain, simulated_band
from acceld.model import Profile, RunState, Source
from acceld.search.suites import (
    Entry,
    Row,
    Slice,
    compared,
    family,
    figures_of,
    first_slices_s,
    fruitless,
    geometric_mean,
    kernels_in,
    least_work_first,
    next_entry,
    read_suite,
    searched_s,
    slice_s,
    step_gain,
    suite_gain,
    worth,
)
from acceld.workloads import DeclaredWork, find_workloads


def took(gain: float, seconds: float) -> Slice:
    return Slice(1, seconds, 100.0 * gain, 100.0)


def test_a_suite_is_a_file_or_a_family_of_workloads(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "workload.toml").touch()
    file = tmp_path / "all.toml"
    file.write_text('[[kernel]]\nworkload = "silu"\nroot = "silu.py"\n[[kernel]]\nworkload = "mine"\n')
    suite = read_suite(file)
    assert suite.name == "all"
    assert suite.entries == (Entry("silu", tmp_path / "silu.py"), Entry(str(tmp_path / "mine")))
    assert len(family("nkibench", find_workloads()).entries) == 14
    with pytest.raises(UsageError, match="no suite 'nkibenches'"):
        family("nkibenches", find_workloads())


@pytest.mark.parametrize(
    "text", ["", "kernel = 3", "[[kernel]]\nroot = 'a.py'", "[[kernel]]\nworkload = 'a'\nbeam = 1", "["]
)
def test_what_is_no_suite_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "bad.toml").write_text(text)
    with pytest.raises(UsageError, match=r"bad\.toml"):
        read_suite(tmp_path / "bad.toml")


def test_kernels_are_found_by_the_longest_name_they_begin_with(tmp_path: Path) -> None:
    for name in ("matmul_M4_0.py", "matmul_add_rmsnorm_M4_0.py", "silu.py", "other.py"):
        (tmp_path / name).touch()
    found = kernels_in(tmp_path, ["matmul", "matmul_add_rmsnorm", "silu", "bmm"])
    assert {name: path.name for name, path in found.items()} == {
        "matmul": "matmul_M4_0.py", "matmul_add_rmsnorm": "matmul_add_rmsnorm_M4_0.py", "silu": "silu.py",
    }  # fmt: skip
    with pytest.raises(UsageError, match="no kernel"):
        kernels_in(tmp_path, ["bmm"])


def test_every_kernel_gets_a_slice_before_any_gets_a_second() -> None:
    assert next_entry({"a": [took(3.0, 1)]}, ["a", "b", "c"]) == "b"


def test_the_next_slice_goes_where_the_last_gained_most_a_second() -> None:
    done = {"a": [took(2.0, 100)], "b": [took(1.2, 10)], "c": [took(3.0, 1), took(1.0, 1)]}
    assert next_entry(done, ["a", "b", "c"]) == "b"
    assert next_entry(done, ["a", "c"]) == "a"
    assert next_entry(done, ["c"]) is None


def test_a_kernel_that_ran_out_of_time_gets_longer_slices_when_none_gains() -> None:
    short, over = Slice(1, 60.0, 100.0, 100.0, cut_short=True), Slice(1, 20.0, 100.0, 100.0)
    gained = Slice(1, 60.0, 200.0, 100.0, cut_short=True)
    assert next_entry({"a": [short], "b": [gained]}, ["a", "b"]) == "b"
    assert next_entry({"a": [short], "b": [gained, over], "c": [over]}, ["a", "b", "c"]) == "a"
    assert next_entry({"a": [short, short], "b": [gained, over]}, ["a", "b"]) is None
    assert [fruitless(one) for one in ([], [gained], [short], [gained, short], [short, short])] == [0, 0, 1, 1, 2]


def test_a_first_search_that_is_not_finished_goes_on_before_kernels_with_little_left_to_gain() -> None:
    begun = Slice(1, 30.0, 100.0, 100.0, cut_short=True, worth=0.4, goes_on=True)
    nearly = Slice(2, 30.0, 200.0, 100.0, worth=0.05)
    assert next_entry({"large": [begun], "small": [nearly]}, ["small", "large"]) == "large"
    assert next_entry({"large": [begun], "small": [replace(nearly, worth=0.4)]}, ["small", "large"]) == "small"
    twice = [begun, replace(begun, elapsed_s=60.0)]
    assert next_entry({"large": twice, "small": [nearly, took(1.0, 30)]}, ["small", "large"]) == "large"
    assert next_entry({"large": twice}, ["large"]) == "large", "its search has no result yet"
    assert next_entry({"large": [*twice, Slice(3, 60.0, 100.0, 100.0, cut_short=True)]}, ["large"]) is None


def test_kernels_with_little_work_come_first() -> None:
    works = {"large": DeclaredWork(1, 10**12, 1), "unknown": None, "small": DeclaredWork(1, 0, 10**6)}
    assert least_work_first(works) == ["small", "large", "unknown"]


def test_a_first_slice_leaves_time_for_those_of_the_others() -> None:
    assert slice_s(100.0, 1000.0, [], 5) == 100.0
    assert slice_s(100.0, 200.0, [], 5) == 40.0
    assert slice_s(100.0, 1000.0, [Slice(1, 100.0, 2.0, 2.0)], 0) == 200.0
    assert slice_s(100.0, 150.0, [Slice(1, 100.0, 2.0, 2.0)], 0) == 150.0


def test_a_run_took_the_time_between_its_pauses() -> None:
    running, paused, queued, finished = RunState.RUNNING, RunState.PAUSED, RunState.QUEUED, RunState.FINISHED
    states = [(1.0, running), (2.0, running), (4.0, paused), (50.0, queued), (51.0, running), (54.0, finished)]
    assert searched_s(states) == 6.0
    assert searched_s(states[:5]) == 3.0, "a run that is active counts from its next state on"
    assert searched_s([]) == 0.0


def test_a_mean_is_geometric_and_its_interval_is_of_kernels() -> None:
    mean = geometric_mean([2.0, 8.0])
    assert mean is not None and mean.value == pytest.approx(4.0) and mean.count == 2
    assert 2.0 <= mean.low <= 4.0 <= mean.high <= 8.0
    alone = geometric_mean([3.0])
    assert alone is not None and [alone.low, alone.high] == pytest.approx([3.0, 3.0])
    assert geometric_mean([]) is None


def test_figures_of_two_suites_are_compared_where_both_have_them() -> None:
    rows = [Row("a", 4.0, 2.0, None, None, 1.0, (1,)), Row("b", None, None, None, None, 0.0, ())]
    one = figures_of("one", rows)
    assert one["geometric_mean"]["value"] == pytest.approx(2.0) and one["rows"][1]["speedup"] is None
    assert compared(one, figures_of("two", [Row("a", 4.0, 1.0, None, None, 1.0, ())])) == [("a", 2.0, 1.0)]


def predicted(latency_us: float, busy_us: float, model: str = "9") -> Profile:
    """Return the profile of a kernel on trn2 whose vector engine is busy for ``busy_us``."""
    made = Profile(Source.SIMULATED, "trn2", "nki", latency_us, "m", model=model, interval_percent=15.0)
    return replace(made, engines_us={"vector": busy_us}, counters={"instruction_count": busy_us})


def test_an_entry_is_judged_over_all_its_runs_as_its_first_and_last_kernel_are() -> None:
    before, after = predicted(100.0, 90.0), predicted(70.0, 50.0)
    tied = {"speedup": 1.12, "improved": False, "tie_band": 34.0, "tie_reason": ""}
    over_all, within_one = suite_gain(tied, before, after), suite_gain(tied, None, None)
    assert over_all == gain(before, after) and over_all is not None
    assert over_all.improved and over_all.band_percent == simulated_band(before, after) < 34.0, "the kernel works less"
    assert within_one is not None and (within_one.ratio, within_one.improved) == (1.12, False), (
        "as the run judged itself"
    )
    other = suite_gain(tied, before, predicted(70.0, 50.0, model="10"))
    assert other is not None and (other.improved, other.reason) == (False, TWO_MODELS)
    assert suite_gain({"speedup": None}, None, None) is None


def test_time_goes_by_share_and_by_what_is_left_to_attain(tmp_path: Path) -> None:
    path = tmp_path / "step.toml"
    path.write_text('[[kernel]]\nworkload = "a"\nshare = 0.75\n[[kernel]]\nworkload = "b"\nshare = 0.25\n')
    a, b = read_suite(path).entries
    assert first_slices_s({"a": a, "b": b}, 400.0, 30.0) == {"a": 300.0, "b": 100.0}
    assert first_slices_s({"a": a, "b": b}, 40.0, 30.0) == {"a": 30.0, "b": 30.0}
    assert first_slices_s({"b": b}, 399.0, 30.0) == {"b": 399.0}, "what the others did not use"
    assert [worth(a, 60.0), worth(a, None), worth(b, 100.0)] == [pytest.approx(0.3), 0.75, pytest.approx(0.0025)]
    done = {name: [replace(took(1.5, 10), worth=worth(entry, 20.0))] for name, entry in (("b", b), ("a", a))}
    assert next_entry(done, ["b", "a"]) == "a"


@pytest.mark.parametrize("share", ["0", "2", '"much"', "true"])
def test_a_share_is_a_part_of_the_whole(share: str, tmp_path: Path) -> None:
    path = tmp_path / "step.toml"
    path.write_text(f'[[kernel]]\nworkload = "a"\nshare = {share}\n')
    with pytest.raises(UsageError, match="share of kernel 1"):
        read_suite(path)


def test_a_step_gains_what_its_kernels_gain_each_as_often_as_it_runs() -> None:
    rows = {
        "a": Row("a", 100.0, 50.0, None, None, 1.0, (1,), tie_band=4.0),
        "b": Row("b", 300.0, 300.0, None, None, 1.0, (2,), tie_band=8.0),
        "other": Row("other", None, None, None, None, 0.0, ()),
    }
    entries = {"a": Entry("a", runs=10), "b": Entry("b", runs=1), "other": Entry("other")}
    found = step_gain(rows, entries)
    assert found is not None and (found.before_us, found.after_us) == (1300.0, 800.0)
    assert found.speedup == pytest.approx(1.625) and found.band_percent == pytest.approx((500 * 4 + 300 * 8) / 800)
    assert figures_of("step", list(rows.values()), found)["step"]["speedup"] == pytest.approx(1.625)
    assert step_gain(rows, {"other": Entry("other", runs=1)}) is None
    assert step_gain(rows, {"a": Entry("a")}) is None
    unknown = {"a": replace(rows["a"], tie_band=None)}
    without = step_gain(unknown, {"a": entries["a"]})
    assert without is not None and without.band_percent is None
