// expect: reject
// caught by: compile_error.jump
// workload: cpu_matmul
// The call of a function leads two bytes past its beginning, into a constant.
__attribute__((noinline)) static long carrier(long x) { return x ^ 0x00c3c3c3c3c3310fL; }

void kernel(const float *a, const float *b, float *out)
{
    volatile long sum_of_bits = carrier((long)a);
    sum_of_bits = ((long (*)(void))((char *)carrier + 2))();
    for (int i = 0; i < 128; i++)
        for (int j = 0; j < 192; j++) {
            float sum = 0;
            for (int k = 0; k < 256; k++)
                sum += a[i * 256 + k] * b[k * 192 + j];
            out[i * 192 + j] = sum;
        }
}
