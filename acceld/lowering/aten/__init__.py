"""Write a PyTorch module as a numpy reference: torch.export records its operators, and a table has each of them in
numpy.

The reference is then used as any other: it is the oracle, and ``numpy_reference`` lowers it to a kernel. Only
``export.py``, which runs in a process of its own, imports torch.
"""
