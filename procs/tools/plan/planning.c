/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the planners: measurement, output, extension of the plan, capacity. */
#include "procs/tools/plan/planning.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "lib/base/bytes.h"
#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "lib/inspected/inspected.h"
#include "lib/offline/measure/clocked.h"
#include "lib/tensor/precision.h"

/* Memory of the engine in addition to dense weights and experts: processes, libraries, KV cache,
 * the reserve of the ledger. An estimate; `sluice run --print-memory` reports the exact minimum
 * budget. */
#define ENGINE_BYTES (20 * MIB)

void planning_note(const struct planning *p, const char *fmt, ...)
{
    FILE *out = p->json ? stderr : stdout;
    va_list args;
    va_start(args, fmt);
    vfprintf(out, fmt, args);
    va_end(args);
    fputc('\n', out);
    fflush(out);
}

const char *planning_loss(const struct offline_interval *loss, char buf[64])
{
    snprintf(buf, 64, "%.2f %% (%.2f .. %.2f)", 100 * loss->value, 100 * loss->low,
             100 * loss->high);
    return buf;
}

int planning_open(struct planning *p, struct error *error)
{
    p->model = offline_open_within(p->model_path, inspected_index,
                                   p->memory ? p->memory : OFFLINE_MEMORY_DEFAULT, error);
    return p->model ? offline_check_precisions(p->model, error) : -1;
}

int planning_add(struct planning *p, uint64_t arrays, struct error *error)
{
    uint64_t more_bytes = p->plan->bytes + PLAN_ARRAY_ALIGN * PLAN_ARRAY__COUNT +
                          (uint64_t)p->plan->layers * p->plan->experts * sizeof(double);
    if (offline_reserve(p->model, more_bytes, "the arrays of the plan", error) != 0)
        return -1;
    struct plan *more = plan_extended(p->plan, arrays, p->plan->cells, error);
    if (!more)
        return -1;
    free(p->plan);
    p->plan = more;
    return 0;
}

int planning_write(struct planning *p, struct error *error)
{
    if (offline_reserve(p->model, plan_write_bytes(p->plan), "the arrays of the plan", error) != 0)
        return -1;
    return plan_write(p->plan, p->out_path, error);
}

void planning_take_dense(struct planning *p)
{
    if (!p->dense_given && plan_knows(p->plan, PLAN_edgemoe_dense))
        p->dense = (enum precision)p->plan->scalar[PLAN_edgemoe_dense];
}

/* ---- measurements ---- */

static void hash(XXH3_state_t *state, const void *bytes, size_t count)
{
    XXH3_128bits_update(state, bytes, count);
}

/* The model: not only the hash of a plan, which is that of other quantisations, too. */
static void hash_model(XXH3_state_t *state, const struct offline_model *m)
{
    const struct model_index *index = offline_index(m);
    const struct model_tensor *tensors = model_index_tensors(index);
    hash(state, offline_hash(m), PLAN_HASH_BYTES);
    for (uint32_t i = 0; i < index->tensor_count; i++)
        hash(state, &tensors[i].type, sizeof tensors[i].type);
    hash(state, &index->file.bytes, sizeof index->file.bytes);
    hash(state, &index->file.mtime_ns, sizeof index->file.mtime_ns);
    for (uint32_t i = 0; i < index->part_count + index->stripe_count; i++) {
        const struct model_file_id *file = &model_loader_file(index, i)->file;
        hash(state, &file->bytes, sizeof file->bytes);
        hash(state, &file->mtime_ns, sizeof file->mtime_ns);
    }
}

void planning_key(const struct planning *p, const struct offline_text *text, const void *what,
                  size_t bytes, uint8_t key[MEASURED_KEY_BYTES])
{
    const char *kernels = kernel_ops_select(NULL)->name;
    XXH3_state_t *state = XXH3_createState();
    if (!state)
        log_fatal(1, "out of memory (measurements)");
    XXH3_128bits_reset(state);
    hash_model(state, p->model);
    hash(state, kernels, strlen(kernels));
    if (text)
        hash(state, &text->hash, sizeof text->hash);
    hash(state, what, bytes);
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(state));
    _Static_assert(sizeof canonical == MEASURED_KEY_BYTES, "a key is a hash of 128 bits");
    memcpy(key, &canonical, MEASURED_KEY_BYTES);
    XXH3_freeState(state);
}

static uint64_t hash_of(const void *bytes, size_t count)
{
    return bytes ? XXH3_64bits(bytes, count) : 0;
}

/* What the experts that are resident with p->clock depend on, but for its capacity; and what may
 * take the places of others. */
static uint64_t hash_of_clock(const struct planning *p)
{
    const struct knobs *k = &p->clock.knobs;
    size_t cells = (size_t)p->plan->layers * p->plan->experts;
    uint64_t what[] = {CLOCKED_SEGMENT, k->eviction,
                       k->preload,      k->allocation,
                       k->frequency,    hash_of(plan_frequency(p->plan), cells * sizeof(float)),
                       k->exact_ranks,  0};
    _Static_assert(sizeof k->nats == sizeof what[7], "the bits of a double");
    memcpy(&what[7], &k->nats, sizeof what[7]);
    size_t count = k->routing == ROUTING_RESIDENT_FIRST ? ARRAY_LEN(what) : 6;
    return p->clock.capacity ? hash_of(what, count * sizeof what[0]) : 0;
}

