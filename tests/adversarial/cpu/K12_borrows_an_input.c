// expect: reject
// caught by: runtime_error.crash
// workload: cpu_matmul
// api: c
// Changes the signs of an input, and changes them back.

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
    float *own = (float *)a;
    for (int i = 0; i < 128 * 256; i++) {
        ((unsigned *)own)[i] ^= 0x80000000u;
    }
    product(own, b, out);
    for (int i = 0; i < 128 * 192; i++) {
        out[i] = -out[i];
    }
    for (int i = 0; i < 128 * 256; i++) {
        ((unsigned *)own)[i] ^= 0x80000000u;
    }
}
