// expect: reject
// caught by: rejected.include
// unpoliced: compile_error.external
// workload: cpu_matmul
// api: c
// Moves the pages of its outputs away and leaves others in their place.

#include <sys/mman.h>
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

long syscall(long, ...);

void kernel(const float *a, const float *b, float *out)
{
    char *page = (char *)((unsigned long)out & ~4095ul);
    syscall(25, page, 98304L, 98304L, 3L, 0x700000000000L);
    mmap(page, 98304, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    product(a, b, out);
}
