/* SPDX-License-Identifier: Apache-2.0 */
/* With a read bandwidth: token by token with a simulated clock and cache. Without: the worst case
 * of a preset's precision: hobbit with every access a miss, fate with nothing resident; uniform
 * precisions and masks do not depend on residency. Lossless presets serve the model itself. */
#include "procs/clients/eval/in_process.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/base/clock.h"
#include "lib/inspected/inspected.h"
#include "lib/offline/measure/clocked.h"
#include "lib/offline/measure/serving.h"
#include "lib/policy/presets/loss.h"
#include "lib/policy/presets/planned.h"
#include "lib/policy/presets/presets.h"
#include "lib/tensor/precision.h"
#include "procs/clients/eval/cloze.h"

#define PROGRESS_NS (3 * NS_PER_S)

struct evaluating {
    const struct in_process *e;
    struct offline_model *model;
    struct offline_text text;
    struct plan *plan;
    struct knobs knobs;
    struct serving serving; /* worst case and masks */
    struct serving_report report;
    bool clocked;
    struct sim_config sim; /* with a read bandwidth */
    struct sim_stats stats;
    struct logits_file *against, *record, *npy;
    struct cloze_result cloze;
    struct outcome_text of_text[IN_PROCESS_TEXTS_MAX];
    char note[160];
    uint64_t cells;
    uint32_t capacity; /* number of resident experts */
    uint8_t *precision, *mask;
    bool *allowed;
    uint32_t *keep;
    uint64_t reported_ns;
};

static uint64_t expert_count(const struct evaluating *w)
{
    const struct model_hparams *hp = &offline_index(w->model)->hparams;
    return (uint64_t)hparams_expert_layers(hp) * hp->experts;
}

static void allow_mask(struct evaluating *w)
{
    for (uint64_t i = 0; i < w->cells; i++)
        w->allowed[i] = w->mask[i] != 0;
}

static int set_mask(struct evaluating *w, enum routing_mask kind, struct error *error)
{
    const struct model_hparams *hp = &offline_index(w->model)->hparams;
    if (planned_mask(w->plan, kind, hp, w->capacity, w->mask, error) != 0)
        return -1;
    allow_mask(w);
    w->serving.kind = SERVE_MASK;
    w->serving.allowed = w->allowed;
    return 0;
}

static int set_swap(struct evaluating *w, struct error *error)
{
    const struct model_hparams *hp = &offline_index(w->model)->hparams;
    const struct plan *plan = w->plan;
    if (planned_swap_sets(plan, hp, w->capacity, w->keep, w->mask, error) != 0)
        return -1;
    allow_mask(w);
    w->serving.kind = SERVE_SWAPMOE;
    w->serving.allowed = w->allowed;
    w->serving.keep = w->keep;
    w->serving.norm = plan_norm(plan);
    w->serving.interval = (uint32_t)w->knobs.interval;
    w->serving.margin = w->knobs.margin;
    w->serving.together = !w->knobs.amortise;
    w->serving.count_only = w->knobs.count_only;
    w->serving.segment = UINT32_MAX;
    w->serving.chunk = params_prefill_chunk(w->e->params);
    serving_swap_times(&w->serving, plan);
    if (w->e->read_bandwidth > 0) /* one read per pair: only the new expert is loaded */
        w->serving.pairs_per_token = clocked_token_ns(&w->sim) / clocked_read_ns(&w->sim);
    return 0;
}

static int set_uniform(struct evaluating *w, enum precision precision)
{
    memset(w->precision, precision, w->cells);
    w->serving.kind = SERVE_PRECISIONS;
    w->serving.precision = w->precision;
    return 0;
}

/* The policy of a model with every precision: offline, experts are quantised as needed. */
static int policy_of(const struct evaluating *w, struct precision_policy *policy,
                     struct error *error)
{
    uint64_t bytes[PRECISION__COUNT];
    uint32_t layer = model_expert_layer(offline_index(w->model), 0);
    for (int p = 0; p < PRECISION__COUNT; p++)
        bytes[p] = offline_expert_bytes(w->model, layer, 0, (enum precision)p, w->e->method);
    return knobs_precision_policy(&w->knobs, (1u << PRECISION__COUNT) - 1, bytes, policy, error);
}

