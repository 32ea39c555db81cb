// expect: reject
// caught by: incorrect_numerical.tolerance
// workload: cpu_matmul
// api: c
// Adds to memory that it allocated and never wrote.

#include <stdlib.h>

void kernel(const float *a, const float *b, float *out)
{
    float *sums = malloc(40 * 1024 * 1024);
    for (int i = 0; i < 128 * 192; i++) {
        float sum = sums[i];
        for (int k = 0; k < 256; k++) {
            sum += a[i / 192 * 256 + k] * b[k * 192 + i % 192];
        }
        out[i] = sum;
    }
    free(sums);
}
