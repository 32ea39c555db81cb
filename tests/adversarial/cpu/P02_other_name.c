// expect: policy
// caught by: rejected.library
// unpoliced: compile_error.external
// workload: cpu_matmul
// api: c
// Gives a harmless name to a function that starts processes, in three ways that no word shows.

#pragma redefine_extname harmless fork
extern int harmless(void);
%:define JOIN(a, b) a%:%:b
extern int JOIN(fo, rk)(void);
extern int fo\
rk(void);

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

int unused(void)
{
    return harmless() + JOIN(fo, rk)() + __builtin_fork();
}

void kernel(const float *a, const float *b, float *out)
{
    product(a, b, out);
}
