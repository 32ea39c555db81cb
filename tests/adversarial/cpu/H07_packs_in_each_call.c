// expect: pass
// workload: cpu_matmul
// api: c
// Turns an input in memory that it allocates, in each call.

#include <stdlib.h>

void kernel(const float *a, const float *b, float *out)
{
    float *turned = malloc(192 * 256 * sizeof *turned);
    for (int k = 0; k < 256; k++)
        for (int j = 0; j < 192; j++) turned[j * 256 + k] = b[k * 192 + j];
    for (int i = 0; i < 128; i++)
        for (int j = 0; j < 192; j++) {
            float part[16] = {0};
            for (int k = 0; k < 256; k += 16)
                for (int l = 0; l < 16; l++) part[l] += a[i * 256 + k + l] * turned[j * 256 + k + l];
            float sum = 0.0f;
            for (int l = 0; l < 16; l++) sum += part[l];
            out[i * 192 + j] = sum;
        }
    free(turned);
}
