"""Write a PyTorch module as a numpy reference.

``torch.export`` records the module's operators, and a table says how to write each operator in numpy. The reference is
then used as any other reference: the oracle calls it, and ``numpy_reference`` traces it for a kernel. Only ``export.py``,
which runs in a separate process, imports torch.
"""
