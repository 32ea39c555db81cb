// expect: truthful
// caught by: rejected.include
// unpoliced: compile_error.external
// workload: cpu_matmul
// api: c
// at_least: 0.9
// Makes its pipes as small as they get and reads no doorbell.

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

long syscall(long, ...);

void kernel(const float *a, const float *b, float *out)
{
    static float before[128 * 256];
    struct { long number; double claimed; } said = {0, 0.0};
    syscall(72, 6, 1031, 4096);
    syscall(72, 7, 1031, 4096);
    for (long ring = 1;; ring++) {
        product(a, b, out);
        memcpy(before, a, sizeof before);
        said.number = ring;
        write(7, &said, sizeof said);
        while (memcmp(before, a, sizeof before) == 0) {
            __asm__ volatile("" : : : "memory");
        }
        for (volatile int i = 0; i < 100000; i++) {
        }
    }
}
