/* SPDX-License-Identifier: Apache-2.0 */
/* Parses the options of programs that simulate. */
#include "lib/sim/options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/bytes.h"
#include "lib/model/limits.h"
#include "lib/policy/gpu/places.h"

#define SLOTS_MAX 1e9
#define US_MAX    1e9

int sim_option_number(const char *name, const char *text, double min, double max, double *value,
                      struct error *error)
{
    char *end;
    double x = strtod(text, &end);
    if (end == text || (*end && strcmp(end, "%") != 0) || !(x >= min && x <= max))
        return error_set(error, ERR_BAD_INPUT, "--%s: '%.60s' is not a number from %g to %g", name,
                         text, min, max);
    *value = x;
    return 0;
}

int sim_option_bandwidth(const char *name, const char *text, double *bytes_per_s,
                         struct error *error)
{
    char size[32];
    uint64_t bytes;
    size_t n = strlen(text);
    if (n > 2 && strcmp(text + n - 2, "/s") == 0)
        n -= 2;
    snprintf(size, sizeof size, "%.*s", (int)(n < sizeof size ? n : 0), text);
    if (!bytes_parse(size, &bytes) || bytes == 0)
        return error_set(error, ERR_BAD_INPUT, "--%s: '%.60s' is not a bandwidth such as 500MB/s",
                         name, text);
    *bytes_per_s = (double)bytes;
    return 0;
}

int sim_option_share(const char *name, const char *text, uint64_t *bytes, double *percent,
                     struct error *error)
{
    *bytes = 0;
    *percent = 0;
    if (strchr(text, '%'))
        return percent_parse(text, percent)
                   ? 0
                   : error_set(error, ERR_BAD_INPUT, "--%s: '%.60s' is not a percentage", name,
                               text);
    if (!bytes_parse(text, bytes) || *bytes == 0)
        return error_set(error, ERR_BAD_INPUT, "--%s: '%.60s' is not a size", name, text);
    return 0;
}

/* ---- a GPU ---------------------------------------------------------------------------------- */

static const char *const names[] = {
#define X(id, name) name,
    SIM_GPU_OPTIONS(X)
#undef X
};

static int take_policy(struct sim_gpu_options *o, const char *text, struct error *error)
{
    o->policy = gpu_policy_find(text);
    return o->policy != GPU_POLICY__COUNT
               ? 0
               : error_set(error, ERR_BAD_INPUT, "--%s: '%.60s' is not one of %s",
                           names[SIM_GPU_POLICY], text, CHOICE_NAMES(GPU_POLICY_LIST));
}

static int take_eviction(struct sim_gpu_options *o, const char *text, struct error *error)
{
    return places_eviction_find(text, &o->eviction)
               ? 0
               : error_set(error, ERR_BAD_INPUT, "--%s: '%.60s' is not one of" PLACES_EVICTIONS,
                           names[SIM_GPU_EVICTION], text);
}

/* "96", or "64,32": of each GPU. */
static int take_list(const char *name, const char *text, double max, uint32_t *list,
                     uint32_t *count, struct error *error)
{
    char item[16];
    double number = 0;
    *count = 0;
    for (const char *at = text; at; at = strchr(at, ',')) {
        at += *at == ',';
        snprintf(item, sizeof item, "%.*s", (int)strcspn(at, ","), at);
        if (*count == SIM_GPUS_MAX)
            return error_set(error, ERR_BAD_INPUT, "--%s: more than %d GPUs", name, SIM_GPUS_MAX);
        if (sim_option_number(name, item, 1, max, &number, error) != 0)
            return -1;
        list[(*count)++] = (uint32_t)number;
    }
    return 0;
}

int sim_gpu_option(struct sim_gpu_options *o, enum sim_gpu_option option, const char *text,
                   struct error *error)
{
    const char *name = names[option];
    int rv = 0;
    switch (option) {
    case SIM_GPU_SLOTS: rv = take_list(name, text, SLOTS_MAX, o->slots, &o->gpus, error); break;
    case SIM_GPU_LAYERS:
        rv = take_list(name, text, MODEL_LAYERS_MAX, o->layers, &o->layer_counts, error);
        break;
    case SIM_GPU_BUDGET:
        rv = sim_option_share(name, text, &o->budget_bytes, &o->budget_percent, error);
        break;
    case SIM_GPU_BANDWIDTH: rv = sim_option_bandwidth(name, text, &o->bytes_per_s, error); break;
    case SIM_GPU_POLICY: rv = take_policy(o, text, error); break;
    case SIM_GPU_EVICTION: rv = take_eviction(o, text, error); break;
    case SIM_GPU_EXPERT_US:
        rv = sim_option_number(name, text, 0, US_MAX, &o->expert_us, error);
        break;
    case SIM_GPU__COUNT: sl_panic("not an option");
    }
    o->given[option] = rv == 0;
    return rv;
}

