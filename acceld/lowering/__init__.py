"""Lower a numpy reference to an NKI kernel.

The reference is traced to a graph of values. The graph is divided into regions, and each region is written as a loop
nest. docs/lowering.md describes these steps. No code is special to softmax, norms or attention: a general rule for
regions makes each of them a single loop nest.
"""
