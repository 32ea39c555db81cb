"""Run verified programs on data: tiles, masks, and one module for each kind of operation."""
