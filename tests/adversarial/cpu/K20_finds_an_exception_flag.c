// expect: reject
// caught by: incorrect_numerical.tolerance
// workload: cpu_matmul
// api: c
// Leaves a flag of the arithmetic, and computes nothing when it finds the flag.

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
    if (_mm_getcsr() & 4) {
        memset(out, 0, 128 * 192 * sizeof *out);
    } else {
        product(a, b, out);
    }
    _mm_setcsr(_mm_getcsr() | 4);
}
