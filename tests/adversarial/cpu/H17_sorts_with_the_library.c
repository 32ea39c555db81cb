// expect: pass
// workload: cpu_matmul
// api: c
// Sorts as many numbers as the library needs memory for.

#include <stdlib.h>
#include <string.h>

static void product(const float *a, const float *b, float *out)
{
    for (int i = 0; i < 128; i++) {
        float sums[192] = {0};
        for (int k = 0; k < 256; k++) {
            for (int j = 0; j < 192; j++) {
                sums[j] += a[i * 256 + k] * b[k * 192 + j];
            }
        }
        for (int j = 0; j < 192; j++) {
            out[i * 192 + j] = sums[j];
        }
    }
}

static int by_number(const void *x, const void *y)
{
    return *(const int *)x - *(const int *)y;
}

void kernel(const float *a, const float *b, float *out)
{
    int *order = malloc(70000 * sizeof *order);
    for (int i = 0; i < 70000; i++) {
        order[i] = i * 7919 % 70001;
    }
    qsort(order, 70000, sizeof order[0], by_number);
    product(a, b, out);
    out[0] += order[0] < 0;
    free(order);
}
