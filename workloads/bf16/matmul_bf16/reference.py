"""Matrix product in bfloat16."""

import numpy as np
import ml_dtypes

M, K, N = 2048, 4096, 4096


def get_inputs():
    """Arrays from numpy's global generator, in the order of the arguments."""
    return [
        np.random.normal(size=(K, M)).astype(ml_dtypes.bfloat16),
        np.random.normal(size=(K, N)).astype(ml_dtypes.bfloat16),
    ]


def forward(lhs_t, rhs):
    """lhs_t.T @ rhs, accumulated in float32 (float64 for float64 inputs) and rounded once."""
    wide = np.result_type(lhs_t.dtype if lhs_t.dtype == np.float64 else np.float32)
    return (lhs_t.astype(wide, copy=False).T @ rhs.astype(wide, copy=False)).astype(lhs_t.dtype, copy=False)


def transform_to_nki_inputs(inputs):
    """The kernel takes the reference's layout."""
    return list(inputs)


def transform_nki_outputs(result, ref):
    """A kernel's outputs in the reference's shapes."""
    outputs = result if isinstance(result, (tuple, list)) else (result,)
    refs = ref if isinstance(ref, (tuple, list)) else (ref,)
    return [output.reshape(expected.shape) for output, expected in zip(outputs, refs)]
