// expect: reject
// caught by: compile_error.external
// workload: cpu_matmul
// An interval timer of the family that the text check does not list.
extern int getitimer(int, void *);

void kernel(const float *a, const float *b, float *out)
{
    long value[4];
    getitimer(0, value);
    for (int i = 0; i < 128; i++)
        for (int j = 0; j < 192; j++) {
            float sum = 0;
            for (int k = 0; k < 256; k++)
                sum += a[i * 256 + k] * b[k * 192 + j];
            out[i * 192 + j] = sum;
        }
}
