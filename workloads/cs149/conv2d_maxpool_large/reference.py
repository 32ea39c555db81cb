"""Valid convolution with bias, then 2x2 max pooling."""

import numpy as np

B, C, F, H, W, R, S = 1, 256, 256, 224, 224, 3, 3


def get_inputs():
    """Arrays from numpy's global generator, in the order of the arguments."""
    x = np.random.normal(size=(B, C, H, W)).astype(np.float32)
    weights = np.random.normal(size=(F, C, R, S)).astype(np.float32)
    bias = np.random.normal(size=(F)).astype(np.float32)
    return [x, weights, bias]


def forward(x, weights, bias):
    """max over 2x2 windows of conv2d(x, weights) + bias; stride 1, no padding."""
    rows, columns = H - R + 1, W - S + 1
    out = np.zeros((B, F, rows * columns), x.dtype)
    for r in range(R):
        for s in range(S):
            window = np.ascontiguousarray(x[:, :, r : r + rows, s : s + columns]).reshape(B, C, -1)
            out += np.matmul(weights[:, :, r, s], window)
    out = (out + bias[None, :, None]).reshape(B, F, rows // 2, 2, columns // 2, 2)
    return out.max(axis=(3, 5))


def transform_to_nki_inputs(inputs):
    """The kernel takes the reference's layout."""
    return list(inputs)


def transform_nki_outputs(result, ref):
    """A kernel's outputs in the reference's shapes."""
    outputs = result if isinstance(result, (tuple, list)) else (result,)
    refs = ref if isinstance(ref, (tuple, list)) else (ref,)
    return [output.reshape(expected.shape) for output, expected in zip(outputs, refs)]
