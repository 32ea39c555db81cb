"""Kernels on the two physical cores in a logical core."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from acceld.chips import chip_spec
from acceld.evaluate.simulated.claims import false_claim
from acceld.nki.errors import KernelCrash, LegalityError
from acceld.nki.execute.interpreter import execute
from acceld.nki.frontend.tracing import TensorSpec, trace
from acceld.nki.timing.parameters import CURRENT
from acceld.nki.timing.timeline import Timeline, timeline
from acceld.nki.verify.verifier import verify
from tests.acceld.nki.current.test_current import PRELUDE, drawn, ran, traced

PRODUCTS = """
@nki.jit
def kernel(x, w):
    S, H = x.shape[0], x.shape[1]
    n = S // {cores}
    out = nl.ndarray((S, 128, 64), dtype=nl.float32, buffer=nl.shared_hbm)
    for k in nl.affine_range(n):
        s = {row}
        acc = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.psum{address})
        for h in nl.affine_range(H):
            tile = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile, src=x[s, h])
            weight = nl.ndarray((128, 128), dtype=w.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=weight, src=w[h])
            nisa.nc_matmul(dst=acc, stationary=weight, moving=tile)
        {inside}
        result = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_copy(dst=result, src=acc)
        nisa.dma_copy(dst=out[s], src=result)
    {after}
    return out
"""
BARRIER = "nisa.core_barrier(out, (0, 1))"


@pytest.mark.parametrize("address", ["", ", address=(0, 0)"])
@pytest.mark.parametrize(("inside", "after"), [("pass", "pass"), ("pass", BARRIER), (BARRIER, "pass")])
def test_a_psum_tile_of_each_iteration_starts_empty_on_both_cores(address: str, inside: str, after: str) -> None:
    x, w = drawn((8, 3, 128, 64), (3, 128, 128))
    expected = np.einsum("hkm,shkn->smn", w, x)
    places = {"address": address, "inside": inside, "after": after}
    body = PRODUCTS.format(cores=2, row="k + nl.program_id(0) * n", **places)
    found = ran(traced(body, x.shape, w.shape, grid=(2,), lnc=2), [x, w])
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-3)


MEETING = """
@nki.jit
def kernel(x):
    core = nl.program_id(0)
    kept = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.shared_hbm)
    out = nl.ndarray((2, 128, 512), dtype=x.dtype, buffer=nl.shared_hbm)
    half = nl.ndarray((128, 256), dtype=x.dtype)
    nisa.dma_copy(dst=half, src=x[:, core * 256 : core * 256 + 256])
    if core == 1:
        nisa.tensor_scalar(dst=half, data=half, op0=nl.multiply, operand0=2.0)
    nisa.dma_copy(dst=kept[:, core * 256 : core * 256 + 256], src=half)
    {meeting}
    whole = nl.ndarray((128, 512), dtype=x.dtype)
    nisa.dma_copy(dst=whole, src=kept)
    nisa.dma_copy(dst=out[core], src=whole)
    return out
"""


@pytest.mark.parametrize("alone", [0, 1])
def test_a_core_that_meets_a_core_without_barriers_waits_forever(alone: int) -> None:
    x = drawn((128, 512))[0]
    lines = f"if core == {alone}:\n        nisa.core_barrier(kept, (0, 1))"
    program = traced(MEETING.format(meeting=lines), x.shape, grid=(2,), lnc=2)
    with pytest.raises(KernelCrash, match="waits forever") as caught:
        execute(program, [x])
    assert caught.value.rule == "exchange_cores" and caught.value.line


def test_cores_with_different_programs_see_what_the_other_wrote_before_a_barrier() -> None:
    x = drawn((128, 512))[0]
    expected = np.concatenate([x[:, :256], 2 * x[:, 256:]], axis=1)
    found = ran(traced(MEETING.format(meeting="nisa.core_barrier(kept, (0, 1))"), x.shape, grid=(2,), lnc=2), [x])
    np.testing.assert_array_equal(found, np.stack([expected, expected]))


def test_a_core_that_waits_at_a_barrier_alone_is_an_error() -> None:
    x = drawn((128, 512))[0]
    lines = "nisa.core_barrier(kept, (0, 1))\n    if core == 1:\n        nisa.core_barrier(kept, (0, 1))"
    program = traced(MEETING.format(meeting=lines), x.shape, grid=(2,), lnc=2)
    with pytest.raises(KernelCrash, match="failed or has ended") as caught:
        execute(program, [x])
    assert caught.value.rule == "exchange_cores" and caught.value.line


def halves(line: str = "pass", tail: str = "") -> str:
    return f"""
