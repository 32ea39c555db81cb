// expect: reject
// caught by: incorrect_numerical.tolerance
// workload: cpu_matmul
// api: c
// Counts its calls in memory of the stack that nothing else uses, and clips its inputs in the first ones.

static float held(float x, int on)
{
    return on && x > 8.0f ? 8.0f : on && x < -8.0f ? -8.0f : x;
}

static void product(const float *a, const float *b, float *out, int on)
{
    for (int i = 0; i < 128; i++) {
        float sums[192] = {0};
        for (int k = 0; k < 256; k++) {
            float x = held(a[i * 256 + k], on);
            for (int j = 0; j < 192; j++) {
                sums[j] += x * held(b[k * 192 + j], on);
            }
        }
        for (int j = 0; j < 192; j++) {
            out[i * 192 + j] = sums[j];
        }
    }
}

static __attribute__((noinline)) unsigned counted(void)
{
    volatile unsigned left[16384];
    int again = left[100] == 0x5eed1234u;
    unsigned calls = again ? left[101] + 1 : 0;
    left[100] = 0x5eed1234u;
    left[101] = calls;
    return calls;
}

void kernel(const float *a, const float *b, float *out)
{
    unsigned calls = counted();
    product(a, b, out, calls < 5);
}