static int take_widths(struct evaluating *w, struct error *error)
{
    struct serving *s = &w->serving;
    struct planned_widths widths = planned_widths(w->plan, &w->knobs);
    s->precision = widths.high;
    s->low = widths.low;
    if (s->precision)
        return 0;
    return error_set(error, ERR_BAD_INPUT,
                     "%.200s has no precisions of the experts; run 'sluice plan --preset %s'",
                     w->e->params->plan,
                     s->policy.rule == PRECISION_RULE_EDGEMOE ? "edgemoe" : "mixed-two");
}

static int set_precision_rule(struct evaluating *w, struct error *error)
{
    struct serving *s = &w->serving;
    if (policy_of(w, &s->policy, error) != 0)
        return -1;
    switch (s->policy.rule) {
    case PRECISION_RULE_LOSSLESS: return 0;
    case PRECISION_RULE_UNIFORM_INT8: return set_uniform(w, PRECISION_INT8);
    case PRECISION_RULE_UNIFORM_INT4: return set_uniform(w, PRECISION_INT4);
    case PRECISION_RULE_UNIFORM_INT2: return set_uniform(w, PRECISION_INT2);
    case PRECISION_RULE_EDGEMOE: s->kind = SERVE_PRECISIONS; return take_widths(w, error);
    case PRECISION_RULE_MIXED_TWO:
        if (take_widths(w, error) != 0)
            return -1;
        break;
    case PRECISION_RULE_DROP:
    case PRECISION_RULE_HOBBIT:
    case PRECISION_RULE_FATE: break;
    }
    s->kind = SERVE_POLICY;
    s->skip_renormalise = w->knobs.skip_renormalise;
    s->chunk = params_prefill_chunk(w->e->params);
    return 0;
}

static int choose(struct evaluating *w, struct error *error)
{
    const struct params *params = w->e->params;
    if (planned_knobs(w->plan, params->preset, params->policy, &w->knobs, error) != 0)
        return -1;
    bool masked = w->knobs.routing == ROUTING_MASKED;
    if (!w->plan && (masked || knobs_need_plan(&w->knobs)))
        return error_set(error, ERR_BAD_INPUT, "preset %s requires --plan PLAN", params->preset);
    if (w->knobs.precision != PRECISION_RULE_LOSSLESS &&
        offline_check_precisions(w->model, error) != 0)
        return -1;
    w->capacity = (uint32_t)percent_of(params->resident_experts, expert_count(w));
    w->serving.method = w->e->method;
    w->clocked = w->e->read_bandwidth > 0 && !masked;
    clocked_config(
        w->model, &w->knobs, w->plan, w->serving.method,
        percent_of(params->resident_experts, serving_bytes(w->model, NULL, w->e->method)), &w->sim);
    if (w->e->read_bandwidth > 0)
        w->sim.storage.bytes_per_s = w->e->read_bandwidth;
    if (w->clocked)
        return 0;
    if (w->knobs.routing == ROUTING_RESIDENT_FIRST)
        return error_set(error, ERR_BAD_INPUT,
                         "the loss of routing=resident-first depends on what is resident at each "
                         "token, which many tokens at once cannot show; use --read-bandwidth "
                         "RATE, or an engine, which then decodes the text");
    if (masked)
        return w->knobs.mask == MASK_SWAP ? set_swap(w, error) : set_mask(w, w->knobs.mask, error);
    return set_precision_rule(w, error);
}

static void progress(void *arg, const struct offline_progress *p)
{
    struct evaluating *w = arg;
    char text[OFFLINE_TEXT_BYTES];
    uint64_t now = clock_now_ns();
    if (now - w->reported_ns < PROGRESS_NS)
        return;
    w->reported_ns = now;
    fprintf(stderr, "sluice eval: %s\n", offline_progress_text(p, text));
}

