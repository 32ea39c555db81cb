"""Provide what the front ends of both APIs share: tensors, indices, loops, assignments."""
