/* Which serving a system comes to when its losses are worst: hobbit with every use a miss, fate
 * with nothing resident, uniform widths and masks as they are. Lossless systems are the model
 * itself. */
#include "procs/eval/in_process.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/base/clock.h"
#include "lib/offline/serving.h"
#include "lib/policy/planned.h"
#include "lib/policy/systems.h"

#define PROGRESS_NS (3 * NS_PER_S)

struct evaluating {
    const struct in_process *e;
    struct offline_model *model;
    struct offline_text text;
    struct plan *plan;
    struct knobs knobs;
    struct serving serving;
    uint64_t cells;
    uint32_t capacity; /* experts that are resident */
    uint8_t *tier, *mask;
    bool *allowed;
    uint32_t *keep;
    uint64_t told;
};

static enum tier tier_of(const char *word, enum tier otherwise)
{
    static const char *const words[TIER__COUNT] = {"native", "int8", "int4", "int2"};
    for (int t = 0; t < TIER__COUNT; t++)
        if (strcmp(word, words[t]) == 0)
            return (enum tier)t;
    return otherwise;
}

/* The tier nearest to a quarter of the high one's bytes. */
static enum tier low_of(const struct evaluating *w, enum tier high)
{
    double quarter = (double)offline_expert_bytes(w->model, 0, 0, high, QUANT_CHANNEL) / 4,
           nearest = 1e300;
    enum tier low = TIER_INT2;
    for (enum tier t = (enum tier)(high + 1); t < TIER__COUNT; t++) {
        double off = fabs((double)offline_expert_bytes(w->model, 0, 0, t, QUANT_CHANNEL) - quarter);
        low = off < nearest ? t : low;
        nearest = off < nearest ? off : nearest;
    }
    return low;
}

static int set_mask(struct evaluating *w, const char *kind, struct error *error)
{
    const struct model_hparams *hp = &offline_index(w->model)->hparams;
    if (planned_mask(w->plan, kind, hp, w->capacity, w->mask, error) != 0)
        return -1;
    for (uint64_t i = 0; i < w->cells; i++)
        w->allowed[i] = w->mask[i] != 0;
    w->serving.kind = SERVE_MASK;
    w->serving.allowed = w->allowed;
    return 0;
}

static int set_swap(struct evaluating *w, struct error *error)
{
    const struct model_hparams *hp = &offline_index(w->model)->hparams;
    const struct plan *plan = w->plan;
    if (planned_virtual(plan, hp, w->capacity, w->keep, error) != 0)
        return -1;
    serving_largest(plan_frequency(plan), hp->layers, hp->experts, w->keep, w->allowed);
    w->serving.kind = SERVE_SWAPMOE;
    w->serving.allowed = w->allowed;
    w->serving.keep = w->keep;
    w->serving.norm = plan_norm(plan);
    w->serving.interval = (uint32_t)w->knobs.interval;
    w->serving.together = !w->knobs.amortise;
    w->serving.count_only = w->knobs.count_only;
    w->serving.chunk = 1;
    if (plan_knows(plan, PLAN_expert_read_ns) && plan_knows(plan, PLAN_token_ns))
        w->serving.pairs_per_token =
            plan->scalar[PLAN_token_ns] / plan->scalar[PLAN_expert_read_ns];
    return 0;
}

static int set_uniform(struct evaluating *w, enum tier tier)
{
    memset(w->tier, tier, w->cells);
    w->serving.kind = SERVE_TIERS;
    w->serving.tier = w->tier;
    return 0;
}