int sim_gpu_options_check(const struct sim_gpu_options *o, struct error *error)
{
    if (o->given[SIM_GPU_SLOTS] && o->given[SIM_GPU_BUDGET])
        return error_set(error, ERR_BAD_INPUT, "use one of --%s and --%s", names[SIM_GPU_SLOTS],
                         names[SIM_GPU_BUDGET]);
    bool some = o->given[SIM_GPU_SLOTS] || o->given[SIM_GPU_BUDGET];
    for (int i = 0; i < SIM_GPU__COUNT; i++)
        if (o->given[i] && !some)
            return error_set(error, ERR_BAD_INPUT, "--%s needs --%s or --%s", names[i],
                             names[SIM_GPU_SLOTS], names[SIM_GPU_BUDGET]);
    uint32_t gpus = o->gpus > 0 ? o->gpus : 1;
    if (o->layer_counts != gpus && (o->layer_counts > 0 || gpus > 1))
        return error_set(error, ERR_BAD_INPUT, "--%s states %u GPUs, --%s %u",
                         names[SIM_GPU_LAYERS], o->layer_counts, names[SIM_GPU_SLOTS], gpus);
    return 0;
}

static uint64_t bytes_of(const struct sim_gpu_options *o, const struct trace_header *h)
{
    if (o->given[SIM_GPU_SLOTS])
        return 0;
    return o->budget_percent > 0 ? percent_of(o->budget_percent, sim_all_bytes(h))
                                 : o->budget_bytes;
}

static uint32_t places_of(const struct sim_gpu_options *o, uint32_t i, const struct trace_header *h)
{
    uint32_t all = sim_gpu_places(h, UINT64_MAX);
    if (o->given[SIM_GPU_SLOTS])
        return o->slots[i] < all ? o->slots[i] : all;
    return sim_gpu_places(h, bytes_of(o, h));
}

static struct sim_gpu gpu_of(const struct sim_gpu_options *o, uint32_t i,
                             const struct trace_header *h)
{
    double bytes = (double)sim_all_bytes(h) / trace_expert_layers(h) / h->experts;
    return (struct sim_gpu){
        .places = places_of(o, i, h),
        .bytes = bytes_of(o, h),
        .policy = o->policy,
        .eviction = o->given[SIM_GPU_EVICTION] ? o->eviction : EVICTION_LRU,
        .bytes_per_s = o->given[SIM_GPU_BANDWIDTH] ? o->bytes_per_s : SIM_DEFAULT_GPU_BYTES_PER_S,
        .expert_ns = o->given[SIM_GPU_EXPERT_US] ? o->expert_us * 1e3
                                                 : bytes * 1e9 / SIM_DEFAULT_GPU_WEIGHTS_PER_S};
}

int sim_gpu_of(const struct sim_gpu_options *o, const struct trace_header *h,
               struct sim_gpu out[SIM_GPUS_MAX], struct error *error)
{
    uint32_t gpus = o->gpus > 0 ? o->gpus : 1, end = 0;
    out[0] = (struct sim_gpu){0};
    if (!o->given[SIM_GPU_SLOTS] && !o->given[SIM_GPU_BUDGET])
        return 0;
    for (uint32_t i = 0; i < gpus; i++) {
        out[i] = gpu_of(o, i, h);
        end += i < o->layer_counts ? o->layers[i] : 0;
        out[i].end_layer = end;
        out[i].next = i + 1 < gpus ? &out[i + 1] : NULL;
        if (out[i].places < h->top_k)
            return error_set(error, ERR_BUDGET_TOO_SMALL,
                             "--%s: the GPU has slots for %u experts, a token needs %u",
                             names[o->given[SIM_GPU_SLOTS] ? SIM_GPU_SLOTS : SIM_GPU_BUDGET],
                             out[i].places, h->top_k);
    }
    if (end <= h->layers)
        return 0;
    return error_set(error, ERR_BAD_INPUT, "--%s: %u layers, the model has %u",
                     names[SIM_GPU_LAYERS], end, h->layers);
}
