"""Branches that are known to be taken are written out, and all others stay."""

from __future__ import annotations

import pytest

from acceld.nki.errors import KernelFailure
from acceld.nki.frontend.tracing import TensorSpec, trace
from acceld.nki.ir.codec import encode
from acceld.nki.source.branches import decided
from acceld.nki.source.launches import Launch
from acceld.nki.source.reading import KernelModule
from tests.acceld.proposers.rules.kernels import legacy

TILE = (300, 512)


def kernel(branch: str, parameters: str = "x, gain=None, twice=True, depth=2") -> str:
    """Return a kernel with a branch that defines ``scale``."""
    return legacy(
        parameters,
        """
    rows, columns = x.shape
    out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    tail = rows % 128
"""
        + branch.strip("\n")
        + """
    tile = nl.load(x[nl.arange(128)[:, None], nl.arange(512)[None, :]])
    nl.store(out, value=nl.multiply(tile, scale))
    return out
""",
    )


def written_out(source: str) -> str:
    return decided(KernelModule(source, Launch("nki_legacy", (TILE,), ("float32",)))).source


def program(source: str, rows: int = 300) -> bytes:
    return encode(trace(source, [TensorSpec((rows, 512), "float32")], filename="kernel.py", api="nki_legacy"))


CHOICE = """
    if {}:
        # kept where it is
        scale = 2.0
    else:
        scale = 3.0
"""


@pytest.mark.parametrize(
    ("condition", "taken"),
    [
        ("tail > 0", "2.0"),
        ("not tail", "3.0"),
        ("columns == 512 and rows != 300", "3.0"),
        ("columns < rows or twice", "2.0"),
        ("gain is None", "2.0"),
        ("gain is not None", "3.0"),
        ("x is None", "3.0"),
        ("depth", "2.0"),
        ("True", "2.0"),
    ],
)
def test_a_branch_that_shapes_or_defaults_decide_is_written_out_and_the_program_stays_the_same(
    condition: str, taken: str
) -> None:
    source = kernel(CHOICE.format(condition))
    found = written_out(source)
    assert f"\n    scale = {taken}\n" in found and "\n    if " not in found and "\n    else:" not in found
    assert found.count("\n") == source.count("\n")
    assert program(found) == program(source)


def test_a_branch_without_another_one_and_those_after_elif_are_written_out() -> None:
    source = kernel("""
    scale = 1.0
    if tail == 7:
        scale = 2.0
    elif columns > 512:
        scale = 3.0
    elif columns == 512:  # this one
        scale = 4.0
        if depth > 5:
            scale = 5.0
    """)
    found = written_out(source)
    assert "\n    assert columns == 512  # this one\n    scale = 4.0\n    assert not (depth > 5)\n" in found
    assert program(found) == program(source)


def test_the_kernel_then_refuses_arguments_for_which_it_would_take_another_branch() -> None:
    found = written_out(kernel(CHOICE.format("tail > 0")))
    with pytest.raises(KernelFailure, match="AssertionError"):
        program(found, rows=256)


@pytest.mark.parametrize(
    "branch",
    [
        CHOICE.format("nl.tile_size.pmax == depth + step").replace(
            "    if", "    step = tail\n    step += 1\n    if", 1
        ),
        CHOICE.format("x.dtype == nl.float32"),
        "    if tail > 0: scale = 2.0\n    else: scale = 3.0",
        CHOICE.format("tail > 0").replace("scale = 2.0", "scale = len('''a\n  b''')"),
    ],
    ids=["counted", "dtype", "one line", "text of several lines"],
)
def test_other_branches_stay_as_they_are(branch: str) -> None:
    source = kernel(branch)
    assert written_out(source) == source


def test_a_branch_on_a_loop_variable_stays_and_known_ones_inside_are_written_out() -> None:
    found = written_out(
        kernel("""
    scale = 1.0
    for i in nl.static_range(2):
        if i == 0:
            if tail > 0:
                scale = 2.0
    """)
    )
    assert "        if i == 0:\n            assert tail > 0\n            scale = 2.0\n" in found