@nki.jit
def kernel(x):
    core = nl.program_id(0)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    kept = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in range(8):
        t = nl.ndarray((128, 512), dtype=x.dtype)
        nisa.dma_copy(dst=t, src=x[nl.ds(core * 1024 + i * 128, 128), :])
        nisa.tensor_scalar(dst=t, data=t, op0=nl.multiply, operand0=2.0)
        nisa.dma_copy(dst=kept[nl.ds(core * 1024 + i * 128, 128), :], src=t)
    {line}
    for i in range(8):
        t = nl.ndarray((128, 512), dtype=x.dtype)
        nisa.dma_copy(dst=t, src=kept[nl.ds({{rows}} + i * 128, 128), :])
        nisa.dma_copy(dst=out[nl.ds(core * 1024 + i * 128, 128), :], src=t)
    {tail}
    return out
"""


def timed(source: str, lnc: int = 2) -> Timeline:
    program = trace(PRELUDE + source, [TensorSpec((2048, 512), "float32")], api="nki", chip="trn2", lnc=lnc)
    assert verify(program) == ()
    return timeline(program)


def exchanging(works: str, *, steps: int, turns: int = 1) -> str:
    """Return a kernel whose cores exchange their tiles at the end of each turn. The core for which ``works`` is true
    first adds to its tile ``steps`` times.
    """
    return f"""
