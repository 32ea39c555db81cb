// expect: reject
// caught by: rejected.include
// unpoliced: compile_error.external
// workload: cpu_matmul
// api: c
// A child process computes while the kernel has answered.

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

void kernel(const float *a, const float *b, float *out)
{
    if (fork() == 0) {
        product(a, b, out);
        _exit(0);
    }
}
