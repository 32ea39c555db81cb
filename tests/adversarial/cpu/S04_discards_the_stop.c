// expect: truthful
// caught by: rejected.include
// unpoliced: compile_error.external
// workload: cpu_matmul
// api: c
// at_least: 0.9
// Discards the stop that ends its call with signals to go on, then sleeps for good.

#include <signal.h>
#include <sys/ioctl.h>
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
    struct { long number; double claimed; } said = {0, 0.0};
    long ring = 1;
    for (;;) {
        int waiting = 0;
        product(a, b, out);
        said.number = ring;
        write(7, &said, sizeof said);
        for (int i = 0; i < 20000; i++) {
            kill(getpid(), SIGCONT);
        }
        ioctl(6, FIONREAD, &waiting);
        while (!waiting) {
            sleep(1000);
        }
        read(6, &ring, sizeof ring);
    }
}
