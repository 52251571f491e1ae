/* SPDX-License-Identifier: Apache-2.0 */
/* The simulated cache: one layer of one pass after the other. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/policy/presets/planned.h"
#include "lib/sim/internal.h"

#include "lib/tensor/precision.h"

/* ---- making --------------------------------------------------------------------------------- */

static uint64_t largest_slot(const struct sim_config *k)
{
    uint64_t largest = 0, slots = 0;
    for (uint32_t t = 0; t < PRECISION__COUNT; t++)
        slots += k->precision_mask >> t & 1 ? (uint64_t)k->layers * k->experts : 0;
    for (uint64_t i = 0; i < slots; i++)
        largest = k->slot_bytes[i] > largest ? k->slot_bytes[i] : largest;
    return largest;
}

static int config_check(const struct sim_config *k, const struct precision_policy *policy,
                        struct error *error)
{
    uint32_t requested = precision_policy_mask(policy, k->precision_mask);
    uint64_t largest = 0;
    for (uint32_t t = 0; t < PRECISION__COUNT; t++)
        if ((requested & k->precision_mask) >> t & 1)
            largest = k->precision_bytes[t] > largest ? k->precision_bytes[t] : largest;
    if (k->slot_bytes)
        largest = largest_slot(k);
    if (k->knobs.routing == ROUTING_MASKED)
        return error_set(
            error, ERR_BAD_INPUT,
            "masked routing cannot be simulated: it changes the routing that the trace recorded");
    if (!(k->storage.bytes_per_s > 0) || !(k->storage.latency_ns >= 0) || k->storage.depth == 0)
        return error_set(
            error, ERR_BAD_INPUT,
            "storage device: read bandwidth must be above 0, latency 0 or more, queue depth 1 "
            "or more");
    const uint8_t *planned = precision_by_plan(policy->rule) ? k->plan.precision.high : NULL;
    for (uint32_t i = 0; planned && i < k->layers * k->experts; i++)
        if (expert_layers_has(&k->expert_layers, i / k->experts) &&
            (planned[i] >= PRECISION__COUNT || !(k->precision_mask >> planned[i] & 1)))
            return error_set(error, ERR_BAD_INPUT,
                             "the plan assigns a precision that the trace has no expert size for");
    if (k->capacity / k->top_k < largest)
        return error_set(
            error, ERR_BUDGET_TOO_SMALL,
            "capacity of %llu bytes is below the %u experts of %llu bytes that one layer needs",
            (unsigned long long)k->capacity, k->top_k, (unsigned long long)largest);
    return 0;
}

static bool make_residency(struct sim_cache *c)
{
    const struct sim_config *k = &c->config;
    struct residency_config r = {.layers = k->layers,
                                 .expert_layers = k->expert_layers,
                                 .experts = k->experts,
                                 .top_k = k->top_k,
                                 .precisions = c->precisions,
                                 .slot_bytes = k->slot_bytes,
                                 .shares = k->plan.shares};
    for (uint32_t i = 0; i < c->precisions; i++)
        r.precision_bytes[i] = k->precision_bytes[c->precision_of[i]];
    knobs_residency(&k->knobs, &c->precision_policy, k->precision_mask, &r);
    if (k->knobs.frequency == FREQUENCY_PROFILE)
        r.frequency = k->plan.tables.frequency;
    if (k->score) {
        r.eviction = EVICTION_SCORE;
        r.score = k->score;
        r.score_arg = k->score_arg;
    }
    c->residency = residency_create(&r);
    if (c->residency)
        residency_capacity(c->residency, k->capacity);
    return c->residency != NULL;
}

static bool make_arrays(struct sim_cache *c)
{
    uint32_t experts = c->config.experts;
    c->slot = calloc(c->slots, sizeof *c->slot);
    c->load = calloc(c->slots, sizeof *c->load);
    c->item = calloc(experts, sizeof *c->item);
    c->taken = calloc(experts, sizeof *c->taken);
    return sim_sequences_create(c) && c->slot && c->load && c->item && c->taken;
}

/* Without a plan, those of an expert are not known. */
struct precision_planned sim_planned_precision(const struct sim_cache *c, uint32_t layer,
                                               uint32_t expert)
{
    const struct planned_widths *widths = &c->config.plan.precision;
    bool int4 = c->config.precision_mask >> PRECISION_INT4 & 1;
    enum precision precision = int4 ? PRECISION_INT4 : c->precision_of[0];
    if (widths->high)
        return planned_precisions(widths, (size_t)layer * c->config.experts + expert);
    return (struct precision_planned){precision, precision};
}

