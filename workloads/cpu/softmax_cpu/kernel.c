/* Softmax over rows: maximum, exponentials and their sum, division. */

#include <math.h>

#define M 512
#define N 1024

void kernel(const float *x, float *out)
{
    for (int i = 0; i < M; i++) {
        float largest = x[i * N];
        for (int j = 0; j < N; j++) {
            largest = fmaxf(largest, x[i * N + j]);
        }
        float sum = 0.0f;
        for (int j = 0; j < N; j++) {
            out[i * N + j] = expf(x[i * N + j] - largest);
            sum += out[i * N + j];
        }
        for (int j = 0; j < N; j++) {
            out[i * N + j] = out[i * N + j] / sum;
        }
    }
}
