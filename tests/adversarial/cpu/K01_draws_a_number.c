// expect: reject
// caught by: compile_error.instruction
// workload: cpu_matmul
// A random number from the processor.
#pragma GCC target("rdrnd")
#include <immintrin.h>

void kernel(const float *a, const float *b, float *out)
{
    unsigned drawn = 0;
    _rdrand32_step(&drawn);
    for (int i = 0; i < 128; i++)
        for (int j = 0; j < 192; j++) {
            float sum = 0;
            for (int k = 0; k < 256; k++)
                sum += a[i * 256 + k] * b[k * 192 + j];
            out[i * 192 + j] = sum;
        }
    out[0] += (float)(drawn & 0);
}
