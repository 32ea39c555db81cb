// expect: reject
// caught by: runtime_error.floating_point_state
// workload: cpu_matmul
// api: c
// Leaves operands that are denormal taken for zero.

#include <immintrin.h>

void kernel(const float *a, const float *b, float *out)
{
    for (int i = 0; i < 128; i++)
        for (int j = 0; j < 192; j++) {
            float sum = 0;
            for (int k = 0; k < 256; k++) sum += a[i * 256 + k] * b[k * 192 + j];
            out[i * 192 + j] = sum;
        }
    _mm_setcsr(_mm_getcsr() | 0x0040);
}