static int set_precision(struct evaluating *w, struct error *error)
{
    const char *precision = w->knobs.precision;
    struct serving *s = &w->serving;
    if (strncmp(precision, "uniform-", 8) == 0)
        return set_uniform(w, tier_of(precision + 8, TIER_NATIVE));
    if (strcmp(precision, "edgemoe") == 0) {
        if (!plan_has(w->plan, PLAN_ARRAY_width))
            return error_set(error, ERR_BAD_INPUT,
                             "%.200s has no widths: sluice plan --system "
                             "edgemoe makes them",
                             w->e->params->plan);
        s->kind = SERVE_TIERS;
        s->tier = plan_width(w->plan);
    } else if (strcmp(precision, "hobbit") == 0) {
        s->kind = SERVE_HOBBIT;
        s->high = tier_of(w->knobs.high, TIER_NATIVE);
        s->low = tier_of(w->knobs.low, low_of(w, s->high));
        s->t1 = w->knobs.t1;
        s->t2 = w->knobs.t2;
        s->skip_renormalise = w->knobs.skip_renormalise;
    } else if (strcmp(precision, "fate") == 0) {
        s->kind = SERVE_FATE;
        s->method = QUANT_HQQ;
        s->low_fraction = w->knobs.low_fraction;
    }
    return 0;
}

static int choose(struct evaluating *w, struct error *error)
{
    const struct params *params = w->e->params;
    char planned[512] = "";
    uint32_t system = system_find(params->system);
    if (w->plan && system != POLICY_NONE)
        planned_settings(w->plan, system, planned, sizeof planned);
    if (knobs_resolve(params->system, planned, params->knobs, &w->knobs, error) != 0)
        return -1;
    bool masked = strcmp(w->knobs.routing, "masked") == 0;
    if (!w->plan && (masked || knobs_need_plan(&w->knobs)))
        return error_set(error, ERR_BAD_INPUT, "system %s needs --plan PLAN", params->system);
    w->capacity = (uint32_t)(params->experts / 100 * (double)w->cells);
    w->serving.method = QUANT_CHANNEL;
    if (masked)
        return strcmp(w->knobs.mask, "swap") == 0 ? set_swap(w, error)
                                                  : set_mask(w, w->knobs.mask, error);
    return set_precision(w, error);
}

static void progress(void *arg, uint32_t done, uint32_t windows)
{
    struct evaluating *w = arg;
    uint64_t now = clock_now_ns();
    if (now - w->told < PROGRESS_NS)
        return;
    w->told = now;
    fprintf(stderr, "sluice eval: window %u of %u\n", done, windows);
}

static double mean(const float *x, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)x[i];
    return sum / (double)n;
}

struct outcome {
    double ppl, lossless, kld_mean, kld_p999, same;
    struct offline_interval loss;
    uint64_t tokens, bytes;
    struct serving_report report;
};

static void print_outcome(const struct evaluating *w, const struct outcome *o)
{
    const struct in_process *e = w->e;
    if (e->json) {
        json_t *out = json_pack(
            "{s:s, s:f, s:f, s:f, s:f, s:f, s:I, s:I, s:I, s:I, s:I}", "system", e->params->system,
            "ppl", o->ppl, "ppl_lossless", o->lossless, "loss", o->loss.value, "loss_low",
            o->loss.low, "loss_high", o->loss.high, "tokens", (json_int_t)o->tokens, "windows",
            (json_int_t)w->text.windows, "ctx", (json_int_t)w->text.window, "expert_bytes",
            (json_int_t)o->bytes, "swaps", (json_int_t)o->report.swapped);
        if (e->compare) {
            json_object_set_new(out, "kld_mean", json_real(o->kld_mean));
            json_object_set_new(out, "kld_p999", json_real(o->kld_p999));
            json_object_set_new(out, "top1_same", json_real(o->same));
        }
        json_dumpf(out, stdout, JSON_INDENT(2));
        printf("\n");
        json_decref(out);
        return;
    }
    char size[16];
    printf("%s: perplexity %.4f, lossless %.4f: %+.3f %% (95 %%: %+.3f .. %+.3f) over %" PRIu64
           " tokens; experts %s\n",
           e->params->system, o->ppl, o->lossless, 100 * o->loss.value, 100 * o->loss.low,
           100 * o->loss.high, o->tokens, bytes_format(o->bytes, size));
    if (e->compare)
        printf("  KLD mean %.6f, p99.9 %.4f; same first choice %.2f %%\n", o->kld_mean, o->kld_p999,
               100 * o->same);
    if (w->serving.kind == SERVE_HOBBIT) {
        double uses = (double)(o->report.need[0] + o->report.need[1] + o->report.skipped);
        printf("  T1 %.3f T2 %.3f: %.1f %% high, %.1f %% low, %.1f %% skipped (every use a miss)\n",
               w->serving.t1, w->serving.t2, 100 * (double)o->report.need[0] / uses,
               100 * (double)o->report.need[1] / uses, 100 * (double)o->report.skipped / uses);
    }
    if (w->serving.kind == SERVE_SWAPMOE)
        printf("  %" PRIu64 " swaps, %.3f a token\n", o->report.swapped,
               (double)o->report.swapped / ((double)w->text.windows * w->text.window));
}

