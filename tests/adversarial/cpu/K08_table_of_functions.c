// expect: reject
// caught by: compile_error.jump
// workload: cpu_matmul
// A table of functions is indexed by a number that points beyond it.
static float plain(float x) { return x; }
static float twice(float x) { return 2 * x; }
static float (*volatile table[2])(float) = {plain, twice};

void kernel(const float *a, const float *b, float *out)
{
    volatile long at = 0;
    volatile float first = table[at](a[0]);
    (void)first;
    for (int i = 0; i < 128; i++)
        for (int j = 0; j < 192; j++) {
            float sum = 0;
            for (int k = 0; k < 256; k++)
                sum += a[i * 256 + k] * b[k * 192 + j];
            out[i * 192 + j] = sum;
        }
}
