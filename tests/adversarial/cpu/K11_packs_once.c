// expect: reject
// caught by: incorrect_numerical.tolerance
// workload: cpu_matmul
// api: c
// Packs an operand again only if its first and last element have changed.

static float packed[256 * 192];
static float seen[2];
static int filled;

void kernel(const float *a, const float *b, float *out)
{
    if (!filled || seen[0] != b[0] || seen[1] != b[49151]) {
        for (int k = 0; k < 256 * 192; k++) packed[k] = b[k];
        seen[0] = b[0];
        seen[1] = b[49151];
        filled = 1;
    }
    for (int i = 0; i < 128; i++)
        for (int j = 0; j < 192; j++) {
            float sum = 0;
            for (int k = 0; k < 256; k++) sum += a[i * 256 + k] * packed[k * 192 + j];
            out[i * 192 + j] = sum;
        }
}
