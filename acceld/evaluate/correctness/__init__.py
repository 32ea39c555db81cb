"""Check correctness: data sets, references, tolerances and the gates."""
