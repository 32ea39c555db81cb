"""The record of an evaluation in few words: what binds, percent of the floor, why an error is allowed, what a change moved."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from acceld.drafts import DraftArgument, DraftOutput, workload_toml
from acceld.evaluate.correctness.tolerance import SPLIT, allowed_because
from acceld.evaluate.simulated.profiles import profile_from
from acceld.findings import binds, brief, finding, floor_share, lines_of, moved, notes, worth
from acceld.gains import Verdict, verdict
from acceld.model import Correctness, Evaluation, Failure, Gate, Profile, Status
from acceld.nki.frontend.tracing import trace
from acceld.nki.frontend.tracing_types import TensorSpec
from acceld.nki.timing.timeline import Timeline, timeline
from acceld.workloads import load_workload
from acceld.workloads.records import Precision
from tests.acceld.agents.layernorm_product import OWN_KERNEL

CHAIN = """\
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    for _ in nl.static_range(STEPS):
        nisa.activation(dst=tile, op=nl.exp, data=tile)
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=0.5)
    nisa.dma_copy(dst=out, src=tile)
    return out
"""


def timed(text: str, *shapes: tuple[int, ...]) -> Timeline:
    return timeline(trace(text, [TensorSpec(shape, "float32") for shape in shapes], api="nki", chip="trn2"))


def profiled(steps: int) -> Profile:
    return profile_from(timed(CHAIN.replace("STEPS", str(steps)), (128, 512)).to_json(), "m")


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        (CHAIN.replace("STEPS", "3"), ((128, 512),)),
        (OWN_KERNEL.replace("count + 2", "4"), ((256, 1024), (1024,), (1024,), (1024, 1024))),
    ],
)
def test_the_parts_of_the_busiest_engines_time_add_up_to_the_latency(
    text: str, shapes: tuple[tuple[int, ...], ...]
) -> None:
    found = timed(text, *shapes)
    binding = found.binding
    assert binding is not None and found.latency_us is not None
    parts = binding.start_us + binding.busy_us + binding.waits_us + binding.end_us + binding.margin_us
    assert parts == pytest.approx(found.latency_us)
    assert binding.engine == max(found.engines, key=lambda engine: found.engines[engine])
    assert sum(one.us for one in binding.waits) <= binding.waits_us * 1.0001
    assert sum(one.us for one in binding.start) == pytest.approx(binding.start_us - found.params.kernel_start_us)
    assert all(text.splitlines()[one.for_line - 1].strip() for one in binding.waits)


def test_who_waits_for_which_line_and_the_peaks_are_named() -> None:
    text = CHAIN.replace("STEPS", "9")
    told = binds(profiled(9), text)
    engine = told["time"].split(":")[0]
    other = "vector" if engine == "scalar" else "scalar"
    assert f"for {other} at l.1" in told["waits"][0] and "`nisa." in told["waits"][0]
    assert told["start_up"][0].startswith("dma ") and "`nisa.dma_copy(dst=tile, src=x)`" in told["start_up"][0]
    assert told["peaks"].startswith("SBUF 2 of 224 KiB a partition, PSUM 0 of 8 banks")
    assert "kernel's launch and end" in notes(profiled(9))["unproven"][-1]


def test_no_wait_and_little_memory_are_not_told_as_zeros() -> None:
    one = profiled(9)
    idle = {**one.details["binding"], "waits_us": 0.0, "waits": []}
    small = replace(one, details={"binding": idle}, counters={**one.counters, "sbuf_peak_bytes_per_partition": 64})
    told = binds(small, CHAIN)
    assert ", never waits, " in told["time"] and told["peaks"].startswith("SBUF 0.1 of ")


def test_a_slower_kernel_gets_the_reason() -> None:
    fast, slow = profiled(9), profiled(12)
    said = moved(fast, slow, CHAIN)
    assert said.startswith(f"{slow.latency_us - fast.latency_us:+.1f} µs: ")  # type: ignore[operator]
    assert "is busy" in said and "waits, longest for" in said
    switched = moved(profiled(1), slow, CHAIN)
    assert "binds: dma before, " in switched and " now waits " in switched
    assert moved(fast, fast, CHAIN).startswith("+0.0 µs: nothing on the path")
    assert moved(None, slow, CHAIN) == "" and moved(fast, replace(slow, details={}), CHAIN) == ""


def test_a_transposed_transfer_of_four_bytes_is_named_as_unproven() -> None:
    text = CHAIN.replace("nisa.dma_copy(dst=tile, src=x)", "nisa.dma_transpose(dst=tile, src=x)").replace("STEPS", "1")
    assert any("no measured kernel" in one for one in timed(text, (512, 128)).unproven)
    assert not any("no measured kernel" in one for one in timed(CHAIN.replace("STEPS", "1"), (128, 512)).unproven)


def test_percent_is_that_of_the_floor_for_the_precision_and_the_cores(tmp_path: Path) -> None:
    toml = workload_toml(
        "made",
        [DraftArgument("x", (2048, 1024), "float32")],
        [DraftOutput("out", (2048, 1024), "float32")],
        baselines={},
        reference="reference.py",
        drawn=True,
        work={"matmul_flops": 4294967296, "vector_flops": 0, "hbm_bytes": 20979712},
        precision=Precision.SPLIT_OK,
    )
    (tmp_path / "workload.toml").write_text(toml)
    (tmp_path / "reference.py").write_text("def forward(x):\n    return x\n")
    found = load_workload(tmp_path)
    one, two = floor_share(found, "trn2", 200.0), floor_share(found, "trn2", 100.0, 2)
    assert (one["floor_us"], one["percent_of_floor"]) == (163.84, 81.9) and one["floor_is"].endswith("one core")
    assert (two["floor_us"], two["percent_of_floor"]) == (
        81.92,
        81.9,
    ) and "split_ok as the reference computes them" in two["floor_is"]
    assert floor_share(None, "trn2", 1.0) == {} and floor_share(found, "host", 1.0) == {}
    profile = profiled(1)
    passed = Evaluation(
        Status.PASSED,
        "a",
        correctness=Correctness(Gate.STRICT, 4.6e-6, SPLIT),
        profile=replace(profile, latency_us=200.0),
    )
    short = finding(passed, CHAIN, found, "trn2", 1)
    assert brief(short) == "200.0 µs 82 % of floor" and "one of the 8 cores" in short["on"]
    # 16 us of launch and end, and 1.03 times the floor of 163.84 us, which no kernel of these products can fall below.
    assert "one core; at least 184.8 µs simulated, with 16 µs of launch and end" in short["floor_is"]
    assert "2 of the 8 cores" in finding(passed, CHAIN, found, "trn2", 2)["on"]
    assert "bfloat16 parts" in short["tolerance_is"]
    assert len(json.dumps(short)) < 4000 and any(line.startswith("waits: ") for line in lines_of(short))
    failed = Evaluation(Status.COMPILE_ERROR, "a", failure=Failure("rule", "it is wrong", 3))
    assert brief(finding(failed, CHAIN, found, "trn2")) == "compile_error l.3: it is wrong"
    assert finding(failed, CHAIN, found, "trn2")["failure"]["source_line"] == "import nki.language as nl"


@pytest.mark.parametrize(
    ("limit", "split", "said"),
    [
        (2e-5, True, "the workload's 2e-05"),
        (SPLIT, True, "product of bfloat16 parts"),
        (SPLIT, False, "20 times the error"),
        (6.9e-6, False, "20 times the error"),
        (2e-7, False, "the least that is ever allowed"),
        (3.8e-4, True, "more than the workload's 2e-05"),
    ],
)
def test_every_tolerance_that_is_used_is_explained(limit: float, split: bool, said: str) -> None:
    assert said in allowed_because(limit, 2e-5, split=split)


@pytest.mark.parametrize(
    ("speedup", "improved", "band", "source", "said"),
    [
        (1.57, True, 34.0, "simulated", Verdict.CERTAIN),
        (1.264, False, 34.0, "simulated", Verdict.LIKELY),
        (1.16, False, 34.0, "simulated", Verdict.TIE),
        (1.52, False, None, "simulated", Verdict.TIE),
        (0.8, False, 34.0, "simulated", Verdict.SLOWER),
        (1.2, False, 25.0, "measured", Verdict.TIE),
        (1.03, True, 1.0, "measured", Verdict.CERTAIN),
        (None, False, 34.0, "simulated", None),
    ],
)
def test_one_rule_says_certain_likely_or_tie(
    speedup: float | None, improved: bool, band: float | None, source: str, said: Verdict | None
) -> None:
    assert verdict(speedup, improved, band, source) is said
    row: dict[str, Any] = {"speedup": speedup, "improved": improved, "tie_band": band, "source": source}
    assert worth(row)["verdict"] is said
    if said is not None:
        assert said.worth_applying is (said in (Verdict.CERTAIN, Verdict.LIKELY))
