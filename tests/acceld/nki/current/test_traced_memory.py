"""Execution that marks what depends on memory that was never written, whatever that memory holds."""

from __future__ import annotations

import numpy as np
import pytest

from acceld.nki.errors import KernelCrash
from acceld.nki.execute.interpreter import ExecuteOptions, execute
from acceld.nki.frontend.tracing import TensorSpec, trace
from tests.acceld.nki.current.test_current import PRELUDE

KERNEL = """
@nki.jit
def kernel(x):
    given = nl.ndarray((128, 16), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=given, src=x)
    held = nl.ndarray((128, 16), dtype=nl.{dtype}, buffer=nl.sbuf)
    made = nl.ndarray((128, 16), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=made, value=0.0)
    nisa.memset(dst=held[:, 0:12], value=3)
{body}
    out = nl.ndarray((128, 16), dtype=nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=made)
    return out
"""
X = np.random.default_rng(0).standard_normal((128, 16)).astype(np.float32) + 4


def marked(body: str, dtype: str = "int32", chip: str = "trn2") -> np.ndarray:
    """Return the columns of the output that depend on the last four columns of ``held``, which nobody wrote."""
    lines = "\n".join("    " + line for line in body.strip().splitlines())
    text = PRELUDE + KERNEL.format(dtype=dtype, body=lines)
    program = trace(text, [TensorSpec((128, 16), "float32")], api="nki", chip=chip)
    (found,) = execute(program, [X], ExecuteOptions(keeps_nan=True))
    assert (found == found[0]).all(), "all rows are alike"
    return np.flatnonzero(found[0])


LAST = [12, 13, 14, 15]


@pytest.mark.parametrize(
    ("body", "columns"),
    [
        ("nisa.tensor_copy(dst=made, src=held)", LAST),
        ("nisa.tensor_copy(dst=made[:, 0:12], src=held[:, 0:12])", []),
        ("nisa.tensor_scalar(dst=made, data=held, op0=nl.multiply, operand0=0.0)", []),
        ("nisa.tensor_scalar(dst=made, data=held, op0=nl.equal, operand0=7.0)", LAST),
        ("nisa.tensor_scalar(dst=made, data=held, op0=nl.maximum, operand0=0.0, op1=nl.minimum, operand1=1.0)", LAST),
        ("nisa.activation(dst=made, op=nl.sign, data=held)", LAST),
        ("nisa.tensor_reduce(dst=made[:, 3:4], op=nl.logical_or, data=held, axis=1)", [3]),
        ("nisa.tensor_reduce(dst=made[:, 3:4], op=nl.add, data=held[:, 0:12], axis=1)", []),
        (
            "nisa.tensor_scalar(dst=held, data=held, op0=nl.bitwise_and, operand0=1)\nnisa.tensor_copy(dst=made, src=held)",
            LAST,
        ),
        (
            "nisa.tensor_tensor(dst=held, data1=held, data2=held, op=nl.subtract)\nnisa.tensor_copy(dst=made, src=held)",
            LAST,
        ),
        ("nisa.tensor_copy(dst=made.view(nl.int32), src=held)\nnisa.tensor_copy(dst=made, src=made)", LAST),
        ("nisa.tensor_copy(dst=made[:, 0:2], src=held.view(nl.uint8)[:, 46:48])", []),
        ("nisa.tensor_copy(dst=made[:, 0:3], src=held.view(nl.uint8)[:, 47:50])", [1, 2]),
        (
            """
nisa.tensor_copy(dst=held.view(nl.uint8).ap(pattern=[[64, 128], [1, 7]], offset=48), src=given[:, 0:7])
nisa.tensor_copy(dst=made, src=held)
""",
            [13, 14, 15],
        ),
        ("nisa.tensor_scalar(dst=made, data=given, op0=nl.logical_and, operand0=0.0)", []),
        ("nisa.tensor_tensor(dst=made, data1=given, data2=held, op=nl.logical_or)", []),
        ("nisa.tensor_tensor(dst=made, data1=given, data2=held, op=nl.logical_and)", LAST),
        ("nisa.tensor_copy_predicated(dst=made, src=given, predicate=held)", LAST),
        ("nisa.max8(dst=made[:, 0:8], src=held)", list(range(8))),
        ("nisa.max8(dst=made[:, 0:8], src=held[:, 0:12])", []),
        (
            """
nisa.affine_select(dst=made, pattern=[[-1, 16]], offset=11, channel_multiplier=0, on_true_tile=held, on_false_value=0.0,
                   cmp_op=nl.greater_equal)
""",
            [],
        ),
        (
            "nisa.tensor_tensor_scan(dst=made, data0=given, data1=held, initial=1.0, op0=nl.multiply, op1=nl.greater)",
            LAST,
        ),
        ("made = nl.multiply(given, nl.equal(held, held, dtype=nl.int32))", LAST),
    ],
)
def test_what_depends_on_unwritten_integers_is_known_by_element(body: str, columns: list[int]) -> None:
    assert marked(body).tolist() == columns


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float8_e4m3", "int8", "uint16"])
def test_a_view_and_a_copy_keep_what_is_undefined(dtype: str) -> None:
    width = {"float32": "uint32", "bfloat16": "uint16", "float8_e4m3": "uint8", "int8": "uint8", "uint16": "int16"}[
        dtype
    ]
    body = f"nisa.tensor_scalar(dst=made, data=held.view(nl.{width}), op0=nl.minimum, operand0=1.0)"
    assert marked(body, dtype).tolist() == LAST


@pytest.mark.parametrize("op", ["abs_max", "abs_min"])
def test_a_magnitude_that_is_undefined_is_never_chosen_silently(op: str) -> None:
    body = f"nisa.tensor_tensor(dst=made, data1=given, data2=held, op=nl.{op})"
    assert marked(body, "float32", "trn3").tolist() == LAST


@pytest.mark.parametrize(
    ("body", "what"),
    [
        ("nisa.register_load(nisa.register_alloc(), held[0:1, 12:13])", "a register"),
        (
            """
offsets = held[:, 12:13]
nisa.dma_copy(dst=made, src=x.ap(pattern=[[16, 128], [1, 16]], offset=0, vector_offset=offsets, indirect_dim=0),
              oob_mode=nisa.oob_mode.skip)
""",
            "a run-time index",
        ),
    ],
)
def test_an_undefined_number_can_be_no_index_and_no_register(body: str, what: str) -> None:
    with pytest.raises(KernelCrash, match=f"{what} depends on memory that was never written") as refused:
        marked("nisa.tensor_scalar(dst=held, data=held, op0=nl.multiply, operand0=1.0)\n" + body)
    assert refused.value.rule == "undefined_memory"
