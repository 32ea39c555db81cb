"""The program that tracing a kernel yields: operations, encoding, def-use, number formats."""
