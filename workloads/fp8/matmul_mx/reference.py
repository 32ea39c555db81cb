"""Matrix product for microscaled operands, which hold four rows of the contraction side by side."""

import numpy as np
import ml_dtypes

M, K, N = 2048, 4096, 4096


def get_inputs():
    """Arrays from numpy's global generator, in the order of the arguments."""
    return [
        np.random.normal(size=(K // 4, M, 4)).astype(ml_dtypes.bfloat16),
        np.random.normal(size=(K // 4, N, 4)).astype(ml_dtypes.bfloat16),
    ]


def forward(lhs_t, rhs):
    """lhs_t.T @ rhs over (K, M) and (K, N), whose rows 4k to 4k + 3 are the last axis of the arguments.

    Accumulated in float32 (float64 for float64 inputs) and rounded once.
    """
    wide = np.result_type(lhs_t.dtype if lhs_t.dtype == np.float64 else np.float32)
    lhs, moving = (x.astype(wide, copy=False).transpose(0, 2, 1).reshape(4 * x.shape[0], -1) for x in (lhs_t, rhs))
    return (lhs.T @ moving).astype(lhs_t.dtype)


def transform_to_nki_inputs(inputs):
    """The kernel's layout: the same elements in the same order, reshaped."""
    return [x.reshape(x.shape[0], -1) for x in inputs]


def transform_nki_outputs(result, ref):
    """A kernel's outputs in the reference's shapes."""
    outputs = result if isinstance(result, (tuple, list)) else (result,)
    refs = ref if isinstance(ref, (tuple, list)) else (ref,)
    return [output.reshape(expected.shape) for output, expected in zip(outputs, refs)]
