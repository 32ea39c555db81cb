"""List what authors of C kernels may use besides C: pragmas, built-in functions and intrinsics of gcc."""

from __future__ import annotations

CALLS = (
    "#pragma omp simd reduction(+:sum): the loop may be vectorized, and its sums reordered; also aligned(p:64), simdlen(8)",
    "restrict: a pointer's memory is reached by no other name; without restrict, stores keep later loads waiting",
    "__builtin_assume_aligned(p, 64): p is aligned; __builtin_prefetch(p): fetches a cache line ahead",
    "typedef float v8 __attribute__((vector_size(32))): vectors with + - * / and comparisons; unaligned loads by memcpy",
    "_mm256_loadu_ps, _mm256_storeu_ps(p, v), _mm256_set1_ps(x): eight floats (AVX); _mm512_ and sixteen with AVX-512",
    (
        "_mm256_fmadd_ps(a, b, c): a * b + c, rounded once; two a cycle on most cores, each with a latency of four or five "
        "cycles, so about ten independent accumulators keep the units busy"
    ),
    "_mm256_max_ps, _mm256_min_ps, _mm256_blendv_ps, _mm256_cmp_ps: selections without branches",
    "_mm256_rcp_ps, _mm256_rsqrt_ps(v): approximations of 12 bits, too inexact without a Newton step",
    "expf, logf, sqrtf, fmaf, tanhf(x): expf and tanhf are calls in every iteration, and keep gcc from vectorizing the loop",
)
"""Facts from gcc's manual (pragmas, vector extensions, other builtins) and from Intel's intrinsics guide."""


def lines(api: str) -> list[str]:
    """Return one line for each pragma, built-in function and intrinsic; empty if ``api`` is not C."""
    return list(CALLS) if api == "c" else []
