// expect: reject
// caught by: rejected.kept_state
// workload: cpu_matmul
// api: c
// Sums in memory that all callers share.

static float sums[192];

void kernel(const float *a, const float *b, float *out)
{
    for (int i = 0; i < 128; i++) {
        for (int j = 0; j < 192; j++) sums[j] = 0;
        for (int k = 0; k < 256; k++)
            for (int j = 0; j < 192; j++) sums[j] += a[i * 256 + k] * b[k * 192 + j];
        for (int j = 0; j < 192; j++) out[i * 192 + j] = sums[j];
    }
}