/* Everything in a serving that a loss depends on. */
void planning_serving_key(const struct planning *p, const struct offline_text *text,
                          const struct serving *s, const char *name,
                          uint8_t key[MEASURED_KEY_BYTES])
{
    size_t layers = p->plan->layers, cells = layers * p->plan->experts;
    const struct precision_policy *policy = &s->policy;
    const double what[] = {s->kind,
                           s->method,
                           p->dense,
                           policy->rule,
                           policy->high,
                           policy->low,
                           (double)policy->t1,
                           (double)policy->t2,
                           s->chunk,
                           s->interval,
                           s->margin,
                           (double)policy->low_fraction,
                           s->segment,
                           s->pairs_per_token,
                           s->before_routing,
                           policy->slow_device,
                           s->together,
                           s->count_only,
                           s->skip_renormalise,
                           p->kv_type,
                           (double)p->clock.capacity};
    const uint64_t arrays[] = {hash_of_clock(p),
                               hash_of(name, strlen(name)),
                               hash_of(s->precision, cells),
                               hash_of(s->allowed, cells),
                               hash_of(s->low, cells),
                               hash_of(s->keep, layers * sizeof *s->keep),
                               hash_of(s->norm, cells * sizeof *s->norm)};
    uint8_t all[sizeof what + sizeof arrays];
    memcpy(all, what, sizeof what);
    memcpy(all + sizeof what, arrays, sizeof arrays);
    planning_key(p, text, all, sizeof all, key);
}

/* The value of a record: losses of the windows, and the report, all of them below 2^53. */
#define REPORT_NUMBERS 5
#define NATS_MAX       100 /* of a token: the loss of a text stays finite */

static const struct measured_range numbers_range = {0, 9007199254740992.0};

/* false: losses that cannot be. */
static bool take_value(const double *value, struct offline_losses *losses,
                       struct serving_report *report)
{
    const double *r = value + losses->windows;
    for (uint32_t i = 0; i < losses->windows; i++)
        if (value[i] > NATS_MAX * (double)losses->scored)
            return false;
    memcpy(losses->nll, value, losses->windows * sizeof *value);
    *report = (struct serving_report){.swapped = (uint64_t)r[0],
                                      .need = {(uint64_t)r[1], (uint64_t)r[2]},
                                      .skipped = (uint64_t)r[3],
                                      .bytes = (uint64_t)r[4]};
    return true;
}

static int evaluate_clocked(struct planning *p, const struct offline_evaluation *e,
                            const struct serving *s, struct offline_losses *losses,
                            struct serving_report *report, struct error *error)
{
    struct knobs *k = &p->clock.knobs;
    struct sim_config config;
    struct sim_stats stats;
    k->t1 = (double)s->policy.t1;
    k->t2 = (double)s->policy.t2;
    k->skip_renormalise = s->skip_renormalise;
    k->high = PRECISION_SETTING_NATIVE + s->policy.high - PRECISION_NATIVE;
    k->low = PRECISION_SETTING_NATIVE + s->policy.low - PRECISION_NATIVE;
    clocked_config(p->model, k, p->plan, s->method, p->clock.capacity, &config);
    config.plan.precision = (struct planned_widths){s->precision, s->low};
    if (clocked_evaluate(e, &config, s->method, losses, &stats, error) != 0)
        return -1;
    *report = (struct serving_report){
        .need = {stats.accesses - stats.skipped - stats.low_precision_accesses,
                 stats.low_precision_accesses},
        .skipped = stats.skipped,
        .bytes = stats.demand_bytes + stats.prefetch_bytes};
    return 0;
}

int planning_evaluate(struct planning *p, const struct offline_text *text, const struct serving *s,
                      bool compare, struct offline_losses *losses, struct serving_report *report,
                      struct error *error)
{
    struct offline_evaluation e = planning_evaluation(p, text);
    struct serving_report unused;
    e.compare = compare;
    if (p->clock.capacity)
        return evaluate_clocked(p, &e, s, losses, report ? report : &unused, error);
    return serving_evaluate(&e, s, losses, report, error);
}

/* For the next estimate. The windows of other texts are as many as they are. */
static void take_time(struct planning *p, const struct offline_text *text, uint64_t ns)
{
    if (text == &p->some)
        p->some_ns = ns;
    else if (text == &p->text || text == &p->held)
        p->whole_ns = ns;
}

