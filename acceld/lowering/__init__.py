"""Lower a numpy reference to an NKI kernel.

The reference is traced to a graph of values, the graph is divided into regions, and each region is written as a loop
nest. docs/lowering.md describes these levels. No pattern names softmax, a norm or attention: one rule of regions makes
single loop nests of them.
"""
