"""Write a PyTorch module as a numpy reference: torch.export records its operators, a table says each in numpy.

The reference then takes the way of every reference: it is the oracle, and ``numpy_reference`` lowers it to a kernel.
Here only ``export.py`` imports torch, in a process of its own.
"""
