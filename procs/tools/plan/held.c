/* SPDX-License-Identifier: Apache-2.0 */
#include "procs/tools/plan/held.h"

#include <math.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/bytes.h"

#define TURN      4 /* windows of a text, at most, that have the same role */
#define PRIOR     4 /* windows that the variance of all domains counts in that of one */
#define NORMAL_95 1.6448536269514722
#define NEAR      0.85 /* a bound from this share of the allowed loss on is not improved */
#define SAFE      0.95 /* of the target that would just do, if bound and loss are proportional */
#define FAR       0.25 /* no step is larger: a bound does not quite scale */
#define APART     0.05 /* of the allowed loss: targets that are nearer are the same */

/* ---- division ---- */

/* The windows of each domain that are used: the largest share that fits, the same for all. */
static void shares_of(const uint32_t *have, uint32_t domains, uint32_t wanted, uint32_t *use)
{
    uint32_t left = wanted, open = 0;
    for (uint32_t d = 0; d < domains; d++) {
        use[d] = 0;
        open += have[d] > 0;
    }
    while (left > 0 && open > 0) {
        uint32_t each = left / open > 0 ? left / open : 1;
        open = 0;
        for (uint32_t d = 0; d < domains; d++) {
            uint32_t more = have[d] - use[d] < each ? have[d] - use[d] : each;
            more = more < left ? more : left;
            use[d] += more;
            left -= more;
            open += use[d] < have[d];
        }
    }
}

/* A single window is held out: a domain that nothing is judged on would not count. */
static uint8_t role_of(uint32_t i, uint32_t used)
{
    if (used == 1)
        return HELD_OUT;
    uint32_t turn = used >= 4 * TURN ? TURN : 1;
    return i / turn % 2 == 0 ? HELD_PLANNED : HELD_OUT;
}

void held_divide(const uint16_t *domain, uint32_t windows, uint32_t wanted, uint8_t *role)
{
    uint32_t have[HELD_DOMAINS_MAX] = {0}, use[HELD_DOMAINS_MAX], first = 0;
    for (uint32_t w = 0; w < windows; w++) {
        sl_assert(domain[w] < HELD_DOMAINS_MAX && (w == 0 || domain[w - 1] <= domain[w]));
        have[domain[w]]++;
    }
    shares_of(have, HELD_DOMAINS_MAX, wanted > 0 && wanted < windows ? wanted : windows, use);
    memset(role, HELD_UNUSED, windows);
    for (uint32_t d = 0; d < HELD_DOMAINS_MAX; first += have[d++])
        for (uint32_t i = 0; i < use[d]; i++)
            role[first + (uint32_t)((uint64_t)i * have[d] / use[d])] = role_of(i, use[d]);
}

/* ---- bounds ---- */

/* The 95 % quantile of Student's t: exact for few degrees of freedom, then by its expansion at the normal one (Abramowitz
 * and Stegun 26.7.5), off by less than 0.001. */
static double student_95(uint32_t freedom)
{
    static const double exact[] = {6.3138, 2.9200, 2.3534, 2.1318};
    sl_assert(freedom > 0);
    if (freedom <= ARRAY_LEN(exact))
        return exact[freedom - 1];
    double z = NORMAL_95, z3 = z * z * z, z5 = z3 * z * z, f = (double)freedom;
    return z + (z3 + z) / (4 * f) + (5 * z5 + 16 * z3 + 3 * z) / (96 * f * f) +
           (3 * z5 * z * z + 19 * z5 + 17 * z3 - 15 * z) / (384 * f * f * f);
}

struct moments {
    uint32_t n;
    double mean, square; /* sum of the squared distances from the mean */
};

static void add(struct moments *m, double x)
{
    double off = x - m->mean;
    m->n++;
    m->mean += off / m->n;
    m->square += off * (x - m->mean);
}

static double bound_of(const struct moments *m, double pooled, double freedom,
                       uint32_t text_windows)
{
    double own = m->n - 1, known = own + PRIOR < freedom ? own + PRIOR : freedom;
    double variance = (m->square + PRIOR * pooled) / (own + PRIOR);
    return m->mean + student_95(known) * sqrt(variance * (1.0 / m->n + 1.0 / (double)text_windows));
}

bool held_bounds(const double *delta, const uint16_t *domain, uint32_t windows,
                 uint32_t text_windows, uint32_t domains, struct held_domain *out, uint32_t *worst,
                 struct held_domain *all)
{
    struct moments of[HELD_DOMAINS_MAX] = {0}, every = {0};
    double square = 0, freedom = 0;
    sl_assert(domains <= HELD_DOMAINS_MAX && text_windows > 0);
    for (uint32_t w = 0; w < windows; w++) {
        sl_assert(domain[w] < domains);
        add(&of[domain[w]], delta[w]);
        add(&every, delta[w]);
    }
    for (uint32_t d = 0; d < domains; d++) {
        square += of[d].square;
        freedom += of[d].n > 0 ? of[d].n - 1 : 0;
    }
    if (windows < 2)
        return false;
    if (freedom < 1) { /* one window of each: they vary at least as much as those of one domain */
        square = every.square;
        freedom = windows - 1;
    }
    *worst = domains;
    for (uint32_t d = 0; d < domains; d++) {
        out[d] = (struct held_domain){.windows = of[d].n};
        if (of[d].n == 0)
            continue;
        out[d].loss = expm1(of[d].mean);
        out[d].high = expm1(bound_of(&of[d], square / freedom, freedom, text_windows));
        if (*worst == domains || out[d].high > out[*worst].high)
            *worst = d;
    }
    *all = (struct held_domain){windows, expm1(every.mean), out[*worst].high};
    return true;
}

/* ---- tightening ---- */

struct tightening tightening_start(double max_loss)
{
    return (struct tightening){
        .max = max_loss, .target = max_loss, .good = (double)NAN, .bad = (double)NAN};
}

bool tightening_next(struct tightening *t, double own, double bound)
{
    bool kept = bound <= t->max;
    if (kept)
        t->good = t->target;
    else
        t->bad = own < t->target ? own : t->target;
    t->rounds++;
    if (t->rounds >= TIGHTENING_ROUNDS ||
        (kept && (bound >= NEAR * t->max || isnan(t->bad) || isinf(t->target))))
        return false;
    if (!isnan(t->good)) {
        t->target = (t->good + t->bad) / 2;
        return t->bad - t->good > APART * t->max;
    }
    bool last = t->rounds == TIGHTENING_ROUNDS - 1;
    double scale = SAFE * t->max / bound;
    t->target = last || own <= 0 ? (double)-INFINITY : t->bad * (scale > FAR ? scale : FAR);
    return true;
}
