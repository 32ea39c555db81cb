"""Hold the rewrite rules for C. Importing this package imports nothing else."""

MODULES = (
    "expand_reduction",
    "inline_exp",
    "interchange",
    "vectorize",
    "unroll_jam",
    "partial_sums",
    "hoist_division",
    "restrict",
    "tile",
    "unroll",
)
"""Modules of this package with a rule in ``RULE``."""
