"""Running verified programs on data: tiles, masks, and one module of kernels for each kind of operation."""
