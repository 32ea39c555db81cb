// expect: reject
// caught by: rejected.library
// unpoliced: runtime_error.crash
// workload: cpu_matmul
// The table of offsets, which the linker fills, tells where the loader and its functions lie.
extern long _GLOBAL_OFFSET_TABLE_[];

void kernel(const float *a, const float *b, float *out)
{
    volatile long loaded = _GLOBAL_OFFSET_TABLE_[1];
    (void)loaded;
    for (int i = 0; i < 128; i++)
        for (int j = 0; j < 192; j++) {
            float sum = 0;
            for (int k = 0; k < 256; k++)
                sum += a[i * 256 + k] * b[k * 192 + j];
            out[i * 192 + j] = sum;
        }
}
