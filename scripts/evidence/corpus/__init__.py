"""Run public kernels through the simulator. Count for each repository how many can be traced, are legal and
give right results.

This folder has only names and shapes of these repositories. Their kernels are run from checkouts that
environment variables name, by the repositories' own tests if they have any, with packages that stand in for
Neuron's.
"""
