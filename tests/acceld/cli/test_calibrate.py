"""``acceld calibrate`` compares the simulator with measurements, and keeps cores idle that must be."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from acceld.cli.commands.calibrate import errors, pairs
from acceld.cli.main import main
from acceld.devices.neuron.interference import isolation_from
from acceld.devices.neuron.learned import isolation_of, keep_isolation
from acceld.devices.neuron.runtime.cores import Isolation
from acceld.model import Correctness, Evaluation, Gate, Profile, Source, Status
from acceld.store.changes.tree import keep_evaluation
from acceld.store.database import Store

PROFILE = Profile(
    Source.MEASURED,
    "trn1",
    "nki_legacy",
    110.0,
    "nrtpy device",
    sdk="neuronx-cc 2.21",
    details={"simulated_latency_us": 100.0, "simulated_interval_percent": 24.0},
)


def _evaluation(sha: str, profile: Profile) -> Evaluation:
    return Evaluation(Status.PASSED, sha, correctness=Correctness(Gate.STRICT, 0.0, 1e-5), profile=profile)


def test_the_models_error_is_reported_by_method_from_measured_pairs_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    slower = replace(
        PROFILE, latency_us=300.0, details={"simulated_latency_us": 200.0, "simulated_interval_percent": 24.0}
    )
    profiler = replace(PROFILE, method="neuron-profile total_time")
    stand_in = replace(PROFILE, source=Source.SIMULATED, latency_us=1.0)
    unpredicted = replace(PROFILE, details={"simulated_latency_us": None})

    async def fill() -> None:
        store = await asyncio.to_thread(Store.open, tmp_path / "acceld.db")
        for sha, profile in (
            ("a", replace(PROFILE, latency_us=999.0)),
            ("a", PROFILE),
            ("b", slower),
            ("c", profiler),
            ("d", stand_in),
            ("e", unpredicted),
        ):
            await store.change(
                keep_evaluation,
                _evaluation(sha, profile),
                workload="silu",
                backend="neuron_legacy",
                chip="trn1",
                key=sha,
            )
        await store.close()

    asyncio.run(fill())
    by_profiler, by_device = errors(pairs(tmp_path / "acceld.db"))
    assert (by_profiler.method, by_profiler.kernels) == ("neuron-profile total_time", 1)
    assert (by_device.kernels, by_device.order_agrees, by_device.order_pairs) == (2, 1, 1)
    assert by_device.inside_percent == 50.0
    assert by_device.scale == pytest.approx((1.1 * 1.5) ** 0.5)
    assert by_device.greatest_absolute_percent == pytest.approx(100 / 3)
    assert main(["calibrate", "--home", str(tmp_path)]) == 0
    assert "nrtpy device" in capsys.readouterr().out


def test_without_a_measurement_there_is_nothing_to_calibrate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["calibrate", "--home", str(tmp_path)]) == 8
    assert "acceld check r12 --on device" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("slowdown", "isolation"),
    [
        ({"the same HBM": 1.2, "the same chip": 1.05, "another chip": 1.0}, Isolation.CHIP),
        ({"the same HBM": 1.2, "the same chip": 1.005}, Isolation.PAIR),
        ({"the same HBM": 1.005}, Isolation.CORE),
    ],
)
def test_the_isolation_group_follows_from_what_disturbs(
    slowdown: dict[str, float], isolation: Isolation, tmp_path: Path
) -> None:
    assert isolation_from(slowdown, "trn1") is isolation
    assert isolation_of(tmp_path) is Isolation.PAIR
    keep_isolation(tmp_path, isolation, slowdown)
    assert isolation_of(tmp_path) is isolation


KERNEL = """
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    p, f = nl.arange(128)[:, None], nl.arange(COLUMNS)[None, :]
    for i in nl.affine_range(x.shape[1] // COLUMNS):
        tile = nl.load(x[p, i * COLUMNS + f])
        nl.store(out[p, i * COLUMNS + f], value=nl.exp(tile))
    return out
"""


def test_what_was_learned_from_a_file_stands_in_labels_and_in_doctor_until_it_is_forgotten(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = []
    for columns in (128, 256, 512, 1024, 2048):
        (tmp_path / f"k{columns}.py").write_text(KERNEL.replace("COLUMNS", str(columns)))
        line = {"kernel": f"k{columns}.py", "api": "nki_legacy", "chip": "trn1", "args": ["128x8192:float32"]}
        lines.append(json.dumps({**line, "latency_us": 90.0}))
    (tmp_path / "measured.jsonl").write_text("\n".join(lines))
    home = ["--home", str(tmp_path / "state")]
    profile = ["profile", str(tmp_path / "k512.py"), "--arg", "128x8192:float32", *home]

    assert main(profile) == 0
    assert "calibrated" not in capsys.readouterr().out
    assert main(["calibrate", "--from", str(tmp_path / "measured.jsonl"), *home]) == 0
    assert main(profile) == 0
    assert "(legacy, calibrated on 5 kernels)" in capsys.readouterr().out
    main(["doctor", *home])
    assert "trn1 nki_legacy: calibrated on 5 kernels" in capsys.readouterr().out
    assert main(["calibrate", "--forget", *home]) == 0
    assert main(profile) == 0
    assert "calibrated" not in capsys.readouterr().out


@pytest.mark.parametrize(
    "line", ["{", "{}", '{"kernel": "k.py", "api": "nki_legacy", "chip": "trn1", "latency_us": -1}']
)
def test_a_line_that_holds_no_measurement_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str
) -> None:
    path = tmp_path / "measured.jsonl"
    path.write_text(f"\n{line}\n")
    assert main(["calibrate", "--from", str(path), "--home", str(tmp_path / "state")]) == 2
    assert "measured.jsonl:2: " in capsys.readouterr().err
