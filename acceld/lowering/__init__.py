"""Lower a numpy reference to an NKI kernel.

The reference is traced to a graph of values. The graph is divided into regions, and each region is written as a
loop nest. docs/lowering.md describes these steps. No pattern names softmax, a norm or attention: the one rule
by which regions are made turns each of them into a single loop nest.
"""
