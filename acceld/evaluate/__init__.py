"""Evaluate candidates in three kinds of child process, cheap checks first: the tracer runs a kernel's Python, the
oracle the reference, the judge the kernel's program.
"""
