/* SPDX-License-Identifier: Apache-2.0 */
#include "procs/tools/doctor/estimate.h"

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

/* Share of accesses that miss. It depends on the text; the square of the non-resident share lies
 * between the misses measured with the demo model and with random weights in real shapes. */
static double missing_share(double share)
{
    return (1 - share) * (1 - share);
}

struct estimate estimate_make(const struct model_facts *m, const struct host_facts *a, double share)
{
    struct estimate e = {.share = share, .missing = missing_share(share)};
    double used = (double)(m->layers * m->experts_used) * (double)expert_mean(m);
    if (a->kernel_bytes_per_s > 0)
        e.compute_s = ((double)m->dense_read_bytes + used) / a->kernel_bytes_per_s +
                      (double)m->layers * a->layer_s;
    double rate = rate_at(a, estimate_depth(m, a, (double)m->experts_used * e.missing));
    if (e.missing > 0 && rate > 0)
        e.read_s = used * e.missing / rate;
    if (e.compute_s > 0 && (e.missing <= 0 || rate > 0)) {
        e.low = 1 / (e.compute_s + e.read_s);
        e.high = 1 / larger(e.compute_s, e.read_s);
    }
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
