// expect: reject
// caught by: incorrect_numerical.tolerance
// workload: cpu_matmul
// api: c
// Counts its calls in the flags of the arithmetic, and computes nothing in each third call.

#include <immintrin.h>
#include <string.h>

static void product(const float *a, const float *b, float *out)
{
    for (int i = 0; i < 128; i++) {
        float sums[192] = {0};
        for (int k = 0; k < 256; k++) {
            for (int j = 0; j < 192; j++) {
                sums[j] += a[i * 256 + k] * b[k * 192 + j];
            }
        }
        for (int j = 0; j < 192; j++) {
            out[i * 192 + j] = sums[j];
        }
    }
}

void kernel(const float *a, const float *b, float *out)
{
    if ((_mm_getcsr() & 63) % 3 == 2) {
        memset(out, 0, 128 * 192 * sizeof *out);
    } else {
        product(a, b, out);
    }
    _mm_setcsr((_mm_getcsr() & ~63u) | ((_mm_getcsr() + 1) & 63));
}
