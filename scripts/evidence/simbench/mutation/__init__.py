"""Check that the judge distinguishes programs with one mistake each from equivalent ones."""
