// expect: truthful
// workload: cpu_matmul
// api: c
// Takes its output for right if one element of it is right.

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
    float sum = 0.0f;
    for (int k = 0; k < 256; k++) sum += a[77 * 256 + k] * b[k * 192 + 100];
    if (out[77 * 192 + 100] != sum) product(a, b, out);
}
