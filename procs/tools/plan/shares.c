/* SPDX-License-Identifier: Apache-2.0 */
/* Parses shares, and deals experts or accesses to precisions by them. */
#include "procs/tools/plan/shares.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/random.h"
#include "lib/tensor/precision.h"

#define ROUNDING 1e-6

static const char *const names[PRECISION__COUNT + 1] = {"native", "int8", "int4", "int2", "skip"};

static int one_share(struct shares *s, const char *from, size_t bytes, unsigned *named,
                     struct error *error)
{
    char pair[64], *end;
    size_t which = 0;
    if (bytes >= sizeof pair)
        return error_set(error, ERR_BAD_INPUT, "--shares: '%.40s...' is too long", from);
    memcpy(pair, from, bytes);
    pair[bytes] = 0;
    char *value = strchr(pair, '=');
    if (value)
        *value++ = 0;
    while (which <= PRECISION__COUNT && strcmp(names[which], pair) != 0)
        which++;
    if (!value || which > PRECISION__COUNT || (*named >> which & 1))
        return error_set(error, ERR_BAD_INPUT,
                         "--shares: '%.40s' is not native|int8|int4|int2|skip=SHARE, once each",
                         pair);
    double share = strtod(value, &end);
    if (end != value && *end == '%') {
        share /= 100;
        end++;
    }
    if (end == value || *end || !(share >= 0 && share <= 1))
        return error_set(error, ERR_BAD_INPUT, "--shares: '%.40s' is not a share from 0 to 1",
                         value);
    *named |= 1u << which;
    s->of[which] = share;
    return 0;
}

int shares_parse(struct shares *s, const char *text, struct error *error)
{
    unsigned named = 0;
    double sum = 0;
    *s = (struct shares){0};
    for (const char *at = text; *at;) {
        size_t bytes = strcspn(at, ",");
        if (one_share(s, at, bytes, &named, error) != 0)
            return -1;
        at += bytes + (at[bytes] == ',');
    }
    for (int i = 0; i <= PRECISION__COUNT; i++)
        sum += s->of[i];
    unsigned precisions = named & ~(1u << SHARES_SKIP);
    if (!precisions || sum > 1 + ROUNDING)
        return error_set(error, ERR_BAD_INPUT,
                         "--shares: needs a precision and a sum of at most 1 ('%.60s' has %g)",
                         text, sum);
    s->of[__builtin_ctz(precisions)] += fmax(0, 1 - sum);
    return 0;
}

void shares_deal(const struct shares *s, uint64_t seed, uint8_t *precision, uint64_t cells)
{
    struct random random;
    double upto = 0;
    uint64_t at = 0;
    sl_assert(s->of[SHARES_SKIP] <= 0);
    for (uint8_t t = 0; t < PRECISION__COUNT; t++) {
        upto += s->of[t];
        uint64_t end = (uint64_t)llround(upto * (double)cells);
        while (at < end && at < cells)
            precision[at++] = t;
    }
    sl_assert(at == cells);
    random_seed(&random, seed, 0);
    for (uint64_t i = cells; i > 1; i--) { /* Fisher-Yates shuffle */
        uint64_t other = random_below(&random, i);
        uint8_t saved = precision[i - 1];
        precision[i - 1] = precision[other];
        precision[other] = saved;
    }
}

int shares_pair(const struct shares *s, enum precision *high, enum precision *low,
                struct error *error)
{
    int named = 0;
    for (int t = 0; t < PRECISION__COUNT; t++) {
        if (s->of[t] <= 0)
            continue;
        if (named++ == 0)
            *high = (enum precision)t;
        *low = (enum precision)t;
    }
    if (named == 1 || named == 2)
        return 0;
    return error_set(error, ERR_BAD_INPUT,
                     "--shares: this preset uses one or two precisions, not %d", named);
}

static int by_value(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Number of sorted values <= x. */
static size_t count_up_to(const float *sorted, size_t count, double x)
{
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if ((double)sorted[middle] <= x)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The smallest value with this share of the sorted values <= it. */
static double quantile(const float *sorted, size_t count, double share)
{
    size_t n = (size_t)llround(share * (double)count);
    return n == 0 ? 0 : n >= count ? 1 : (double)sorted[n - 1];
}

void shares_thresholds(float *before, size_t count, double high, double low, double *t1, double *t2,
                       double got[3])
{
    sl_assert(count > 0);
    qsort(before, count, sizeof *before, by_value);
    *t1 = quantile(before, count, high);
    *t2 = fmax(*t1, quantile(before, count, high + low));
    got[0] = (double)count_up_to(before, count, *t1) / (double)count;
    got[1] = (double)count_up_to(before, count, *t2) / (double)count - got[0];
    got[2] = 1 - got[0] - got[1];
}
