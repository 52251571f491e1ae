/* SPDX-License-Identifier: Apache-2.0 */
/* Takes the values that a plan has for a preset, as settings. */
#include "lib/policy/presets/planned.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/model/limits.h"
#include "lib/tensor/precision.h"

#define SETTINGS_BYTES 512
#define MIXED          "mixed-two"
#define JOINT          "mixed-two-resident-first"

enum planned_kind { NUMBER, WHOLE, ON_OFF, A_PRECISION };

/* Parameters that a plan sets, by preset. */
static const struct {
    const char *preset, *knob;
    enum plan_scalar scalar;
    enum planned_kind kind;
} table[] = {
    {"hobbit", "t1", PLAN_hobbit_t1, NUMBER},
    {"hobbit", "t2", PLAN_hobbit_t2, NUMBER},
    {"hobbit", "skip_renormalise", PLAN_hobbit_skip_renormalise, ON_OFF},
    {"hobbit", "w_lru", PLAN_hobbit_w_lru, NUMBER},
    {"hobbit", "w_lfu", PLAN_hobbit_w_lfu, NUMBER},
    {"hobbit", "w_lhu", PLAN_hobbit_w_lhu, NUMBER},
    {"hobbit", "w_fld", PLAN_hobbit_w_fld, NUMBER},
    {"hobbit", "fld_next", PLAN_hobbit_fld_next, ON_OFF},
    {"auto-two-precision", "t1", PLAN_hobbit_t1, NUMBER},
    {"auto-two-precision", "t2", PLAN_hobbit_t2, NUMBER},
    {"auto-two-precision", "skip_renormalise", PLAN_hobbit_skip_renormalise, ON_OFF},
    {"auto-two-precision-noprefetch", "t1", PLAN_hobbit_t1, NUMBER},
    {"auto-two-precision-noprefetch", "t2", PLAN_hobbit_t2, NUMBER},
    {"auto-two-precision-noprefetch", "skip_renormalise", PLAN_hobbit_skip_renormalise, ON_OFF},
    {"auto-two-precision-adaptive", "t1", PLAN_hobbit_t1, NUMBER},
    {"auto-two-precision-adaptive", "t2", PLAN_hobbit_t2, NUMBER},
    {"auto-two-precision-adaptive", "skip_renormalise", PLAN_hobbit_skip_renormalise, ON_OFF},
    {MIXED, "t1", PLAN_mixed_t1, NUMBER},
    {MIXED, "t2", PLAN_mixed_t2, NUMBER},
    {"mixed-two-adaptive", "t1", PLAN_mixed_t1, NUMBER},
    {"mixed-two-adaptive", "t2", PLAN_mixed_t2, NUMBER},
    {JOINT, "t1", PLAN_joint_t1, NUMBER},
    {JOINT, "t2", PLAN_joint_t2, NUMBER},
    {JOINT, "nats", PLAN_joint_nats, NUMBER},
    {"drop", "t2", PLAN_drop_t2, NUMBER},
    {"fate", "boundary", PLAN_fate_boundary, WHOLE},
    {"eap", "boundary", PLAN_fate_boundary, WHOLE},
    {"fate", "low_fraction", PLAN_fate_prefill_int2, NUMBER},
    {"fate", "high", PLAN_fate_high, A_PRECISION},
    {"fate", "low", PLAN_fate_low, A_PRECISION},
    {"swapmoe", "interval", PLAN_swap_interval, WHOLE},
    {"auto-resident-first", "nats", PLAN_reroute_nats, NUMBER},
    {"auto-resident-first-noprefetch", "nats", PLAN_reroute_nats, NUMBER},
};

static const char *value_text(enum planned_kind kind, double value, char buf[32])
{
    switch (kind) {
    case ON_OFF: return value > 0 ? "on" : "off";
    case A_PRECISION: return precision_name((enum precision)value);
    case WHOLE: snprintf(buf, 32, "%.0f", value); break;
    case NUMBER: snprintf(buf, 32, "%.9g", value); break;
    }
    return buf;
}

