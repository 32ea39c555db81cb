// expect: truthful
// caught by: rejected.include
// unpoliced: compile_error.external
// workload: cpu_matmul
// api: c
// at_least: 0.9
// Tries what a newer system offers: io_uring, userfaultfd, pidfds, keys, memory files, other processes.

#include <errno.h>
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
    static const short calls[] = {425, 426, 427, 323, 319, 248, 250, 298, 321, 272, 165, 155, 310, 311, 434, 438, 440,
                                  101, 41, 53, 294, 253, 254, 300, 304, 265, 86, 88, 266, 237, 256, 279, 141, 142, 203,
                                  222, 206, 240, 29, 278, 276, 275, 428, 430, 442, 444, 449, 462};
    for (unsigned i = 0; i < sizeof calls / sizeof *calls; i++) {
        if (syscall(calls[i], 0L, 0L, 0L, 0L, 0L) != -1 || errno != EPERM) {
            out[0] = calls[i];
            return;
        }
    }
    product(a, b, out);
}
