/* Random numbers by counter: number i of a key is a function of the two, so weights and windows can be drawn in any
 * order, on the host or the device, and by any program that knows the seed. */
#ifndef TRAIN_COUNTER_RNG_H
#define TRAIN_COUNTER_RNG_H

#include <math.h>
#include <stdint.h>

#ifdef __CUDACC__
#define ANYWHERE static __host__ __device__ inline
#else
#define ANYWHERE static inline
#endif

enum rng_purpose { RNG_WEIGHTS, RNG_WINDOWS, RNG_EVALUATION, RNG_SAMPLE };

/* Element i of the splitmix64 sequence that starts at `key`. */
ANYWHERE uint64_t rng_bits(uint64_t key, uint64_t i) {
    uint64_t z = key + (i + 1) * 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

/* Standard normal number i of a key (Box and Muller's cosine branch). Its first uniform number is in (0, 1]. On the
 * device cospi, which needs no reduction of its argument; the two cosines may differ in the last bit. */
ANYWHERE double rng_normal(uint64_t key, uint64_t i) {
    double u = (double)((rng_bits(key, 2 * i) >> 11) + 1) * 0x1p-53;
    double v = (double)(rng_bits(key, 2 * i + 1) >> 11) * 0x1p-53;
#ifdef __CUDA_ARCH__
    double cosine = cospi(2 * v);
#else
    double cosine = cos(2 * 3.14159265358979323846 * v);
#endif
    return sqrt(-2 * log(u)) * cosine;
}

#endif
