/* SPDX-License-Identifier: Apache-2.0 */
/* Plans with given precision shares: `sluice plan --shares`. For files of `sluice synth`, whose
 * random weights have no meaningful loss but cost time and bytes like real ones. edgemoe gets
 * random precisions in the shares, hobbit the thresholds that give them on a synthetic token
 * stream, fate its fraction. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/model/limits.h"
#include "lib/policy/access/precision.h"
#include "lib/synthetic/token_stream.h"
#include "lib/tensor/precision.h"
#include "procs/tools/plan/planning.h"

/* ---- edgemoe ---- */

static int force_edgemoe(struct planning *p, struct error *error)
{
    uint64_t cells = planning_experts(p), count[PRECISION__COUNT] = {0};
    char size[16], native[16], text[128];
    if (p->shares.of[SHARES_SKIP] > 0)
        return error_set(error, ERR_BAD_INPUT, "--shares: edgemoe does not support skip");
    if (planning_add(p, plan_array_bit(PLAN_ARRAY_width), error) != 0)
        return -1;
    uint8_t *precision = plan_width(p->plan);
    uint8_t *dealt = calloc(cells, 1);
    sl_assert(dealt);
    shares_deal(&p->shares, (uint64_t)p->seed, dealt, cells);
    for (uint64_t i = 0; i < cells; i++)
        count[dealt[i]]++;
    planning_spread(p, dealt, precision);
    free(dealt);
    uint64_t bytes = serving_bytes(p->model, precision, p->method);
    p->plan->scalar[PLAN_edgemoe_bytes] = (double)bytes;
    int at = 0;
    text[0] = 0;
    for (int t = 0; t < PRECISION__COUNT; t++)
        if (count[t])
            at += snprintf(text + at, sizeof text - (size_t)at, "%s%llu at %s", at ? ", " : "",
                           (unsigned long long)count[t], precision_name((enum precision)t));
    planning_note(p, "edgemoe: of %llu experts %s: %s of %s native", (unsigned long long)cells,
                  text, bytes_format(bytes, size), bytes_format(p->native_bytes, native));
    if (!plan_has(p->plan, PLAN_ARRAY_prev1))
        planning_note(p, "edgemoe: no expert paths: its predictions need a profile (--profile)");
    json_object_set_new(p->report, "edgemoe",
                        json_pack("{s:I, s:I, s:I, s:I, s:I}", "bytes", (json_int_t)bytes, "native",
                                  (json_int_t)count[PRECISION_NATIVE], "int8",
                                  (json_int_t)count[PRECISION_INT8], "int4",
                                  (json_int_t)count[PRECISION_INT4], "int2",
                                  (json_int_t)count[PRECISION_INT2]));
    return 0;
}

/* ---- hobbit: sums of larger gate weights of accesses ---- */

struct stream {
    struct planning *p;
    uint32_t top_k;
    size_t capacity;
    atomic_size_t count;
    float *before; /* of all workers, in any order */
};

static void at_routed(void *arg, const struct expert_step *step, const struct route *routes)
{
    struct stream *s = arg;
    size_t more = (size_t)step->rows * s->top_k, at = atomic_fetch_add(&s->count, more);
    sl_assert(at + more <= s->capacity);
    for (uint32_t r = 0; r < step->rows; r++, at += s->top_k)
        precision_weights_before(&routes[(size_t)r * s->top_k].weight, ROUTE_STRIDE, s->top_k,
                                 s->before + at);
}

static void worker_hooks(void *arg, uint32_t worker, struct offline_hooks *hooks)
{
    (void)worker;
    hooks->arg = arg;
    hooks->routed = at_routed;
}

static void steps_done(void *arg, const struct offline_progress *progress)
{
    struct stream *s = arg;
    planning_progress(s->p, "gate weights: step", progress->done, progress->of);
}

/* The sum of larger weights of every access of the stream; the caller frees. Allocated before the
 * evaluation, which gives to experts what is then left of --memory. */
