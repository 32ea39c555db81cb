"""Rewrite rules for C. Importing this package imports none of the rules."""

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
"""Modules of this package that have a rule, as ``RULE``."""
