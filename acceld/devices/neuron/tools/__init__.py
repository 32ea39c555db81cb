"""Find Neuron software on this machine, and read the output of its tools."""
