/* RMSNorm over rows: sum of squares, then each element divided by the root and multiplied with its gain. */

#include <math.h>

#define M 1024
#define N 1024
#define EPS 1e-6f

void kernel(const float *x, const float *gain, float *out)
{
    for (int i = 0; i < M; i++) {
        float sum = 0.0f;
        for (int j = 0; j < N; j++) {
            sum += x[i * N + j] * x[i * N + j];
        }
        float root = sqrtf(sum / N + EPS);
        for (int j = 0; j < N; j++) {
            out[i * N + j] = x[i * N + j] / root * gain[j];
        }
    }
}
