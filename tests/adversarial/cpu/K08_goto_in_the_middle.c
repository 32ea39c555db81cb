// expect: reject
// caught by: compile_error.jump
// workload: cpu_matmul
// The address of a label and a number are where the kernel goes.

void kernel(const float *a, const float *b, float *out)
{
    volatile long past = 0;
    void *volatile places[2] = {&&here, &&there};
    goto *(places[past] + past);
there:
    out[0] = 1;
here:;
    for (int i = 0; i < 128; i++)
        for (int j = 0; j < 192; j++) {
            float sum = 0;
            for (int k = 0; k < 256; k++)
                sum += a[i * 256 + k] * b[k * 192 + j];
            out[i * 192 + j] = sum;
        }
}
