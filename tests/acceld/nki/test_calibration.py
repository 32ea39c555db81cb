"""A machine's measurements calibrate the performance model, or are refused."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from acceld.errors import UsageError
from acceld.nki.ir.program import Engine, LoopKind, Program, Role
from acceld.nki.timing import calibration
from acceld.nki.timing.calibration import FACTORS, RANGE, Calibration
from acceld.nki.timing.calibration_fit import FEWEST, Sample, fit, kept_corrections
from acceld.nki.timing.parameters import LEGACY, TimelineParams
from acceld.nki.timing.timeline import timeline
from tests.acceld.nki.tiles import Writer, tile, times


def kernel(tiles: int, columns: int, passes: int) -> Program:
    """Load each tile, square it some times, store it."""
    w = Writer()
    source, target = w.hbm(128, tiles * columns), w.hbm(128, tiles * columns, role=Role.OUTPUT)
    with w.loop("i", tiles, LoopKind.AFFINE) as i:
        a = w.sbuf(128, columns)
        w.load(tile(a), tile(source, (0, 128), (times(i.id, columns), columns)))
        for _ in range(passes):
            b = w.sbuf(128, columns)
            w.do("tensor_tensor", tile(b), tile(a), tile(a), engine=Engine.VECTOR, op="multiply")
            a = b
        w.store(tile(target, (0, 128), (times(i.id, columns), columns)), tile(a))
    return w.done()


KERNELS = [kernel(tiles, columns, passes) for tiles in (4, 10) for columns in (64, 512) for passes in (0, 1, 2, 4, 8)]


def on(machine: TimelineParams, programs: list[Program]) -> list[Sample]:
    """Return the kernels with the latencies of a machine with other parameters, in four alternating chains."""
    times_us = (timeline(program, machine).latency_us or 0.0 for program in programs)
    return [
        Sample(program, us, f"chain {n % 4}") for n, (program, us) in enumerate(zip(programs, times_us, strict=True))
    ]


def error(found: Calibration | None, samples: list[Sample]) -> float:
    """Return the mean error of the predictions, with or without a calibration."""
    ratios = []
    for one in samples:
        params = calibration.calibrated(found, one.program.chip, one.program.api)
        ratios.append((timeline(one.program, params).latency_us or 0.0) / one.measured_us)
    return sum(abs(ratio - 1) for ratio in ratios) / len(ratios)


@pytest.mark.parametrize(
    ("changes", "moved"),
    [
        ({"transfer_factor": 1.3}, "transfers"),
        ({"overhead_factor": 1.4, "semaphore_us": 0.14}, "overheads"),
        ({"latency_scale": 1.2}, "slack"),
    ],
)
def test_half_of_the_kernels_makes_the_other_half_better(changes: dict[str, float], moved: str) -> None:
    machine = replace(LEGACY, **changes)  # type: ignore[arg-type]  # knobs by name
    learned, kept = on(machine, KERNELS[::2]), on(machine, KERNELS[1::2])
    found = fit(learned)
    assert found.error_after_percent < found.error_before_percent
    assert error(found, kept) < 0.85 * error(None, kept)
    assert found.factors[moved] > 1.02


@pytest.mark.parametrize(
    ("changes", "moved", "us"),
    [({"kernel_start_us": LEGACY.kernel_start_us + 9.0}, "launch", 9.0), ({"each_transfer_us": 0.5}, "transfer", 0.5)],
)
def test_a_time_that_every_launch_or_transfer_takes_is_found_as_a_constant(
    changes: dict[str, float], moved: str, us: float
) -> None:
    machine = replace(LEGACY, **changes)  # type: ignore[arg-type]  # knobs by name
    learned, kept = on(machine, KERNELS[::2]), on(machine, KERNELS[1::2])
    found = fit(learned)
    assert 0.4 * us < found.constants[moved] < 1.2 * us
    assert error(found, kept) < 0.4 * error(None, kept)


def test_a_machine_that_is_as_published_changes_nothing() -> None:
    found = fit(on(LEGACY, KERNELS[:FEWEST]))
    assert set(found.factors.values()) == {1.0} and found.error_after_percent == 0.0
    assert set(found.constants.values()) == {0.0}


def test_few_kernels_move_the_factors_less_than_many() -> None:
    machine = replace(LEGACY, transfer_factor=1.3)
    few, many = fit(on(machine, KERNELS[:FEWEST])), fit(on(machine, KERNELS[:FEWEST] * 20))
    assert 1.0 < few.factors["transfers"] < many.factors["transfers"] <= 1.3


def test_what_only_some_chains_have_in_common_is_not_taken_for_the_machines() -> None:
    samples = on(LEGACY, KERNELS)
    error = np.log([1.3 if one.chain == "chain 0" else 0.95 for one in samples])
    slopes = np.array([[0.1, 0.3, 1.0, 0.001, 0.001]] * len(samples))
    assert not kept_corrections(error, slopes, [one.chain for one in samples]).any()
    assert kept_corrections(np.full(len(samples), 0.1), slopes, [one.chain for one in samples]).any()


def test_one_chain_says_nothing_of_another() -> None:
    alone = [replace(one, chain="silu") for one in on(replace(LEGACY, transfer_factor=1.3), KERNELS)]
    found = fit(alone)
    assert set(found.factors.values()) == {1.0} and set(found.constants.values()) == {0.0}


def test_no_measurement_moves_a_factor_out_of_its_range() -> None:
    absurd = [replace(one, measured_us=one.measured_us / 50) for one in on(LEGACY, KERNELS)]
    assert all(RANGE[0] <= one <= RANGE[1] for one in fit(absurd * 3).factors.values())


def test_too_few_kernels_and_several_chips_are_refused() -> None:
    samples = on(LEGACY, KERNELS[:FEWEST])
    with pytest.raises(UsageError, match="a fit needs at least"):
        fit(samples[1:])
    elsewhere = replace(samples[0].program, chip="trn2")
    with pytest.raises(UsageError, match="several chips"):
        fit([*samples, Sample(elsewhere, 10.0, "elsewhere")])


MADE = Calibration("trn1", "nki_legacy", 41, dict.fromkeys(FACTORS, 1.1), 20.0, 12.0)


def test_a_latency_says_on_how_many_kernels_it_was_calibrated() -> None:
    params = calibration.calibrated(MADE, "trn1", "nki_legacy")
    assert timeline(KERNELS[0], params).model == "compiler_legacy, calibrated on 41 kernels"
    assert timeline(KERNELS[0]).model == "compiler_legacy"


def test_calibrations_are_kept_by_chip_and_api_and_only_of_this_version(tmp_path: Path) -> None:
    old = replace(MADE, chip="trn2", params_version=MADE.params_version - 1)
    calibration.keep(tmp_path, [MADE, old])
    found = calibration.read(tmp_path)
    assert found == (MADE, old)
    assert calibration.chosen(found, "trn1", "nki_legacy") == MADE
    assert calibration.chosen(found, "trn1", "nki") is calibration.chosen(found, "trn2", "nki_legacy") is None
    calibration.keep(tmp_path, ())
    assert calibration.read(tmp_path) == ()


@pytest.mark.parametrize("text", ["{", "{}", '[{"chip": "trn1"}]', '[{"factors": 3}]'])
def test_a_broken_file_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / calibration.FILE).write_text(text)
    with pytest.raises(UsageError):
        calibration.read(tmp_path)


def test_a_file_without_constants_is_read_as_one_that_adds_nothing(tmp_path: Path) -> None:
    kept = MADE.plain()
    del kept["constants"]
    (tmp_path / calibration.FILE).write_text(json.dumps([kept]))
    assert calibration.read(tmp_path) == (MADE,)


@pytest.mark.parametrize("constants", [{"launch": 99.0, "transfer": 0.0}, {"launch": 1.0}])
def test_a_constant_out_of_range_or_missing_is_refused(constants: dict[str, float]) -> None:
    with pytest.raises(UsageError, match=r"launch = 99|missing or unknown are transfer"):
        replace(MADE, constants=constants)


def test_two_calibrations_have_different_digests() -> None:
    other = replace(MADE, factors={**MADE.factors, "slack": 1.2})
    assert MADE.digest != other.digest != replace(other, kernels=42).digest
    launch = replace(MADE, constants={"launch": 2.5, "transfer": 0.0})
    assert launch.digest != MADE.digest and launch.text.endswith("slack x1.100, launch +2.50 us")
