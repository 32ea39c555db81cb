"""Public kernels run through the simulator: what of each repository traces, is legal and is right.

Nothing of those repositories stands here but names and shapes. Kernels are run from checkouts that environment
variables name, by the repositories' own tests where they have some, against packages that stand in for Neuron's.
"""