static int gate_weights(struct planning *p, float **before, size_t *count, struct error *error)
{
    struct stream s = {.p = p, .top_k = p->plan->experts_used};
    struct offline_evaluation e = {.model = p->model,
                                   .text = &p->text,
                                   .threads = (uint32_t)p->threads,
                                   .hooks = worker_hooks,
                                   .unscored = true,
                                   .progress = steps_done,
                                   .arg = &s};
    struct offline_losses losses = {0};
    s.capacity = (size_t)p->text.windows * p->text.window * s.top_k *
                 hparams_expert_layers(&offline_index(p->model)->hparams);
    if (offline_reserve(p->model, s.capacity * sizeof *s.before, "the gate weights of the stream",
                        error) != 0)
        return -1;
    s.before = malloc(s.capacity * sizeof *s.before);
    int status = s.before
                     ? offline_evaluate(&e, &losses, error)
                     : error_set(error, ERR_NO_MEMORY, "out of memory (gate weights of a stream)");
    if (status == 0)
        offline_losses_free(&losses);
    else
        free(s.before);
    *before = status == 0 ? s.before : NULL;
    *count = s.count;
    return status;
}

static int force_hobbit(struct planning *p, struct error *error)
{
    enum precision high, low;
    float *before;
    size_t count;
    double t1, t2, got[3], *s = p->plan->scalar;
    if (shares_pair(&p->shares, &high, &low, error) != 0 ||
        gate_weights(p, &before, &count, error) != 0)
        return -1;
    double skip = p->shares.of[SHARES_SKIP];
    shares_thresholds(before, count, p->shares.of[high], low == high ? 0 : p->shares.of[low], &t1,
                      &t2, got);
    free(before);
    s[PLAN_hobbit_t1] = t1;
    s[PLAN_hobbit_t2] = t2;
    s[PLAN_hobbit_skip_renormalise] = 0;
    s[PLAN_hobbit_share_high] = got[0];
    s[PLAN_hobbit_share_low] = got[1];
    s[PLAN_hobbit_high] = high;
    s[PLAN_hobbit_low] = low;
    planning_note(p,
                  "hobbit: T1 %.4f, T2 %.4f: %.1f %% high (%s), %.1f %% low (%s), %.1f %% skipped "
                  "of %zu accesses of a synthetic stream",
                  t1, t2, 100 * got[0], precision_name(high), 100 * got[1], precision_name(low),
                  100 * got[2], count);
    if (got[0] > p->shares.of[high] + 0.01 || got[2] > skip + 0.01)
        planning_note(p, "hobbit: the shares cannot be met: the first of %u experts is always high",
                      p->plan->experts_used);
    json_object_set_new(p->report, "hobbit",
                        json_pack("{s:f, s:f, s:f, s:f}", "t1", t1, "t2", t2, "share_high", got[0],
                                  "share_low", got[1]));
    return 0;
}

/* ---- fate: the share of the lower precision is the fraction ---- */

static int force_fate(struct planning *p, struct error *error)
{
    enum precision high, low;
    if (p->shares.of[SHARES_SKIP] > 0)
        return error_set(error, ERR_BAD_INPUT, "--shares: fate does not support skip");
    if (shares_pair(&p->shares, &high, &low, error) != 0)
        return -1;
    double fraction = high == low ? 0 : p->shares.of[low];
    p->plan->scalar[PLAN_fate_prefill_int2] = fraction;
    p->plan->scalar[PLAN_fate_high] = high;
    p->plan->scalar[PLAN_fate_low] = low;
    planning_note(p, "fate: %.1f %% of the experts of a chunk at low precision in prefill",
                  100 * fraction);
    json_object_set_new(p->report, "fate", json_pack("{s:f}", "fraction", fraction));
    return 0;
}

/* ---- uniform: all experts at one precision ---- */