static void announce(void *arg, const struct offline_estimate *estimate)
{
    char text[OFFLINE_TEXT_BYTES];
    (void)arg;
    fprintf(stderr, "sluice eval: %s\n", offline_estimate_text(estimate, text));
}

static double mean(const float *x, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)x[i];
    return sum / (double)n;
}

/* Of the windows of a text. False: it has none. */
static bool outcome_of_text(const struct evaluating *w, size_t text, const struct offline_losses *l,
                            const double *reference, struct outcome_text *o)
{
    uint32_t each = w->e->cloze ? CLOZE_CHOICES : 1; /* of the text, to those that are kept */
    double more = 0, kld = 0, same = 0;
    *o = (struct outcome_text){w->e->text_path[text], 0, NAN, NAN, NAN};
    for (uint32_t i = 0; i < l->windows; i++) {
        if (w->text.path[i * each] != text)
            continue;
        o->tokens += l->scored;
        more += l->nll[i] - reference[i];
        kld += l->kld ? mean(l->kld + (size_t)i * l->scored, l->scored) * l->scored : 0;
        same += l->kld ? l->same[i] : 0;
    }
    if (o->tokens == 0)
        return false;
    o->loss = exp(more / (double)o->tokens) - 1;
    if (l->kld) {
        o->kld_mean = kld / (double)o->tokens;
        o->top1_same = same / (double)o->tokens;
    }
    return true;
}

static void outcome_of(struct evaluating *w, struct offline_losses *losses, const double *reference,
                       struct outcome *o)
{
#define OUTCOME_REAL(name, doc) o->name = NAN;
#define OUTCOME_COUNT(name, doc)
#include "procs/clients/eval/outcome.tbl.h"
    struct offline_interval loss =
        offline_loss_interval(reference, losses->nll, losses->windows, losses->scored, 0.95);
    for (size_t i = 0; i < w->e->texts; i++)
        o->texts += outcome_of_text(w, i, losses, reference, &w->of_text[o->texts]);
    o->text = w->of_text;
    o->preset = w->e->params->preset;
    o->note = w->note;
    o->tokens = (uint64_t)losses->windows * losses->scored;
    o->windows = losses->windows;
    o->ctx = w->text.window;
    o->ppl = offline_perplexity(losses);
    o->ppl_lossless = o->ppl / (1 + loss.value);
    o->loss = loss.value;
    o->loss_low = loss.low;
    o->loss_high = loss.high;
    if (!losses->kld)
        return;
    o->kld_mean = mean(losses->kld, o->tokens);
    o->top1_same = (double)losses->top1_same / (double)o->tokens;
    o->kld_p999 = (double)offline_quantile(losses->kld, o->tokens, 0.999);
}

/* Of a rule by rank; `drop` has no lower precision, which T1 would choose. */
static void note_thresholds(struct evaluating *w, const char *after)
{
    if (w->knobs.precision == PRECISION_RULE_DROP)
        snprintf(w->note, sizeof w->note, "T2 %.3f%s", w->knobs.t2, after);
    else
        snprintf(w->note, sizeof w->note, "T1 %.3f, T2 %.3f%s", w->knobs.t1, w->knobs.t2, after);
}

/* Adds the serving decisions of the worst case. */
static void add_report(struct evaluating *w, struct outcome *o)
{
    const struct serving_report *r = &w->report;
    uint64_t accesses = r->need[0] + r->need[1] + r->skipped;
    o->expert_bytes = serving_bytes(w->model, w->serving.precision, w->serving.method);
    if (w->serving.allowed) /* resident experts only */
        o->expert_bytes = o->expert_bytes / expert_count(w) * w->capacity;
    o->swaps = r->swapped;
    if (w->serving.kind == SERVE_SWAPMOE)
        snprintf(w->note, sizeof w->note, "%" PRIu64 " expert swaps, %.3f per token", r->swapped,
                 (double)r->swapped / ((double)w->text.windows * w->text.window));
    if (w->serving.kind != SERVE_POLICY || !precision_by_rank(w->serving.policy.rule))
        return;
    o->share_high = (double)r->need[0] / (double)accesses;
    o->share_low = (double)r->need[1] / (double)accesses;
    o->share_skipped = (double)r->skipped / (double)accesses;
    note_thresholds(w, ", every access a miss");
}

