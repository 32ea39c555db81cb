"""Represent the program of a traced kernel: operations, encoding, definitions and uses, number formats."""
