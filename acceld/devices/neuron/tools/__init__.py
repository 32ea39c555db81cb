"""Find Neuron software on this machine and read what its tools print."""
