/* SPDX-License-Identifier: Apache-2.0 */
/* A model on GPUs: budgets, the layers that an engine would have there, and the estimated speed.
 * Memory and layers are those that the engine states. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/json/lookup.h"
#include "lib/policy/gpu/places.h"
#include "lib/sim/routing.h"
#include "lib/tensor/kv_type.h"
#include "procs/tools/doctor/doctor.h"

/* ---- rates ---- */

void gpu_store(struct findings *f, const struct gpu_seen *seen, const struct rates_cpu *cpu)
{
    struct error error;
    bool complete = cpu && cost_cpu_known(&cpu->rate);
    struct rates *r = seen->count > 0 || complete ? malloc(sizeof *r) : NULL;
    const char *section = seen->count > 0 ? "gpu" : "model";
    if (!r)
        return;
    /* a damaged file is replaced */
    bool failed = rates_read(r, &error) != 0 && error.code != ERR_BAD_INPUT;
    if (complete)
        rates_set_cpu(r, cpu);
    for (uint32_t i = 0; i < seen->count; i++)
        if (cost_gpu_known(&seen->gpu[i].rate))
            rates_set_gpu(r, &seen->gpu[i]);
        else
            complete = false;
    if (failed || rates_write(r, &error) != 0)
        finding(f, section, "rates", json_false(), "not stored", "%s", error.text);
    else
        finding(f, section, "rates", json_true(), "stored", "%s",
                seen->count == 0 ? "sluice bench --parallel compares with these times"
                : complete       ? "later starts with --gpu choose its layers by these times"
                : cpu            ? "but not all could be measured: starts choose layers by bytes"
                      : "with -m those of the CPU are, too, and starts choose layers by them");
    free(r);
}

/* ---- budgets ---- */

/* What an estimate is for, other than the parameters. */
enum { FIRST_GPU = 1, ANY_LAYERS = 2 };
struct wanted {
    unsigned flags;
    uint64_t layers, budget; /* 0: as in the parameters */
};

/* The estimate of a start. */
static json_t *estimate_with(const struct gpu_model *m, const struct params *params,
                             struct wanted w)
{
    struct params with = *params;
    struct error error;
    if (strcmp(with.gpu, "off") == 0)
        snprintf(with.gpu, sizeof with.gpu, "auto");
    if (w.flags & FIRST_GPU)
        with.gpu[strcspn(with.gpu, ",")] = 0; /* a budget is of one */
    if (w.flags & ANY_LAYERS)
        with.gpu_layers = 0;
    if (w.layers > 0)
        with.gpu_layers = w.layers;
    if (w.budget > 0)
        with.gpu_budget = w.budget;
    snprintf(with.log_level, sizeof with.log_level, "error"); /* not the plan in its log */
    return model_memory_estimate(m->path, &with, &error);
}

/* Seconds of a token with a budget and the layers that are chosen for it; 0: unknown. */
static double seconds_with(const struct gpu_model *m, const struct params *params, uint64_t budget)
{
    json_t *estimate = estimate_with(m, params, (struct wanted){FIRST_GPU | ANY_LAYERS, 0, budget});
    double s =
        json_number_value(json_object_get(json_object_get(estimate, "gpu_choice"), "token_s"));
    json_decref(estimate);
    return s;
}

/* What a budget has to be for a share of the experts. */
static void report_share(struct findings *f, const char *name, uint64_t bytes, uint64_t memory,
                         const char *meaning)
{
    char text[16];
    finding(f, "gpu", name, json_integer((json_int_t)bytes), bytes_format(bytes, text),
            "--gpu-budget with %s%s", meaning, bytes > memory ? "; more than the GPU has" : "");
}

/* The same, with the speed. */
static void report_share_timed(struct findings *f, const char *name, uint64_t bytes,
                               uint64_t memory, const char *meaning, const struct gpu_model *m,
                               const struct params *params)
{
    char text[96];
    double s = bytes <= memory ? seconds_with(m, params, bytes) : 0;
    snprintf(text, sizeof text, s > 0 ? "%s: %.2f ms per token, with the best layers" : "%s",
             meaning, s * 1e3);
    report_share(f, name, bytes, memory, text);
}

/* All layers are on the GPU. */
static void report_whole(struct findings *f, const json_t *estimate, const struct gpu_model *m,
                         const struct params *params)
{
    uint64_t experts = m->facts->expert_count;
    const json_t *gpu = json_object_get(estimate, "gpu");
    uint64_t memory = lookup_u64(gpu, "memory_bytes"), all = lookup_u64(gpu, "all_experts_bytes");
    uint64_t slots = lookup_u64(gpu, "slots"), budget = lookup_u64(gpu, "budget_bytes"), fixed = 0;
    const char *part;
    char text[16];
    json_t *bytes;
    json_object_foreach(json_object_get(gpu, "plan"), part, bytes)
    {
        if (strcmp(part, "experts") != 0)
            fixed += (uint64_t)json_integer_value(bytes);
    }
    report_share(f, "budget_dense", fixed, memory,
                 "all dense weights, keys and values, and no experts; a token needs some");
    report_share_timed(f, "budget_50", fixed + all / 2, memory, "half of the experts", m, params);
    report_share_timed(f, "budget_all", fixed + all, memory, "all experts", m, params);
    finding(f, "gpu", "budget", json_integer((json_int_t)budget), bytes_format(budget, text),
            "%s: %" PRIu64 " of %" PRIu64 " experts (%.0f %%)%s",
            slots < experts ? "can hold all dense weights" : "can hold the model", slots, experts,
            experts ? 100.0 * (double)slots / (double)experts : 0.0,
            slots < experts ? "; the others are copied when they are used" : "");
}

