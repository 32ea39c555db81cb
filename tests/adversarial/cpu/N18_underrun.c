// expect: reject
// caught by: runtime_error.out_of_bounds
// workload: cpu_matmul
// api: c
// Right, and writes one element before the start.

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
    product(a, b, out);
    out[-1] = 1.0f;
}
