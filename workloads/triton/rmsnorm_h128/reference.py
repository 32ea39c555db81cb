"""RMS normalization."""

import numpy as np

EPS = 1e-6


def forward(hidden_states, weight):
    """x weight / sqrt(mean(x^2) + eps), the mean over each row."""
    wide = np.float64 if hidden_states.dtype == np.float64 else np.float32
    x = hidden_states.astype(wide)
    return x / np.sqrt(np.mean(np.square(x), axis=1, keepdims=True) + wide(EPS)) * weight.astype(wide)


def forward_torch(hidden_states, weight):
    """The same on tensors, in their own dtype."""
    return hidden_states / (hidden_states.square().mean(dim=1, keepdim=True) + EPS).sqrt() * weight
