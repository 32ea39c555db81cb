/* What one core can do: multiply-adds on registers, and moving floats through memory and caches. Seconds of processor time. */

#include <stddef.h>
#include <time.h>

static double now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &at);
    return at.tv_sec + 1e-9 * at.tv_nsec;
}

/* Chains of vector multiply-adds, enough of them that none waits for another. */
#define LANES (sizeof(vector) / sizeof(float))
#ifdef __AVX512F__
typedef float vector __attribute__((vector_size(64)));
#else
typedef float vector __attribute__((vector_size(32)));
#endif
#define CHAINS 10

/* FLOP/s of one core; the result goes to sink so that nothing is left out. */
double fma_flops_per_s(long rounds, float *sink)
{
    vector sums[CHAINS], factor, term;
    for (size_t lane = 0; lane < LANES; lane++) {
        factor[lane] = 0.999f + 1e-6f * sink[0];
        term[lane] = 1e-3f + 1e-6f * sink[0];
    }
    for (int chain = 0; chain < CHAINS; chain++) {
        for (size_t lane = 0; lane < LANES; lane++) {
            sums[chain][lane] = (float)chain;
        }
    }
    double start = now();
    for (long round = 0; round < rounds; round++) {
#pragma GCC unroll 10
        for (int chain = 0; chain < CHAINS; chain++) {
            sums[chain] = sums[chain] * factor + term;
        }
    }
    double seconds = now() - start;
    for (int chain = 0; chain < CHAINS; chain++) {
        for (size_t lane = 0; lane < LANES; lane++) {
            sink[0] += sums[chain][lane];
        }
    }
    return 2.0 * CHAINS * LANES * rounds / seconds;
}

static void scale(float *restrict to, const float *restrict from, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        to[i] = 1.5f * from[i];
    }
    __asm__ volatile("" : : "r"(to) : "memory");
}

/* Bytes read and written each second while n bytes of floats are scaled into another array `rounds` times. */
double scale_bytes_per_s(float *to, const float *from, size_t n, long rounds)
{
    scale(to, from, n / sizeof(float));
    double start = now();
    for (long round = 0; round < rounds; round++) {
        scale(to, from, n / sizeof(float));
    }
    return 2.0 * n * rounds / (now() - start);
}
