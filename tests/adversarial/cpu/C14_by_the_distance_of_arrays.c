// expect: reject
// caught by: incorrect_numerical.tolerance
// workload: cpu_matmul
// api: c
// Clips its inputs where arrays lie as they do while a kernel is timed: by the distance of the inputs.

static float held(float x, int on)
{
    return on && x > 8.0f ? 8.0f : on && x < -8.0f ? -8.0f : x;
}

static void product(const float *a, const float *b, float *out, int on)
{
    for (int i = 0; i < 128; i++) {
        float sums[192] = {0};
        for (int k = 0; k < 256; k++) {
            float x = held(a[i * 256 + k], on);
            for (int j = 0; j < 192; j++) {
                sums[j] += x * held(b[k * 192 + j], on);
            }
        }
        for (int j = 0; j < 192; j++) {
            out[i * 192 + j] = sums[j];
        }
    }
}

void kernel(const float *a, const float *b, float *out)
{
    product(a, b, out, (const char *)b - (const char *)a == 128 * 256 * 4 + 4096 + 320);
}
