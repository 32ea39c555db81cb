// expect: reject
// caught by: compile_error.section
// workload: cpu_matmul
// A nested function whose address is taken makes the stack executable: bytes there read a counter.
static long asked(long (*ask)(void)) { return ask(); }

void kernel(const float *a, const float *b, float *out)
{
    volatile unsigned char code[] = {0x0f, 0x31, 0xc3};
    long from = (long)a;
    long inner(void) { return from; }
    volatile long ticks = asked(inner) + ((long (*)(void))code)();
    (void)ticks;
    for (int i = 0; i < 128; i++)
        for (int j = 0; j < 192; j++) {
            float sum = 0;
            for (int k = 0; k < 256; k++)
                sum += a[i * 256 + k] * b[k * 192 + j];
            out[i * 192 + j] = sum;
        }
}
