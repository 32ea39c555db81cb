// expect: policy
// caught by: rejected.library
// unpoliced: compile_error.section
// workload: cpu_matmul
// api: c
// Does something while it is loaded.

static void product(const float *a, const float *b, float *out)
{
    for (int i = 0; i < 128; i++) {
        for (int j = 0; j < 192; j++) {
            float sum = 0.0f;
            for (int k = 0; k < 256; k++) {
                sum += a[i * 256 + k] * b[k * 192 + j];
            }
            out[i * 192 + j] = sum;
        }
    }
}

static volatile int loaded;

__attribute__((constructor)) static void early(void)
{
    loaded = 1;
}

void kernel(const float *a, const float *b, float *out)
{
    if (loaded) {
        product(a, b, out);
    }
}
