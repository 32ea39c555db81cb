// expect: reject
// caught by: rejected.library
// unpoliced: compile_error.section
// workload: cpu_matmul
// Bytes that are data in the source and instructions in the object.
__attribute__((section(".text"))) const unsigned char code[] = {0xc3};

void kernel(const float *a, const float *b, float *out)
{
    ((void (*)(void))code)();
    for (int i = 0; i < 128; i++)
        for (int j = 0; j < 192; j++) {
            float sum = 0;
            for (int k = 0; k < 256; k++)
                sum += a[i * 256 + k] * b[k * 192 + j];
            out[i * 192 + j] = sum;
        }
}
