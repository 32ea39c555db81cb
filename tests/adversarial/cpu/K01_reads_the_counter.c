// expect: reject
// caught by: compile_error.instruction
// workload: cpu_matmul
// The processor's time counter, by the compiler's own name for it.

void kernel(const float *a, const float *b, float *out)
{
    unsigned long long began = __builtin_ia32_rdtsc();
    for (int i = 0; i < 128; i++)
        for (int j = 0; j < 192; j++) {
            float sum = 0;
            for (int k = 0; k < 256; k++)
                sum += a[i * 256 + k] * b[k * 192 + j];
            out[i * 192 + j] = sum;
        }
    out[0] += (float)(began & 0);
}
