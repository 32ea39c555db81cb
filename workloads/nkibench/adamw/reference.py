"""One AdamW step."""

import numpy as np

M, N = 10944, 2048


def get_inputs():
    """Arrays from numpy's global generator, in the order of the arguments."""
    theta, g, m = (np.random.normal(size=(M, N)).astype(np.float32) for _ in range(3))
    v = np.abs(np.random.normal(size=(M, N))).astype(np.float32)
    return [theta, g, m, v]


def forward(theta, g, m, v):
    """theta - 1e-5 theta - 0.01 m' / (sqrt(1000 v') + 1e-8) with the updated moments m' and v'."""
    decayed = theta - 1e-5 * theta
    m1 = 0.9 * m + 0.1 * g
    v1 = 0.999 * v + 0.001 * g * g
    return decayed - 0.01 * m1 / (np.sqrt(1000 * v1) + 1e-8)


def transform_to_nki_inputs(inputs):
    """The kernel takes the reference's layout."""
    return list(inputs)


def transform_nki_outputs(result, ref):
    """A kernel's outputs in the reference's shapes."""
    outputs = result if isinstance(result, (tuple, list)) else (result,)
    refs = ref if isinstance(ref, (tuple, list)) else (ref,)
    return [output.reshape(expected.shape) for output, expected in zip(outputs, refs)]
