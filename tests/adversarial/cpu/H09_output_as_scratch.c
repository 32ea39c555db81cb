// expect: pass
// workload: cpu_matmul
// api: c
// Sums in its output, which it writes first.

#include <math.h>

void kernel(const float *a, const float *b, float *out)
{
    for (int i = 0; i < 128; i++) {
        for (int j = 0; j < 192; j++) out[i * 192 + j] = a[i * 256] * b[j];
        for (int k = 1; k < 256; k++)
            for (int j = 0; j < 192; j++) out[i * 192 + j] = fmaf(a[i * 256 + k], b[k * 192 + j], out[i * 192 + j]);
    }
}
