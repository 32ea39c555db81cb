"""Programs that run under AWS's interpreters.

These programs need Python >= 3.8, the standard library, numpy and Neuron's packages, and nothing else.
"""
