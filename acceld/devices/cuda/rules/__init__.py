"""Hold the rewrite rules for Triton. Importing this package imports nothing else."""

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
"""Modules of this package with a rule in ``RULE``."""
