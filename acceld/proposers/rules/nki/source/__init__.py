"""Read and edit the source of an NKI kernel for rules."""
