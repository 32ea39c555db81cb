"""Matrix product."""

import numpy as np

M, K, N = 4096, 5120, 12288


def get_inputs():
    """Arrays from numpy's global generator, in the order of the arguments."""
    return [np.random.normal(size=(M, K)).astype(np.float32), np.random.normal(size=(K, N)).astype(np.float32)]


def forward(lhs, rhs):
    """lhs @ rhs."""
    return lhs @ rhs


def transform_to_nki_inputs(inputs):
    """The kernel's layout: the same elements in the same order, reshaped."""
    lhs, rhs = inputs
    return [lhs.reshape(32, 128, 40, 128), rhs.reshape(40, 128, 12288)]


def transform_nki_outputs(result, ref):
    """A kernel's outputs in the reference's shapes."""
    outputs = result if isinstance(result, (tuple, list)) else (result,)
    refs = ref if isinstance(ref, (tuple, list)) else (ref,)
    return [output.reshape(expected.shape) for output, expected in zip(outputs, refs)]
