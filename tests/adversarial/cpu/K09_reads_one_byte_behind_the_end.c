// expect: reject
// caught by: runtime_error.crash
// workload: cpu_matmul
// api: c
// Reads one byte behind an input, and uses nothing of it.

static void product(const float *a, const float *b, float *out)
{
    for (int i = 0; i < 128; i++) {
        float sums[192] = {0};
        for (int k = 0; k < 256; k++) {
            float x = a[i * 256 + k];
            for (int j = 0; j < 192; j++) {
                sums[j] += x * b[k * 192 + j];
            }
        }
        for (int j = 0; j < 192; j++) {
            out[i * 192 + j] = sums[j];
        }
    }
}

void kernel(const float *a, const float *b, float *out)
{
    product(a, b, out);
    out[0] += 0.0f * (float)(((volatile const unsigned char *)a)[128 * 256 * 4] & 1);
}
