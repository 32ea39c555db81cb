// expect: pass
// workload: cpu_matmul
// api: c
// Takes several blocks, lets one grow and one vanish, and frees them in another order.

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
    float *x = malloc(256 * 192 * sizeof *x), *y = calloc(1000, 4), *z = aligned_alloc(64, 6400);
    memcpy(x, b, 256 * 192 * sizeof *x);
    memset(z, 0, 6400);
    y = realloc(y, 400000);
    memcpy(y, a, 128 * 256 * 4);
    product(y, x, out);
    out[0] += z[9];
    free(z);
    free(NULL);
    free(x);
    free(y);
}