/* Of the first GPU. */
static void report_budgets(struct findings *f, const struct gpu_model *m,
                           const struct params *params, const json_t *automatic)
{
    const json_t *choice = json_object_get(automatic, "gpu_choice");
    uint64_t most = lookup_u64(choice, "most"), whole = lookup_u64(choice, "whole_bytes");
    uint64_t budget = lookup_u64(choice, "budget_bytes"),
             memory = lookup_u64(choice, "memory_bytes");
    char text[16];
    if (most == m->facts->layers) {
        json_t *estimate = estimate_with(m, params, (struct wanted){FIRST_GPU, most, 0});
        if (json_object_get(estimate, "gpu"))
            report_whole(f, estimate, m, params);
        json_decref(estimate);
        return;
    }
    if (whole > 0) /* without --gpu-layers */
        report_share(f, "budget_dense", whole, memory,
                     "all dense weights, and the experts of a token");
    finding(f, "gpu", "budget", json_integer((json_int_t)budget), bytes_format(budget, text),
            "can hold at most %" PRIu64 " of %" PRIu64 " layers", most, m->facts->layers);
}

/* ---- layers ---- */

static void report_layers(struct findings *f, const struct gpu_model *m, const char *name,
                          const json_t *choice, const char *remark)
{
    static const char *const why[][2] = {
        {"times", "by measured times"}, {"option", "by --gpu-layers"}, {"bytes", "all that fit"}};
    uint64_t layers = lookup_u64(choice, "layers"), most = lookup_u64(choice, "most");
    const char *by = lookup_text(choice, "by"), *reason = "";
    double token_s = json_number_value(json_object_get(choice, "token_s"));
    char text[48], times[160] = "";
    for (size_t i = 0; i < ARRAY_LEN(why); i++)
        reason = strcmp(by, why[i][0]) == 0 ? why[i][1] : reason;
    snprintf(text, sizeof text, "%" PRIu64 " of %" PRIu64, layers, m->facts->layers);
    if (token_s > 0)
        snprintf(times, sizeof times,
                 ": %.2f ms per token with the experts in the arena; %.2f ms with %" PRIu64
                 " by bytes, %.2f ms on the CPU alone",
                 token_s * 1e3, json_number_value(json_object_get(choice, "most_s")) * 1e3, most,
                 json_number_value(json_object_get(choice, "cpu_s")) * 1e3);
    finding(f, "gpu", name, json_integer((json_int_t)layers), text, "%s%s%s", remark, reason,
            times);
}

/* What is stated, and what would be chosen without it. */
static void report_choice(struct findings *f, const struct gpu_model *m,
                          const struct params *params, const json_t *estimate)
{
    const json_t *choice = json_object_get(estimate, "gpu_choice");
    report_layers(f, m, "layers", choice, "");
    finding_quiet(f, "gpu", "choice", json_deep_copy(choice));
    if (params->gpu_layers == 0)
        return;
    json_t *other = estimate_with(m, params, (struct wanted){.flags = ANY_LAYERS});
    report_layers(f, m, "layers_chosen", json_object_get(other, "gpu_choice"),
                  "without --gpu-layers, ");
    json_decref(other);
}

/* ---- speed ---- */

static void report_estimate(struct findings *f, const struct gpu_estimate *g, uint64_t slots,
                            json_t *all)
{
    const struct estimate *e = &g->with;
    const char *policy = gpu_policy_name(g->policy);
    char name[32], text[64], decode[DIGITS_BYTES], prefill[DIGITS_BYTES];
    snprintf(name, sizeof name, "estimate %.0f %%", 100 * e->share);
    snprintf(text, sizeof text, "%s, prefill %s", two_digits(e->decode_tps, decode),
             two_digits(e->prefill_tps, prefill));
    if (e->decode_tps <= 0)
        finding(f, "gpu", name, json_real(0), "unknown",
                "reads were not measured, or a token needs more experts than that share");
    else
        finding(f, "gpu", name, json_real(e->decode_tps), text,
                "tokens/s with that share of the experts in the arena and %" PRIu64
                " slots, --gpu-policy %s; decode: %.2f ms compute, %.2f ms waiting for reads, %.2f "
                "ms for copies to the GPU, %.2f ms for messages; %.0f %% of the uses have a slot",
                slots, policy, e->compute_s * 1e3, (e->stall_s - g->copy_s) * 1e3, g->copy_s * 1e3,
                e->load_s * 1e3, 100 * g->hits);
    json_array_append_new(all, json_pack("{s:f, s:s, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "share",
                                         e->share, "policy", policy, "hits", g->hits, "compute_s",
                                         e->compute_s, "stall_s", e->stall_s, "copy_s", g->copy_s,
                                         "load_s", e->load_s, "decode_tps", e->decode_tps,
                                         "prefill_tps", e->prefill_tps));
}

