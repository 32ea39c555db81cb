"""Rewrite kernels of ``neuronxcc.nki`` as kernels of ``nki``, source to source. A trace proves the shapes."""
