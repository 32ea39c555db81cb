"""The table of the API against the modules a kernel imports."""

from __future__ import annotations

from typing import Any

import pytest

from acceld.nki.errors import KernelCrash, LegalityError, UnsupportedCall
from acceld.nki.frontend.legacy import isa, language
from acceld.nki.frontend.legacy.surface import SURFACE

MODULES = {"neuronxcc.nki.isa": isa.namespace(), "neuronxcc.nki.language": language.namespace()}
BESIDE_THE_TABLE = {
    "par_dim",
    "nc",
    "spmd_dim",
    "tile_size",
    "engine",
    "reduce_cmd",
    "nc_version",
    "dge_mode",
    "oob_mode",
}


@pytest.mark.parametrize("module", sorted(SURFACE))
def test_every_documented_function_is_there_and_no_other(module: str) -> None:
    callables = {name for name, value in MODULES[module].items() if callable(value)} - BESIDE_THE_TABLE
    assert callables == set(SURFACE[module])


@pytest.mark.parametrize(
    ("module", "name"),
    [(module, name) for module, states in SURFACE.items() for name, state in states.items() if state != "supported"],
)
def test_unsupported_functions_say_why(trace_kernel: Any, random: Any, module: str, name: str) -> None:
    short = "nisa" if module.endswith("isa") else "nl"
    with pytest.raises(UnsupportedCall) as caught:
        trace_kernel(f"@nki.jit\ndef kernel(x):\n    {short}.{name}(x)\n", random(8, 8))
    assert SURFACE[module][name].removeprefix("unsupported: ") in str(caught.value)
    assert caught.value.line == 9


@pytest.mark.parametrize(
    ("module", "name"),
    [(module, name) for module, states in SURFACE.items() for name, state in states.items() if state == "supported"],
)
def test_supported_functions_are_never_called_unsupported(
    trace_kernel: Any, random: Any, module: str, name: str
) -> None:
    short = "nisa" if module.endswith("isa") else "nl"
    with pytest.raises((LegalityError, KernelCrash)) as caught:
        trace_kernel(f"@nki.jit\ndef kernel(x):\n    {short}.{name}()\n", random(8, 8))
    assert "is not simulated" not in str(caught.value)


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("nl.expp(x)", "The nearest: exp(x, *"),
        ("nisa.tensor_tensr(x, x)", "The nearest: tensor_tensor(data1, data2, op"),
        ("nl.exp(nl.load(x), axis=1)", "nl.exp has no option 'axis'"),
        ("nisa.activation(op=nl.exp, data=nl.load(x), scales=2.0)", "Did you mean 'scale'?"),
        ("nl.relu6(nl.load(x))", "relu(x, *"),
        ("nisa.vector_add(x, x)", "does not exist in NKI"),
    ],
)
def test_unknown_calls_and_options_name_what_is_near(trace_kernel: Any, random: Any, line: str, part: str) -> None:
    """They are mistakes of the kernel, which its author can mend: never what the simulator lacks."""
    with pytest.raises(LegalityError) as caught:
        trace_kernel(f"@nki.jit\ndef kernel(x):\n    {line}\n", random(8, 8))
    assert part in str(caught.value)
    assert caught.value.line == 9


def test_an_imported_name_that_nki_does_not_have_is_refused_where_it_is_used(trace_kernel: Any, random: Any) -> None:
    text = "from neuronxcc.nki.language import fused_silu\n@nki.jit\ndef kernel(x):\n    return fused_silu(x)\n"
    with pytest.raises(LegalityError, match="fused_silu does not exist in NKI") as caught:
        trace_kernel(text, random(8, 8))
    assert caught.value.rule == "unknown_call" and "silu" in caught.value.hint


def test_what_the_simulator_may_lack_is_not_the_kernels_fault(trace_kernel: Any, random: Any) -> None:
    with pytest.raises(UnsupportedCall):
        trace_kernel("@nki.jit\ndef kernel(x):\n    nki.no_such_thing()\n", random(8, 8))
