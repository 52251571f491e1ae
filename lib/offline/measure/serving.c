/* SPDX-License-Identifier: Apache-2.0 */
/* Evaluates which precision or mask a lossy preset would serve at every access. */
#include "lib/offline/measure/serving.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/policy/access/swap.h"
#include "lib/policy/presets/planned.h"
#include "lib/tensor/precision.h"

struct run { /* one evaluation */
    const struct offline_evaluation *base;
    const struct serving *s;
    const struct model_hparams *hp;
    struct state *state[OFFLINE_WORKERS_MAX];
};

struct state { /* of one worker */
    struct run *run;
    uint64_t need[2], skipped, bytes, swapped;
    struct swap *swap;
    bool swapping;      /* a pair is in progress */
    double tokens_left; /* of computing, until it is read */
};

static void *zeroed(size_t count, size_t bytes)
{
    void *at = calloc(count, bytes);
    if (!at)
        log_fatal(1, "out of memory (evaluation of a preset)");
    return at;
}

/* ---- the precision policy, with nothing resident ---- */

static int serve_policy(struct state *w, const struct expert_step *step, uint32_t expert,
                        struct precision_input in)
{
    static const enum precision_state absent[PRECISION__COUNT];
    const struct serving *s = w->run->s;
    const struct precision_policy *p = &s->policy;
    struct planned_widths widths = {s->precision, s->low};
    size_t cell = (size_t)step->layer * w->run->hp->experts + expert;
    in.planned = planned_precisions(&widths, cell);
    struct precision_choice choice;
    enum precision precision;
    precision_choose(p, &in, &choice);
    if (precision_serve(&choice, absent, &precision) == PRECISION_SKIPPED) {
        w->skipped++;
        return OFFLINE_SKIP;
    }
    w->need[choice.need == NEED_LOW]++;
    w->bytes +=
        offline_expert_bytes(w->run->base->model, step->layer, expert, precision, s->method);
    return (int)precision;
}

static int serve_item(void *arg, const struct expert_step *step, const struct expert_item *item)
{
    const struct precision_input in = {.weight_before = item->weight_before,
                                       .popularity = item->popularity,
                                       .prefill = item->prefill};
    return serve_policy(arg, step, item->expert, in);
}

/* As in decode. */
static int serve_row(void *arg, const struct expert_step *step, uint32_t row,
                     const struct route *route, float weight_before)
{
    (void)row;
    const struct precision_input in = {.weight_before = weight_before};
    return serve_policy(arg, step, route->expert, in);
}

/* ---- swapmoe ---- */

static void reset_swap(struct state *w)
{
    const struct serving *s = w->run->s;
    const struct model_hparams *hp = w->run->hp;
    struct swap_config config = {.layers = hp->layers,
                                 .experts = hp->experts,
                                 .top_k = hp->experts_used,
                                 .keep = s->keep,
                                 .norm = s->norm,
                                 .interval = s->interval,
                                 .margin = (float)s->margin,
                                 .amortise = !s->together,
                                 .count_only = s->count_only};
    if (w->swap)
        swap_destroy(w->swap);
    w->swap = swap_create(&config);
    if (!w->swap)
        log_fatal(1, "cannot set up expert replacement: out of memory or invalid expert sets");
    uint8_t *set = zeroed(hp->experts, 1);
    for (uint32_t l = hparams_next_experts(hp, 0); l < hp->layers;
         l = hparams_next_experts(hp, l + 1)) {
        for (uint32_t e = 0; e < hp->experts; e++)
            set[e] = s->allowed[(size_t)l * hp->experts + e];
        swap_set(w->swap, l, set);
    }
    free(set);
    w->swapping = false;
}

/* Lets the device work while `tokens` are computed (a layer: a fraction of its chunk): one pair at
 * a time, the next as soon as the last is read; the old expert serves until then. */
static void swap_during(struct state *w, double tokens)
{
    const struct serving *s = w->run->s;
    double each = s->pairs_per_token > 0 ? 1 / s->pairs_per_token : 0;
    struct swap_pair pair;
    for (;;) {
        if (!w->swapping) {
            if (!swap_next(w->swap, &pair))
                return;
            w->swapping = true;
            w->tokens_left = each;
        }
        if (w->tokens_left > tokens) {
            w->tokens_left -= tokens;
            return;
        }
        tokens -= w->tokens_left;
        w->swapping = false;
        swap_done(w->swap);
        w->swapped++;
    }
}

static bool mask_swap(void *arg, const struct expert_step *step, bool *allowed)
{
    struct state *w = arg;
    const struct model_hparams *hp = w->run->hp;
    double before = step->layer > hparams_next_experts(hp, 0) ? 1 : w->run->s->before_routing;
    swap_during(w, before * step->rows / hparams_expert_layers(hp));
    const uint8_t *serving = swap_serving(w->swap, step->layer);
    for (uint32_t e = 0; e < w->run->hp->experts; e++)
        allowed[e] = serving[e] != 0;
    return true;
}

/* The step's tokens are complete: plans are made, and pairs that are due start. */
static void end_of_step(struct state *w, uint32_t tokens)
{
    /* the last layer's experts */
    swap_during(w, (1 - w->run->s->before_routing) * tokens / hparams_expert_layers(w->run->hp));
    swap_tokens(w->swap, tokens);
    swap_during(w, 0);
}

static void choice_swap(void *arg, const struct expert_step *step, const float *importance)
{
    struct state *w = arg;
    for (uint32_t e = 0; e < w->run->hp->experts; e++)
        if (importance[e] > 0)
            swap_choice(w->swap, step->layer, e, importance[e]);
    if (hparams_next_experts(w->run->hp, step->layer + 1) == w->run->hp->layers)
        end_of_step(w, step->rows);
}

