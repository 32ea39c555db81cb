// expect: reject
// caught by: runtime_error.crash
// workload: cpu_matmul
// api: c
// Exchanges two elements of an input, and exchanges them back.

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
    volatile float *own = (float *)b; float kept = own[7];
    own[7] = own[8];
    own[8] = kept;
    kept = own[7];
    own[7] = own[8];
    own[8] = kept;
    product(a, b, out);
}
