"""Check the rules of an API on a chip on programs: structure, accesses, operands, and values over time."""
