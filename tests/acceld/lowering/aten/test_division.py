"""A recorded module is divided where the fewest bytes cross; equal regions are one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from acceld.lowering.aten.division import Part, divided
from acceld.lowering.aten.program import Argument, Array, Call, Constant, Input, Named, Program
from acceld.lowering.aten.reference import argument_names, reference_text
from tests.acceld.lowering.aten.test_references import loaded

F = "float32"
LAYERS = 3


def call(name: str, operator: str, shape: tuple[int, ...], *args: Argument, where: str = "", **named: Argument) -> Call:
    """Return a call with one result."""
    return Call(name, operator, args, named, (Array(shape, F),), where)


def layers() -> Program:
    """Return a table's rows, layers of norm, attention over one head and a gated layer, and a product."""
    inputs = [
        Input("ids", Array((24,), "int32"), "argument", "ids"),
        Input("table", Array((100, 32), F), "parameter", "embed.weight"),
    ]
    calls = [call("x_0", "embedding", (24, 32), Named("table"), Named("ids"), where="embed (Embedding)")]
    for layer in range(LAYERS):
        weights = dict.fromkeys("qkv", (16, 32)) | {"o": (32, 16), "gate": (80, 32), "up": (80, 32), "down": (32, 80)}
        inputs += [
            Input(f"{n}_{layer}", Array(s, F), "parameter", f"layers.{layer}.{n}.weight") for n, s in weights.items()
        ]

        def product(n: str, shape: tuple[int, ...], of: str, layer: int = layer) -> Call:
            where = f"layers.{layer}.{n} (Linear)"
            return call(f"{n}{layer}", "linear", shape, Named(of), Named(f"{n}_{layer}"), where=where)

        own = f"layers.{layer} (Layer)"
        x, seen = f"x_{layer}", f"seen{layer}"
        calls += [
            call(f"n{layer}", "layer_norm", (24, 32), Named(x), [32], where=f"layers.{layer}.norm (LayerNorm)"),
            *(product(n, (24, 16), f"n{layer}") for n in "qkv"),
            call(f"t{layer}", "t", (16, 24), Named(f"k{layer}"), where=own),
            call(f"s{layer}", "mm", (24, 24), Named(f"q{layer}"), Named(f"t{layer}"), where=own),
            call(f"ones{layer}", "ones", (24, 24), [24, 24], where=own),
            call(seen, "tril", (24, 24), Named(f"ones{layer}"), where=own),
            call(f"m{layer}", "mul", (24, 24), Named(f"s{layer}"), Named(seen), where=own),
            call(f"a{layer}", "mm", (24, 16), Named(f"m{layer}"), Named(f"v{layer}"), where=own),
            product("o", (24, 32), f"a{layer}"),
            call(f"r{layer}", "add", (24, 32), Named(x), Named(f"o{layer}"), where=own),
            call(f"w{layer}", "relu", (24, 32), Named(f"r{layer}"), where=own),
            product("gate", (24, 80), f"w{layer}"),
            call(f"silu{layer}", "silu", (24, 80), Named(f"gate{layer}"), where=own),
            product("up", (24, 80), f"w{layer}"),
            call(f"g{layer}", "mul", (24, 80), Named(f"silu{layer}"), Named(f"up{layer}"), where=own),
            product("down", (24, 32), f"g{layer}"),
            call(f"x_{layer + 1}", "add", (24, 32), Named(f"r{layer}"), Named(f"down{layer}"), where=own),
        ]
    inputs.append(Input("head_w", Array((100, 32), F), "parameter", "head.weight"))
    calls.append(call("y", "linear", (24, 100), Named(f"x_{LAYERS}"), Named("head_w"), where="head (Linear)"))
    return Program("forward", tuple(inputs), (Constant("half", Array((), F), (0.5,)),), tuple(calls), ("y",))


