// expect: pass
// workload: cpu_matmul
// api: c
// Copies an input, and uses memory that grew after it wrote it.

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
    float *kept = aligned_alloc(64, 128 * 256 * sizeof *kept);
    memcpy(kept, a, 128 * 256 * sizeof *kept);
    char *other = realloc(malloc(10), 1000);
    memset(other, 0, 1000);
    product(kept, b, out);
    out[0] += other[999];
    free(other);
    free(kept);
}
