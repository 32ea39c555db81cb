"""Represent the program of a traced kernel: operations, encoding, def-use, number formats."""
