"""Share between both APIs: tensors, indices, loops, assignments."""
