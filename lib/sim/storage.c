/* SPDX-License-Identifier: Apache-2.0 */
/* The modelled storage device: loads in flight, and time. */
#include <math.h>
#include <string.h>

#include "lib/sim/internal.h"

void sim_load_add(struct sim_cache *c, uint32_t slot, bool demand)
{
    sl_assert(c->loads < c->slots);
    c->slot[slot].state = SIM_LOADING;
    c->load[c->loads++] =
        (struct sim_load){.slot = slot, .demand = demand, .bytes_left = (double)sim_bytes(c, slot)};
    if (demand)
        c->demands_open++;
    else
        c->prefetches_open++;
}

static struct sim_load *load_of(struct sim_cache *c, uint32_t slot)
{
    for (uint32_t i = 0; i < c->loads; i++)
        if (c->load[i].slot == slot)
            return &c->load[i];
    sl_panic("slot %u is not being loaded", slot);
}

static void take_out(struct sim_cache *c, struct sim_load *load)
{
    uint32_t at = (uint32_t)(load - c->load);
    double read = (double)sim_bytes(c, load->slot) - load->bytes_left;
    if (load->demand)
        c->demands_open--;
    else
        c->prefetches_open--;
    if (!load->demand)
        c->f->prefetch_bytes += (uint64_t)read;
    memmove(load, load + 1, (c->loads - at - 1) * sizeof *load);
    c->loads--;
}

/* The bytes read so far are lost. Prefetches only. */
void sim_load_cancel(struct sim_cache *c, uint32_t slot)
{
    struct sim_load *load = load_of(c, slot);
    sl_assert(!load->demand);
    c->f->unused_bytes += (uint64_t)((double)sim_bytes(c, slot) - load->bytes_left);
    take_out(c, load);
    c->slot[slot].state = SIM_ABSENT;
}

void sim_load_promote(struct sim_cache *c, uint32_t slot)
{
    struct sim_load *load = load_of(c, slot);
    if (load->demand)
        return;
    c->f->prefetch_bytes += (uint64_t)((double)sim_bytes(c, slot) - load->bytes_left);
    c->f->demand_bytes += (uint64_t)load->bytes_left;
    load->demand = true;
    c->prefetches_open--;
    c->demands_open++;
}

/* The queue has `depth` entries; prefetches in them do not block a demand. */
static void issue(struct sim_cache *c)
{
    for (int demand = 1; demand >= 0; demand--) {
        uint32_t issued = 0;
        for (uint32_t i = 0; i < c->loads; i++)
            issued += c->load[i].issued && (!demand || c->load[i].demand);
        for (uint32_t i = 0; i < c->loads && issued < c->config.storage.depth; i++) {
            struct sim_load *load = &c->load[i];
            if (load->issued || load->demand != (demand == 1))
                continue;
            load->issued = true;
            load->ready_ns = c->now + c->config.storage.latency_ns;
            issued++;
        }
    }
}

/* The load that transfers bytes now: the first ready demand, else the first ready prefetch. */
static struct sim_load *flowing(struct sim_cache *c)
{
    struct sim_load *best = NULL;
    for (uint32_t i = 0; i < c->loads; i++) {
        struct sim_load *load = &c->load[i];
        if (load->issued && load->ready_ns <= c->now && (!best || (load->demand && !best->demand)))
            best = load;
    }
    return best;
}

static double next_event(const struct sim_cache *c, const struct sim_load *flow, double rate)
{
    double next = INFINITY;
    if (flow)
        next = c->now + flow->bytes_left * 1e9 / rate;
    for (uint32_t i = 0; i < c->loads; i++)
        if (c->load[i].issued && c->load[i].ready_ns > c->now && c->load[i].ready_ns < next)
            next = c->load[i].ready_ns;
    for (uint32_t i = 0; i < c->sequences_in_pass; i++)
        for (uint32_t l = 0; l < c->config.layers; l++) {
            const struct sim_hints *h = &c->in_pass[i]->hints[l];
            if (h->at < h->count && h->valid_ns > c->now && h->valid_ns < next)
                next = h->valid_ns;
        }
    return next;
}

/* What runs until a time, or with work_ns > 0 until so much is computed. */
struct span {
    double until_ns, work_ns;
};

static double rate_now(const struct sim_cache *c, bool computing)
{
    const struct sim_storage *k = &c->config.storage;
    return computing && k->busy_bytes_per_s > 0 ? k->busy_bytes_per_s : k->bytes_per_s;
}

/* How long it takes to compute for a nanosecond. */
static double slowdown_now(const struct sim_cache *c, const struct sim_load *flow)
{
    return flow && c->config.storage.slowdown > 1 ? c->config.storage.slowdown : 1;
}

/* Advances to the next event or to the end of the span. Returns false when no event came first. */
static bool one_step(struct sim_cache *c, struct span *span)
{
    sim_prefetch(c);
    issue(c);
    struct sim_load *flow = flowing(c);
    double rate = rate_now(c, span->work_ns > 0), from = c->now, slowdown = slowdown_now(c, flow);
    if (span->work_ns > 0)
        span->until_ns = from + span->work_ns * slowdown;
    double next = next_event(c, flow, rate);
    if (!(next <= span->until_ns)) {
        if (flow)
            flow->bytes_left -= (span->until_ns - from) * rate / 1e9;
        if (isfinite(span->until_ns))
            c->now = span->until_ns;
        return false;
    }
    bool whole = flow && next >= from + flow->bytes_left * 1e9 / rate;
    if (whole) {
        flow->bytes_left = 0;
        c->slot[flow->slot].state = SIM_READY;
        take_out(c, flow);
    } else if (flow) {
        flow->bytes_left -= (next - from) * rate / 1e9;
    }
    c->now = next;
    if (span->work_ns > 0)
        span->work_ns -= (next - from) / slowdown;
    return true;
}

void sim_advance(struct sim_cache *c, double until_ns)
{
    struct span span = {.until_ns = until_ns};
    while (one_step(c, &span))
        ;
}

double sim_work(struct sim_cache *c, double ns)
{
    const struct sim_storage *k = &c->config.storage;
    struct span span = {.until_ns = c->now, .work_ns = ns};
    double from = c->now;
    bool more = true;
    if (!(k->slowdown > 1) && !(k->busy_bytes_per_s > 0)) { /* one addition rounds less */
        sim_advance(c, from + ns);
        return ns;
    }
    while (more) {
        more = one_step(c, &span);
        if (more && !(span.work_ns > 0)) /* it ended with the event */
            span = (struct span){.until_ns = c->now};
    }
    return c->now - from;
}

bool sim_advance_event(struct sim_cache *c)
{
    return one_step(c, &(struct span){.until_ns = INFINITY});
}
