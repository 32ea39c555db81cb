"""Random straight-line and looping kernels against numpy run statement by statement.

Renaming results, copying, aliasing and accumulation must never change what a kernel means.
"""

from __future__ import annotations

import random as random_module
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, reject
from hypothesis import strategies as st

from acceld.errors import AcceldError
from acceld.nki.errors import LegalityError
from acceld.nki.frontend.tracing import TensorSpec, TraceOptions, trace
from tests.properties import examples

HEIGHT, WIDTH, PIECE = 32, 16, 4
TENSORS = ("t0", "t1", "t2")


class Writer:
    """Writes one kernel twice: in the legacy API, and as numpy statements with the same meaning."""

    def __init__(self, seed: int) -> None:
        self.random = random_module.Random(seed)
        self.nki: list[str] = []
        self.numpy: list[str] = []
        self.results: list[tuple[str, int]] = []
        self.made = 0

    def piece(self, variable: str | None) -> tuple[str, str, int]:
        """Return a view of a tensor: its text for both, and its width."""
        tensor = self.random.choice(TENSORS)
        kind = self.random.choice(["whole", "slice", "half", "loop" if variable else "slice"])
        if kind == "whole":
            return f"{tensor}[...]", f"{tensor}[...]", WIDTH
        if kind == "half":
            start = self.random.choice([0, WIDTH // 2])
            text = f"{tensor}[:, {start}:{start + WIDTH // 2}]"
            return text, text, WIDTH // 2
        place = f"{variable} * {PIECE}" if kind == "loop" else str(self.random.randrange(0, WIDTH - PIECE + 1, 2))
        return f"{tensor}[:, nl.ds({place}, {PIECE})]", f"{tensor}[:, {place}:{place} + {PIECE}]", PIECE

    def operand(self, width: int, variable: str | None, visible: list[tuple[str, int]]) -> tuple[str, str]:
        """Return a tile or a result of ``width``."""
        fitting = [name for name, size in visible if size == width]
        if fitting and self.random.random() < 0.6:
            name = self.random.choice(fitting)
            return name, name
        while True:
            nki, plain, size = self.piece(variable)
            if size == width:
                return nki, plain

    def value(self, width: int, variable: str | None, visible: list[tuple[str, int]]) -> tuple[str, str]:
        """Return an operation that yields ``width`` columns."""
        first, second = (self.operand(width, variable, visible) for _ in range(2))
        match self.random.randrange(4):
            case 0:
                return f"nl.add({first[0]}, {second[0]})", f"({first[1]} + {second[1]})"
            case 1:
                return f"nl.multiply({first[0]}, 0.5)", f"({first[1]} * np.float32(0.5))"
            case 2:
                return f"nl.maximum({first[0]}, {second[0]})", f"np.maximum({first[1]}, {second[1]})"
            case _:
                return f"nl.copy({first[0]})", f"({first[1]}).copy()"

    def statement(self, indent: str, variable: str | None, visible: list[tuple[str, int]]) -> None:
        """Write one statement, which may add a result to ``visible``."""
        kind = self.random.randrange(12)
        if kind < 4:
            width = self.random.choice([WIDTH, WIDTH // 2, PIECE])
            nki, plain = self.value(width, variable, visible)
            name, self.made = f"r{self.made}", self.made + 1
            self.add(indent, f"{name} = {nki}", f"{name} = {plain}")
            visible.append((name, width))
        elif kind < 7:
            nki, plain, width = self.piece(variable)
            source = self.value(width, variable, visible)
            self.add(indent, f"{nki} = {source[0]}", f"{plain} = {source[1]}")
        elif kind < 9:
            nki, plain, width = self.piece(variable)
            source = self.operand(width, variable, visible)
            self.add(
                indent,
                f"{nki} = nl.copy({source[0]})" if "[" in source[0] else f"{nki} = {source[0]}",
                f"{plain} = {source[1]}",
            )
        elif kind == 9 and visible:
            name, width = self.random.choice(visible)
            source = self.operand(width, variable, visible)
            self.add(indent, f"{name} += nl.multiply({source[0]}, 0.25)", f"{name} += {source[1]} * np.float32(0.25)")
        elif kind == 10 and visible:
            name, _ = self.random.choice(visible)
            source = self.operand(PIECE, variable, visible)
            self.add(
                indent,
                f"{name}[:, 0:4] = nl.maximum({source[0]}, 0.5)",
                f"{name}[:, 0:4] = np.maximum({source[1]}, np.float32(0.5))",
            )
        else:
            nki, plain, width = self.piece(variable)
            source = self.operand(width, variable, visible)
            self.add(indent, f"{nki} += nl.multiply({source[0]}, 0.25)", f"{plain} += {source[1]} * np.float32(0.25)")

    def add(self, indent: str, nki: str, plain: str) -> None:
        self.nki.append(indent + nki)
        self.numpy.append(indent + plain)

    def write(self) -> tuple[str, str]:
        """Return the kernel's source and the numpy statements."""
        for _ in range(self.random.randrange(1, 7)):
            self.statement("    ", None, self.results)
        for number in range(self.random.randrange(0, 3)):
            self.add("    ", f"for i{number} in nl.sequential_range(3):", f"for i{number} in range(3):")
            inner = list(self.results)
            for _ in range(self.random.randrange(1, 5)):
                if self.random.random() < 0.2:
                    test = f"if i{number} {self.random.choice(['==', '>', '<=', '!='])} {self.random.randrange(3)}:"
                    self.add("        ", test, test)
                    self.statement("            ", f"i{number}", list(inner))
                else:
                    self.statement("        ", f"i{number}", inner)
            for _ in range(self.random.randrange(0, 3)):
                self.statement("    ", None, self.results)
        head = "\n@nki.jit\ndef kernel(x):\n    out = nl.ndarray((3, 32, 16), dtype=x.dtype, buffer=nl.shared_hbm)\n"
        for number, tensor in enumerate(TENSORS):
            head += f"    {tensor} = nl.ndarray((32, 16), dtype=x.dtype, buffer=nl.sbuf)\n    {tensor}[...] = nl.load(x[{number}])\n"
        tail = "".join(f"    nl.store(out[{number}], {tensor})\n" for number, tensor in enumerate(TENSORS))
        return head + "\n".join(self.nki) + "\n" + tail + "    return out\n", "\n".join(self.numpy)


@examples(40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(seed=st.integers(0, 10**9))
def test_random_kernels_mean_what_their_statements_mean(run_kernel: Any, seed: int) -> None:
    source, plain = Writer(seed).write()
    x = np.random.default_rng(seed).standard_normal((3, HEIGHT, WIDTH)).astype(np.float32)
    names: dict[str, Any] = {"np": np, **{tensor: x[k].copy() for k, tensor in enumerate(TENSORS)}}
    exec("def run(t0, t1, t2):\n" + plain, names)  # noqa: S102  # the statements written above
    names["run"](*(names[tensor] for tensor in TENSORS))
    want = np.stack([names[tensor] for tensor in TENSORS])
    try:
        found = run_kernel(source, x)
    except LegalityError as error:
        assert error.rule == "overlap", source  # a statement of two overlapping pieces has no meaning on a chip
        reject()
    np.testing.assert_allclose(found, want, rtol=1e-6, atol=1e-6, err_msg=source)


GOOD = """import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np

@nki.jit
def kernel(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    acc = nl.zeros((64, 64), dtype=nl.float32, buffer=nl.psum)
    for i in nl.affine_range(4):
        tile = nl.load(x[nl.ds(i * 64, 64), 0:64], mask=nl.arange(64)[:, None] + 64 * i < 250)
        acc += nisa.nc_matmul(tile, tile)
        nl.store(out[nl.ds(i * 64, 64), 0:64], nisa.activation(op=np.exp, data=tile, scale=0.5))
    return out
"""


@examples(40)
@given(st.data())
def test_a_damaged_kernel_is_traced_or_refused_with_a_typed_error(data: st.DataObject) -> None:
    text = GOOD
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(text) - 1))
        length = data.draw(st.integers(0, 12))
        new = data.draw(
            st.sampled_from(
                ["", "0", "-1", "[", ")", "None", "x", "nl", "'", "\n", "i", "10**9", "*", "tile", ":", "\x00", "é"]
            )
        )
        text = text[:start] + new + text[start + length :]
    try:
        trace(text, [TensorSpec((256, 64), "float32")], options=TraceOptions(deadline_s=5, max_instructions=2000))
    except AcceldError as error:
        assert error.message


@pytest.mark.parametrize(
    "source", ["", "\n\n", "kernel = 1", "lambda: 0", "#" * 1000, "def kernel(): return 1", "\ufeff", "\x1b[0m"]
)
def test_files_that_are_no_kernels_are_refused_with_a_typed_error(source: str) -> None:
    with pytest.raises(AcceldError):
        trace(source, [])