def test_layers_become_regions_that_are_counted_once() -> None:
    parts = divided(layers())
    assert [(one.name, one.count) for one in parts] == [
        ("embed", 1), ("q_k_v", LAYERS), ("layers", LAYERS), ("o", LAYERS), ("gate_up", LAYERS), ("down", LAYERS), ("head", 1),
    ]  # fmt: skip
    named = {one.name: [call.operator for call in one.program.calls] for one in parts}
    assert named["q_k_v"] == ["layer_norm", "linear", "linear", "linear", "t"]
    assert named["layers"] == ["ones", "tril", "mm", "mul", "mm"], "a mask without data is made where it is read"
    assert named["o"] == ["linear", "add"], "the sum is written anyway: two readers have it"
    assert named["gate_up"] == ["relu", "linear", "silu", "linear", "mul"]
    assert parts[0].unread_bytes == 4 * 32 * (100 - 24), "a table's rows that no one names are not read"


def run(parts: list[Part], values: dict[str, Any]) -> Any:
    """Compute regions in their order in the module."""
    every = [(place, part) for part in parts for place in part.places]
    while every:
        for (program, calls), part in list(every):
            if all(one.name in values for one in program.inputs):
                names = argument_names(part.program)
                assert len(names) == len(program.inputs)
                found = loaded(reference_text(part.program))["forward"](*(values[one.name] for one in program.inputs))
                results = found if isinstance(found, tuple) else (found,)
                values |= dict(zip(program.outputs, results, strict=True))
                every.remove(((program, calls), part))
    return values["y"]


def test_regions_together_compute_what_the_module_does() -> None:
    program = layers()
    rng = np.random.default_rng(0)
    values: dict[str, Any] = {one.name: rng.standard_normal(one.array.shape) * 0.05 for one in program.inputs}
    values["ids"] = rng.integers(0, 100, (24,))
    wanted = loaded(reference_text(program))["forward"](*values.values())
    assert np.allclose(run(divided(program), dict(values)), wanted, rtol=1e-12, atol=1e-12)


def test_an_array_filled_like_another_reads_nothing() -> None:
    inputs = (Input("x", Array((4, 8), F), "argument", "x"), Input("w", Array((8, 8), F), "parameter", "w"))
    calls = (
        call("z", "full_like", (4, 8), Named("x"), 2.0),
        call("p", "mm", (4, 8), Named("x"), Named("w")),
        call("q", "mm", (4, 8), Named("p"), Named("w")),
        call("y", "add", (4, 8), Named("q"), Named("z")),
    )
    program = Program("forward", inputs, (), calls, ("y",))
    parts = divided(program)
    assert [[one.name for one in part.program.inputs] for part in parts] == [["x", "w"], ["p", "w"]]
    x, w = np.random.default_rng(0).standard_normal((2, 8, 8))
    assert np.allclose(run(parts, {"x": x[:4], "w": w}), x[:4] @ w @ w + 2.0)


@pytest.mark.parametrize("change", ["shape", "constant", "operator"])
def test_regions_that_differ_are_apart(change: str) -> None:
    a, b = (Input(f"w{i}", Array((8, 8 + (change == "shape" and i)), F), "parameter", f"{i}.weight") for i in (0, 1))
    x = Input("x", Array((4, 8), F), "argument", "x")
    calls = (
        call("p0", "mm", (4, 8), Named("x"), Named("w0"), where="0 (A)"),
        call("e0", "mul", (4, 8), Named("p0"), 2.0, where="0 (A)"),
        call("p1", "mm", (4, 8 + (change == "shape")), Named("e0"), Named("w1"), where="1 (A)"),
        call("e1", "add" if change == "operator" else "mul", (4, 8 + (change == "shape")), Named("p1"),
             3.0 if change == "constant" else 2.0, where="1 (A)"),
    )  # fmt: skip
    assert [one.count for one in divided(Program("forward", (x, a, b), (), calls, ("e1",)))] == [1, 1]
