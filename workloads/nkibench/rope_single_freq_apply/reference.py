"""Rotary embedding with the head dimension in rows."""

import numpy as np

B, H, N, D = 1, 64, 4096, 128


def get_inputs():
    """Arrays from numpy's global generator, in the order of the arguments."""
    x = np.random.normal(size=(D, B * H * N)).astype(np.float32)
    cos = np.random.normal(size=(D // 2, B * H * N)).astype(np.float32)
    sin = np.random.normal(size=(D // 2, B * H * N)).astype(np.float32)
    return [x, cos, sin]


def forward(x, cos, sin):
    """Rows [0, D/2) are x0 cos - x1 sin, rows [D/2, D) are x0 sin + x1 cos."""
    half = len(x) // 2
    x0, x1 = x[:half], x[half:]
    out = np.empty_like(x)
    np.subtract(x0 * cos, x1 * sin, out=out[:half])
    np.add(x0 * sin, x1 * cos, out=out[half:])
    return out


def transform_to_nki_inputs(inputs):
    """The kernel takes the reference's layout."""
    return list(inputs)


def transform_nki_outputs(result, ref):
    """A kernel's outputs in the reference's shapes."""
    outputs = result if isinstance(result, (tuple, list)) else (result,)
    refs = ref if isinstance(ref, (tuple, list)) else (ref,)
    return [output.reshape(expected.shape) for output, expected in zip(outputs, refs)]
