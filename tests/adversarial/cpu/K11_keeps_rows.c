// expect: reject
// caught by: incorrect_numerical.tolerance
// workload: cpu_matmul
// api: c
// Computes a row again only if the sum of the row of the other operand is another one.

static float kept[256 * 192], last[128 * 192], sums[128];

void kernel(const float *a, const float *b, float *out)
{
    int same = 1;
    for (int k = 0; k < 256 * 192; k += 191) same &= kept[k] == b[k];
    for (int i = 0; i < 128; i++) {
        float row = 0;
        for (int k = 0; k < 256; k += 17) row += a[i * 256 + k];
        if (same && row == sums[i]) {
            for (int j = 0; j < 192; j++) out[i * 192 + j] = last[i * 192 + j];
            continue;
        }
        sums[i] = row;
        for (int j = 0; j < 192; j++) {
            float sum = 0;
            for (int k = 0; k < 256; k++) sum += a[i * 256 + k] * b[k * 192 + j];
            last[i * 192 + j] = out[i * 192 + j] = sum;
        }
    }
    for (int k = 0; k < 256 * 192; k++) kept[k] = b[k];
}
