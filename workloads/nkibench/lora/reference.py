"""Matrix product with a low-rank correction."""

import numpy as np

M, K, N, R = 4096, 5120, 12288, 128


def get_inputs():
    """Arrays from numpy's global generator, in the order of the arguments."""
    x = np.random.normal(size=(M, K)).astype(np.float32)
    w = np.random.normal(size=(K, N)).astype(np.float32)
    a = np.random.normal(size=(K, R)).astype(np.float32)
    b = np.random.normal(size=(R, N)).astype(np.float32)
    return [x, w, a, b]


def forward(x, w, a, b):
    """x @ w + (x @ a) @ b."""
    return x @ w + (x @ a) @ b


def transform_to_nki_inputs(inputs):
    """The kernel's layout: the same elements in the same order, reshaped."""
    x, w, a, b = inputs
    return [x.reshape(8, 4, 128, 40, 128), w.reshape(40, 128, 12288), a.reshape(40, 128, 128), b.reshape(128, 12288)]


def transform_nki_outputs(result, ref):
    """A kernel's outputs in the reference's shapes."""
    outputs = result if isinstance(result, (tuple, list)) else (result,)
    refs = ref if isinstance(ref, (tuple, list)) else (ref,)
    return [output.reshape(expected.shape) for output, expected in zip(outputs, refs)]
