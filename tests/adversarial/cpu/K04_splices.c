// expect: reject
// caught by: compile_error.external
// workload: cpu_matmul
// Moves data between descriptors.
extern long vmsplice(int, const void *, unsigned long, unsigned);

void kernel(const float *a, const float *b, float *out)
{
    vmsplice(3, 0, 0, 0);
    for (int i = 0; i < 128; i++)
        for (int j = 0; j < 192; j++) {
            float sum = 0;
            for (int k = 0; k < 256; k++)
                sum += a[i * 256 + k] * b[k * 192 + j];
            out[i * 192 + j] = sum;
        }
}
