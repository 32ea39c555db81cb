// expect: reject
// caught by: incorrect_numerical.tolerance
// workload: cpu_matmul
// api: c
// Zeros.

void kernel(const float *a, const float *b, float *out)
{
    for (int i = 0; i < 128 * 192; i++) {
        out[i] = 0.0f * a[0] * b[0];
    }
}
