/* SPDX-License-Identifier: Apache-2.0 */
/* The experts step of a layer: which experts are needed, the order of pins, and computing experts
 * as they become READY. A token that is decoded alone has K items, all pinned at once. */
#include "lib/core/internal.h"

#include <string.h>

#include "lib/base/assert.h"
#include "lib/model/limits.h"
#include "lib/policy/access/precision.h"

static uint32_t number_of(const struct core *c, const struct expert_item *item)
{
    return (uint32_t)(item - c->scratch.items);
}

/* The item of a pair. before: the sum of the gate weights of better ranks. */
static struct expert_item *item_of(struct core *c, size_t pair, float before)
{
    const struct route *route = &c->pass.route[pair];
    uint32_t row = (uint32_t)(pair / c->hp.experts_used), form = 0;
    if (c->forms > 1)
        form = c->source.form(c->source.self, &c->pass.step, row, route, before);
    sl_assert(form < c->forms);
    c->scratch.item_of[pair] = route->expert * c->forms + form;
    return &c->scratch.items[c->scratch.item_of[pair]];
}

/* Groups the (token, rank) pairs of the pass by expert, and by form where a row chooses one: items
 * and pair lists. Returns the number of items. */
static uint32_t group_pairs(struct core *c)
{
    uint32_t items = c->hp.experts * c->forms, k = c->hp.experts_used;
    size_t pairs = (size_t)c->pass.step.rows * k;
    float before[MODEL_TOP_K_MAX];
    sl_assert(k <= MODEL_TOP_K_MAX);
    memset(c->scratch.items, 0, items * sizeof *c->scratch.items);
    for (size_t i = 0; i < pairs; i++) {
        uint32_t rank = (uint32_t)(i % k);
        bool prefill = c->scratch.source_row[i / k].prefill;
        if (rank == 0)
            precision_weights_before(&c->pass.route[i].weight, ROUTE_STRIDE, k, before);
        struct expert_item *item = item_of(c, i, before[rank]);
        item->rank = item->tokens == 0 || rank < item->rank ? rank : item->rank;
        item->prefill = prefill && (item->tokens == 0 || item->prefill);
        item->weight =
            c->pass.route[i].weight > item->weight ? c->pass.route[i].weight : item->weight;
        if (item->tokens == 0 || before[rank] < item->weight_before)
            item->weight_before = before[rank];
        item->tokens++;
    }
    uint32_t base = 0, count = 0;
    for (uint32_t e = 0, expert = 0, form = 0; e < items; e++) {
        c->scratch.items[e].expert = expert;
        c->scratch.items[e].form = form;
        form = form + 1 < c->forms ? form + 1 : 0;
        expert += form == 0;
        c->scratch.items[e].row = c->scratch.pair_row + base;
        c->scratch.pair_base[e] = base;
        base += c->scratch.items[e].tokens;
        count += c->scratch.items[e].tokens > 0;
    }
    for (size_t i = 0; i < pairs; i++) { /* pair_base advances to the item's end... */
        uint32_t pair = c->scratch.pair_base[c->scratch.item_of[i]]++;
        c->scratch.pair_of[i] = pair;
        c->scratch.pair_row[pair] = (uint32_t)(i / k);
    }
    for (uint32_t e = 0; e < items; e++) /* ...and is reset */
        c->scratch.pair_base[e] -= c->scratch.items[e].tokens;
    return count;
}

static void rank_popularity(struct core *c)
{
    uint32_t n = 0;
    for (uint32_t e = 0; e < c->hp.experts * c->forms; e++)
        if (c->scratch.items[e].tokens > 0)
            c->scratch.order[n++] =
                (struct prefill_item){.expert = e, .tokens = c->scratch.items[e].tokens};
    prefill_order_of(PREFILL_ORDER_POPULARITY)(c->scratch.order, n);
    for (uint32_t i = 0; i < n; i++)
        c->scratch.items[c->scratch.order[i].expert].popularity = precision_popularity(i, n);
}

/* The best rank of all rows, then the next one, in the order of the rows. */
static void order_by_rank(struct core *c)
{
    uint32_t n = 0, k = c->hp.experts_used;
    for (uint32_t rank = 0; rank < k; rank++)
        for (uint32_t r = 0; r < c->pass.step.rows; r++) {
            struct expert_item *item = &c->scratch.items[c->scratch.item_of[(size_t)r * k + rank]];
            if (!item->queued)
                c->scratch.queue[n++] = item;
            item->queued = true;
        }
}

