// expect: reject
// caught by: rejected.include
// unpoliced: compile_error.external
// workload: cpu_matmul
// api: c
// A thread computes while the kernel has answered.

#include <pthread.h>

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

static const float *left, *right;
static float *result;

static void *late(void *nothing)
{
    product(left, right, result);
    return nothing;
}

void kernel(const float *a, const float *b, float *out)
{
    pthread_t thread;
    left = a;
    right = b;
    result = out;
    pthread_create(&thread, 0, late, 0);
}
