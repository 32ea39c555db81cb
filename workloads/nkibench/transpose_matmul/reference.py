"""Matrix product with a transposed left operand."""

import numpy as np

M, K, N = 4096, 2048, 10944


def get_inputs():
    """Arrays from numpy's global generator, in the order of the arguments."""
    return [np.random.normal(size=(K, M)).astype(np.float32), np.random.normal(size=(K, N)).astype(np.float32)]


def forward(lhs, rhs):
    """lhs.T @ rhs."""
    return lhs.T @ rhs


def transform_to_nki_inputs(inputs):
    """The kernel's layout: the same elements in the same order, reshaped."""
    lhs, rhs = inputs
    return [lhs.reshape(128, 16, 4096), rhs.reshape(128, 16, 10944)]


def transform_nki_outputs(result, ref):
    """A kernel's outputs in the reference's shapes."""
    outputs = result if isinstance(result, (tuple, list)) else (result,)
    refs = ref if isinstance(ref, (tuple, list)) else (ref,)
    return [output.reshape(expected.shape) for output, expected in zip(outputs, refs)]