/* Decode: by rank. Prefill: resident experts first, the rest by policy. */
static void order_items(struct core *c)
{
    uint32_t n = 0, missing = 0;
    if (!c->pass.step.prefill) {
        order_by_rank(c);
        return;
    }
    rank_popularity(c);
    for (uint32_t e = 0; e < c->hp.experts * c->forms; e++) {
        if (c->scratch.items[e].tokens == 0)
            continue;
        if (c->source.resident(c->source.self, c->pass.step.layer, c->scratch.items[e].expert))
            c->scratch.queue[n++] = &c->scratch.items[e];
        else
            c->scratch.order[missing++] =
                (struct prefill_item){.expert = e, .tokens = c->scratch.items[e].tokens};
    }
    c->prefill_order(c->scratch.order, missing);
    for (uint32_t i = 0; i < missing; i++)
        c->scratch.queue[n++] = &c->scratch.items[c->scratch.order[i].expert];
}

/* Pins up to the limit. The window is refilled by quarters: few DEMANDs, and loads continue while
 * experts are computed. */
static void fill_window(struct core *c, struct expert_window *w)
{
    uint32_t first = w->pinned;
    if (w->bytes > w->pin_limit / 4 * 3)
        return;
    while (w->pinned < w->count && (w->bytes == 0 || w->bytes + w->slot <= w->pin_limit)) {
        w->bytes += w->slot;
        w->pinned++;
    }
    if (w->pinned > first)
        c->source.pin(c->source.self, &c->pass.step, c->scratch.queue + first, w->pinned - first);
    for (uint32_t i = first; i < w->pinned; i++)
        if (c->scratch.queue[i]->state == ITEM_SKIPPED) {
            w->skipped++;
            w->bytes -= w->slot;
        }
}

static uint64_t content_of(const struct core *c, uint32_t layer, const struct expert_item *item,
                           uint32_t number)
{
    return device_content(item->precision, c->hp.layers, layer, c->hp.experts, item->expert,
                          number);
}

static struct device_matrix on_device(struct core *c, const struct expert_item *item,
                                      uint32_t number)
{
    return device_lend(c->device, &item->matrix[number],
                       content_of(c, c->pass.step.layer, item, number));
}

static struct device_job job_of(struct core *c, const struct expert_item *item, uint32_t inner_base)
{
    const struct core_layer *l = core_layer_now(c);
    struct device_job job = {.rows = item->tokens,
                             .pair_base = c->scratch.pair_base[number_of(c, item)],
                             .inner_base = inner_base};
    for (int m = 0; m < EXPERT__COUNT; m++) {
        job.matrix[m] = on_device(c, item, (uint32_t)m);
        job.scale[m] = device_floats_at(l->expert_scales[m], item->expert);
        job.bias[m] =
            device_floats_at(l->expert_bias[m], (uint64_t)item->expert * item->matrix[m].n);
    }
    return job;
}

/* Takes the READY items of the window as jobs, up to the capacity of the inner buffers. */
static uint32_t take_ready(struct core *c, const struct expert_window *w)
{
    uint32_t rows = 0;
    c->pass.job_count = 0;
    for (uint32_t i = w->done; i < w->pinned; i++) {
        struct expert_item *item = c->scratch.queue[i];
        if (item->state != ITEM_READY || rows + item->tokens > c->scratch.inner_rows)
            continue;
        c->scratch.job_item[c->pass.job_count] = number_of(c, item);
        c->scratch.jobs[c->pass.job_count++] = job_of(c, item, rows);
        rows += item->tokens;
    }
    return c->pass.job_count;
}

struct device_expert core_expert_of(const struct core *c, uint32_t layer,
                                    const struct expert_item *item)
{
    struct device_expert expert;
    for (uint32_t m = 0; m < EXPERT__COUNT; m++) {
        expert.matrix[m] = item->matrix[m];
        expert.content[m] = content_of(c, layer, item, m);
    }
    return expert;
}

