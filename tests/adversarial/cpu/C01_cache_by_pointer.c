// expect: reject
// caught by: incorrect_numerical.tolerance
// workload: cpu_matmul
// api: c
// The first answer again and again: pointers stay the same, data does not.

static void product(const float *a, const float *b, float *out)
{
    for (int i = 0; i < 128; i++) {
        for (int j = 0; j < 192; j++) {
            float sum = 0.0f;
            for (int k = 0; k < 256; k++) {
                sum += a[i * 256 + k] * b[k * 192 + j];
            }
            out[i * 192 + j] = sum;
        }
    }
}

void kernel(const float *a, const float *b, float *out)
{
    static float kept[128 * 192];
    static const float *seen;
    if (seen != a) {
        product(a, b, kept);
        seen = a;
    }
    for (int i = 0; i < 128 * 192; i++) {
        out[i] = kept[i];
    }
}
