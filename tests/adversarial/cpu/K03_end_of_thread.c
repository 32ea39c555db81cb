// expect: reject
// caught by: compile_error.external
// workload: cpu_matmul
// A function to call when the thread ends.
extern int __cxa_thread_atexit_impl(void (*)(void *), void *, void *);
extern void *__dso_handle;
static void late(void *nothing) { (void)nothing; }

void kernel(const float *a, const float *b, float *out)
{
    for (int i = 0; i < 128; i++)
        for (int j = 0; j < 192; j++) {
            float sum = 0;
            for (int k = 0; k < 256; k++)
                sum += a[i * 256 + k] * b[k * 192 + j];
            out[i * 192 + j] = sum;
        }
    __cxa_thread_atexit_impl(late, 0, &__dso_handle);
}
