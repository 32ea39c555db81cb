"""Programs with one mistake each, and equivalent ones: does the judge tell them apart?"""
