"""What the two API generations share while a kernel is traced: tensors, indices, loops, and the calls that return a tile."""
