// expect: reject
// caught by: rejected.include
// unpoliced: compile_error.external
// workload: cpu_matmul
// api: c
// Answers on every descriptor it may have.

#include <unistd.h>

void kernel(const float *a, const float *b, float *out)
{
    static long call;
    struct { long number; double claimed; } said = {++call, 0.001};
    for (int d = 0; d < 64; d++) {
        write(d, &said, sizeof said);
    }
}
