"""Tracing shared by both APIs: tensors, indices, loops, assignments."""
