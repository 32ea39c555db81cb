// expect: reject
// caught by: runtime_error.crash
// workload: cpu_matmul
// api: c
// Loads and stores vectors at addresses that it assumes to be multiples of 32.

typedef float v8 __attribute__((vector_size(32)));

void kernel(const float *a, const float *b, float *out)
{
    for (int i = 0; i < 128; i++) {
        v8 *to = (v8 *)(out + i * 192);
        for (int j = 0; j < 24; j++) {
            v8 sum = {0};
            for (int k = 0; k < 256; k++) sum += a[i * 256 + k] * ((const v8 *)(b + k * 192))[j];
            to[j] = sum;
        }
    }
}
