"""Trainium through AWS's own software: compile once, run in a trusted process, time until it is steady.

Nothing here imports Neuron. The compiler and the runtime live in interpreters of their own (AWS's virtual
environments), run the two programs in ``scripts`` and speak records on pipes.
"""