/* The values that a plan has for this preset as "t1=0.6,t2=0.9,...", or "". */
static void settings_of(const struct plan *plan, const char *preset, char buf[SETTINGS_BYTES])
{
    size_t used = 0;
    buf[0] = 0;
    for (size_t i = 0; i < ARRAY_LEN(table) && used < SETTINGS_BYTES; i++) {
        char value[32];
        if (strcmp(table[i].preset, preset) != 0 || !plan_knows(plan, table[i].scalar))
            continue;
        used += (size_t)snprintf(buf + used, SETTINGS_BYTES - used, "%s%s=%s", used ? "," : "",
                                 table[i].knob,
                                 value_text(table[i].kind, plan->scalar[table[i].scalar], value));
    }
}

/* mixed-two and cache-aware routing, planned together. */
static bool is_joint(const struct plan *plan, const struct knobs *k)
{
    return plan && k->precision == PRECISION_RULE_MIXED_TWO &&
           k->routing == ROUTING_RESIDENT_FIRST && plan_joint_high(plan);
}

int planned_knobs(const struct plan *plan, const char *preset, const char *overrides,
                  struct knobs *k, struct error *error)
{
    char settings[SETTINGS_BYTES] = "";
    if (plan)
        settings_of(plan, preset, settings);
    if (knobs_resolve(preset, settings, overrides, k, error) != 0)
        return -1;
    if (!plan || k->precision != PRECISION_RULE_MIXED_TWO)
        return 0;
    settings_of(plan, is_joint(plan, k) ? JOINT : MIXED, settings); /* as planned_widths */
    return knobs_resolve(preset, settings, overrides, k, error);
}

struct planned_widths planned_widths(const struct plan *plan, const struct knobs *k)
{
    struct planned_widths w = {NULL, NULL};
    if (plan && k->precision == PRECISION_RULE_EDGEMOE)
        w.high = plan_width(plan);
    if (!plan || k->precision != PRECISION_RULE_MIXED_TWO)
        return w;
    if (is_joint(plan, k))
        return (struct planned_widths){plan_joint_high(plan), plan_joint_low(plan)};
    return (struct planned_widths){plan_mixed_high(plan), plan_mixed_low(plan)};
}

/* v[l] = wanted[l] * total / sum, rounded down, at least top_k. Returns their sum. */
static uint64_t scale_down(const uint32_t *wanted, const struct model_hparams *h, uint64_t total,
                           uint64_t sum, uint32_t *v)
{
    uint64_t given = 0;
    for (uint32_t l = 0; l < h->layers; l++) {
        if (!hparams_layer_has_experts(h, l)) {
            v[l] = 0;
            continue;
        }
        uint32_t w = wanted ? wanted[l] : h->experts;
        v[l] = (uint32_t)(w * total / sum);
        v[l] = v[l] < h->experts_used ? h->experts_used : v[l];
        given += v[l];
    }
    return given;
}

/* The next layer to be rounded up; UINT32_MAX: none. Layers that were raised to top_k or rounded up
 * already have more than their exact share. */
static uint32_t largest_remainder(const uint32_t *wanted, const struct model_hparams *h,
                                  uint64_t total, uint64_t sum, const uint32_t *v)
{
    uint32_t best = UINT32_MAX;
    uint64_t remainder = 0;
    for (uint32_t l = hparams_next_experts(h, 0); l < h->layers;
         l = hparams_next_experts(h, l + 1)) {
        uint64_t exact = (wanted ? wanted[l] : h->experts) * total;
        if (exact > v[l] * sum && exact - v[l] * sum > remainder) {
            best = l;
            remainder = exact - v[l] * sum;
        }
    }
    return best;
}

int planned_virtual(const struct plan *plan, const struct model_hparams *h, uint32_t capacity,
                    uint32_t *v, struct error *error)
{
    const uint32_t *wanted = plan ? plan_virtual_experts(plan) : NULL;
    uint64_t sum = 0;
    for (uint32_t l = hparams_next_experts(h, 0); l < h->layers; l = hparams_next_experts(h, l + 1))
        sum += wanted ? wanted[l] : h->experts;
    if (sum == 0) { /* a plan without shares */
        wanted = NULL;
        sum = (uint64_t)hparams_expert_layers(h) * h->experts;
    }
    if (capacity / hparams_expert_layers(h) < h->experts_used)
        return error_set(
            error, ERR_BAD_INPUT,
            "masked routing needs %u resident experts in each of %u layers, but only %u "
            "experts fit; raise the budget",
            h->experts_used, hparams_expert_layers(h), capacity);
    uint64_t total = sum > capacity ? capacity : sum;
    uint64_t given = scale_down(wanted, h, total, sum, v);
    for (uint32_t l; given < total && (l = largest_remainder(wanted, h, total, sum, v)) < h->layers;
         given++)
        v[l]++;
    /* The largest layers give up what raising others to top-k costs. */
    while (given > capacity) {
        uint32_t largest = hparams_next_experts(h, 0); /* layers without experts have 0 */
        for (uint32_t l = largest + 1; l < h->layers; l++)
            largest = v[l] > v[largest] ? l : largest;
        v[largest]--;
        given--;
    }
    return 0;
}

