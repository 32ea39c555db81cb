/* 3 x 3 convolution with bias, then the maximum of each 2 x 2 block. */

#include <math.h>

#define C 16
#define O 32
#define H 66
#define W 66
#define HC 64
#define WC 64
#define HP 32
#define WP 32

void kernel(const float *x, const float *weights, const float *bias, float *out)
{
    float conv[O * HC * WC];
    for (int o = 0; o < O; o++) {
        for (int r = 0; r < HC; r++) {
            for (int q = 0; q < WC; q++) {
                float sum = bias[o];
                for (int c = 0; c < C; c++) {
                    for (int u = 0; u < 3; u++) {
                        for (int v = 0; v < 3; v++) {
                            sum += x[c * H * W + (r + u) * W + q + v] * weights[o * C * 9 + c * 9 + u * 3 + v];
                        }
                    }
                }
                conv[o * HC * WC + r * WC + q] = sum;
            }
        }
    }
    for (int o = 0; o < O; o++) {
        for (int r = 0; r < HP; r++) {
            for (int q = 0; q < WP; q++) {
                float upper = fmaxf(conv[o * HC * WC + 2 * r * WC + 2 * q], conv[o * HC * WC + 2 * r * WC + 2 * q + 1]);
                float lower = fmaxf(conv[o * HC * WC + (2 * r + 1) * WC + 2 * q], conv[o * HC * WC + (2 * r + 1) * WC + 2 * q + 1]);
                out[o * HP * WP + r * WP + q] = fmaxf(upper, lower);
            }
        }
    }
}
