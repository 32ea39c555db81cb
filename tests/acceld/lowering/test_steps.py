"""A loop over steps becomes one loop of a kernel, and computes what numpy does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.acceld.lowering.formulas import Array
from tests.acceld.lowering.test_formulas import each_in_one_api, in_dialect, inputs_of, kernel_of, right

STEPS = 40
X, H = (STEPS, 8, 16), (8, 16)


def gated(x: Array, h: Array, c: Array, w: Array, u: Array, b: Array) -> Any:
    gates = x @ w
    states = []
    for t in range(x.shape[0]):
        g = gates[t] + h @ u + b
        i, f, o, n = (g[:, 16 * k : 16 * (k + 1)] for k in range(4))
        c = c / (1 + np.exp(-f)) + np.tanh(n) / (1 + np.exp(-i))
        h = np.tanh(c) / (1 + np.exp(-o))
        states.append(h)
    return np.stack(states), h, c


def backward(x: Array, h: Array, w: Array, u: Array) -> Any:
    out = np.zeros(x.shape, x.dtype)
    for t in range(x.shape[0] - 1, -1, -1):
        z = 1 / (1 + np.exp(-(x[t] @ w[:, :16] + h @ u[:, :16])))
        h = z * h + (1 - z) * np.tanh(x[t] @ w[:, 16:] + h @ u[:, 16:])
        out[t] = h
    return out


def concatenated(x: Array, h: Array, w: Array, b: Array) -> Any:
    outputs = []
    for t in range(x.shape[0]):
        both = np.concatenate((x[t], h), axis=1)
        h = np.tanh(both @ w[:, :16] + b)
        outputs.append(np.exp(-np.square(both @ w[:, 16:])) + h)
    return np.stack(outputs, axis=1)


def two_steps_back(x: Array, h: Array, w: Array, u: Array) -> Any:
    before = np.zeros(h.shape, h.dtype)
    for t in range(x.shape[0]):
        h, before = np.tanh(x[t] @ w + h @ u) + 0.5 * before - np.square(h) * 0.1, h
        h = h / (1 + np.exp(-h))
    return h


def softened(x: Array, h: Array, w: Array, u: Array) -> Any:
    total = np.zeros(h.shape, h.dtype)
    for t in range(x.shape[0]):
        scores = h @ w + x[t]
        p = np.exp(scores - scores.max(axis=1, keepdims=True))
        h = np.tanh(p / p.sum(axis=1, keepdims=True) @ u + h)
        total = total + h
    return total, h


def in_place(x: Array, h: Array, w: Array) -> Any:
    a = h.copy()
    for t in range(x.shape[0]):
        a += np.tanh(x[t] + h * 0.5) / (1 + np.exp(-a))
        h = np.tanh(h - a) * 0.3 + np.square(a) @ w * 0.1
        a[:, :4] *= 0.5
    return a, h


LOOPS: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "gated": (gated, (X, H, H, (16, 64), (16, 64), (64,))),
    "backward": (backward, (X, H, (16, 32), (16, 32))),
    "concatenated": (concatenated, (X, H, (32, 32), (16,))),
    "two_steps_back": (two_steps_back, (X, H, (16, 16), (16, 16))),
    "in_place": (in_place, (X, H, (16, 16))),
    "softened": (softened, (X, H, (16, 16), (16, 16))),
}


@pytest.mark.parametrize(("name", "api"), each_in_one_api(LOOPS))
def test_a_loop_over_steps_becomes_one_loop(name: str, api: str) -> None:
    function, shapes = LOOPS[name]
    inputs = [0.3 * array for array in inputs_of(shapes, np.float32)]
    source = kernel_of(function, inputs, api)
    assert source.count("nl.sequential_range(") == 1
    assert source.count("\n") < 300
    # what the next step reads on the same rows stays on the chip
    assert ("state" in source.partition("sequential_range")[2]) == (name != "concatenated")
    if api == "nki":
        in_dialect(source)
    right(function, source, inputs, 1e-5)


def changing(x: Array, h: Array, w: Array, u: Array) -> Any:
    for t in range(x.shape[0]):
        h = np.tanh(x[t] @ w + h @ u) * 0.1 * (t % 7) + np.tanh(h) / (1 + np.exp(-h)) - 0.1
    return h


def apart(x: Array, h: Array, w: Array, u: Array) -> Any:
    for t in range(x.shape[0]):
        h = np.tanh(x[t * t % 40] @ w + h @ u) + np.tanh(h) / (1 + np.exp(-h)) - 0.1
    return h


def alone(x: Array, h: Array, w: Array, u: Array) -> Any:
    found = [np.tanh(x[t] @ w + h @ u) + np.square(h) / (1 + np.exp(-x[t])) - 0.1 for t in range(x.shape[0])]
    return np.stack(found)


@pytest.mark.parametrize("function", [changing, apart, alone])
def test_steps_that_differ_or_need_nothing_of_each_other_are_no_loop_over_steps(function: Callable[..., Any]) -> None:
    inputs = [0.3 * array for array in inputs_of((X, H, (16, 16), (16, 16)), np.float32)]
    source = kernel_of(function, inputs, "nki")
    assert "sequential_range" not in source
    if function is not changing:
        right(function, source, inputs, 1e-5)


def two_layers(x: Array, h: Array, w: Array, u: Array) -> Any:
    for layer in range(2):
        states = []
        for t in range(x.shape[0]):
            h = np.tanh(x[t] @ w[layer] + h @ u[layer]) + 0.1 * np.square(h) - h / (1 + np.exp(-h))
            states.append(h)
        x = np.stack(states)
    return x


def test_each_layer_of_a_recurrent_network_has_its_loop() -> None:
    inputs = [0.3 * array for array in inputs_of((X, H, (2, 16, 16), (2, 16, 16)), np.float32)]
    source = kernel_of(two_layers, inputs, "nki")
    assert source.count("nl.sequential_range(39)") == source.count("nl.sequential_range(40)") == 1
    right(two_layers, source, inputs, 1e-5)


@pytest.mark.parametrize(("start", "pick"), [(2e30, np.maximum), (-2e30, np.maximum), (-2e30, np.minimum)])
def test_a_running_extreme_keeps_a_start_that_no_value_exceeds(start: float, pick: Callable[..., Any]) -> None:
    def running(x: Array) -> Any:
        out = np.zeros(x.shape, x.dtype)
        most = np.full(x.shape[1:], start, x.dtype)
        for t in range(x.shape[0]):
            most = pick(most, x[t])
            out[t] = most
        return out

    inputs = inputs_of((X,), np.float32)
    source = kernel_of(running, inputs, "nki")
    assert "tensor_tensor_scan" in source or start * pick(-1.0, 1.0) > 0
    right(running, source, inputs, 1e-5)