/* The largest outside the set; ties: lower index. Unknown (NaN) is below every value. */
static uint32_t best_outside(const float *key, const uint8_t *mask, uint32_t experts)
{
    uint32_t best = UINT32_MAX;
    for (uint32_t e = 0; e < experts; e++)
        if (!mask[e] && (best == UINT32_MAX ||
                         (key && (key[e] > key[best] || (isnan(key[best]) && !isnan(key[e]))))))
            best = e;
    return best;
}

/* Sets of the v[l] largest values of every layer; key NULL: the lowest numbers. */
static void mark_largest(const float *key, const struct model_hparams *h, const uint32_t *v,
                         uint8_t *mask)
{
    memset(mask, 0, (size_t)h->layers * h->experts);
    for (uint32_t l = 0; l < h->layers; l++) {
        uint8_t *set = mask + (size_t)l * h->experts;
        for (uint32_t i = 0; i < v[l]; i++)
            set[best_outside(key ? key + (size_t)l * h->experts : NULL, set, h->experts)] = 1;
    }
}

int planned_mask(const struct plan *plan, enum routing_mask kind, const struct model_hparams *h,
                 uint32_t capacity, uint8_t *mask, struct error *error)
{
    const float *key = NULL;
    uint32_t v[MODEL_LAYERS_MAX];
    if (plan)
        key = kind == MASK_NORM ? plan_norm(plan) : plan_frequency(plan);
    if (!key)
        return error_set(
            error, ERR_BAD_INPUT,
            "mask=%s needs a profile with these values: run 'sluice profile', use --plan FILE",
            kind == MASK_NORM ? "norm" : "frequency");
    if (planned_virtual(plan, h, capacity, v, error) != 0)
        return -1;
    mark_largest(key, h, v, mask);
    return 0;
}

static int by_frequency(const void *a, const void *b, void *frequency)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    const float *f = frequency;
    float fx = f && !isnan(f[x]) ? f[x] : 0, fy = f && !isnan(f[y]) ? f[y] : 0;
    if (fx != fy)
        return fx > fy ? -1 : 1;
    return x < y ? -1 : x > y;
}

void planned_preload_order(const float *frequency, uint32_t count, uint32_t *order)
{
    for (uint32_t i = 0; i < count; i++)
        order[i] = i;
    qsort_r(order, count, sizeof *order, by_frequency, (void *)(uintptr_t)frequency);
}

bool planned_preload_frequent(enum preload preload, uint64_t capacity_bytes, uint64_t experts_bytes)
{
    if (preload == PRELOAD_MOST)
        return capacity_bytes / 2 >= experts_bytes / 3;
    return preload == PRELOAD_FREQUENCY;
}

void planned_frequent_sets(const struct plan *plan, const struct model_hparams *h,
                           const uint32_t *keep, uint8_t *set)
{
    mark_largest(plan ? plan_frequency(plan) : NULL, h, keep, set);
}

int planned_swap_sets(const struct plan *plan, const struct model_hparams *h, uint32_t capacity,
                      uint32_t *keep, uint8_t *set, struct error *error)
{
    const uint8_t *resident = plan ? plan_resident(plan) : NULL;
    uint32_t spare = capacity > 0 && capacity < hparams_expert_layers(h) * h->experts;
    if (planned_virtual(plan, h, capacity - spare, keep, error) != 0)
        return -1;
    planned_frequent_sets(plan, h, keep, set);
    for (uint32_t l = 0; resident && l < h->layers; l++) {
        const uint8_t *named = resident + (size_t)l * h->experts;
        uint32_t count = 0;
        for (uint32_t e = 0; e < h->experts; e++)
            count += named[e] != 0;
        if (count == keep[l]) /* planned for this capacity */
            memcpy(set + (size_t)l * h->experts, named, h->experts);
    }
    return 0;
}
