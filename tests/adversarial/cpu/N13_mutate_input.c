// expect: reject
// caught by: runtime_error.input_changed
// workload: cpu_matmul
// api: c
// Makes the inputs zero, so that zeros would be right.

void kernel(const float *a, const float *b, float *out)
{
    for (int i = 0; i < 128 * 256; i++) {
        ((float *)a)[i] = 0.0f;
    }
    for (int i = 0; i < 128 * 192; i++) {
        out[i] = 0.0f;
    }
}
