"""Noise floors from several threads are all kept, and a wrong baseline raises none."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from acceld.evaluate.correctness.bands import stored_as
from acceld.evaluate.correctness.errors import BROKEN, NONE, Errors
from acceld.evaluate.correctness.noise import Floors, NumpyFloor
from acceld.workloads import workload

NUMPY = (Errors(1e-7, 1e-7, 1e-7),)


def test_floors_that_threads_add_at_once_are_all_kept(tmp_path: Path) -> None:
    floors, silu = Floors(tmp_path), workload("silu")
    variants = [f"variant{number}" for number in range(60)]

    def learn(variant: str) -> None:
        error = Errors(1e-7, 2e-7, 3e-7)
        assert floors.learn_kernel(silu, "nki", "trn2", variant, [error], NUMPY) == (error,)
        floors.learn_numpy(silu, variant, NumpyFloor(NUMPY))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(learn, variants))
    again = Floors(tmp_path)
    assert all(again.of_kernel(silu, "nki", "trn2", variant) == (Errors(1e-7, 2e-7, 3e-7),) for variant in variants)
    assert all(again.of_numpy(silu, variant) == NumpyFloor(NUMPY) for variant in variants)


def test_the_errors_of_a_baseline_are_stored_by_machine_and_chip(tmp_path: Path) -> None:
    floors, silu = Floors(tmp_path), workload("silu")
    errors = (Errors(1e-7, 5e-7, 1e-7), Errors(2e-7, 1e-7, 1e-7))
    assert floors.learn_kernel(silu, "neuron", "trn1", "own", errors, NUMPY) == errors
    assert floors.of_kernel(silu, "neuron", "trn1", "own") == errors
    assert floors.of_kernel(silu, "neuron", "trn2", "own") is None
    assert floors.of_kernel(silu, "nki", "trn1", "own") is None


def test_a_baseline_that_is_wrong_itself_raises_no_floor(tmp_path: Path) -> None:
    floors, silu = Floors(tmp_path), workload("silu")
    for error in (Errors(1.0, 1.0, 1.0), Errors(float("inf"), 0.0, 0.0)):
        assert floors.learn_kernel(silu, "nki", "trn2", "own", [error], NUMPY) is None
    assert floors.of_kernel(silu, "nki", "trn2", "own") is None


def test_on_bands_no_workload_declares_a_candidate_need_not_be_better_than_its_baseline(tmp_path: Path) -> None:
    floors, silu = Floors(tmp_path), workload("silu")
    assert floors.learn_kernel(silu, "nki", "trn2", "banded/M", [BROKEN, NONE], NUMPY) == (BROKEN, NONE)
    assert Floors(tmp_path).of_kernel(silu, "nki", "trn2", "banded/M") == (BROKEN, NONE)


def test_floors_of_other_bands_are_measured_again(tmp_path: Path) -> None:
    floors, silu = Floors(tmp_path), workload("silu")
    for variant in ("banded/M", "own"):
        floors.learn_kernel(silu, "nki", "trn2", variant, [NONE], NUMPY)
        floors.learn_numpy(silu, variant, NumpyFloor(NUMPY))
    for file in tmp_path.iterdir():  # as an earlier release with other bands wrote it
        file.write_text(file.read_text("utf-8").replace(stored_as("banded/M"), "banded/M"), "utf-8")
    again = Floors(tmp_path)
    assert again.of_kernel(silu, "nki", "trn2", "banded/M") is None and again.of_numpy(silu, "banded/M") is None
    assert again.of_kernel(silu, "nki", "trn2", "own") == (NONE,) and again.of_numpy(silu, "own") is not None
