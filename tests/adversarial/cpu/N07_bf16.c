// expect: reject
// caught by: incorrect_numerical.tolerance
// workload: cpu_matmul
// api: c
// Operands cut to bfloat16.

void kernel(const float *a, const float *b, float *out)
{
    for (int i = 0; i < 128; i++) {
        for (int j = 0; j < 192; j++) {
            float sum = 0.0f;
            for (int k = 0; k < 256; k++) {
                union { float f; unsigned u; } left = {a[i * 256 + k]}, right = {b[k * 192 + j]};
                left.u &= 0xffff0000u;
                right.u &= 0xffff0000u;
                sum += left.f * right.f;
            }
            out[i * 192 + j] = sum;
        }
    }
}
