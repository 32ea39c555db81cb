"""Tracing of both API generations: tensors, indices, loops, and the calls that return a tile."""
