"""Valid 3 x 3 convolution (cross-correlation) plus bias, then the maximum of each 2 x 2 block."""

import numpy as np


def forward(x, weights, bias):
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(1, 2))
    y = np.tensordot(weights, windows, axes=([1, 2, 3], [0, 3, 4])) + bias[:, None, None]
    channels, height, width = y.shape
    return y.reshape(channels, height // 2, 2, width // 2, 2).max(axis=(2, 4))
