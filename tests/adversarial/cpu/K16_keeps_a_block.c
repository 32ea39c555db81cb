// expect: reject
// caught by: runtime_error.kept_memory
// workload: cpu_matmul
// api: c
// Packs an input into a block that it never frees.

#include <stdlib.h>
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
    float *kept = malloc(256 * 192 * sizeof *kept);
    memcpy(kept, b, 256 * 192 * sizeof *kept);
    product(a, kept, out);
}
