import numpy as np


def forward(a, b):
    return np.matmul(a, b)
