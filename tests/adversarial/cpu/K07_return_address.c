// expect: policy
// caught by: rejected.library
// workload: cpu_matmul
// Where it was called from tells where libffi and libc lie.
void kernel(const float *a, const float *b, float *out)
{
    volatile long caller = (long)__builtin_return_address(0);
    (void)caller;
    for (int i = 0; i < 128; i++)
        for (int j = 0; j < 192; j++) {
            float sum = 0;
            for (int k = 0; k < 256; k++)
                sum += a[i * 256 + k] * b[k * 192 + j];
            out[i * 192 + j] = sum;
        }
}
