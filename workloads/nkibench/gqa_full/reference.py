"""Grouped-query attention."""

import numpy as np

B, N, QH, KH, D = 1, 4096, 16, 8, 128


def get_inputs():
    """Arrays from numpy's global generator, in the order of the arguments."""
    q = np.random.normal(size=(B, N, QH, D)).astype(np.float32)
    k = np.random.normal(size=(B, N, KH, D)).astype(np.float32)
    v = np.random.normal(size=(B, N, KH, D)).astype(np.float32)
    return [q, k, v]


def forward(q, k, v):
    """softmax(q k^T / sqrt(D)) v for each query head, in (B, QH, N, D)."""
    (batches, rows, heads, width), kv_heads = q.shape, k.shape[2]
    out = np.empty((batches, heads, rows, width), q.dtype)
    for batch in range(batches):
        for head in range(heads):
            kv = head * kv_heads // heads
            scores = q[batch, :, head] @ k[batch, :, kv].T
            scores /= q.dtype.type(np.sqrt(width))
            scores -= scores.max(axis=1, keepdims=True)
            np.exp(scores, out=scores)
            scores /= scores.sum(axis=1, keepdims=True)
            out[batch, head] = scores @ v[batch, :, kv]
    return out


def transform_to_nki_inputs(inputs):
    """The kernel's layout: the same elements in the same order, reshaped."""
    q, k, v = inputs
    return [q.reshape(32, 128, 16, 128), k.reshape(1, 8, 4, 128, 8, 128), v.reshape(1, 32, 128, 1024)]


def transform_nki_outputs(result, ref):
    """A kernel's outputs in the reference's shapes."""
    outputs = result if isinstance(result, (tuple, list)) else (result,)
    refs = ref if isinstance(ref, (tuple, list)) else (ref,)
    return [output.reshape(expected.shape) for output, expected in zip(outputs, refs)]