static int force_uniform(struct planning *p, struct error *error)
{
    enum precision high, low;
    if (shares_pair(&p->shares, &high, &low, error) != 0)
        return -1;
    if (high != low || high == PRECISION_NATIVE || p->shares.of[SHARES_SKIP] > 0 ||
        p->max_loss <= 0)
        return error_set(error, ERR_BAD_INPUT,
                         "--shares: uniform needs one precision, such as int4=1, and --max-loss");
    p->plan->scalar[PLAN_uniform_int8_loss_high + (high - PRECISION_INT8)] = p->max_loss;
    planning_note(p, "uniform: %s, loss at most %.3g %%", precision_name(high), 100 * p->max_loss);
    return 0;
}

/* ---- run ---- */

/* A synthetic token stream, as `sluice bench` generates it. */
static int make_stream(struct planning *p, struct error *error)
{
    if (offline_text_alloc(offline_index(p->model), (uint32_t)(p->tokens_max / p->window),
                           (uint32_t)p->window, &p->text, error) != 0)
        return -1;
    token_stream_fill((uint64_t)p->seed, TOKEN_STREAM_STAY, offline_index(p->model)->hparams.vocab,
                      p->text.ids, (size_t)p->text.windows * p->text.window);
    offline_text_rehash(&p->text);
    return 0;
}

int planning_start_plain(struct planning *p, struct error *error)
{
    p->measured = measured_open(p->out_path, error);
    if (!p->measured || planning_open(p, error) != 0)
        return -1;
    const struct model_index *m = offline_index(p->model);
    const struct model_hparams *hp = &m->hparams;
    p->plan = p->profile_path ? plan_read(p->profile_path, error)
                              : plan_create(hp->layers, hp->experts, hp->experts_used,
                                            offline_hash(p->model), 0, 0, error);
    if (!p->plan || plan_matches(p->plan, m, offline_hash(p->model), p->profile_path, error) != 0)
        return -1;
    planning_take_dense(p);
    p->native_bytes = serving_bytes(p->model, NULL, p->method);
    p->plan->scalar[PLAN_experts_bytes] = (double)p->native_bytes;
    if (p->max_loss > 0)
        p->plan->scalar[PLAN_max_loss] = p->max_loss;
    if (p->texts)
        return offline_text_load(m, p->text_path, p->texts, (uint32_t)p->window,
                                 (uint64_t)p->tokens_max, &p->text, error);
    return make_stream(p, error);
}

int plan_forced(struct planning *p, struct error *error)
{
    static const struct {
        const char *name;
        int (*force)(struct planning *p, struct error *error);
        enum plan_scalar loss; /* PLAN_SCALAR__COUNT: set by force() */
        enum plan_scalar method, dense, kv_type;
    } presets[] = {{"edgemoe", force_edgemoe, PLAN_edgemoe_loss_high, PLAN_edgemoe_method,
                    PLAN_edgemoe_dense, PLAN_edgemoe_kv_type},
                   {"hobbit", force_hobbit, PLAN_hobbit_loss_high, PLAN_hobbit_method,
                    PLAN_hobbit_dense, PLAN_hobbit_kv_type},
                   {"fate", force_fate, PLAN_fate_loss_high, PLAN_fate_method, PLAN_fate_dense,
                    PLAN_fate_kv_type},
                   {"uniform", force_uniform, PLAN_SCALAR__COUNT, PLAN_uniform_method,
                    PLAN_uniform_dense, PLAN_uniform_kv_type}};
    for (size_t i = 0; i < ARRAY_LEN(presets); i++) {
        if (strcmp(p->preset, presets[i].name) != 0)
            continue;
        if (planning_start_plain(p, error) != 0 || presets[i].force(p, error) != 0)
            return -1;
        if (p->max_loss > 0 && presets[i].loss != PLAN_SCALAR__COUNT)
            p->plan->scalar[presets[i].loss] = p->max_loss;
        p->plan->scalar[presets[i].method] = p->method;
        p->plan->scalar[presets[i].dense] = p->dense;
        p->plan->scalar[presets[i].kv_type] = p->kv_type;
        return planning_write(p, error);
    }
    return error_set(error, ERR_BAD_INPUT, "--shares: needs --preset edgemoe|hobbit|fate|uniform");
}
