// expect: pass
// workload: cpu_matmul
// api: c
// Sums of halves, added at the end.

void kernel(const float *a, const float *b, float *out)
{
    for (int i = 0; i < 128; i++) {
        float low[192] = {0}, high[192] = {0};
        for (int k = 0; k < 128; k++) {
            for (int j = 0; j < 192; j++) {
                low[j] += a[i * 256 + k] * b[k * 192 + j];
                high[j] += a[i * 256 + k + 128] * b[(k + 128) * 192 + j];
            }
        }
        for (int j = 0; j < 192; j++) {
            out[i * 192 + j] = low[j] + high[j];
        }
    }
}
