"""Matrix product of 8-bit floats."""

import numpy as np
import ml_dtypes

M, K, N = 2048, 4096, 4096


def get_inputs():
    """Arrays from numpy's global generator, in the order of the arguments."""
    return [
        np.random.normal(size=(K, M)).astype(ml_dtypes.float8_e4m3),
        np.random.normal(size=(K, N)).astype(ml_dtypes.float8_e4m3),
    ]


def forward(lhs_t, rhs):
    """lhs_t.T @ rhs, accumulated in float32 (float64 for float64 inputs) and rounded once to bfloat16."""
    if lhs_t.dtype == np.float64:
        return lhs_t.T @ rhs
    return (lhs_t.astype(np.float32, copy=False).T @ rhs.astype(np.float32, copy=False)).astype(ml_dtypes.bfloat16)


def transform_to_nki_inputs(inputs):
    """The kernel takes the reference's layout."""
    return list(inputs)


def transform_nki_outputs(result, ref):
    """A kernel's outputs in the reference's shapes."""
    outputs = result if isinstance(result, (tuple, list)) else (result,)
    refs = ref if isinstance(ref, (tuple, list)) else (ref,)
    return [output.reshape(expected.shape) for output, expected in zip(outputs, refs)]
