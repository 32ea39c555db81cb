// expect: reject
// caught by: compile_error.instruction
// workload: cpu_matmul
// api: c
// Leaves the trap flag set: each instruction of its caller stops.

#include <x86intrin.h>

void kernel(const float *a, const float *b, float *out)
{
    for (int i = 0; i < 128; i++)
        for (int j = 0; j < 192; j++) {
            float sum = 0;
            for (int k = 0; k < 256; k++) sum += a[i * 256 + k] * b[k * 192 + j];
            out[i * 192 + j] = sum;
        }
    __builtin_ia32_writeeflags_u64(__builtin_ia32_readeflags_u64() | 0x100);
}
