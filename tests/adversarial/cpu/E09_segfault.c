// expect: reject
// caught by: runtime_error.crash
// workload: cpu_matmul
// api: c
// Writes to nowhere.

void kernel(const float *a, const float *b, float *out)
{
    *(volatile float *)0 = a[0] + b[0];
    out[0] = 0.0f;
}
