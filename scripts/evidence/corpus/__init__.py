"""Run public kernels through the simulator, and count for each repository how many trace, are legal and give right
results.

Only names and shapes of those repositories are in this folder. Kernels are run from checkouts that environment
variables name, by the repositories' own tests if they have any, with packages that replace Neuron's.
"""
