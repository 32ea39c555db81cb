// expect: reject
// caught by: compile_error.external
// workload: cpu_matmul
// A timer that is read like a file.
extern int timerfd_create(int, int);

void kernel(const float *a, const float *b, float *out)
{
    int timer = timerfd_create(1, 0);
    for (int i = 0; i < 128; i++)
        for (int j = 0; j < 192; j++) {
            float sum = 0;
            for (int k = 0; k < 256; k++)
                sum += a[i * 256 + k] * b[k * 192 + j];
            out[i * 192 + j] = sum;
        }
    out[0] += (float)(timer & 0);
}
