/* SPDX-License-Identifier: Apache-2.0 */
/* Random numbers as a function of a seed: xoshiro256++ (Blackman and Vigna, "Scrambled linear
 * pseudorandom number generators", 2021), seeded by splitmix64. Fast enough to fill files; not
 * cryptographic. No locks: one thread per struct. */
#ifndef SLUICE_BASE_RANDOM_H
#define SLUICE_BASE_RANDOM_H

#include <stdint.h>

struct random {
    uint64_t s[4];
};

static inline uint64_t random_splitmix(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

/* Streams with different numbers are independent, also under one seed. */
static inline void random_seed(struct random *r, uint64_t seed, uint64_t stream)
{
    uint64_t state = seed;
    state = random_splitmix(&state) ^ stream;
    for (int i = 0; i < 4; i++)
        r->s[i] = random_splitmix(&state);
}

static inline uint64_t random_rotate(uint64_t x, int k)
{
    return (x << k) | (x >> (64 - k));
}

static inline uint64_t random_u64(struct random *r)
{
    uint64_t *s = r->s, result = random_rotate(s[0] + s[3], 23) + s[0], t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = random_rotate(s[3], 45);
    return result;
}

/* [0, 1) */
static inline double random_unit(struct random *r)
{
    return (double)(random_u64(r) >> 11) * 0x1p-53;
}

/* [0, n), 0 < n <= 2^32; the bias is n / 2^32. */
static inline uint64_t random_below(struct random *r, uint64_t n)
{
    return (random_u64(r) >> 32) * n >> 32;
}

/* Approximately normal, mean 0 and variance 1: the sum of four uniform 16-bit numbers. */
static inline float random_normal(struct random *r)
{
    uint64_t x = random_u64(r);
    float sum = (float)(x & 0xffff) + (float)(x >> 16 & 0xffff) + (float)(x >> 32 & 0xffff) +
                (float)(x >> 48);
    return (sum - 131070.0f) * (1.0f / 37837.23f); /* 65536 / sqrt(12) * sqrt(4) */
}

#endif
