// expect: reject
// caught by: runtime_error.kept_memory
// workload: cpu_matmul
// api: c
// Keeps a page in each call.

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
    void *kept = 0;
    if (posix_memalign(&kept, 4096, 256 * 192 * 4)) {
        return;
    }
    memcpy(kept, b, 256 * 192 * 4);
    product(a, kept, out);
}
