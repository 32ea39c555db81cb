"""Arguments of ``acceld profile`` by name and in order."""

import pytest

from acceld.errors import UsageError
from acceld.given_arguments import Value, bare_arguments
from acceld.model import Kernel
from acceld.workloads import ArraySpec

X, Y = ArraySpec((4, 8), "float32"), ArraySpec((8, 2), "bfloat16")


def _kernel(signature: str) -> Kernel:
    return Kernel(text=f"@nki.jit\ndef kernel({signature}):\n    pass\n", api="nki_legacy")


@pytest.mark.parametrize(
    ("signature", "arrays", "scalars", "found"),
    [
        ("x, y", ["4x8:float32", "8x2:bfloat16"], [], (X, Y)),
        ("x, y", ["y=8x2:bfloat16", "x=4x8:float32"], [], (X, Y)),
        ("x, y", ["y=8x2:bfloat16", "4x8:float32"], [], (X, Y)),
        ("x, eps, y", ["4x8:float32", "8x2:bfloat16"], ["eps=1e-5"], (X, 1e-5, Y)),
        ("x, eps=1e-6, y=None", ["4x8:float32", "y=8x2:bfloat16"], [], (X, 1e-6, Y)),
        ("x, causal=False, scale=1.0", ["4x8:float32"], ["causal=true"], (X, True)),
        ("x, n=3", ["4x8:float32"], ["n=-2"], (X, -2)),
        ("x", ["4x8:float32", "8x2:bfloat16"], [], (X, Y)),
        ("*xs", ["4x8:float32", "8x2:bfloat16"], [], (X, Y)),
    ],
)
def test_arguments_go_to_the_parameters_they_name_and_the_others_in_order(
    signature: str, arrays: list[str], scalars: list[str], found: tuple[Value, ...]
) -> None:
    assert bare_arguments(_kernel(signature), arrays, scalars) == found


@pytest.mark.parametrize(
    ("signature", "arrays", "scalars", "part"),
    [
        ("lhs, rhs", ["rsh=4x8:float32"], [], "Did you mean 'rhs'?"),
        ("x, y", ["x=4x8:float32", "x=8x2:bfloat16"], [], "given twice"),
        ("x, eps, y", ["4x8:float32", "y=8x2:bfloat16"], [], "--scalar eps=NUMBER"),
        ("x, w=None, y=None", ["4x8:float32", "y=8x2:bfloat16"], [], "parameter 'w'"),
        ("x", ["0x8:float32"], [], "no elements"),
        ("x, n=1", ["4x8:float32"], ["n=many"], "is not NAME=NUMBER"),
    ],
)
def test_arguments_that_fit_no_parameter_are_refused_with_what_to_give(
    signature: str, arrays: list[str], scalars: list[str], part: str
) -> None:
    with pytest.raises(UsageError) as caught:
        bare_arguments(_kernel(signature), arrays, scalars)
    assert part in str(caught.value) + str(caught.value.hint)
