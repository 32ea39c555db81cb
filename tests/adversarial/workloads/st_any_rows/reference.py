"""Rows times a gain each."""


def forward(x, gain):
    """x times its row's gain."""
    return x * gain
