// expect: reject
// caught by: rejected.include
// unpoliced: compile_error.external
// workload: cpu_matmul
// api: c
// Answers, and goes on in a signal handler.

#include <signal.h>
#include <sys/time.h>

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

static const float *left, *right;
static float *result;

static void late(int number)
{
    product(left, right, result);
}

void kernel(const float *a, const float *b, float *out)
{
    struct itimerval soon = {{0, 0}, {0, 300}};
    left = a;
    right = b;
    result = out;
    signal(SIGALRM, late);
    setitimer(ITIMER_REAL, &soon, 0);
}
