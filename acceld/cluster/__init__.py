"""Evaluate on many hosts behind one daemon. Each host has an evaluator of its own; the daemon assigns the work.

Only :mod:`acceld.cluster.bridge`, which runs in a process of its own, imports Ray.
"""