static enum precision first_choice(const struct sim_cache *c, uint32_t layer, uint32_t expert)
{
    struct precision_choice choice;
    precision_choose(&c->precision_policy,
                     &(struct precision_input){.planned = sim_planned_precision(c, layer, expert),
                                               .predicted = true},
                     &choice);
    return choice.request;
}

/* False when the capacity does not suffice. */
static bool preload_one(struct sim_cache *c, uint32_t layer, uint32_t expert)
{
    uint32_t slot = sim_slot_of(c, layer, expert, first_choice(c, layer, expert));
    uint64_t resident = residency_resident_bytes(c->residency);
    if (resident + sim_bytes(c, slot) > c->config.capacity)
        return false;
    residency_insert(c->residency, slot, true);
    c->slot[slot].state = SIM_READY;
    return true;
}

/* Bytes of all experts at the precisions that are preloaded. */
static uint64_t preload_bytes(const struct sim_cache *c)
{
    const struct sim_config *k = &c->config;
    uint64_t bytes = 0;
    for (uint32_t l = 0; l < k->layers; l++)
        for (uint32_t e = 0; e < k->experts && expert_layers_has(&k->expert_layers, l); e++)
            bytes += sim_bytes(c, sim_slot_of(c, l, e, first_choice(c, l, e)));
    return bytes;
}

/* False when memory ran out. */
static bool preload_experts(struct sim_cache *c)
{
    const struct sim_config *k = &c->config;
    uint32_t all = k->layers * k->experts, *order;
    bool frequent = planned_preload_frequent(k->knobs.preload, k->capacity, preload_bytes(c));
    if (!frequent && k->knobs.preload != PRELOAD_ALL)
        return true;
    order = calloc(all, sizeof *order);
    if (!order)
        return false;
    planned_preload_order(frequent ? k->plan.tables.frequency : NULL, all, order);
    for (uint32_t i = 0; i < all; i++)
        if (expert_layers_has(&k->expert_layers, order[i] / k->experts) &&
            !preload_one(c, order[i] / k->experts, order[i] % k->experts))
            break;
    free(order);
    return true;
}

struct sim_cache *sim_cache_create(const struct sim_config *config, struct error *error)
{
    struct precision_policy policy;
    if (knobs_precision_policy(&config->knobs, config->precision_mask, config->precision_bytes,
                               &policy, error) != 0 ||
        config_check(config, &policy, error) != 0 || sim_gpu_check(config, error) != 0)
        return NULL;
    struct sim_cache *c = calloc(1, sizeof *c);
    if (!c) {
        error_set(error, ERR_NO_MEMORY, "out of memory (simulated cache)");
        return NULL;
    }
    c->magic = SIM_MAGIC;
    c->config = *config;
    c->precision_policy = policy;
    c->f = &c->stats[SIM_DECODE];
    for (uint32_t t = 0; t < PRECISION__COUNT; t++)
        if (config->precision_mask >> t & 1) {
            c->index_of[t] = c->precisions;
            c->precision_of[c->precisions++] = (enum precision)t;
        }
    c->slots = c->precisions * config->layers * config->experts;
    c->prediction_method = prediction_method_of(config->knobs.prediction);
    prefetch_limit_init(&c->limit, config->knobs.prefetch);
    if (!make_arrays(c) || !make_residency(c) || !preload_experts(c) || !sim_gpu_create(c)) {
        sim_cache_destroy(c);
        error_set(error, ERR_NO_MEMORY, "out of memory (simulated cache)");
        return NULL;
    }
    return c;
}

void sim_cache_destroy(struct sim_cache *c)
{
    if (!c)
        return;
    OBJ_CHECK(c, SIM_MAGIC);
    sim_sequences_destroy(c);
    sim_gpu_destroy(c);
    residency_destroy(c->residency);
    free(c->slot);
    free(c->load);
    free(c->item);
    free(c->taken);
    c->magic = 0;
    free(c);
}

/* ---- computing ------------------------------------------------------------------------------ */

/* Reserves space for misses in order of access; stops at the first that finds none. */
static void send_misses(struct sim_cache *c)
{
    for (uint32_t i = 0; i < c->items; i++) {
        struct sim_item *item = &c->item[i];
        if (item->state != SIM_ITEM_UNRESERVED)
            continue;
        sim_step_residency(c, 0); /* a DEMAND has the place of the first row */
        if (!sim_make_space(c, item->slot))
            return;
        residency_insert(c->residency, item->slot, false);
        c->f->demands++;
        c->f->demand_bytes += sim_bytes(c, item->slot);
        sim_load_add(c, item->slot, true);
        item->state = SIM_ITEM_SENT;
    }
}