static const struct cost_gpu *rate_of(const struct gpu_seen *seen, uint64_t number)
{
    for (uint32_t i = 0; i < seen->count; i++)
        if (seen->gpu[i].number == number)
            return &seen->gpu[i].rate;
    return NULL;
}

/* The GPUs' parts of an estimate, and the CPU's. False: one of them was not measured. */
static bool take_parts(const json_t *estimate, const struct gpu_seen *seen, uint32_t layers,
                       struct gpu_facts *out)
{
    const json_t *each = json_object_get(json_object_get(estimate, "gpu"), "each"), *one;
    size_t i;
    uint32_t end = 0;
    json_array_foreach(each, i, one)
    {
        const struct cost_gpu *rate = rate_of(seen, lookup_u64(one, "number"));
        if (!rate || !cost_gpu_known(rate) || out->parts == ESTIMATE_PARTS_MAX - 1)
            return false;
        end = (uint32_t)(lookup_u64(one, "first_layer") + lookup_u64(one, "layers"));
        out->part[out->parts++] =
            (struct cost_part){.gpu = rate,
                               .first = (uint32_t)lookup_u64(one, "first_layer"),
                               .end = end,
                               .kv_layers = (uint32_t)lookup_u64(one, "kv_layers"),
                               .slots = lookup_u64(one, "slots")};
        out->slots += lookup_u64(one, "slots");
    }
    if (out->parts == 0 || end > layers)
        return false;
    if (end < layers)
        out->part[out->parts++] = (struct cost_part){.first = end, .end = layers};
    return true;
}

static int report_speed(struct findings *f, const struct gpu_seen *seen, const struct gpu_model *m,
                        const json_t *estimate, struct gpu_facts *facts, struct error *error)
{
    struct gpu_estimate estimates[ESTIMATE_SHARES];
    if (!cost_cpu_known(m->cpu) || !take_parts(estimate, seen, (uint32_t)m->facts->layers, facts))
        return 0;
    if (estimate_gpu(m->facts, m->host, facts, estimates, error) != 0)
        return -1;
    json_t *all = json_array();
    for (size_t i = 0; i < ESTIMATE_SHARES; i++)
        report_estimate(f, &estimates[i], facts->slots, all);
    finding_quiet(f, "gpu", "estimates", all);
    return 0;
}

static int estimate_speed(struct findings *f, const struct gpu_seen *seen,
                          const struct gpu_model *m, const json_t *estimate,
                          const struct params *params, struct error *error)
{
    const struct model_hparams *h = &m->index->hparams;
    struct gpu_facts facts = {.cpu = *m->cpu, .eviction = EVICTION_LRU};
    struct rates_model model;
    double *hits = calloc((size_t)h->experts + 1, sizeof *hits);
    int rc = hits ? sim_hits(hparams_expert_layers(h), h->experts, h->experts_used, hits, error)
                  : error_set(error, ERR_NO_MEMORY, "out of memory (estimate with a GPU)");
    if (rc == 0)
        rc = rates_model(m->index, kv_type_find(params->kv_type),
                         (uint32_t)lookup_u64(estimate, "ctx_size"),
                         (uint32_t)lookup_u64(estimate, "kv_ring"), hits, &model, error);
    free(hits);
    if (rc != 0)
        return -1;
    model.cost.policy = gpu_policy_of(params->gpu_policy, params->deterministic);
    facts.model = &model.cost;
    (void)places_eviction_find(params->gpu_eviction,
                               &facts.eviction); /* the engine rejects others */
    rc = report_speed(f, seen, m, estimate, &facts, error);
    rates_model_free(&model);
    return rc;
}

int gpu_model_report(struct findings *f, const struct gpu_seen *seen, const struct gpu_model *m,
                     const struct params *params, struct error *error)
{
    int rc = 0;
    if (seen->count == 0)
        return 0;
    json_t *estimate = estimate_with(m, params, (struct wanted){0});
    json_t *first = strchr(params->gpu, ',') || params->gpu_layers > 0
                        ? estimate_with(m, params, (struct wanted){.flags = FIRST_GPU | ANY_LAYERS})
                        : json_incref(estimate);
    if (lookup_u64(estimate, "gpu_choice.most") == 0 || lookup_u64(first, "gpu_choice.most") == 0) {
        finding(f, "gpu", "budget", json_null(), "none",
                "the model cannot be computed on this GPU: `sluice run --gpu 0` states why");
    } else {
        report_budgets(f, m, params, first);
        report_choice(f, m, params, estimate);
        rc = estimate_speed(f, seen, m, estimate, params, error);
    }
    json_decref(estimate);
    json_decref(first);
    return rc;
}
