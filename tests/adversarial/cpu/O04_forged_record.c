// expect: reject
// caught by: rejected.include
// unpoliced: compile_error.external
// workload: cpu_matmul
// api: c
// Writes a reply and a record of its own and ends.

#include <unistd.h>

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

void kernel(const float *a, const float *b, float *out)
{
    static const char head[] = "{\"log\": \"fine\", \"wall_ns\": [1], \"processor_ns\": [1], \"claimed_us\": [0.1], \"unwritten\": [0], \"rule\": \"\"}";
    unsigned n = sizeof head - 1;
    for (int f = 0; f < 16; f++) { pwrite(f, &n, 4, 0); pwrite(f, head, n, 4); write(f, head, n); }
    _exit(0);
}
