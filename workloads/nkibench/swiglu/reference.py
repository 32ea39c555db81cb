"""Gated feed-forward block."""

import numpy as np

M, K, N = 4096, 1024, 3072


def get_inputs():
    """Arrays from numpy's global generator, in the order of the arguments."""
    x = np.random.normal(size=(M, K)).astype(np.float32)
    w_up = np.random.normal(size=(K, N)).astype(np.float32)
    w_down = np.random.normal(size=(N, K)).astype(np.float32)
    w_gate = np.random.normal(size=(K, N)).astype(np.float32)
    return [x, w_up, w_down, w_gate]


def forward(x, w_up, w_down, w_gate):
    """(silu(x @ w_gate) (x @ w_up)) @ w_down; exp may overflow to infinity, which gives zero as it should."""
    gate = x @ w_gate
    with np.errstate(over="ignore"):
        gate = gate / (1 + np.exp(-gate))
    return (gate * (x @ w_up)) @ w_down


def transform_to_nki_inputs(inputs):
    """The kernel's layout: the same elements in the same order, reshaped."""
    x, w_up, w_down, w_gate = inputs
    return [
        x.reshape(8, 4, 128, 8, 128),
        w_up.reshape(8, 128, 3072),
        w_down.reshape(24, 128, 1024),
        w_gate.reshape(8, 128, 3072),
    ]


def transform_nki_outputs(result, ref):
    """A kernel's outputs in the reference's shapes."""
    outputs = result if isinstance(result, (tuple, list)) else (result,)
    refs = ref if isinstance(ref, (tuple, list)) else (ref,)
    return [output.reshape(expected.shape) for output, expected in zip(outputs, refs)]