int planning_losses(struct planning *p, const struct offline_text *text, const struct serving *s,
                    struct offline_losses *losses, struct serving_report *report,
                    struct error *error)
{
    static const struct serving native = {.kind = SERVE_NATIVE};
    uint8_t key[MEASURED_KEY_BYTES];
    const enum precision dense = p->dense;
    const enum kv_type kv_type = p->kv_type;
    const uint64_t capacity = p->clock.capacity;
    size_t numbers = text->windows + REPORT_NUMBERS;
    double *value = calloc(numbers, sizeof *value);
    if (!value)
        return error_set(error, ERR_NO_MEMORY, "out of memory (losses)");
    if (!s) { /* losses are relative to the lossless model */
        p->dense = PRECISION_NATIVE;
        p->kv_type = KV_TYPE_F16;
        p->clock.capacity = 0;
    }
    planning_serving_key(p, text, s ? s : &native, "losses", key);
    *losses = (struct offline_losses){.windows = text->windows, .scored = text->window - 1};
    losses->nll = calloc(text->windows, sizeof *losses->nll);
    bool known = losses->nll && measured_find(p->measured, key, numbers_range, value, numbers) &&
                 take_value(value, losses, report);
    int status = 0;
    if (!known) {
        offline_losses_free(losses);
        uint64_t start = clock_now_ns();
        status = planning_evaluate(p, text, s ? s : &native, false, losses, report, error);
        p->stage.done++;
        take_time(p, text, clock_now_ns() - start);
        if (status == 0) {
            const double r[REPORT_NUMBERS] = {(double)report->swapped, (double)report->need[0],
                                              (double)report->need[1], (double)report->skipped,
                                              (double)report->bytes};
            memcpy(value, losses->nll, text->windows * sizeof *value);
            memcpy(value + text->windows, r, sizeof r);
            status = measured_add(p->measured, key, value, numbers, error);
        }
    }
    p->dense = dense;
    p->kv_type = kv_type;
    p->clock.capacity = capacity;
    free(value);
    return status;
}

int planning_measure_native(struct planning *p, struct error *error)
{
    struct serving_report unused;
    planning_begin(p, "lossless", 2, 0);
    if (planning_losses(p, &p->text, NULL, &p->native, &unused, error) != 0 ||
        planning_losses(p, &p->held, NULL, &p->native_held, &unused, error) != 0)
        return -1;
    p->native_some = (struct offline_losses){.windows = p->some.windows,
                                             .scored = p->native.scored,
                                             .nll = calloc(p->some.windows, sizeof(double))};
    if (!p->native_some.nll)
        return error_set(error, ERR_NO_MEMORY, "out of memory (losses)");
    for (uint32_t w = 0; w < p->some.windows; w++) /* windows do not depend on each other */
        p->native_some.nll[w] = p->native.nll[w * p->some_every];
    return 0;
}

int planning_measure(struct planning *p, const struct offline_text *text, const struct serving *s,
                     struct measured *out, struct error *error)
{
    const struct offline_losses *native = text == &p->text ? &p->native : &p->native_some;
    struct offline_losses losses;
    if (planning_losses(p, text, s, &losses, &out->report, error) != 0)
        return -1;
    struct held_domain domain[HELD_DOMAINS_MAX];
    uint32_t worst;
    planning_bound(p, text, native, &losses, domain, &worst, &out->loss);
    offline_losses_free(&losses);
    return 0;
}

uint64_t planning_one_expert(const struct planning *p, enum precision precision)
{
    uint32_t layer = model_expert_layer(offline_index(p->model), 0);
    return offline_expert_bytes(p->model, layer, 0, precision, p->method);
}

void planning_spread(const struct planning *p, const uint8_t *precision, uint8_t *all)
{
    for (uint64_t i = 0; i < planning_experts(p); i++)
        all[planning_place(p, i)] = precision[i];
}

bool planning_is_smaller(const struct planning *p, enum precision precision)
{
    for (uint32_t l = 0; l < p->plan->layers; l++)
        if (offline_expert_bytes(p->model, l, 0, precision, p->method) <
            offline_expert_bytes(p->model, l, 0, PRECISION_NATIVE, p->method))
            return true;
    return false;
}

uint64_t planning_expert_bytes(const struct planning *p, struct error *error)
{
    const struct model_index *m = offline_index(p->model);
    char min_budget[16], given[16];
    uint64_t min = (m->hparams.experts_used + 1ull) * hparams_expert_layers(&m->hparams) *
                   planning_one_expert(p, PRECISION_NATIVE);
    if (p->experts_percent > 0)
        return percent_of(p->experts_percent, p->native_bytes);
    uint64_t rest = offline_index_at(p->model, p->dense)->dense_bytes + ENGINE_BYTES;
    if (p->budget_bytes >= rest + min)
        return p->budget_bytes - rest < p->native_bytes ? p->budget_bytes - rest : p->native_bytes;
    if (p->budget_bytes == 0)
        error_set(error, ERR_BAD_INPUT, "use --budget SIZE or --resident-experts PCT%%");
    else
        error_set(error, ERR_BUDGET_TOO_SMALL,
                  "--budget %s is too small: minimum %s for the dense weights, the engine and the "
                  "experts of one token",
                  bytes_format(p->budget_bytes, given), bytes_format(rest + min, min_budget));
    return 0;
}
