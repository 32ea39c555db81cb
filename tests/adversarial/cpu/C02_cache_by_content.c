// expect: reject
// caught by: rejected.kept_state
// workload: cpu_matmul
// api: c
// Answers kept by a checksum of the inputs, in memory that all callers share.

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
    static unsigned seen;
    unsigned sum = 1;
    for (int i = 0; i < 128 * 256; i++) {
        sum = sum * 31 + ((const unsigned *)a)[i];
    }
    if (sum != seen) {
        product(a, b, kept);
        seen = sum;
    }
    for (int i = 0; i < 128 * 192; i++) {
        out[i] = kept[i];
    }
}
