"""RMS normalization."""

import numpy as np


def forward(x, g):
    """x / sqrt(mean(x**2) + 1e-5) * g."""
    return x / np.sqrt(np.mean(x * x, axis=1, keepdims=True) + 1e-5) * g
