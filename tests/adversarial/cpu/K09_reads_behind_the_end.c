// expect: reject
// caught by: runtime_error.crash
// workload: cpu_matmul
// api: c
// Reads one element behind the end of an array, and uses none of it.

void kernel(const float *a, const float *b, float *out)
{
    volatile float beyond = b[256 * 192];
    (void)beyond;
    for (int i = 0; i < 128; i++)
        for (int j = 0; j < 192; j++) {
            float sum = 0;
            for (int k = 0; k < 256; k++) sum += a[i * 256 + k] * b[k * 192 + j];
            out[i * 192 + j] = sum;
        }
}
