"""The manual of NKI: topics, names of nl, methods of tensors, and the nearest name by meaning."""

from __future__ import annotations

import pytest

from acceld.chips import CHIPS
from acceld.nki.frontend import manual
from acceld.nki.frontend.tracing import trace
from acceld.nki.frontend.tracing_types import TensorSpec
from acceld.nki.ir.operations import DTYPE_BYTES
from acceld.nki.timing.timeline import timeline


@pytest.mark.parametrize("topic", manual.TOPICS)
def test_every_topic_has_a_text_that_fits_in_an_answer(topic: str) -> None:
    found = manual.looked_up(topic.replace("_", " "))
    assert found is not None and 200 < len(found) < 3500


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nl.sbuf", f"SBUF {CHIPS['trn2'].sbuf_bytes_per_partition // 1024} KiB a partition"),
        ("psum", f"PSUM {CHIPS['trn2'].psum_banks} banks of {CHIPS['trn2'].psum_bank_bytes} bytes"),
        ("nl.bfloat16", "a dtype of 2 bytes"),
        ("dtypes", ", ".join(f"nl.{name} ({DTYPE_BYTES[name]})" for name in ("float32", "tfloat32"))),
        ("ap", "explicit access pattern"),
        ("nisa.nc_matmul", "nki.isa.nc_matmul(dst, stationary, moving"),
        ("gpsimd_engine", "engine=nisa.vector_engine"),
        ("limits", "N <= 512 float32"),
        ("costs", "nc_matmul of 512 columns: 0.217 us"),
    ],
)
def test_names_are_explained(name: str, said: str) -> None:
    assert said in (manual.looked_up(name) or "")


@pytest.mark.parametrize(("name", "first"), [("nl.sub", "subtract"), ("mul", "multiply"), ("gemm", "nc_matmul")])
def test_the_nearest_name_by_meaning_comes_first(name: str, first: str) -> None:
    assert manual.looked_up(name) is None
    assert manual.near(name)[0] == first


def test_every_meaning_is_a_call_of_the_manual() -> None:
    assert [call for call in set(manual.MEANINGS.values()) if manual.looked_up(call) is None] == []


def test_the_example_is_a_legal_kernel() -> None:
    arguments = [TensorSpec((256, 128), "float32"), TensorSpec((128, 512), "float32")]
    found = timeline(trace(manual.EXAMPLE, arguments, api="nki", chip="trn2"))
    assert found.latency_us is not None and manual.EXAMPLE in (manual.looked_up("example") or "")
