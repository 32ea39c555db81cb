// expect: pass
// workload: cpu_matmul
// api: c
// Has tables of constants and of pointers to them.

static void product(const float *a, const float *b, float *out)
{
    for (int i = 0; i < 128; i++) {
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

static const float ones[2] = {1.0f, 1.0f};
static const char *const names[2] = {"even", "odd"};

void kernel(const float *a, const float *b, float *out)
{
    product(a, b, out);
    for (int i = 0; i < 128 * 192; i++) out[i] *= ones[i % 2] * (names[i % 2][0] ? 1.0f : 0.0f);
}