/* Gives the device those experts that are predicted for the next layer and can serve. */
static void prefetch_next(struct core *c)
{
    const struct route *routes = c->pass.route + c->hp.experts_used;
    struct expert_item item[MODEL_TOP_K_MAX];
    struct device_expert expert[MODEL_TOP_K_MAX];
    struct expert_step next = c->pass.step;
    float before[MODEL_TOP_K_MAX];
    uint32_t count = 0;
    next.layer = core_next_layer(c);
    next.routes = NULL;
    precision_weights_before(&routes->weight, ROUTE_STRIDE, c->hp.experts_used, before);
    for (uint32_t rank = 0; rank < c->hp.experts_used; rank++) {
        item[count] = (struct expert_item){.expert = routes[rank].expert,
                                           .tokens = 1,
                                           .weight = routes[rank].weight,
                                           .weight_before = before[rank],
                                           .rank = rank};
        if (!c->source.pin_ready(c->source.self, &next, &item[count]))
            continue;
        expert[count] = core_expert_of(c, next.layer, &item[count]);
        count++;
    }
    if (count > 0)
        c->device->ops->prefetch(c->device, expert, count);
    for (uint32_t i = 0; i < count; i++)
        c->source.unpin(c->source.self, &next, &item[i]);
}

/* Whether an expert of the layer is to be computed after those of the jobs: its upload comes
 * first. */
static bool any_left(const struct core *c, const struct expert_window *w)
{
    for (uint32_t i = w->done; i < w->count; i++)
        if (c->scratch.queue[i]->state == ITEM_QUEUED || c->scratch.queue[i]->state == ITEM_WAITED)
            return true;
    return false;
}

static void end_item(struct core *c, struct expert_window *w, struct expert_item *item)
{
    c->source.unpin(c->source.self, &c->pass.step, item);
    item->state = ITEM_DONE;
    w->bytes -= w->slot;
}

/* The experts of the jobs are given back: the device has read them. */
static void end_jobs(struct core *c, struct expert_window *w)
{
    device_give_back(c->device);
    for (uint32_t i = 0; i < c->pass.job_count; i++)
        end_item(c, w, &c->scratch.items[c->scratch.job_item[i]]);
}

static void give_up(struct core *c, struct expert_window *w)
{
    for (uint32_t i = w->done; i < w->pinned; i++)
        if (c->scratch.queue[i]->state == ITEM_WAITED || c->scratch.queue[i]->state == ITEM_READY)
            end_item(c, w, c->scratch.queue[i]);
}

static bool any_lost(const struct core *c, const struct expert_window *w)
{
    for (uint32_t i = w->done; i < w->pinned; i++)
        if (c->scratch.queue[i]->state == ITEM_LOST)
            return true;
    return false;
}

static struct expert_window open_window(struct core *c)
{
    struct expert_window w = {.count = group_pairs(c),
                              .slot = c->expert_slot_bytes[c->pass.step.layer]};
    uint64_t lent = c->device->lent_max > 0 ? c->device->lent_max * w.slot : UINT64_MAX;
    /* the experts of one token always fit */
    bool one = !c->pass.step.prefill && w.count <= c->hp.experts_used;
    w.pin_limit = one ? UINT64_MAX : c->source.pin_limit(c->source.self);
    w.pin_limit = lent < w.pin_limit ? lent : w.pin_limit;
    order_items(c);
    fill_window(c, &w);
    return w;
}

static bool over(const struct expert_item *item)
{
    return item->state == ITEM_DONE || item->state == ITEM_SKIPPED;
}

void core_experts_open(struct core *c)
{
    c->pass.window = open_window(c);
    c->pass.window.open = true;
}

int core_experts(struct core *c, struct error *error)
{
    struct expert_window w = c->pass.window.open ? c->pass.window : open_window(c);
    c->pass.window.open = false;
    while (any_lost(c, &w)) {
        give_up(c, &w);
        core_route_again(c);
        w = open_window(c);
    }
    bool started = false, summed = false;
    while (w.done < w.count) {
        fill_window(c, &w);
        if (!started) { /* the first experts are loading meanwhile */
            core_publish_next(c);
            core_while_reading(c);
        }
        started = true;
        while (w.done < w.pinned && over(c->scratch.queue[w.done]))
            w.done++;
        if (w.done == w.pinned)
            continue;
        if (take_ready(c, &w) > 0) {
            /* One token, all READY: the down phase also sums, for row 0 only. */
            summed = c->pass.step.rows == 1 && c->pass.job_count == w.count - w.skipped;
            core_compute_jobs(c, summed);
            if (core_predicts_next(c) && !any_left(c, &w))
                prefetch_next(c); /* while the device computes these */
            end_jobs(c, &w);
        } else if (c->source.wait(c->source.self, &c->pass.step, c->scratch.queue + w.done,
                                  w.pinned - w.done, error) != 0) {
            give_up(c, &w);
            return -1;
        }
    }
    if (!summed)
        core_sum_ranks(c);
    return 0;
}
