"""The rules of an API on a chip, checked on programs: structure, accesses, operands, and values over time."""
