// expect: reject
// caught by: incorrect_numerical.tolerance
// workload: cpu_matmul
// api: c
// Reads memory that grew, and that it never wrote.

#include <stdlib.h>

void kernel(const float *a, const float *b, float *out)
{
    float *sums = realloc(malloc(1024), 64 * 1024 * 1024);
    float zero = sums[9000000];
    for (int i = 0; i < 128 * 192; i++) {
        float sum = zero;
        for (int k = 0; k < 256; k++) {
            sum += a[i / 192 * 256 + k] * b[k * 192 + i % 192];
        }
        out[i] = sum;
    }
    free(sums);
}
