// expect: pass
// workload: cpu_matmul
// api: c
// Has a path of its own for aligned arrays.

#include <stdint.h>

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
    if (((uintptr_t)a | (uintptr_t)b | (uintptr_t)out) & 63) {
        product(a, b, out);
        return;
    }
    const float *x = __builtin_assume_aligned(a, 64), *y = __builtin_assume_aligned(b, 64);
    float *z = __builtin_assume_aligned(out, 64);
    product(x, y, z);
}
