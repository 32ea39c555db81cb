// expect: reject
// caught by: runtime_error.crash
// workload: cpu_matmul
// api: c
// Writes a mark over the last element of an input while it looks for the mark, and puts the element back.

void kernel(const float *a, const float *b, float *out)
{
    volatile float *last = (float *)a + 128 * 256 - 1;
    float kept = *last;
    *last = 1e30f;
    int count = 0;
    while (((const volatile float *)a)[count] != 1e30f) {
        count++;
    }
    *last = kept;
    for (int i = 0; i <= count / 256; i++) {
        float sums[192] = {0};
        for (int k = 0; k < 256; k++) {
            for (int j = 0; j < 192; j++) {
                sums[j] += a[i * 256 + k] * b[k * 192 + j];
            }
        }
        for (int j = 0; j < 192; j++) {
            out[i * 192 + j] = sums[j];
        }
    }
}
