"""Rewrite kernels of ``neuronxcc.nki`` as kernels of ``nki``, source to source, with shapes that a trace has
found.
"""
