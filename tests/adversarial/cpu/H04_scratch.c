// expect: pass
// workload: cpu_matmul
// api: c
// Takes scratch memory in each call.

#include <stdlib.h>

void kernel(const float *a, const float *b, float *out)
{
    float *turned = malloc(192 * 256 * sizeof(float));
    for (int k = 0; k < 256; k++) {
        for (int j = 0; j < 192; j++) {
            turned[j * 256 + k] = b[k * 192 + j];
        }
    }
    for (int i = 0; i < 128; i++) {
        for (int j = 0; j < 192; j++) {
            float sum = 0.0f;
            for (int k = 0; k < 256; k++) {
                sum += a[i * 256 + k] * turned[j * 256 + k];
            }
            out[i * 192 + j] = sum;
        }
    }
    free(turned);
}
