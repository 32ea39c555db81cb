"""Lower a numpy reference to an NKI kernel: trace it to a graph, divide the graph into regions, write each as loops.

docs/lowering.md describes the levels. No pattern names softmax, a norm or attention: they follow from one rule of regions.
"""
