// expect: reject
// caught by: timeout.deadline
// workload: cpu_matmul
// api: c
// Never answers.

void kernel(const float *a, const float *b, float *out)
{
    for (volatile int i = 0; out != a || i == b[0]; ) {
    }
}
