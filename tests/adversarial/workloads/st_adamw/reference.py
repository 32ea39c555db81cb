"""One AdamW step."""

import numpy as np


def forward(theta, g, m, v):
    """The parameters after one step."""
    theta1 = theta - 1e-5 * theta
    m1 = 0.9 * m + 0.1 * g
    v1 = 0.999 * v + 0.001 * g**2
    return theta1 - 0.01 * m1 / (np.sqrt(1000 * v1) + 1e-8)
