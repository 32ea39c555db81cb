"""The four roles filled by models."""