@nki.jit
def kernel(x):
    core = nl.program_id(0)
    out = nl.ndarray((2, 128, 512), dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.ndarray((128, 512), dtype=x.dtype)
    nisa.dma_copy(dst=t, src=x[0:128, :])
    for turn in range({turns}):
        if {works}:
            for i in range({steps}):
                nisa.tensor_scalar(dst=t, data=t, op0=nl.add, operand0=1.0)
        got = nl.ndarray((128, 512), dtype=x.dtype)
        nisa.sendrecv(src=t, dst=got, send_to_rank=1 - core, recv_from_rank=1 - core, pipe_id=0)
        t = got
    nisa.dma_copy(dst=out[core], src=t)
    return out
"""


def test_two_cores_that_share_nothing_are_timed_beside_each_other() -> None:
    both = timed(halves().replace("{rows}", "core * 1024"))
    assert both.warnings[0].startswith("the two cores take ")
    one_after_the_other = timed(halves().replace("{rows}", "(1 - core) * 1024"))
    assert "timed as on one core" in one_after_the_other.warnings[0]
    assert both.latency_us is not None and one_after_the_other.latency_us is not None
    launch_us = both.params.kernel_start_us + both.params.kernel_end_us + both.params.two_cores_us
    assert both.latency_us - launch_us < 0.6 * (one_after_the_other.latency_us - launch_us)


@pytest.mark.parametrize(("lnc", "more_us"), [(1, 0.0), (2, CURRENT.two_cores_us)])
def test_a_launch_on_two_cores_takes_longer_than_one_on_one_core(lnc: int, more_us: float) -> None:
    source = halves().replace("{rows}", "core * 1024") if lnc == 2 else halves().replace("{rows}", "0")
    program = trace(PRELUDE + source, [TensorSpec((2048, 512), "float32")], api="nki", chip="trn2", lnc=lnc)
    found, without = (timeline(program, replace(CURRENT, two_cores_us=us)) for us in (CURRENT.two_cores_us, 0.0))
    assert found.latency_us is not None and without.latency_us is not None and CURRENT.two_cores_us > 0
    assert found.latency_us - without.latency_us == pytest.approx(more_us)
    assert found.binding is not None and without.binding is not None
    assert found.binding.start_us - without.binding.start_us == pytest.approx(more_us)


def test_two_cores_take_no_less_time_than_one_stack_of_hbm_needs_for_what_both_move() -> None:
    copied = """
@nki.jit
def kernel(x):
    core = nl.program_id(0)
    out = nl.ndarray((64, 128, 8192), dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.ndarray((128, 8192), dtype=x.dtype)
    nisa.memset(dst=t, value=0.0)
    for i in range(32):
        nisa.dma_copy(dst=out[32 * core + i], src=t)
    return out
"""
    both = timed(copied)
    stack_us = 64 * 128 * 8192 * 4 / chip_spec("trn2").hbm_bytes_per_us
    assert both.latency_us is not None and 1.0 < both.latency_us / stack_us < 1.1
    assert both.engines["dma"] < 0.9 * stack_us, "a core alone would be done before"


def test_cores_that_read_each_others_tensors_are_timed_in_turn_also_behind_a_barrier() -> None:
    source = halves("nisa.core_barrier(kept, (0, 1))").replace("{rows}", "(1 - core) * 1024")
    assert "timed as on one core" in timed(source).warnings[0]


def test_a_core_that_comes_first_waits_at_an_exchange_for_the_other_one() -> None:
    short, long = (timed(exchanging("core == 1", steps=steps)) for steps in (1, 21))
    assert short.latency_us is not None and long.latency_us is not None
    work_us = 20 * (512 / 2 + 124) / 0.96 / 1000  # float32 from SBUF at double rate
    assert long.latency_us - short.latency_us == pytest.approx(work_us, rel=0.15)
    first, second = (
        float(part) for part in long.warnings[0].split(" µs ")[0].removeprefix("the two cores take ").split(" and ")
    )
    assert first == pytest.approx(second, rel=0.1), "the idle core ends when the busy one has sent"


def test_cores_of_different_programs_are_timed_beside_each_other_and_claim_no_other_grid() -> None:
    source = """
@nki.jit
def kernel(x):
    core = nl.program_id(0)
    out = nl.ndarray((2, 128, 512), dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.ndarray((128, 512), dtype=x.dtype)
    nisa.dma_copy(dst=t, src=x[0:128, :])
    for i in range(40 if core else 39):
        nisa.tensor_scalar(dst=t, data=t, op0=nl.add, operand0=1.0)
        nisa.tensor_tensor(dst=t, data1=t, data2=t, op=nl.maximum)
    nisa.dma_copy(dst=out[core], src=t)
    return out
"""
    program = trace(PRELUDE + source, [TensorSpec((2048, 512), "float32")], api="nki", chip="trn2", lnc=2)
    assert false_claim(program) is None and verify(program) == ()
    alone = timeline(replace(program, lnc=1))
    found = timeline(program)
    assert found.latency_us is not None and alone.latency_us is not None
    assert found.latency_us < 0.7 * alone.latency_us
    x = np.zeros((2048, 512), np.float32)
    (out,) = execute(program, [x])
    assert (out[0] == 39).all() and (out[1] == 40).all()


@pytest.mark.parametrize(
    ("line", "races"),
    [
        ("nisa.dma_copy(dst=out[core], src=t)", False),
        ("nisa.dma_copy(dst=out[0], src=same); nisa.dma_copy(dst=out[1], src=same)", False),
        ("nisa.dma_copy(dst=out[0], src=t)", True),
        (
            "nisa.dma_copy(dst=out[0], src=zero); nisa.dma_copy(dst=out[1], src=zero); nisa.dma_copy(dst=out[core], src=t)",
            True,
        ),
    ],
)
@pytest.mark.parametrize("different", [False, True])
def test_two_cores_that_write_other_values_to_one_place_are_a_race(line: str, races: bool, different: bool) -> None:
    source = f"""
@nki.jit
def kernel(x):
    core = nl.program_id(0)
    out = nl.ndarray((2, 128, 16), dtype=x.dtype, buffer=nl.shared_hbm)
    t, same, zero = (nl.ndarray((128, 16), dtype=x.dtype) for _ in range(3))
    nisa.dma_copy(dst=t, src=x[nl.ds(core * 128, 128), :])
    nisa.memset(dst=same, value=3.0)
    nisa.memset(dst=zero, value=0.0)
    if {different} and core == 1:
        nisa.tensor_scalar(dst=t, data=t, op0=nl.add, operand0=1.0)
    {line}
    return out
"""
    program = trace(PRELUDE + source, [TensorSpec((256, 16), "float32")], api="nki", chip="trn2", lnc=2)
    (x,) = drawn((256, 16))
    if not races:
        execute(program, [x])
        return
    with pytest.raises(KernelCrash, match="two cores write different values") as caught:
        execute(program, [x])
    assert caught.value.rule == "race" and "core_barrier" in caught.value.hint
    assert caught.value.line == (PRELUDE + source).split(line)[0].count("\n") + 1


def on_both(body: str, before: str = "") -> str:
    """Return a kernel that stores twice the rows of its core, with ``body`` between load and store of the tile ``t``."""
    return f"""
{before}
@nki.jit
def kernel(x):
    core = nl.program_id(0)
    out = nl.ndarray((256, 16), dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.ndarray((128, 16), dtype=x.dtype)
    s = nl.ndarray((128, 1), dtype=x.dtype)
    {body}
    nisa.dma_copy(dst=out[nl.ds(core * 128, 128), :], src=t)
    return out
"""


PLACED = "nisa.dma_copy(dst=t, src=x.ap([[16, 128], [1, 16]], scalar_offset={register}, indirect_dim=0))"
SUMMED = """nisa.dma_copy(dst=t, src=x[nl.ds(core * 128, 128), :])
    nisa.activation(dst=t, op=nl.copy, data=t, reduce_op=nl.add, reduce_res=s, reduce_cmd=nisa.reduce_cmd.{first})
    {meeting}
    nisa.activation(dst=t, op=nl.copy, data=t, reduce_op=nl.add, reduce_res=s, reduce_cmd=nisa.reduce_cmd.reduce)
    nisa.tensor_scalar(dst=t, data=t, op0=nl.multiply, operand0=s)"""


@pytest.mark.parametrize("meeting", ["pass", "nisa.core_barrier(out, (0, 1))"])
def test_each_core_has_registers_and_accumulators_of_its_own(meeting: str) -> None:
    (x,) = drawn((256, 16))
    register = f"r = nisa.register_alloc(128 * core)\n    {meeting}\n    " + PLACED.format(register="r")
    np.testing.assert_array_equal(ran(traced(on_both(register), x.shape, grid=(2,), lnc=2), [x]), x)
    summed = on_both(SUMMED.format(first="reset_reduce", meeting=meeting))
    found = ran(traced(summed, x.shape, grid=(2,), lnc=2), [x])
    np.testing.assert_allclose(found, 2 * x * x.sum(axis=1, keepdims=True), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("meeting", ["pass", "nisa.core_barrier(out, (0, 1))"])
def test_what_the_other_core_left_in_registers_and_accumulators_is_undefined(meeting: str) -> None:
    (x,) = drawn((256, 16))
    given = f"HELD.append(nisa.register_alloc(0) if core == 0 else HELD[0])\n    {meeting}\n    "
    program = traced(on_both(given + PLACED.format(register="HELD[-1]"), "HELD = []"), x.shape, grid=(2,), lnc=2)
    with pytest.raises(KernelCrash, match="never written") as caught:
        execute(program, [x])
    assert caught.value.rule == "undefined_memory"
    body = SUMMED.format(first="reset_reduce", meeting=meeting)
    found = ran(
        traced(on_both(body.replace("nisa.activation", "if core == 0: nisa.activation", 1)), x.shape, grid=(2,), lnc=2),
        [x],
    )
    assert np.isfinite(found[:128]).all() and np.isnan(found[128:]).all()


@pytest.mark.parametrize(
    ("statements", "rule"),
    [
        ("one = nl.ndarray((8, 8) if core else (16, 8), x.dtype, nl.shared_hbm)", "shared_tensors"),
        ("one = nl.ndarray((8, 8), nl.float32 if core else nl.bfloat16, nl.shared_hbm)", "shared_tensors"),
        ("one = nl.ndarray((8, 8), x.dtype, nl.shared_hbm, name='b' if core else 'a')", "shared_tensors"),
        ("one = nl.ndarray((256, 16), x.dtype, nl.shared_hbm); out = one if core else out", "kernel_result"),
    ],
)
def test_both_cores_declare_and_return_the_same_tensors(statements: str, rule: str) -> None:
    body = f"nisa.dma_copy(dst=t, src=x[nl.ds(core * 128, 128), :])\n    {statements}"
    with pytest.raises(LegalityError) as caught:
        traced(on_both(body), (256, 16), grid=(2,), lnc=2)
    assert caught.value.rule == rule and caught.value.hint


def test_a_result_that_one_line_declares_in_hbm_is_one_tensor_of_both_cores() -> None:
    (x,) = drawn((256, 16))
    body = on_both("nisa.dma_copy(dst=t, src=x[nl.ds(core * 128, 128), :])").replace("nl.shared_hbm", "nl.hbm")
    found = ran(traced(body, x.shape, grid=(2,), lnc=2), [x])
    np.testing.assert_array_equal(found, x)


def test_cores_that_take_turns_many_times_wait_for_each_other_each_time() -> None:
    few, some, many = (
        timed(exchanging("turn % 2 == core", steps=8, turns=turns)).latency_us for turns in (10, 20, 100)
    )
    assert few is not None and some is not None and many is not None
    assert many - few == pytest.approx(9 * (some - few), rel=0.02)


@pytest.mark.parametrize("buffer", ["nl.sbuf", "nl.psum", "nl.private_hbm"])
def test_no_core_reaches_a_tile_of_the_other_core(buffer: str) -> None:
    copy = "tensor_copy" if buffer != "nl.private_hbm" else "dma_copy"
    body = f"""HELD.append(nl.ndarray((128, 16), dtype=x.dtype, buffer={buffer}))
    nisa.dma_copy(dst=t, src=x[nl.ds(core * 128, 128), :])
    nisa.{copy}(dst=HELD[-1], src=t)
    nisa.{copy}(dst=t, src=HELD[0])"""
    with pytest.raises(LegalityError, match="outside of its parent scope"):
        traced(on_both(body, "HELD = []"), (256, 16), grid=(2,), lnc=2)
    program = traced(on_both(body.replace("HELD[0]", "HELD[-1]"), "HELD = []"), (256, 16), grid=(2,), lnc=2)
    assert verify(program) == ()
    if buffer == "nl.private_hbm":
        return
    forged = replace(program, buffers=tuple(replace(one, scope=()) for one in program.buffers))
    assert {finding.rule for finding in verify(forged)} == {"local_scope"}


LEGACY = """
import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    core = nl.program_id(axis=0)
    p, f = nl.arange(128)[:, None], nl.arange(512)[None, :]
    tile = nl.load(x[p, f])
    {}
    return out
"""


@pytest.mark.parametrize(
    "body",
    [
        "nl.store(out[p, f], value=tile) if core == 0 else nl.atomic_rmw(out[p, f], value=tile, op=nl.add)",
        "nl.store(out[p, f], value=tile) if core == 0 else nl.store(out[p, f], value=nl.exp(tile))",
        "nl.store(out[p, f], value=tile) if core == 0 else nl.store(x[p, f], value=nl.load(out[p, f]))",
    ],
)
def test_programs_of_a_launch_that_ask_which_core_they_are_may_not_meet(body: str) -> None:
    with pytest.raises(LegalityError) as refused:
        trace(LEGACY.format(body), [TensorSpec((128, 512), "float32")], chip="trn2", grid=(2,), lnc=2)
    assert refused.value.rule == "affine_order"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("nl.store(out[p, f], value=tile, mask=core + 0 * p < 1)", "nl.atomic_rmw(out[p, f], value=tile, op=nl.add, mask=core + 0 * p > 0)"),
        ("nl.store(out[p, f], value=tile, mask=core + 0 * p < 1)", "nl.atomic_rmw(out[p, f], value=tile, op=nl.add)"),
    ],
)  # fmt: skip
def test_a_core_may_not_add_to_what_the_other_core_replaces(first: str, second: str) -> None:
    text = LEGACY.format(f"{first}\n    {second}")
    program = trace(text, [TensorSpec((128, 512), "float32")], chip="trn2", grid=(2,), lnc=2)
    with pytest.raises(KernelCrash) as refused:
        execute(program, drawn((128, 512)))
    assert refused.value.rule == "race"
