"""Check programs against the rules of an API on a chip: structure, accesses, operands, and values over time."""
