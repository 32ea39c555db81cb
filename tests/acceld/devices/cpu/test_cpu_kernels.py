"""Numpy kernels in the worker: what they may leave behind after a call that is checked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from acceld.devices.cpu.kernels import LeftBehind, prepare

SHAPE = (4, 6)


@pytest.fixture
def call(tmp_path: Path) -> Callable[..., Any]:
    """Return a function that runs a numpy kernel several times, on other inputs each time."""

    def run(text: str, calls: int = 12, *, checked: bool = True) -> None:
        path = tmp_path / "kernel.py"
        path.write_text("import numpy as np\n" + text)
        job = {
            "api": "numpy", "entry": "", "filename": "kernel.py", "checked": checked,
            "arguments": [{"name": "a", "shape": list(SHAPE), "dtype": "float32"}],
            "outputs": [{"name": "out", "shape": list(SHAPE), "dtype": "float32"}],
        }  # fmt: skip
        one = prepare(job, str(path))
        for number in range(calls):
            given, out = np.full(SHAPE, number, np.float32), np.empty(SHAPE, np.float32)
            one([given], [out])
            assert (out == given + 1).all()

    return run


KEPT = "H = np.empty((2, 4, 6), np.float32)\nL, D, N, BYTES = [], {}, [0], bytearray(96)\n"


@pytest.mark.parametrize(
    ("body", "rule"),
    [
        ("np.add(a, 1, out=H[0]); return H[0]", "kept_result"),
        ("N[0] ^= 1; np.add(a, 1, out=H[N[0]]); return H[N[0]]", "kept_result"),
        ("np.add(a, 1, out=H.reshape(-1)[:24].reshape(4, 6)); return H.reshape(-1)[:24].reshape(4, 6)", "kept_result"),
        (
            "H = [np.frombuffer(BYTES, np.float32)]; np.add(a, 1, out=H[0].reshape(4, 6)); return H[0].reshape(4, 6)",
            "kept_result",
        ),
        ("b = a + 1; L[:] = [b[1:]]; return b", "kept_result"),
        ("np.seterr(over='raise'); return a + 1", "kept_settings"),
        ("np.set_printoptions(precision=3); return a + 1", "kept_settings"),
        ("np.setbufsize(65536); return a + 1", "kept_settings"),
        ("L.append(a.copy()); return a + 1", "kept_memory"),
        ("D[len(D)] = float(a[0, 0]); return a + 1", "kept_memory"),
        ("def note(seen=L): seen.append(1.5)\n    note(); return a + 1", "kept_memory"),
    ],
)
def test_a_kernel_that_leaves_something_behind_is_refused(call: Callable[..., Any], body: str, rule: str) -> None:
    text = f"{KEPT}def kernel(a):\n    {body}\n"
    with pytest.raises(LeftBehind) as caught, np.errstate(), np.printoptions():
        before = np.getbufsize()
        try:
            call(text)
        finally:
            np.setbufsize(before)
    assert caught.value.rule == rule
    if rule == "kept_memory":
        call(text, checked=False)


@pytest.mark.parametrize(
    "body",
    [
        "np.copyto(H[0], a); return H[0] + 1",
        "with np.errstate(all='ignore'): return a + 1",
        "if a.shape not in D: D[a.shape] = a.copy()\n    return a + 1",
        "N[0] += 1; return a + 1",
        "L.append(a.copy()); del L[:-3]; return a + 1",
        "return (a.T + 1).T",
        "c = np.ones((8, 6), np.float32); c[:4] += a; return c[:4]",
        "def again(n): return a + 1 if n == 0 else again(n - 1)\n    return again(3)",
        "b = a + 1; cycle = [b]; cycle.append(cycle); return b",
    ],
)
def test_a_kernel_may_keep_scratch_memory_and_restore_settings(call: Callable[..., Any], body: str) -> None:
    call(f"{KEPT}def kernel(a):\n    {body}\n")


def test_a_view_of_an_argument_is_no_kept_result(tmp_path: Path) -> None:
    path = tmp_path / "kernel.py"
    path.write_text("def kernel(a):\n    return a[::-1]\n")
    job = {
        "api": "numpy", "entry": "", "filename": "kernel.py", "checked": True,
        "arguments": [{"name": "a", "shape": list(SHAPE), "dtype": "float32"}],
        "outputs": [{"name": "out", "shape": list(SHAPE), "dtype": "float32"}],
    }  # fmt: skip
    given, out = np.arange(24, dtype=np.float32).reshape(SHAPE), np.empty(SHAPE, np.float32)
    for checked in (True, False):
        for _ in range(4):
            prepare(job | {"checked": checked}, str(path))([given], [out])
        assert (out == given[::-1]).all()
