"""Kernels import it; the stand-in reads nothing of what they call."""
