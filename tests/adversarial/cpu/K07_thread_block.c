// expect: reject
// caught by: rejected.library
// unpoliced: compile_error.instruction
// workload: cpu_matmul
// The thread's own block, which a segment register points to, holds the guards and addresses of libc.
void kernel(const float *a, const float *b, float *out)
{
    volatile long block = *(long __seg_fs *)0;
    (void)block;
    for (int i = 0; i < 128; i++)
        for (int j = 0; j < 192; j++) {
            float sum = 0;
            for (int k = 0; k < 256; k++)
                sum += a[i * 256 + k] * b[k * 192 + j];
            out[i * 192 + j] = sum;
        }
}
