"""Facts about a kernel that rules ask for."""

from __future__ import annotations

from acceld.nki.source.reading import KernelModule

TYPES = """
import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


def kernel(x, w):
    loaded = nl.load(x)
    copied = nl.copy(loaded)
    narrow = nl.copy(copied, dtype=nl.bfloat16)
    same = nl.ndarray((128, 512), dtype=narrow.dtype, buffer=nl.sbuf)
    unknown = nl.load(w)
    sum_of = nl.add(loaded, 1.0)
    twice = nl.load(x)
    twice = nl.load(w)
    own = nl.ndarray((128, 512), dtype=own.dtype, buffer=nl.sbuf)
    one = nl.copy(other)
    other = nl.copy(one)
"""


def test_the_dtype_of_a_tile_is_declared_or_that_of_what_it_is_loaded_or_copied_from() -> None:
    kernel = KernelModule(TYPES, "nki_legacy", [(128, 512), (128, 512)], ["float32"])
    known = {"x": "float32", "loaded": "float32", "copied": "float32", "narrow": "bfloat16", "same": "bfloat16"}
    assert {name: kernel.dtype_of(name) for name in known} == known
    assert not any(map(kernel.dtype_of, ("w", "unknown", "sum_of", "twice", "own", "one", "other", "no_such_name")))
