"""Signatures are those of the functions that the front ends run."""

from __future__ import annotations

import inspect

import pytest

from acceld.nki.frontend.current import isa
from acceld.nki.source.launches import Launch
from acceld.nki.source.reading import KernelModule
from acceld.nki.source.signatures import of_call, positional
from acceld.nki.source.syntax import DECLARATIONS, known_functions


@pytest.mark.parametrize("api", ["nki", "nki_legacy"])
def test_every_operation_that_is_understood_is_a_function_of_its_api(api: str) -> None:
    known = positional(api, "isa").keys() | positional(api, "language").keys()
    assert known_functions(api) <= known
    assert set(DECLARATIONS) <= positional(api, "language").keys()


def test_arguments_are_bound_as_python_binds_them() -> None:
    tensor_tensor = next(one for one in isa.FUNCTIONS if one.__name__ == "tensor_tensor")
    bound = inspect.signature(tensor_tensor).bind(*"abcde", name="n").arguments
    text = "import nki\nimport nki.isa as nisa\n\ndef kernel():\n    nisa.tensor_tensor(a, b, c, d, e, name=n)\n"
    (statement,) = KernelModule(text, Launch("nki")).statements
    assert statement.kind == "op" and statement.target is not None and statement.target.name == bound.pop("dst")
    assert {key: value.id for key, value in statement.args.items() if hasattr(value, "id")} == {**bound, "name": "n"}


def test_an_instruction_is_meant_where_the_language_has_its_name_too() -> None:
    assert of_call("nki_legacy", "reciprocal") == ("data",)
    assert of_call("nki_legacy", "no_such_function") == ()


def test_the_shape_of_what_an_unknown_function_makes_is_not_known() -> None:
    text = (
        "import neuronxcc.nki as nki\nimport neuronxcc.nki.language as nl\ndef kernel(x):\n"
        "    mean = nl.mean(x, axis=[1])\n    twice = nl.multiply(x, 2.0)\n"
    )
    kernel = KernelModule(text, Launch("nki_legacy", ((128, 512),)))
    assert [kernel.tile_shape(one) for one in kernel.statements] == [None, (128, 512)]
