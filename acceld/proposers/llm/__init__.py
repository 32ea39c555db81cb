"""Fill the four roles with models."""