/* ---- running ---- */

static void worker_hooks(void *arg, uint32_t worker, struct offline_hooks *h)
{
    struct run *run = arg;
    sl_assert(worker < OFFLINE_WORKERS_MAX);
    struct state *w = run->state[worker] = zeroed(1, sizeof *w);
    w->run = run;
    h->arg = w;
    switch (run->s->kind) {
    case SERVE_POLICY:
        if (precision_by_rank(run->s->policy.rule))
            h->serve_row = serve_row;
        else
            h->serve = serve_item;
        break;
    case SERVE_SWAPMOE:
        h->mask = mask_swap;
        h->choice = choice_swap;
        break;
    default: break;
    }
}

/* Tokens per pass: those of an engine with chunks of s->chunk. */
static uint32_t chunk_of(const struct serving *s, const struct offline_text *text)
{
    uint32_t chunk = s->chunk ? s->chunk : text->window, most;
    if (s->kind != SERVE_SWAPMOE)
        return s->chunk;
    most = swap_rows_max(s->interval);
    return chunk < most ? chunk : most;
}

static uint32_t segment_of(const struct serving *s)
{
    return s->segment ? s->segment : SERVING_SEGMENT;
}

static void worker_starts(void *arg, uint32_t worker, uint32_t window)
{
    struct run *run = arg;
    if (run->s->kind == SERVE_SWAPMOE && window % segment_of(run->s) == 0)
        reset_swap(run->state[worker]);
}

static void pass_progress(void *arg, const struct offline_progress *p)
{
    const struct run *run = arg;
    if (run->base->progress)
        run->base->progress(run->base->arg, p);
}

static void pass_announce(void *arg, const struct offline_estimate *estimate)
{
    const struct run *run = arg;
    if (run->base->announce)
        run->base->announce(run->base->arg, estimate);
}

static void collect(struct run *run, struct serving_report *report)
{
    for (int i = 0; i < OFFLINE_WORKERS_MAX; i++) {
        struct state *w = run->state[i];
        if (!w)
            continue;
        report->swapped += w->swapped;
        report->need[0] += w->need[0];
        report->need[1] += w->need[1];
        report->skipped += w->skipped;
        report->bytes += w->bytes;
        if (w->swap)
            swap_destroy(w->swap);
        free(w);
    }
}

int serving_evaluate(const struct offline_evaluation *base, const struct serving *s,
                     struct offline_losses *losses, struct serving_report *report,
                     struct error *error)
{
    struct serving_report unused;
    struct run run = {.base = base, .s = s, .hp = &offline_index(base->model)->hparams};
    struct offline_evaluation e = *base;
    report = report ? report : &unused;
    *report = (struct serving_report){0};
    e.method = s->method;
    e.hooks = worker_hooks;
    e.starts = worker_starts;
    e.progress = pass_progress;
    e.announce = pass_announce;
    e.arg = &run;
    e.precision = s->kind == SERVE_PRECISIONS ? s->precision : NULL;
    e.allowed = s->kind == SERVE_MASK ? s->allowed : NULL;
    bool by_rank = s->kind == SERVE_POLICY && precision_by_rank(s->policy.rule);
    e.renormalise_skips = by_rank && s->skip_renormalise;
    e.chunk = chunk_of(s, base->text);
    e.token_by_token = s->kind == SERVE_SWAPMOE && e.chunk <= 1;
    if (s->kind == SERVE_SWAPMOE) {
        e.in_order = true;
        e.segment = segment_of(s) < base->text->windows ? segment_of(s) : base->text->windows;
    }
    int status = offline_evaluate(&e, losses, error);
    collect(&run, report);
    return status;
}

void serving_swap_times(struct serving *s, const struct plan *plan)
{
    const double *t = plan->scalar;
    double before = t[PLAN_layer_attention_ns] + t[PLAN_layer_router_ns];
    if (t[PLAN_expert_read_ns] > 0 && t[PLAN_token_ns] > 0) /* false for NaN: unknown */
        s->pairs_per_token = t[PLAN_token_ns] / t[PLAN_expert_read_ns];
    if (before >= 0 && t[PLAN_layer_experts_ns] > 0)
        s->before_routing = before / (before + t[PLAN_layer_experts_ns]);
}

void serving_largest(const float *value, uint32_t layers, uint32_t experts, const uint32_t *keep,
                     bool *allowed)
{
    memset(allowed, 0, (size_t)layers * experts * sizeof *allowed);
    for (uint32_t l = 0; l < layers; l++) {
        const float *v = value + (size_t)l * experts;
        bool *a = allowed + (size_t)l * experts;
        for (uint32_t n = 0; n < keep[l] && n < experts; n++) {
            uint32_t best = UINT32_MAX;
            for (uint32_t e = 0; e < experts; e++)
                if (!a[e] && (best == UINT32_MAX || v[e] > v[best]))
                    best = e;
            a[best] = true;
        }
    }
}

uint64_t serving_bytes(const struct offline_model *m, const uint8_t *precision,
                       enum quant_method method)
{
    const struct model_hparams *hp = &offline_index(m)->hparams;
    uint64_t bytes = 0;
    for (uint32_t l = 0; l < hp->layers; l++)
        for (uint32_t e = 0; e < hp->experts; e++)
            bytes += offline_expert_bytes(
                m, l, e,
                precision ? (enum precision)precision[(size_t)l * hp->experts + e]
                          : PRECISION_NATIVE,
                method);
    return bytes;
}
