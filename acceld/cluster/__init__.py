"""Many hosts behind one daemon: each evaluates with its own evaluator, the daemon decides what goes where.

Nothing of Ray is imported here but by :mod:`acceld.cluster.bridge`, which runs in a process of its own.
"""
