"""Judging on Trainium: compile in the jail, check and time on leased cores, hold against the parent on the same core."""
