"""Programs that run under AWS's interpreters: Python >= 3.8, the standard library, numpy and Neuron only."""