/* Notes what has arrived. *left: something is not computed. */
static void note_ready(struct sim_cache *c, bool *left)
{
    *left = false;
    for (uint32_t i = 0; i < c->items; i++) {
        struct sim_item *item = &c->item[i];
        if (item->state == SIM_ITEM_SENT && c->slot[item->slot].state == SIM_READY)
            item->state = SIM_ITEM_READY;
        *left |= item->state != SIM_ITEM_DONE;
    }
}

static uint32_t take_one(struct sim_cache *c)
{
    for (uint32_t i = 0; i < c->items; i++)
        if (c->item[i].state == SIM_ITEM_READY) {
            c->taken[0] = &c->item[i];
            return 1;
        }
    return 0;
}

double sim_expert_ns(const struct sim_cache *c, uint32_t slot)
{
    const struct sim_compute *k = &c->config.compute;
    enum precision precision = c->precision_of[slot / (c->config.layers * c->config.experts)];
    double ns = k->precision_ns[precision] > 0 ? k->precision_ns[precision] : k->expert_ns;
    if (c->config.slot_bytes)
        ns *= (double)sim_bytes(c, slot) / (double)c->config.precision_bytes[precision];
    return ns;
}

/* On the CPU. */
static double compute_one(struct sim_cache *c, const struct sim_item *item)
{
    double ns = sim_for_tokens(c, sim_expert_ns(c, item->slot), item->tokens);
    c->f->cpu_layer_uses += c->gpus != NULL;
    c->f->compute_ns += sim_work(c, ns);
    return 0;
}

static void end_taken(struct sim_cache *c, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        c->taken[i]->state = SIM_ITEM_DONE;
        c->slot[c->taken[i]->slot].flags &= (uint8_t)~SIM_PINNED;
    }
}

double sim_cache_compute(struct sim_cache *c)
{
    OBJ_CHECK(c, SIM_MAGIC);
    double stall = 0;
    bool left;
    for (uint32_t i = 0; i < c->steps; i++)
        sim_forget_hints(c, c->running[i], c->step[i].layer, true);
    send_misses(c);
    for (;;) {
        note_ready(c, &left);
        if (!left)
            break;
        uint32_t ready = c->gpu ? sim_gpu_take(c) : take_one(c);
        if (ready > 0) {
            stall += c->gpu ? sim_gpu_compute(c, c->taken, ready) : compute_one(c, c->taken[0]);
            end_taken(c, ready);
            send_misses(c);
        } else {
            double from = c->now;
            bool moved = sim_advance_event(c);
            sl_assert(moved); /* a load is always in flight: capacity for top_k was checked */
            stall += c->now - from;
        }
    }
    c->f->stall_ns += stall;
    return stall;
}

void sim_cache_token(struct sim_cache *c)
{
    OBJ_CHECK(c, SIM_MAGIC);
    uint32_t sequences = c->sequences_in_pass;
    for (uint32_t i = 0; i < sequences; i++)
        c->in_pass[i]->in_pass = false;
    c->sequences_in_pass = 0;
    c->token += sequences > 0; /* as the engine: a pass of several counts once */
    for (uint32_t i = 0; i < sequences && !sim_in_prefill(c); i++)
        prefetch_limit_token(&c->limit, (c->now - c->pass_start) / sequences);
}

/* ---- statistics ----------------------------------------------------------------------------- */

void sim_cache_count_table(struct sim_cache *c, enum sim_phase phase, uint64_t rows, uint64_t pages,
                           uint64_t reads)
{
    struct sim_stats *f = &c->stats[phase];
    f->table_rows += rows;
    f->table_pages += pages;
    f->table_reads += reads;
    f->table_bytes += reads * PAGE_BYTES;
}

double sim_cache_now(const struct sim_cache *c)
{
    return c->now;
}

const struct sim_stats *sim_cache_stats(const struct sim_cache *c, enum sim_phase phase)
{
    return &c->stats[phase];
}

void sim_cache_reset_stats(struct sim_cache *c)
{
    memset(c->stats, 0, sizeof c->stats);
}

bool sim_cache_resident(const struct sim_cache *c, uint32_t layer, uint32_t expert)
{
    for (uint32_t i = 0; i < c->precisions; i++)
        if (c->slot[sim_slot_of(c, layer, expert, c->precision_of[i])].state == SIM_READY)
            return true;
    return false;
}

struct residency *sim_cache_residency(struct sim_cache *c)
{
    return c->residency;
}
