"""New text of rewritten kernels."""

import ast

import pytest

from acceld.nki.source import spans
from acceld.nki.source.building import emitted, replaced
from acceld.nki.source.launches import Launch
from acceld.nki.source.reading import KernelModule

SOURCE = """
@nki.jit
def kernel(x):
    out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    tile = nl.load(x)
    doubled = nl.multiply(tile, 2.0)
    nl.store(out, doubled)
    return out
"""


def test_a_changed_kernel_is_parsed_once_for_its_unused_buffers_and_for_the_next_rewrite(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kernel = KernelModule(SOURCE, Launch("nki_legacy", ((128, 512),)))
    (doubled,) = (one for one in kernel.statements if one.op == "multiply")
    new = replaced(kernel, [], {doubled: "doubled = nl.multiply(tile, 4.0)"})

    def parse(source: str) -> ast.Module:
        raise AssertionError("the new kernel is parsed again")

    monkeypatch.setattr(spans, "parse", parse)
    assert ast.dump(spans.parsed(new)) == ast.dump(ast.parse(new))


@pytest.mark.parametrize(
    ("index", "written"),
    [
        ("128 * i", "256"),
        ("128 * i + 128 * (i + 1)", "640"),
        ("128 * i + j", "256 + j"),
        ("i // 2 + i % 2", "1"),
        ("i % 0", "2 % 0"),
        ("i", "2"),
    ],
)
def test_arithmetic_of_numbers_alone_becomes_its_value(index: str, written: str) -> None:
    source = f"""
@nki.jit
def kernel(x):
    for i in nl.affine_range(4):
        for j in nl.affine_range(4):
            tile = nl.load(x[{index}, 128 * 2])
"""
    (loop, *_) = KernelModule(source, Launch("nki_legacy")).loops
    text = emitted(KernelModule(source, Launch("nki_legacy")), loop.items, "", {"i": "2"})
    assert f"nl.load(x[{written}, 128 * 2])" in text, "arithmetic without the variable stays as it is"
