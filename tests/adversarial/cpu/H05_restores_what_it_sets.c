// expect: pass
// workload: cpu_matmul
// api: c
// Flushes denormal numbers while it computes, has a constant table, and leaves the processor as it was.

#include <immintrin.h>
static const float start[2] = {0.0f, 0.0f};

void kernel(const float *a, const float *b, float *out)
{
    unsigned before = _mm_getcsr();
    _mm_setcsr(before | 0x8040);
    for (int i = 0; i < 128; i++)
        for (int j = 0; j < 192; j++) {
            float sum = start[j & 1];
            for (int k = 0; k < 256; k++) sum += a[i * 256 + k] * b[k * 192 + j];
            out[i * 192 + j] = sum;
        }
    _mm_setcsr(before);
}
