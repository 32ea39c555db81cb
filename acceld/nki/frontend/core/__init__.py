"""Provide what both API generations share: tensors, indices, loops, assignments."""
