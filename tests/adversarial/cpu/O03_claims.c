// expect: truthful
// workload: cpu_matmul
// api: c
// at_least: 0.9
// Claims a time of its own; nobody asked.

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
    struct { long number; double claimed; } said;
    product(a, b, out);
    said.claimed = 1e-9;
    (void)said;
}
