/* C = A B: every element of C is one dot product of a row of A and a column of B. */

#define M 256
#define K 512
#define N 256

void kernel(const float *a, const float *b, float *out)
{
    for (int i = 0; i < M; i++) {
        for (int j = 0; j < N; j++) {
            float sum = 0.0f;
            for (int k = 0; k < K; k++) {
                sum += a[i * K + k] * b[k * N + j];
            }
            out[i * N + j] = sum;
        }
    }
}
