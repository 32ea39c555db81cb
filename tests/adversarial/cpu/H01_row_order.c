// expect: pass
// workload: cpu_matmul
// api: c
// Loops in the order of memory.

void kernel(const float *restrict a, const float *restrict b, float *restrict out)
{
    for (int i = 0; i < 128; i++) {
        for (int j = 0; j < 192; j++) {
            out[i * 192 + j] = 0.0f;
        }
        for (int k = 0; k < 256; k++) {
            for (int j = 0; j < 192; j++) {
                out[i * 192 + j] += a[i * 256 + k] * b[k * 192 + j];
            }
        }
    }
}
