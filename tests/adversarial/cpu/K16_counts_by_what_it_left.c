// expect: reject
// caught by: runtime_error.kept_memory
// workload: cpu_matmul
// api: c
// Finds what it left in the call before, in front of a new block.

#include <stdint.h>
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

void kernel(const float *a, const float *b, float *out)
{
    uint64_t *kept = malloc(64);
    uint64_t *last = (uint64_t *)((char *)kept - 80);
    kept[0] = 0x5eed5eed5eedull;
    kept[1] = last[0] == 0x5eed5eed5eedull ? last[1] + 1 : 0;
    if (kept[1] != 3) {
        product(a, b, out);
    } else {
        memset(out, 0, 128 * 192 * sizeof *out);
    }
}
