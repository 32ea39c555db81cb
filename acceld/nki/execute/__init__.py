"""Run verified programs on data: views of tiles, masks, and one module for each kind of operation."""
