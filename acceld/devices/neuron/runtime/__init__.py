"""Compile, run and time kernels through AWS's own software."""
