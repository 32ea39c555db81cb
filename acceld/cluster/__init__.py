"""Evaluate on many hosts behind one daemon. Each host has its own evaluator; the daemon schedules.

Only :mod:`acceld.cluster.bridge`, which runs in its own process, imports Ray.
"""
