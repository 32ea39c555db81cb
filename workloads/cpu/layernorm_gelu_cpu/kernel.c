/* Layer norm over rows, then GELU in its tanh form: mean, variance, and one pass over the elements. */

#include <math.h>

#define M 256
#define N 1024
#define EPS 1e-5f

void kernel(const float *x, const float *gain, const float *bias, float *out)
{
    for (int i = 0; i < M; i++) {
        float sum = 0.0f;
        for (int j = 0; j < N; j++) {
            sum += x[i * N + j];
        }
        float mean = sum / N;
        float squares = 0.0f;
        for (int j = 0; j < N; j++) {
            squares += (x[i * N + j] - mean) * (x[i * N + j] - mean);
        }
        float root = sqrtf(squares / N + EPS);
        for (int j = 0; j < N; j++) {
            float y = (x[i * N + j] - mean) / root * gain[j] + bias[j];
            out[i * N + j] = 0.5f * y * (1.0f + tanhf(0.7978845608f * (y + 0.044715f * y * y * y)));
        }
    }
}
