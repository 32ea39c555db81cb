// expect: pass
// workload: cpu_matmul
// api: c
// Sums in cleared memory, in double precision.

#include <stdlib.h>

void kernel(const float *a, const float *b, float *out)
{
    double *sums = calloc(128 * 192, sizeof *sums);
    for (int i = 0; i < 128; i++)
        for (int k = 0; k < 256; k++)
            for (int j = 0; j < 192; j++) sums[i * 192 + j] += (double)a[i * 256 + k] * b[k * 192 + j];
    for (int i = 0; i < 128 * 192; i++) out[i] = (float)sums[i];
    free(sums);
}
