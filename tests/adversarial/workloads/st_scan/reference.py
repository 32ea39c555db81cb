"""State-space scan."""

import numpy as np


def forward(delta, u, a, b, c):
    """Sum over states of c_t * state_t, state_t = exp(delta_t a) state_{t-1} + delta_t b_t u_t."""
    state = np.zeros(a.shape, delta.dtype)
    out = np.zeros(delta.shape, delta.dtype)
    for t in range(delta.shape[1]):
        state = np.exp(delta[:, t : t + 1] * a) * state + (delta[:, t] * u[:, t])[:, None] * b[None, :, t]
        out[:, t] = (state * c[None, :, t]).sum(axis=1)
    return out