static int measure(struct evaluating *w, struct error *error)
{
    struct offline_evaluation base = {.model = w->model,
                                      .text = &w->text,
                                      .threads = (uint32_t)w->e->params->threads,
                                      .compare = w->e->compare,
                                      .progress = progress,
                                      .arg = w};
    struct offline_losses losses, lossless = {0};
    struct outcome o = {0};
    if (serving_evaluate(&base, &w->serving, &losses, &o.report, error) != 0)
        return -1;
    base.compare = false;
    if (!w->e->compare && offline_evaluate(&base, &lossless, error) != 0) {
        offline_losses_free(&losses);
        return -1;
    }
    const double *reference = w->e->compare ? losses.reference_nll : lossless.nll;
    o.tokens = (uint64_t)losses.windows * losses.scored;
    o.ppl = offline_perplexity(&losses);
    o.loss = offline_loss_interval(reference, losses.nll, losses.windows, losses.scored, 0.95);
    o.lossless = o.ppl / (1 + o.loss.value);
    o.bytes = serving_bytes(w->model, w->serving.tier, QUANT_CHANNEL);
    if (w->serving.allowed) /* resident, not all */
        o.bytes = o.bytes / w->cells * w->capacity;
    if (w->e->compare) {
        o.kld_mean = mean(losses.kld, o.tokens);
        o.same = (double)losses.top1_same / (double)o.tokens;
        o.kld_p999 = (double)offline_quantile(losses.kld, o.tokens, 0.999);
    }
    print_outcome(w, &o);
    offline_losses_free(&losses);
    offline_losses_free(&lossless);
    return 0;
}

static int open_all(struct evaluating *w, struct error *error)
{
    const struct in_process *e = w->e;
    w->model = offline_open(e->model_path, error);
    if (!w->model || offline_text_load(offline_index(w->model), e->text_path, e->texts, e->window,
                                       0, &w->text, error) != 0)
        return -1;
    if (e->windows_max && w->text.windows > (uint64_t)e->windows_max)
        w->text.windows = (uint32_t)e->windows_max;
    const struct model_hparams *hp = &offline_index(w->model)->hparams;
    if (e->params->plan[0]) {
        w->plan = plan_read(e->params->plan, error);
        if (!w->plan || plan_matches(w->plan, offline_index(w->model), offline_hash(w->model),
                                     e->params->plan, error) != 0)
            return -1;
    }
    w->cells = (uint64_t)hp->layers * hp->experts;
    w->tier = calloc(w->cells, 1);
    w->mask = calloc(w->cells, 1);
    w->allowed = calloc(w->cells, sizeof *w->allowed);
    w->keep = calloc(hp->layers, sizeof *w->keep);
    if (!w->tier || !w->mask || !w->allowed || !w->keep)
        return error_set(error, ERR_NO_MEMORY, "no memory to evaluate");
    return 0;
}

int in_process_eval(const struct in_process *e, struct error *error)
{
    struct evaluating w = {.e = e, .told = clock_now_ns()};
    int status = open_all(&w, error);
    if (status == 0)
        status = choose(&w, error);
    if (status == 0)
        status = measure(&w, error);
    free(w.tier);
    free(w.mask);
    free(w.allowed);
    free(w.keep);
    free(w.plan);
    offline_text_free(&w.text);
    if (w.model)
        offline_close(w.model);
    return status;
}
