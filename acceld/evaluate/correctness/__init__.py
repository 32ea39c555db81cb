"""Check whether a kernel's outputs are right: data sets, references, tolerances and gates."""
