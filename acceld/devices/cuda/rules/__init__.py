"""Rewrite rules for Triton. Importing this package imports none of the rules."""

MODULES = (
    "fused_epilogue",
    "keep_row",
    "split_reduction",
    "rows_per_program",
    "block_sizes",
    "launch_options",
    "grid_order",
    "persistent",
)
"""Modules of this package that have a rule, as ``RULE``."""
