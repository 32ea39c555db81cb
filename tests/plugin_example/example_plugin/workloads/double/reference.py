"""Twice a matrix."""


def forward(x):
    """Return twice ``x``."""
    return x + x
