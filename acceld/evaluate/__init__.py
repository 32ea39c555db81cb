"""Evaluate candidates, cheap checks first, in three kinds of child process: the tracer runs a kernel's Python code,
the oracle runs the reference, and the judge runs the program that the tracer recorded.
"""
