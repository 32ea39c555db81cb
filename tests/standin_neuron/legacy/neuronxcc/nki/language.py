"""Stand-in for the few calls that the tests' kernels make."""


def check(tensor):
    """The first limit a tile meets."""
    if tensor.shape[0] > 128:
        raise SyntaxError(f"number of partitions {tensor.shape[0]} exceed architecture limitation of 128")
    return tensor


def add(left, right):
    """A sum, of tiles within the limit."""
    return check(left) + check(right)
