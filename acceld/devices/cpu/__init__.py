"""The host's processor as a backend: kernels in C (built by gcc) and in numpy."""
