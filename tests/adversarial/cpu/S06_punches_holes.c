// expect: reject
// caught by: rejected.include
// unpoliced: compile_error.external
// workload: cpu_matmul
// api: c
// Frees pages of the shared memory under its inputs.

#include <unistd.h>

static void product(const float *a, const float *b, float *out)
{
    for (int i = 0; i < 128; i++) {
        for (int j = 0; j < 192; j++) {
            float sum = 0.0f;
            for (int k = 0; k < 256; k++) {
                sum += a[i * 256 + k] * b[k * 192 + j];
            }
            out[i * 192 + j] = sum;
        }
    }
}

long syscall(long, ...);

void kernel(const float *a, const float *b, float *out)
{
    syscall(285, 5, 3, 0L, 1L << 16);
    product(a, b, out);
}
