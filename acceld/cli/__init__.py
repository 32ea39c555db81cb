"""Commands, one module a group. Heavy imports stay inside each command."""
