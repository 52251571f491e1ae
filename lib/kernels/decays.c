/* SPDX-License-Identifier: Apache-2.0 */
/* exp and log of lib/exact, several numbers at a time: vectors of doubles, which the compiler makes
 * of the registers that an instruction set has. Nothing else differs between the sets, so there is
 * one function, compiled for each width of registers. */
#include "lib/kernels/decays.h"

#include <string.h>

#include "lib/kernels/internal.h"

#define LANES 8
typedef double vd __attribute__((vector_size(LANES * sizeof(double))));
typedef uint64_t vu __attribute__((vector_size(LANES * sizeof(uint64_t))));
typedef float vs __attribute__((vector_size(LANES * sizeof(float))));

#define EXACT_REAL         vd
#define EXACT_SERIES(name) series_##name
#include "lib/exact/series.h"

#define EXP_MAX  700.0 /* exp of more, or of less than -EXP_MAX, makes the same decay */
#define ONE_BITS 0x3ff0000000000000u
#define MANTISSA 0x000fffffffffffffu

static ALWAYS_INLINE vd set1(double x)
{
    return (vd){x, x, x, x, x, x, x, x};
}

/* a where the mask has ones, b where it has zeros. */
static ALWAYS_INLINE vd pick(vu mask, vd a, vd b)
{
    return (vd)((mask & (vu)a) | (~mask & (vu)b));
}

/* exact_exp; beyond EXP_MAX as of that. NaN stays NaN. */
static ALWAYS_INLINE vd exp_of(vd x)
{
    x = pick((vu)(x > set1(EXP_MAX)), set1(EXP_MAX), x);
    x = pick((vu)(x < set1(-EXP_MAX)), set1(-EXP_MAX), x);
    vd n = x * EXACT_LOG2_E + EXACT_ROUND_BY; /* its last bits are the whole number */
    vd power = (vd)(((vu)n + 1023u) << 52u);
    return series_exp(x, n - EXACT_ROUND_BY) * power;
}

/* exact_log, of 1 and more. */
static ALWAYS_INLINE vd log_of(vd x)
{
    vd round = set1(EXACT_ROUND_BY), m = (vd)(((vu)x & MANTISSA) | ONE_BITS);
    vu large = (vu)(m > set1(EXACT_SQRT_2)); /* -1 or 0 */
    vd n = (vd)((vu)round + ((vu)x >> 52u) - 1023u - large) - round;
    return series_log(pick(large, m * 0.5, m), n);
}

static ALWAYS_INLINE vd softplus_of(vd x)
{
    return pick((vu)(x <= set1(20)), log_of(1.0 + exp_of(x)), x); /* NaN stays NaN */
}

static ALWAYS_INLINE vs decays_of(vs a, vs bias, double rate, double bound)
{
    vd x = __builtin_convertvector(a + bias, vd);
    x = bound < 0 ? bound * (1.0 / (1.0 + exp_of(-(rate * x)))) : -rate * softplus_of(x);
    return __builtin_convertvector(exp_of(x), vs);
}

/* n: LANES, or fewer at the end. */
static ALWAYS_INLINE void decay_some(const struct kernel_decays *d, uint32_t at, uint32_t n)
{
    vs a = {0}, bias = {0}, y;
    memcpy(&a, d->a + at, n * sizeof *d->a);
    memcpy(&bias, d->bias + at, n * sizeof *d->bias);
    y = decays_of(a, bias, d->rate, d->bound);
    memcpy(d->y + at, &y, n * sizeof *d->y);
}

static ALWAYS_INLINE void decay(const struct kernel_decays *d)
{
    uint32_t i = 0;
    for (; i + LANES <= d->n; i += LANES)
        decay_some(d, i, LANES);
    if (i < d->n)
        decay_some(d, i, d->n - i);
}

#ifdef __x86_64__
static __attribute__((target("avx2"))) void avx2_decay(const struct kernel_decays *d)
{
    decay(d);
}

static __attribute__((target("avx512f,avx512dq"))) void avx512_decay(const struct kernel_decays *d)
{
    decay(d);
}
#endif

void kernel_decay(enum kernel_isa isa, const struct kernel_decays *d)
{
#ifdef __x86_64__
    if (isa >= ISA_AVX512)
        avx512_decay(d);
    else if (isa >= ISA_AVX2)
        avx2_decay(d);
    else
#endif
        decay(d);
    (void)isa;
}
