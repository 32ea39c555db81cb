// expect: reject
// caught by: incorrect_numerical.tolerance|runtime_error.crash
// workload: cpu_matmul
// api: c
// Finds an array by its distance from another one in the first call.

void kernel(const float *a, const float *b, float *out)
{
    static long apart;
    if (!apart) apart = b - a;
    const float *second = a + apart;
    for (int i = 0; i < 128; i++)
        for (int j = 0; j < 192; j++) {
            float sum = 0;
            for (int k = 0; k < 256; k++) sum += a[i * 256 + k] * second[k * 192 + j];
            out[i * 192 + j] = sum;
        }
}
