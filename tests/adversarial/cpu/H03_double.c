// expect: pass
// workload: cpu_matmul
// api: c
// Sums in double precision, backwards.

void kernel(const float *a, const float *b, float *out)
{
    for (int i = 0; i < 128; i++) {
        double sums[192] = {0};
        for (int k = 255; k >= 0; k--) {
            for (int j = 0; j < 192; j++) {
                sums[j] += (double)a[i * 256 + k] * b[k * 192 + j];
            }
        }
        for (int j = 0; j < 192; j++) {
            out[i * 192 + j] = (float)sums[j];
        }
    }
}
