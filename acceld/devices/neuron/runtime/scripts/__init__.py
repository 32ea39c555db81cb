"""Programs that run under AWS's interpreters.

They need Python >= 3.8, the standard library, numpy and Neuron's packages, and nothing else.
"""
