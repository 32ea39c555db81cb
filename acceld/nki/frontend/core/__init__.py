"""What both APIs share while a kernel is traced: tensors, indices, loops, assignments."""
