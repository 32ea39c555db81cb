"""Rewrite the source of kernels for ``neuronxcc.nki`` as source of kernels for ``nki``. Shapes that the text does not
give come from a trace of the kernel.
"""
