/* SPDX-License-Identifier: Apache-2.0 */
#include "procs/tools/doctor/estimate.h"

#include <math.h>
#include <stddef.h>

#include "lib/base/bytes.h"

static double larger(double a, double b)
{
    return a > b ? a : b;
}

static uint64_t expert_mean(const struct model_facts *m)
{
    return m->expert_count ? m->expert_bytes / m->expert_count : 0;
}

double estimate_depth(const struct model_facts *m, const struct host_facts *a, double experts)
{
    double chunks = (double)(expert_mean(m) + a->chunk_bytes - 1) / (double)a->chunk_bytes;
    double depth = larger(experts, 1) * larger((double)(uint64_t)chunks, 1);
    return depth < 16 ? depth : 16;
}

/* Linear interpolation between two measured depths. */
static double rate_at(const struct host_facts *a, double depth)
{
    static const double depths[ESTIMATE_DEPTHS] = {1, 2, 4, 8, 16};
    size_t i = 0;
    while (i + 2 < ESTIMATE_DEPTHS && depths[i + 1] < depth)
        i++;
    double part = (depth - depths[i]) / (depths[i + 1] - depths[i]);
    return a->read_bytes_per_s[i] + part * (a->read_bytes_per_s[i + 1] - a->read_bytes_per_s[i]);
}

/* Constants fitted to measurements: docs/doctor.md. */
#define MISSING_POWER 1.2   /* of 1 - sqrt(share) */
#define LOADED_POWER  1.6   /* of the share */
#define DECODE_NORM   2.0   /* 1: reading and computing alternate, infinite: the longer one hides */
#define PREFILL_NORM  4.0   /* the other */
#define ENGINE        1.1   /* time of the engine/time of its core alone: pages, other processes */
#define LAYER_S       12e-6 /* of decode, per layer: pins, log, gate input */
#define LOAD_S        95e-6 /* messages and processes of a load, on the cores that compute */
#define WAIT_S        150e-6 /* of a layer: demand, wake-up */

/* Share of the accesses of decode that are read. It depends on the text. */
static double missing_share(double share)
{
    return pow(1 - sqrt(share), MISSING_POWER);
}

/* Share of all experts that a chunk of a prompt reads: it needs nearly all of them once, so that
 * what is resident at its end is of little use at its start. */
static double loaded_share(double share)
{
    return 1 - pow(share, LOADED_POWER);
}

double estimate_token_bytes(const struct model_facts *m)
{
    return (double)m->dense_read_bytes +
           (double)(m->expert_layers * m->experts_used) * (double)expert_mean(m);
}

static double together(double a, double b, double norm)
{
    return pow(pow(a, norm) + pow(b, norm), 1 / norm);
}

double estimate_read_rate(const struct model_facts *m, const struct host_facts *a, double share)
{
    return rate_at(a, estimate_depth(m, a, (double)m->experts_used * missing_share(share)));
}

static void estimate_decode(const struct model_facts *m, const struct host_facts *a,
                            struct estimate *e)
{
    double accesses = (double)(m->expert_layers * m->experts_used);
    double rate = estimate_read_rate(m, a, e->share);
    e->compute_s = a->decode_s > 0 ? ENGINE * a->decode_s + (double)m->layers * LAYER_S : 0;
    if (e->missing > 0 && rate > 0) {
        double waiting = 1 - pow(1 - e->missing, (double)m->experts_used); /* of the layers */
        e->read_s = accesses * e->missing * (double)expert_mean(m) / rate;
        e->wait_s = accesses * e->missing * LOAD_S + (double)m->expert_layers * waiting * WAIT_S;
    }
    if (e->compute_s > 0 && (e->missing <= 0 || rate > 0))
        e->decode_tps = 1 / (together(e->compute_s, e->read_s, DECODE_NORM) + e->wait_s);
}

/* Of one chunk. */
static void estimate_prefill(const struct model_facts *m, const struct host_facts *a,
                             struct estimate *e)
{
    double experts = (double)m->expert_count, tokens = (double)a->chunk_tokens;
    if (m->expert_layers > 0 && experts > 0) { /* those that at least one token chooses */
        double unused = 1 - (double)(m->expert_layers * m->experts_used) / experts;
        experts *= 1 - pow(unused > 0 ? unused : 0, tokens);
    }
    double loads = experts * loaded_share(e->share),
           rate = a->read_bytes_per_s[ESTIMATE_DEPTHS - 1];
    if (a->prefill_s <= 0 || tokens <= 0 || (loads > 0 && rate <= 0))
        return;
    double compute_s = ENGINE * a->prefill_s * tokens;
    double read_s = loads > 0 ? loads * (double)expert_mean(m) / rate : 0;
    e->prefill_tps = tokens / (together(compute_s, read_s, PREFILL_NORM) + loads * LOAD_S);
}

struct estimate estimate_make(const struct model_facts *m, const struct host_facts *a, double share)
{
    struct estimate e = {.share = share, .missing = missing_share(share)};
    estimate_decode(m, a, &e);
    estimate_prefill(m, a, &e);
    return e;
}

uint64_t estimate_budget(const struct model_facts *m, const struct host_facts *a, double *share)
{
    const struct {
        uint64_t budget;
        double share;
    } steps[] = {
        {m->budget_100, 1}, {m->budget_75, 0.75}, {m->budget_50, 0.5}, {m->budget_25, 0.25}};
    uint64_t limit = a->available / 5 * 4;
    for (size_t i = 0; i < ARRAY_LEN(steps); i++)
        if (steps[i].budget <= limit) {
            *share = steps[i].share;
            return steps[i].budget;
        }
    *share = 0;
    return m->min_budget <= a->available ? m->min_budget : 0;
}

uint32_t advise(const struct model_facts *m, const struct host_facts *a)
{
    double share;
    uint64_t budget = estimate_budget(m, a, &share);
    struct estimate half = estimate_make(m, a, 0.5);
    struct estimate now = estimate_make(m, a, share > 0 ? share : 0.25);
    bool reads = share < 1 && now.read_s > now.compute_s;
    uint32_t bits = 0;
#define WHEN(NAME, condition) bits |= (condition) ? 1u << ADVICE_##NAME : 0
    WHEN(BUDGET_TOO_SMALL, budget == 0);
    WHEN(CGROUP_LIMIT, a->limited && share < 1);
    WHEN(SHM_SMALL, a->shm_free < (budget ? budget : m->min_budget));
    WHEN(SCRATCH, a->scratch);
    WHEN(FASTER_DEVICE, share < 1 && half.read_s > half.compute_s);
    WHEN(MORE_MEMORY, share < 1);
    WHEN(LOWER_PRECISION, reads);
    WHEN(IO_URING, !a->io_uring);
    WHEN(KERNELS, !a->vector_kernels);
    WHEN(SWAP, a->swap && share < 1);
    WHEN(FREED_PAGES, a->freed_pages && share < 1);
#undef WHEN
    return bits;
}

static const struct {
    const char *name, *text;
} advices[ADVICE__COUNT] = {
#define ADVICE(NAME, t) {#NAME, t},
#include "procs/tools/doctor/advice.tbl.h"
};

const char *advice_name(enum advice advice)
{
    return (unsigned)advice < ADVICE__COUNT ? advices[advice].name : "?";
}

const char *advice_text(enum advice advice)
{
    return (unsigned)advice < ADVICE__COUNT ? advices[advice].text : "?";
}
