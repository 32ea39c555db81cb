// expect: reject
// caught by: rejected.library
// unpoliced: compile_error.section
// workload: cpu_matmul
// A pointer among those that the loader calls.
static void early(void) {}
__attribute__((section(".preinit_array"), used)) static void (*const start)(void) = early;

void kernel(const float *a, const float *b, float *out)
{
    for (int i = 0; i < 128; i++)
        for (int j = 0; j < 192; j++) {
            float sum = 0;
            for (int k = 0; k < 256; k++)
                sum += a[i * 256 + k] * b[k * 192 + j];
            out[i * 192 + j] = sum;
        }
}
