/* Random numbers by counter: number i of a key is a function of the two, so weights and windows can be drawn in any
 * order and by any program that knows the seed. */
#ifndef TRAIN_COUNTER_RNG_H
#define TRAIN_COUNTER_RNG_H

#include <math.h>
#include <stdint.h>

enum rng_purpose { RNG_WEIGHTS, RNG_WINDOWS };

/* Element i of the splitmix64 sequence that starts at `key`. */
static inline uint64_t rng_bits(uint64_t key, uint64_t i) {
    uint64_t z = key + (i + 1) * 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

/* Standard normal number i of a key (Box and Muller's cosine branch). Its first uniform number is in (0, 1]. */
static inline double rng_normal(uint64_t key, uint64_t i) {
    double u = (double)((rng_bits(key, 2 * i) >> 11) + 1) * 0x1p-53;
    double v = (double)(rng_bits(key, 2 * i + 1) >> 11) * 0x1p-53;
    return sqrt(-2 * log(u)) * cos(2 * 3.14159265358979323846 * v);
}

#endif