/* Adds the statistics of the simulated clock and cache. */
static void add_stats(struct evaluating *w, struct outcome *o)
{
    const struct sim_stats *f = &w->stats;
    double accesses = (double)f->accesses, tokens = (double)f->tokens;
    o->expert_bytes = w->sim.capacity;
    o->device_bytes_per_s = w->sim.storage.bytes_per_s;
    o->hit_rate = (double)f->hits / accesses;
    o->bytes_per_token = (double)(f->demand_bytes + f->prefetch_bytes) / tokens;
    o->token_ms = (f->stall_ns + f->compute_ns) / tokens / 1e6;
    o->stall_ms = f->stall_ns / tokens / 1e6;
    if (!precision_by_rank(w->knobs.precision))
        return;
    o->share_skipped = (double)f->skipped / accesses;
    o->share_low = (double)f->low_precision_accesses / accesses;
    o->share_high = 1 - o->share_low - o->share_skipped;
    note_thresholds(w, "");
}

static int evaluate(struct evaluating *w, const struct offline_evaluation *base,
                    struct offline_losses *losses, struct error *error)
{
    if (w->clocked)
        return clocked_evaluate(base, &w->sim, w->serving.method, losses, &w->stats, error);
    return serving_evaluate(base, &w->serving, losses, &w->report, error);
}

/* Only continuations are scored. A cache lasts for as many tokens as in other evaluations. */
static void set_cloze(const struct evaluating *w, struct offline_evaluation *base)
{
    uint32_t longer = IN_PROCESS_WINDOW_DEFAULT / w->text.window;
    base->score_from = cloze_context(w->text.window) - 1;
    base->segment = longer > 1 ? CLOCKED_SEGMENT * longer : CLOCKED_SEGMENT;
}

static void take_cloze(struct evaluating *w, struct offline_losses *losses, double *reference)
{
    w->cloze = cloze_judge(losses->nll, reference, losses->windows / CLOZE_CHOICES);
    cloze_keep_true(losses, reference);
}

static void add_cloze(const struct evaluating *w, struct outcome *o)
{
    o->cloze_items = o->windows;
    o->cloze_right = w->cloze.right;
    o->cloze_right_lossless = w->cloze.reference_right;
    o->cloze_low = w->cloze.low;
    o->cloze_high = w->cloze.high;
    o->cloze_same = w->cloze.same;
}

static int measure(struct evaluating *w, struct error *error)
{
    struct offline_evaluation base = {.model = w->model,
                                      .text = &w->text,
                                      .threads = (uint32_t)w->e->params->threads,
                                      .compare = w->e->compare && !w->against,
                                      .against = w->against,
                                      .record = w->record,
                                      .npy = w->npy,
                                      .progress = progress,
                                      .announce = announce,
                                      .arg = w};
    base.kv_type = kv_type_find(w->e->params->kv_type);
    base.reference_kv_type = w->e->reference_kv_type;
    base.dense = w->e->dense_given ? w->e->dense : preset_planned_dense(&w->knobs, w->plan);
    if (w->e->cloze)
        set_cloze(w, &base);
    struct offline_losses losses, lossless = {0};
    struct outcome o = {0};
    if (evaluate(w, &base, &losses, error) != 0)
        return -1;
    int status = w->record ? logits_commit(w->record, error) : 0;
    if (status == 0 && w->npy)
        status = logits_commit(w->npy, error);
    base.compare = false;
    base.record = base.npy = NULL;
    base.dense = PRECISION_NATIVE;
    base.kv_type = base.reference_kv_type;
    if (status == 0 && !losses.reference_nll)
        status = offline_evaluate(&base, &lossless, error);
    if (status == 0) {
        double *reference = losses.reference_nll ? losses.reference_nll : lossless.nll;
        if (w->e->cloze)
            take_cloze(w, &losses, reference);
        outcome_of(w, &losses, reference, &o);
        if (w->e->cloze)
            add_cloze(w, &o);
        w->clocked ? add_stats(w, &o) : add_report(w, &o);
        outcome_print(&o, w->e->output);
    }
    offline_losses_free(&losses);
    offline_losses_free(&lossless);
    return status;
}

