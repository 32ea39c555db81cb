"""Long loops traced by samples give the program that all iterations give."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from acceld.nki.errors import KernelCrash
from acceld.nki.frontend.current import sampling
from acceld.nki.frontend.session import SAMPLE_AFTER
from acceld.nki.ir.codec import program_hash
from acceld.nki.ir.program import Program
from tests.acceld.nki.current.test_current import drawn, ran, traced

ROWS = """
@nki.jit
def kernel(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    {before}
    for i in nl.affine_range(x.shape[0] // 16):
        tile = nl.ndarray((16, 32), dtype=x.dtype, buffer=nl.sbuf)
        for j in nl.affine_range(x.shape[1] // 32):
            nisa.dma_copy(dst=tile, src=x[16 * i : 16 * (i + 1), nl.ds(32 * j, 32)])
            {body}
            nisa.dma_copy(dst=out[16 * i : 16 * (i + 1), nl.ds(32 * j, 32)], src=tile)
    return out
"""
DOUBLED = "nisa.tensor_scalar(tile, tile, nl.multiply, 2.0)"
SHAPE = (144, 288)


@pytest.fixture
def both() -> Callable[[str], tuple[Program, Program]]:
    """Return a kernel traced in full, and with samples from the first instructions on."""

    def trace_both(body: str) -> tuple[Program, Program]:
        return traced(body, SHAPE, sample_after=10**9), traced(body, SHAPE, sample_after=2)

    return trace_both


@pytest.mark.parametrize(
    ("before", "body"),
    [
        ("pass", DOUBLED),
        ("pass", "if i == 7:\n                " + DOUBLED),
        ("pass", "if j % 3 == 1:\n                " + DOUBLED),
        ("count = 0", "count += 1\n            if count == 40:\n                " + DOUBLED),
        ("seen = []", "seen.append(1)\n            if len(seen) == 39:\n                " + DOUBLED),
        (
            "count = [0]",
            "count[0] += 1\n            for _ in range(max(0, 40 - count[0])):\n                " + DOUBLED,
        ),
        ("left = iter([1] * 40 + [0] * 999)", "for _ in range(next(left)):\n                " + DOUBLED),
        (
            "def step(n=[]):\n        n.append(1)\n        return max(0, 40 - len(n))",
            "for _ in range(step()):\n                " + DOUBLED,
        ),
        (
            "def step():\n        step.n = getattr(step, 'n', 0) + 1\n        return step.n < 40",
            "for _ in range(step()):\n                " + DOUBLED,
        ),
        (
            "count = np.zeros(1)",
            "count += 1\n            for _ in range(max(0, 40 - int(count[0]))):\n                " + DOUBLED,
        ),
        (
            "count = [[[0]]]",
            "count[0][0][0] += 1\n            for _ in range(max(0, 40 - count[0][0][0])):\n                " + DOUBLED,
        ),
        ("count = np.int32(0)", "count += 1\n            if count >= 40:\n                " + DOUBLED),
        ("count = bytearray(1)", "count[0] += 1\n            if count[0] >= 40:\n                " + DOUBLED),
        (
            "class Count:\n        n = 0",
            "Count.n += 1\n            if Count.n >= 40:\n                " + DOUBLED,
        ),
        (
            "class Count:\n        __slots__ = ('n',)\n    held = {'a': (Count(),)}\n    held['a'][0].n = 0",
            "held['a'][0].n += 1\n            if held['a'][0].n >= 40:\n                " + DOUBLED,
        ),
        (
            "class Slot:\n        __slots__ = ('n',)\n    class Count(Slot):\n        n = 0\n    count = Count()",
            "Slot.n.__set__(count, 1 + (Slot.n.__get__(count) if i + j else 0))\n            if Slot.n.__get__(count) >= 40:\n                "
            + DOUBLED,
        ),
        (
            "count = np.zeros(100_000)",
            "count[70_000] += 1\n            if count[70_000] >= 40:\n                " + DOUBLED,
        ),
        (
            "def step(*, n={}):\n        n[0] = n.get(0, 0) + 1\n        return n[0] < 40",
            "for _ in range(step()):\n                " + DOUBLED,
        ),
        (
            "boxes = [nl.ndarray((16, 1), dtype=nl.float32) for _ in range(12)]\n    _ = [nisa.memset(boxes[k], 1.0 + (k > 8)) for k in range(12)]",
            "boxes.append(boxes.pop(0))\n            nisa.tensor_scalar(tile, tile, nl.multiply, boxes[0])",
        ),
        ("np.random.seed(1)", "if np.random.randint(50) == 7:\n                " + DOUBLED),
        ("scales = [1.0 + (k == 9) for k in range(99)]", "nisa.tensor_scalar(tile, tile, nl.multiply, scales[j])"),
        ("scales = {k: float(k) for k in range(99)}", "nisa.tensor_scalar(tile, tile, nl.multiply, scales[i])"),
        ("pass", "nisa.tensor_scalar(tile, tile, nl.multiply, float(i))"),
        ("pass", "nisa.tensor_scalar(tile[:, : min(j + 1, 32)], tile[:, : min(j + 1, 32)], nl.multiply, 2.0)"),
        ("pass", "for k in nl.affine_range(i + 1):\n                " + DOUBLED),
        (
            "box = nl.ndarray((16, 1), dtype=nl.float32)\n    nisa.memset(box, 2.0)",
            "nisa.tensor_scalar(tile, tile, nl.multiply, box)",
        ),
    ],
    ids=lambda text: text.split("\n")[0][:40],
)
def test_samples_stand_for_all_iterations(
    both: Callable[[str], tuple[Program, Program]], before: str, body: str
) -> None:
    full, sampled = both(ROWS.format(before=before, body=body))
    assert program_hash(sampled) == program_hash(full)


@pytest.mark.parametrize(
    ("before", "body"),
    [
        ("pass", DOUBLED),
        ("scales = [(2.0, {'a': np.float32(2.0)})] * 3", "nisa.tensor_scalar(tile, tile, nl.multiply, 2.0)"),
        (
            "box = nl.ndarray((16, 1), dtype=nl.float32)\n    nisa.memset(box, 2.0)",
            "view = tile[:, 0:16]\n            " + DOUBLED,
        ),
        (
            "def twice(tile, factor=2.0, *, parts=(16, 32)):\n        nisa.tensor_scalar(tile, tile, nl.multiply, factor)",
            "twice(tile)",
        ),
        (
            "class Slot:\n        __slots__ = ('n',)\n    class Hidden(Slot):\n        n = 2.0\n    held = Hidden()",
            "nisa.tensor_scalar(tile, tile, nl.multiply, held.n)",
        ),
    ],
    ids=lambda text: text.split("\n")[0][:40],
)
def test_values_that_stay_need_no_further_iteration(monkeypatch: pytest.MonkeyPatch, before: str, body: str) -> None:
    ran_trips: list[int] = []
    positions = sampling.positions

    def counted(count: int) -> tuple[int, ...]:
        ran_trips.append(count)
        return positions(count)

    monkeypatch.setattr(sampling, "positions", counted)
    traced(ROWS.format(before=before, body=body), (16 * 80, 288), sample_after=2)
    assert ran_trips[0] == 80 and len(ran_trips) == 1 + len(positions(80))


def test_a_counter_on_an_object_is_noticed(both: Callable[[str], tuple[Program, Program]]) -> None:
    body = "class Count:\n    n = 0\n" + ROWS.format(
        before="count = Count()",
        body="count.n = count.n + 1\n            if count.n == 40:\n                " + DOUBLED,
    )
    full, sampled = both(body)
    assert program_hash(sampled) == program_hash(full)


def test_an_error_of_a_late_iteration_is_still_found() -> None:
    body = ROWS.format(before="pass", body="if j == 5:\n                raise ValueError('unlucky')")
    with pytest.raises(Exception, match="unlucky") as raised:
        traced(body, SHAPE, sample_after=2)
    assert getattr(raised.value, "line", 0) == 16


def test_a_long_kernel_runs_right_from_samples() -> None:
    body = ROWS.format(before="pass", body=DOUBLED).replace("16", "8")
    (x,) = drawn((384, 1024))
    program = traced(body, (384, 1024))
    assert 3 * 48 * 32 > SAMPLE_AFTER
    assert len(list(program.walk())) == 3
    assert np.array_equal(ran(program, [x]), 2 * x)


def test_an_error_of_the_simulator_while_sampling_is_not_kept_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "positions", lambda count: None)
    with pytest.raises(KernelCrash, match="TypeError"):
        traced(ROWS.format(before="pass", body=DOUBLED), SHAPE, sample_after=2)
