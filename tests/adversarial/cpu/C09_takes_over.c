// expect: truthful
// caught by: rejected.include
// unpoliced: compile_error.external
// workload: cpu_matmul
// api: c
// at_least: 0.9
// Never returns: plays the worker itself, polling the inputs all the time.

#include <string.h>
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
    struct { long number; double claimed; } said = {0, 0.0};
    static float before[128 * 256];
    long ring = 1;
    product(a, b, out);
    for (;;) {
        said.number = ring;
        write(7, &said, sizeof said);
        while (memcmp(before, a, sizeof before) == 0) {
            __asm__ volatile("" : : : "memory");
        }
        memcpy(before, a, sizeof before);
        product(a, b, out);
        if (read(6, &ring, 8) != 8) {
            return;
        }
        product(a, b, out);
    }
}