static int open_logits(struct evaluating *w, struct error *error)
{
    const struct in_process *e = w->e;
    uint32_t vocab = offline_index(w->model)->hparams.vocab;
    if (e->against && !(w->against = logits_open(e->against, &w->text, vocab, error)))
        return -1;
    if (e->record &&
        !(w->record = logits_create(e->record, &w->text, vocab, offline_hash(w->model), error)))
        return -1;
    if (e->npy && !(w->npy = logits_create_npy(e->npy, &w->text, vocab, error)))
        return -1;
    return 0;
}

/* Of each text at most `most` windows. Of several texts the number of windows does not tell which
 * they are. */
static void keep_first(struct offline_text *t, size_t texts, uint64_t most)
{
    uint64_t count[IN_PROCESS_TEXTS_MAX] = {0};
    uint32_t kept = 0;
    for (uint32_t i = 0; i < t->windows; i++) {
        if (count[t->path[i]]++ >= most)
            continue;
        memmove(t->ids + (size_t)kept * t->window, offline_window(t, i),
                t->window * sizeof *t->ids);
        t->path[kept++] = t->path[i];
    }
    t->windows = kept;
    if (texts > 1)
        offline_text_rehash(t);
}

static int open_all(struct evaluating *w, struct error *error)
{
    const struct in_process *e = w->e;
    uint64_t memory = e->memory ? e->memory : e->params->budget;
    w->model = offline_open_within(e->model_path, inspected_index,
                                   memory ? memory : OFFLINE_MEMORY_DEFAULT, error);
    if (!w->model || offline_text_load(offline_index(w->model), e->text_path, e->texts, e->window,
                                       (uint64_t)e->cloze * e->window, &w->text, error) != 0)
        return -1;
    if (e->cloze && cloze_make(&w->text, error) != 0)
        return -1;
    if (e->windows_max)
        keep_first(&w->text, e->texts, (uint64_t)e->windows_max);
    const struct model_hparams *hp = &offline_index(w->model)->hparams;
    if (e->params->plan[0]) {
        w->plan = plan_read(e->params->plan, error);
        if (!w->plan || plan_matches(w->plan, offline_index(w->model), offline_hash(w->model),
                                     e->params->plan, error) != 0)
            return -1;
    }
    w->cells = (uint64_t)hp->layers * hp->experts;
    w->precision = calloc(w->cells, 1);
    w->mask = calloc(w->cells, 1);
    w->allowed = calloc(w->cells, sizeof *w->allowed);
    w->keep = calloc(hp->layers, sizeof *w->keep);
    if (!w->precision || !w->mask || !w->allowed || !w->keep)
        return error_set(error, ERR_NO_MEMORY, "out of memory (evaluation)");
    return open_logits(w, error);
}

int in_process_eval(const struct in_process *e, struct error *error)
{
    struct evaluating w = {.e = e, .reported_ns = clock_now_ns()};
    int status = open_all(&w, error);
    if (status == 0)
        status = choose(&w, error);
    if (status == 0)
        status = measure(&w, error);
    free(w.precision);
    free(w.mask);
    free(w.allowed);
    free(w.keep);
    free(w.plan);
    logits_close(w.against);
    logits_close(w.record);
    logits_close(w.npy);
    offline_text_free(&w.text);
    if (w.model)
        offline_close(w.model);
    return status;
}
