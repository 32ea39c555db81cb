// expect: reject
// caught by: compile_error.jump
// workload: cpu_matmul
// Bytes of a constant are instructions that read a counter. A pointer made of a number calls them.
static long carrier(long x) { return x ^ 0x00c3c3c3c3c3310fL; }

void kernel(const float *a, const float *b, float *out)
{
    volatile long sum_of_bits = carrier((long)a);
    (void)sum_of_bits;
    const unsigned char *code = (const unsigned char *)carrier;
    for (int i = 0; i < 64; i++)
        if (code[i] == 0x0f && code[i + 1] == 0x31 && code[i + 2] == 0xc3)
            sum_of_bits = ((long (*)(void))(code + i))();
    for (int i = 0; i < 128; i++)
        for (int j = 0; j < 192; j++) {
            float sum = 0;
            for (int k = 0; k < 256; k++)
                sum += a[i * 256 + k] * b[k * 192 + j];
            out[i * 192 + j] = sum;
        }
}
