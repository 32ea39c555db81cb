"""Kernels of ``neuronxcc.nki`` rewritten as kernels of ``nki``: source to source, with a trace as the proof of shapes."""
