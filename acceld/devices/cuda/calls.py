"""List the calls of Triton's language, with arguments and limits, for authors of kernels."""

from __future__ import annotations

CALLS = (
    "tl.program_id(axis): number of the running program on an axis of the grid, 0 to 2",
    "tl.arange(start, end): consecutive int32 values; both are constexpr, the length is a power of two",
    (
        "tl.load(pointer, mask=None, other=None, cache_modifier='', eviction_policy=''): a block; other where mask is False; "
        "neighboring threads should read neighboring addresses"
    ),
    "tl.store(pointer, value, mask=None, cache_modifier='', eviction_policy=''): writes a block",
    (
        "tl.make_block_ptr(base, shape, strides, offsets, block_shape, order): pointer to a block, for tl.load and tl.store with "
        "boundary_check=(0, 1); tl.advance(pointer, offsets) moves it"
    ),
    (
        "tl.dot(a, b, acc=None, input_precision='tf32'): matrix product on the tensor cores, 16 rows and columns at least; "
        "input_precision 'ieee' keeps float32 operands exact, and is slow; accumulates in float32"
    ),
    "tl.sum, tl.max, tl.min, tl.argmax(x, axis): reduces one axis; across warps it passes shared memory",
    "tl.exp, tl.exp2, tl.log, tl.log2, tl.sqrt, tl.rsqrt, tl.sigmoid, tl.erf, tl.sin, tl.cos(x): element by element, float32",
    "tl.where(condition, x, y): both sides are computed",
    "tl.maximum, tl.minimum(x, y), tl.fma(x, y, z), tl.abs(x): element by element",
    "tl.zeros(shape, dtype), tl.full(shape, value, dtype): a block in registers",
    "x.to(dtype), tl.trans(x), tl.reshape(x, shape), x[:, None]: conversions and views of blocks in registers",
    "tl.associative_scan(x, axis, combine), tl.cumsum(x, axis): running reductions",
    "tl.atomic_add(pointer, value, mask=None): results depend on the order in floating point",
    "tl.static_range(n): an unrolled loop; tl.range(start, end, num_stages=n): a loop whose loads run ahead by n stages",
    "tl.cdiv(a, b), tl.multiple_of(x, n), tl.max_contiguous(x, n): sizes, and hints for wide accesses",
    (
        "kernel[grid](..., num_warps=4, num_stages=3): warps of a program, and stages of pipelined loads of its loops; "
        "num_warps is a power of two, and more stages need more shared memory"
    ),
)
"""Facts from Triton's language reference (triton-lang.org, 3.x)."""


def lines(api: str) -> list[str]:
    """Return one line for each call of Triton's language; empty if ``api`` is not Triton."""
    return list(CALLS) if api == "triton" else []
