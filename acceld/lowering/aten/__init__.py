"""Write a PyTorch module as a numpy reference.

torch.export records the module's operators, and a table says how to write each of them in numpy. The reference
is then used as any other: the oracle calls it, and ``numpy_reference`` lowers it to a kernel. Only
``export.py``, which runs in a process of its own, imports torch.
"""
