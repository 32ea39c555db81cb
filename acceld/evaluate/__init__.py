"""Evaluate candidates with three kinds of process, cheap checks first."""
