// expect: reject
// caught by: compile_error.instruction
// workload: cpu_matmul
// The time counter with the number of the core.
#include <x86intrin.h>

void kernel(const float *a, const float *b, float *out)
{
    unsigned core;
    unsigned long long began = __rdtscp(&core);
    for (int i = 0; i < 128; i++)
        for (int j = 0; j < 192; j++) {
            float sum = 0;
            for (int k = 0; k < 256; k++)
                sum += a[i * 256 + k] * b[k * 192 + j];
            out[i * 192 + j] = sum;
        }
    out[0] += (float)((began + core) & 0);
}
