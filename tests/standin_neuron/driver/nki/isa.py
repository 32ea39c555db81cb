"""Kernels import it; what they call is read by the simulator."""
