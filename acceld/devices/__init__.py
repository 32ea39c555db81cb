"""How candidates are run: the simulator, Neuron devices, NVIDIA GPUs, the host CPU."""
