// expect: reject
// caught by: compile_error.external
// workload: cpu_matmul
// Writes to a descriptor of the worker in pieces.
extern long pwritev2(int, const void *, int, long, int);

void kernel(const float *a, const float *b, float *out)
{
    pwritev2(3, 0, 0, 0, 0);
    for (int i = 0; i < 128; i++)
        for (int j = 0; j < 192; j++) {
            float sum = 0;
            for (int k = 0; k < 256; k++)
                sum += a[i * 256 + k] * b[k * 192 + j];
            out[i * 192 + j] = sum;
        }
}
