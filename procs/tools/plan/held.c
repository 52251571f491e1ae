/* SPDX-License-Identifier: Apache-2.0 */
/* Divides the windows of each domain, and computes the bound of a loss for a new text. */
#include "procs/tools/plan/held.h"

#include <math.h>
#include <string.h>

#include "lib/base/assert.h"

#define TURN      4    /* windows of a text, at most, that have the same role */
#define PRIOR     4    /* units that the variance of all domains counts in that of one */
#define STEPS     2000 /* of an integral, even */
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

/* ---- tolerance ---- */

/* Noncentral t of `freedom` at t: the integral of P(a normal variable <= t * s - shift) over the
 * density of s, the ratio of an estimated standard deviation to the true one. */
struct ratio_density {
    double step, weight[STEPS + 1]; /* of s = i * step; their sum is 1 */
};

static void set_density(struct ratio_density *r, double freedom)
{
    double sum = 0;
    r->step = (1 + 8 / sqrt(freedom)) / STEPS; /* to where nothing is left */
    for (int i = 0; i <= STEPS; i++) {
        double s = r->step * i, peak = 0.5 * (freedom - 1) * (1 - s * s);
        double rest = s > 0 ? (freedom - 1) * log(s) : freedom > 1 ? -HUGE_VAL : 0;
        int simpson = i == 0 || i == STEPS ? 1 : i % 2 ? 4 : 2;
        r->weight[i] = simpson * exp(peak + rest - 0.5 * s * s);
        sum += r->weight[i];
    }
    for (int i = 0; i <= STEPS; i++)
        r->weight[i] /= sum;
}

static double share_up_to(const struct ratio_density *r, double t, double shift)
{
    double sum = 0;
    for (int i = 0; i <= STEPS; i++)
        sum += r->weight[i] * 0.5 * erfc((shift - t * r->step * i) / sqrt(2));
    return sum;
}

double held_tolerance(uint32_t freedom, uint32_t windows, uint32_t text_windows)
{
    struct ratio_density r;
    double n = windows, shift = NORMAL_95 * sqrt(n / text_windows), low = 0, high = 1;
    sl_assert(freedom > 0 && windows > 0 && text_windows > 0);
    set_density(&r, freedom);
    while (share_up_to(&r, high, shift) < HELD_CONFIDENCE)
        high *= 2;
    while (high - low > 1e-7 * high) {
        double middle = (low + high) / 2;
        *(share_up_to(&r, middle, shift) < HELD_CONFIDENCE ? &low : &high) = middle;
    }
    return high / sqrt(n);
}

/* ---- bounds ---- */

/* Windows of a domain, in units of neighbours. */
struct moments {
    uint32_t windows, units;
    double mean;
    double
        square; /* of the distances of units from the mean, each times its windows: units - 1 times
                    * the variance of a window, if windows do not depend on each other */
};

/* delta[n]: the windows of a domain. */
static struct moments moments_of(const double *delta, uint32_t n)
{
    struct moments m = {.windows = n};
    uint32_t each = n >= 2 * TURN ? TURN : 1;
    for (uint32_t w = 0; w < n; w++)
        m.mean += delta[w] / n;
    for (uint32_t first = 0, size; first < n; first += size, m.units++) {
        double off = 0;
        size = n - first < each ? n - first : each;
        for (uint32_t w = first; w < first + size; w++)
            off += (delta[w] - m.mean) / size;
        m.square += size * off * off;
    }
    return m;
}

/* pooled: variance of all domains, known with `freedom`. */
static double bound_of(const struct moments *m, double pooled, uint32_t freedom,
                       uint32_t text_windows)
{
    uint32_t own = m->units - 1, known = own + PRIOR < freedom ? own + PRIOR : freedom;
    double variance = (m->square + PRIOR * pooled) / (own + PRIOR);
    return m->mean + held_tolerance(known, m->windows, text_windows) * sqrt(variance);
}

bool held_bounds(const double *delta, const uint16_t *domain, uint32_t windows,
                 uint32_t text_windows, uint32_t domains, struct held_domain *out, uint32_t *worst,
                 struct held_domain *all)
{
    struct moments of[HELD_DOMAINS_MAX] = {0};
    double square = 0, mean = 0;
    uint32_t freedom = 0;
    sl_assert(domains <= HELD_DOMAINS_MAX && text_windows > 0);
    if (windows < 2)
        return false;
    for (uint32_t w = 0, n; w < windows; w += n) {
        uint16_t d = domain[w];
        sl_assert(d < domains && of[d].windows == 0);
        for (n = 1; w + n < windows && domain[w + n] == d;)
            n++;
        of[d] = moments_of(delta + w, n);
        square += of[d].square;
        freedom += of[d].units - 1;
        mean += of[d].mean * n / windows;
    }
    if (freedom < 1) { /* one window of each: they vary at least as much as those of one domain */
        square = moments_of(delta, windows).square;
        freedom = moments_of(delta, windows).units - 1;
    }
    *worst = domains;
    for (uint32_t d = 0; d < domains; d++) {
        out[d] = (struct held_domain){.windows = of[d].windows};
        if (of[d].windows == 0)
            continue;
        out[d].loss = expm1(of[d].mean);
        out[d].high = expm1(bound_of(&of[d], square / freedom, freedom, text_windows));
        if (*worst == domains || out[d].high > out[*worst].high)
            *worst = d;
    }
    *all = (struct held_domain){windows, expm1(mean), out[*worst].high};
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
