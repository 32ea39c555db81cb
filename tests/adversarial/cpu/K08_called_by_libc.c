// expect: reject
// caught by: runtime_error.crash
// workload: cpu_matmul
// Bytes of a constant are instructions that read a counter. A function of libc calls them through a pointer made of a number.
#include <stdlib.h>

static long carrier(long x) { return x ^ 0x00c3c3c3c3c3310fL; }

static int (*at_the_constant(void))(const void *, const void *)
{
    const unsigned char *code = (const unsigned char *)carrier;
    for (int i = 0; i < 64; i++)
        if (code[i] == 0x0f && code[i + 1] == 0x31 && code[i + 2] == 0xc3)
            return (int (*)(const void *, const void *))(code + i);
    return 0;
}

void kernel(const float *a, const float *b, float *out)
{
    volatile long sum_of_bits = carrier((long)a);
    (void)sum_of_bits;
    int (*ticks)(const void *, const void *) = at_the_constant();
    float scratch[2] = {a[0], a[1]};
    if (ticks)
        qsort(scratch, 2, sizeof(float), ticks);
    for (int i = 0; i < 128; i++)
        for (int j = 0; j < 192; j++) {
            float sum = 0;
            for (int k = 0; k < 256; k++)
                sum += a[i * 256 + k] * b[k * 192 + j];
            out[i * 192 + j] = sum;
        }
}
