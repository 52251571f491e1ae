/* SPDX-License-Identifier: Apache-2.0 */
/* Routing statistics from one pass over the text: frequencies, paths over one and two layers, and
 * the recall of predictions of each layer from three inputs.
 *
 * Inputs (Fate §3):
 *   0  the gate input of the previous layer, unchanged
 *   1  the attention input of this layer: the residual stream, with this layer's router norm (the
 *      gate input itself where the router reads it)
 *   2  the attention input of the previous layer, likewise */
#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/clock.h"
#include "lib/plan/paths.h"
#include "lib/policy/prediction/prediction.h"
#include "lib/router/row.h"
#include "procs/tools/profile/profile.h"

#define PATH_BYTES 32 /* of a path, while its table grows */

#define INPUTS 3 /* previous gate, attention, previous attention */

struct kept {                    /* rows of a window, from layer to layer */
    float *gate_before;          /* [window][hidden] gate inputs of the previous layer */
    float *input, *input_before; /* [window][hidden] residual at this and the previous layer */
    uint16_t *chosen[3];         /* [window][K]: experts of this layer and of the two before */
};

struct seen { /* state of one worker */
    struct statistics *all;
    struct kept *kept; /* of its current window */
    struct router_row *router;
    float *x, *logits, *scratch; /* a row, its logits */
    struct prediction *predictions;
    uint64_t *accesses;           /* [L][E] */
    uint64_t (*found)[INPUTS][2]; /* [L]: true top-K found by K predictions, by the list */
    double *shares;               /* [L][K]: sums of each rank's share of the gate weights */
    uint64_t rows;
};

struct statistics {
    struct profile *p;
    const struct model_hparams *hp;
    uint32_t first;          /* the first layer with experts */
    float *norm;             /* [L][2][hidden] */
    atomic_uint *one;        /* [L][E][E] */
    struct path_counts *two; /* paths over two layers; NULL: --pair-mib 0 */
    struct seen *seen[OFFLINE_WORKERS_MAX];
    struct kept *kept; /* [kept_count] windows that go through the model together */
    uint32_t kept_count, kept_first;
};

static void *zeroed(size_t count, size_t bytes)
{
    void *at = calloc(count, bytes);
    if (!at)
        log_fatal(1, "out of memory (routing statistics)");
    return at;
}

/* Whether predictions are also made of the residual before the layer. Of several streams, what a
 * router reads is made by matrices of its layer. */
static bool reads_inputs(const struct statistics *all)
{
    return all->hp->streams < 2;
}

/* ---- hooks ---- */

static void at_layer_inputs(void *arg, const struct expert_step *step, const float *x,
                            size_t stride, uint32_t n)
{
    struct seen *s = arg;
    struct kept *k = s->kept;
    if (!hparams_layer_has_experts(s->all->hp, step->layer))
        return;
    if (step->row->position == 0) { /* the first chunk of the layer */
        float *other = k->input_before;
        k->input_before = k->input;
        k->input = other;
    }
    for (uint32_t r = 0; r < step->rows; r++)
        memcpy(k->input + (size_t)(step->row[r].position) * n, x + r * stride, n * sizeof *x);
}

static void count_shares(struct seen *s, uint32_t layer, const struct route *row)
{
    uint32_t k = s->all->hp->experts_used;
    double sum = 0;
    for (uint32_t i = 0; i < k; i++)
        sum += (double)row[i].weight;
    for (uint32_t i = 0; i < k && sum > 0; i++)
        s->shares[(size_t)layer * k + i] += (double)row[i].weight / sum;
}

static void at_routed(void *arg, const struct expert_step *step, const struct route *routes)
{
    struct seen *s = arg;
    const struct model_hparams *hp = s->all->hp;
    uint32_t k = hp->experts_used;
    uint16_t **chosen = s->kept->chosen, *oldest = chosen[2];
    if (step->row->position == 0) {
        chosen[2] = chosen[1];
        chosen[1] = chosen[0];
        chosen[0] = oldest;
    }
    uint16_t *now = chosen[0] + (size_t)step->row->position * k;
    for (size_t i = 0; i < (size_t)step->rows * k; i++) {
        now[i] = (uint16_t)routes[i].expert;
        s->accesses[(size_t)step->layer * hp->experts + routes[i].expert]++;
    }
    for (uint32_t r = 0; r < step->rows; r++)
        count_shares(s, step->layer, routes + (size_t)r * k);
    s->rows += step->layer == s->all->first ? step->rows : 0;
}

static void count_paths(struct seen *s, const struct expert_step *step, uint32_t row)
{
    const struct statistics *all = s->all;
    uint32_t k = all->hp->experts_used;
    size_t e = all->hp->experts;
    uint16_t *const *chosen = s->kept->chosen;
    const uint16_t *now = chosen[0] + (size_t)row * k, *before = chosen[1] + (size_t)row * k;
    for (uint32_t b = 0; b < k; b++) {
        size_t at = (step->layer * e + before[b]) * e;
        for (uint32_t c = 0; c < k; c++)
            atomic_fetch_add_explicit(&all->one[at + now[c]], 1, memory_order_relaxed);
    }
    if (all->two && hparams_experts_before(all->hp, step->layer) != all->first)
        path_counts_add(all->two, step->layer, chosen[2] + (size_t)row * k, before, now, k);
}

static uint32_t hits(const struct prediction *predictions, uint32_t count, const uint16_t *chosen,
                     uint32_t k)
{
    uint32_t n = 0;
    for (uint32_t g = 0; g < count; g++)
        for (uint32_t i = 0; i < k; i++)
            n += predictions[g].expert == chosen[i];
    return n;
}

/* Predicts the layer's experts for the token of a row from input x, as an engine does, which knows
 * the token, and counts the correct predictions. */
static void count_predictions(struct seen *s, uint32_t layer, const struct expert_row *at,
                              const float *x, int which)
{
    const struct statistics *all = s->all;
    const struct model_hparams *hp = all->hp;
    const uint16_t *chosen = s->kept->chosen[0] + (size_t)at->position * hp->experts_used;
    struct model_router rule;
    bool known = router_row_logits(s->router, layer, x, at->token, s->logits, &rule);
    sl_assert(known);
    struct prediction_input in = {.layer = layer,
                                  .experts = hp->experts,
                                  .top_k = hp->experts_used,
                                  .want = hp->experts,
                                  .logits = s->logits,
                                  .router = &rule,
                                  .scratch = s->scratch};
    uint32_t listed = prediction_run(prediction_method_of(PREDICTION_FATE), &in, s->predictions);
    uint32_t few = listed < hp->experts_used ? listed : hp->experts_used;
    s->found[layer][which][0] += hits(s->predictions, few, chosen, hp->experts_used);
    s->found[layer][which][1] += hits(s->predictions, listed, chosen, hp->experts_used);
}

static void at_gate_inputs(void *arg, const struct expert_step *step, const float *x, size_t stride,
                           uint32_t n)
{
    struct seen *s = arg;
    const struct statistics *all = s->all;
    const struct offline_model *m = all->p->model;
    const float *norm = all->norm + (size_t)step->layer * 2 * n;
    struct kept *k = s->kept;
    for (uint32_t i = 0; i < step->rows; i++) {
        uint32_t r = step->row[i].position;
        if (step->layer > all->first) {
            count_paths(s, step, r);
            count_predictions(s, step->layer, &step->row[i], k->gate_before + (size_t)r * n, 0);
        }
        if (step->layer > all->first && reads_inputs(all)) {
            offline_gate_input(m, norm, k->input_before + (size_t)r * n, s->x);
            count_predictions(s, step->layer, &step->row[i], s->x, 2);
        }
        if (reads_inputs(all)) {
            offline_gate_input(m, norm, k->input + (size_t)r * n, s->x);
            count_predictions(s, step->layer, &step->row[i], s->x, 1);
        }
        memcpy(k->gate_before + (size_t)r * n, x + i * stride, n * sizeof *x);
    }
}

/* ---- windows ---- */

static uint64_t kept_row_bytes(const struct model_hparams *hp)
{
    return 3 * hp->hidden * sizeof(float) + 3 * hp->experts_used * sizeof(uint16_t);
}

static void group_begins(void *arg, uint32_t first, uint32_t windows)
{
    struct statistics *all = arg;
    size_t rows = all->p->text.window, hidden = all->hp->hidden;
    all->kept_first = first;
    if (all->kept) /* the first group is the largest */
        return;
    all->kept = zeroed(windows, sizeof *all->kept);
    all->kept_count = windows;
    for (uint32_t w = 0; w < windows; w++) {
        struct kept *k = &all->kept[w];
        k->gate_before = zeroed(rows * hidden, sizeof(float));
        k->input = zeroed(rows * hidden, sizeof(float));
        k->input_before = zeroed(rows * hidden, sizeof(float));
        for (int i = 0; i < 3; i++)
            k->chosen[i] = zeroed(rows * all->hp->experts_used, sizeof(uint16_t));
    }
}

static void free_kept(struct statistics *all)
{
    for (uint32_t w = 0; w < all->kept_count; w++) {
        free(all->kept[w].gate_before);
        free(all->kept[w].input);
        free(all->kept[w].input_before);
        for (int i = 0; i < 3; i++)
            free(all->kept[w].chosen[i]);
    }
    free(all->kept);
}

static void worker_starts(void *arg, uint32_t worker, uint32_t window)
{
    struct statistics *all = arg;
    sl_assert(window - all->kept_first < all->kept_count);
    all->seen[worker]->kept = &all->kept[window - all->kept_first];
}

static void worker_hooks(void *arg, uint32_t worker, struct offline_hooks *hooks)
{
    struct statistics *all = arg;
    const struct model_hparams *hp = all->hp;
    sl_assert(worker < OFFLINE_WORKERS_MAX && !all->seen[worker]);
    struct seen *s = all->seen[worker] = zeroed(1, sizeof *s);
    s->all = all;
    s->x = zeroed(hp->hidden, sizeof(float));
    s->router = offline_router(all->p->model, kernel_ops_select(NULL));
    if (!s->router)
        log_fatal(1, "out of memory (routing statistics)");
    s->logits = zeroed(hp->experts, sizeof(float));
    s->scratch = zeroed(PREDICTION_SCRATCH(hp->experts), sizeof(float));
    s->predictions = zeroed(hp->experts, sizeof *s->predictions);
    s->accesses = zeroed((size_t)hp->layers * hp->experts, sizeof *s->accesses);
    s->found = zeroed(hp->layers, sizeof *s->found);
    s->shares = zeroed((size_t)hp->layers * hp->experts_used, sizeof *s->shares);
    hooks->arg = s;
    hooks->layer_inputs = reads_inputs(all) ? at_layer_inputs : NULL;
    hooks->routed = at_routed;
    hooks->gate_inputs = at_gate_inputs;
}

static void seen_free(struct seen *s)
{
    router_row_destroy(s->router);
    free(s->x);
    free(s->logits);
    free(s->scratch);
    free(s->predictions);
    free(s->accesses);
    free(s->found);
    free(s->shares);
    free(s);
}

/* ---- results ---- */

static void take_shares(struct statistics *all, struct plan *plan, uint64_t rows)
{
    uint32_t k = all->hp->experts_used;
    for (uint32_t l = all->first; l < plan->layers; l = hparams_next_experts(all->hp, l + 1))
        for (uint32_t i = 0; i < k; i++) {
            size_t at = (size_t)l * k + i;
            double sum = 0;
            for (int w = 0; w < OFFLINE_WORKERS_MAX; w++)
                sum += all->seen[w] ? all->seen[w]->shares[at] : 0;
            double share = sum / (double)rows;
            plan_rank_share(plan)[at] = (float)(share < 1 ? share : 1); /* sums are rounded */
        }
}

static void take_counts(struct statistics *all, struct plan *plan)
{
    uint64_t rows = 0, cells = (uint64_t)plan->layers * plan->experts;
    float *recall[INPUTS][2] = {
        {plan_recall_gate(plan), plan_recall_gate_list(plan)},
        {plan_recall_attention(plan), plan_recall_attention_list(plan)},
        {plan_recall_attention_before(plan), plan_recall_attention_before_list(plan)}};
    for (int w = 0; w < OFFLINE_WORKERS_MAX; w++)
        rows += all->seen[w] ? all->seen[w]->rows : 0;
    for (uint64_t i = 0; i < cells; i++) {
        if (!profile_has(all->p, i))
            continue;
        uint64_t accesses = 0;
        for (int w = 0; w < OFFLINE_WORKERS_MAX; w++)
            accesses += all->seen[w] ? all->seen[w]->accesses[i] : 0;
        plan_frequency(plan)[i] = (float)((double)accesses / (double)rows);
    }
    for (uint32_t l = all->first; l < plan->layers; l = hparams_next_experts(all->hp, l + 1))
        for (int which = 0; which < INPUTS; which++)
            for (int list = 0; list < 2; list++) {
                uint64_t found = 0;
                for (int w = 0; w < OFFLINE_WORKERS_MAX; w++)
                    found += all->seen[w] ? all->seen[w]->found[l][which][list] : 0;
                bool none = l == all->first && which != 1; /* no previous layer */
                recall[which][list][l] =
                    none ? NAN : (float)((double)found / ((double)rows * all->hp->experts_used));
            }
    take_shares(all, plan, rows);
    plan->scalar[PLAN_tokens] = (double)rows;
}

/* Counts are stored in 16 bits: the shift that makes the largest of a table fit. */
static unsigned shift_of(const atomic_uint *counts, uint64_t n)
{
    unsigned max = 0, shift = 0;
    for (uint64_t i = 0; i < n; i++)
        max = counts[i] > max ? counts[i] : max;
    while ((max >> shift) > UINT16_MAX)
        shift++;
    return shift;
}

static int take_paths(struct statistics *all, struct plan **plan, struct error *error)
{
    uint64_t e = (*plan)->experts, pairs = (*plan)->layers * e * e;
    uint64_t cells = all->two ? path_counts_cells(all->two) : 0;
    unsigned shift = shift_of(all->one, pairs);
    uint64_t arrays = plan_array_bit(PLAN_ARRAY_prev1);
    if (all->two)
        arrays |= plan_array_bit(PLAN_ARRAY_pair_first) | plan_array_bit(PLAN_ARRAY_pair_cells);
    uint64_t bytes = (*plan)->bytes + pairs * sizeof(uint16_t) +
                     2 * cells * sizeof(struct plan_cell) +
                     (all->two ? pairs * sizeof(uint32_t) : 0);
    if (offline_reserve(all->p->model, bytes, "the paths of the profile", error) != 0)
        return -1;
    struct plan *more = plan_extended(*plan, arrays, (uint32_t)cells, error);
    if (!more)
        return -1;
    free(*plan);
    *plan = more;
    for (uint64_t i = 0; i < pairs; i++)
        plan_prev1(more)[i] = (uint16_t)(all->one[i] >> shift);
    if (all->two && path_counts_dropped(all->two) > 0)
        log_warn("paths over two layers: the rarest, %" PRIu64
                 " accesses, do not fit --pair-mib %lld",
                 path_counts_dropped(all->two), (long long)all->p->pair_mib);
    return all->two ? path_counts_take(all->two, more, error) : 0;
}

static void progress(void *arg, const struct offline_progress *p)
{
    struct statistics *all = arg;
    profile_progress(all->p, "routing statistics", p);
}

static void announce(void *arg, const struct offline_estimate *estimate)
{
    const struct statistics *all = arg;
    profile_announce(all->p, "routing statistics", estimate);
}

static void read_norms(struct statistics *all)
{
    const struct model_hparams *hp = all->hp;
    all->norm = zeroed((size_t)hp->layers * 2 * hp->hidden, sizeof(float));
    for (uint32_t l = all->first; l < hp->layers; l++)
        offline_gate_norm(all->p->model, l, all->norm + (size_t)l * 2 * hp->hidden);
}

/* What the paths over two layers grow to, at most. */
static uint64_t paths_bytes(const struct profile *p)
{
    const struct model_hparams *hp = &offline_index(p->model)->hparams;
    uint64_t e = hp->experts, k = hp->experts_used;
    uint64_t tokens = (uint64_t)p->text.windows * p->text.window;
    uint64_t paths = e * e * e < tokens * k * k * k ? e * e * e : tokens * k * k * k;
    uint64_t bytes = hp->layers * paths * PATH_BYTES, most = (uint64_t)p->pair_mib * MIB;
    return bytes < most ? bytes : most;
}

int profile_statistics(struct profile *p, struct error *error)
{
    if (plan_knows(p->plan, PLAN_tokens) && plan_has(p->plan, PLAN_ARRAY_prev1))
        return 0;
    struct statistics all = {.p = p, .hp = &offline_index(p->model)->hparams};
    uint64_t e = all.hp->experts, pairs = all.hp->layers * e * e;
    all.first = model_expert_layer(offline_index(p->model), 0);
    all.one = zeroed(pairs, sizeof *all.one);
    if (p->pair_mib > 0) {
        all.two =
            path_counts_create(all.hp->layers, all.hp->experts, (uint64_t)p->pair_mib * MIB, error);
        if (!all.two)
            return -1;
    }
    read_norms(&all);
    struct offline_evaluation run = {.model = p->model,
                                     .text = &p->text,
                                     .threads = (uint32_t)p->threads,
                                     .hooks = worker_hooks,
                                     .starts = worker_starts,
                                     .group = group_begins,
                                     .row_bytes = kept_row_bytes(all.hp),
                                     .hook_bytes = paths_bytes(p),
                                     .progress = progress,
                                     .announce = announce,
                                     .arg = &all};
    struct offline_losses losses;
    int status = offline_evaluate(&run, &losses, error);
    if (status == 0) {
        take_counts(&all, p->plan);
        p->plan->scalar[PLAN_nats] = offline_mean_nll(&losses);
        offline_losses_free(&losses);
        status = take_paths(&all, &p->plan, error);
    }
    for (int w = 0; w < OFFLINE_WORKERS_MAX; w++)
        if (all.seen[w])
            seen_free(all.seen[w]);
    free_kept(&all);
    free(all.one);
    path_counts_destroy(all.two);
    free(all.norm);
    return status == 0 ? profile_save(p, error) : -1;
}

int profile_norms(struct profile *p, struct error *error)
{
    uint64_t started = clock_now_ns(), passed = 0, computed = 0;
    uint64_t cells = profile_at(p, p->plan->layers, 0);
    for (uint64_t at = 0; at < cells; at++) {
        float *norm = &plan_norm(p->plan)[at];
        passed += profile_has(p, at);
        if (!profile_has(p, at) || !isnan(*norm))
            continue;
        double value = offline_expert_norm(p->model, (uint32_t)(at / p->plan->experts),
                                           (uint32_t)(at % p->plan->experts), error);
        if (value < 0)
            return -1;
        *norm = (float)value;
        computed++;
        profile_steps(p, "norms of experts", started, passed - computed, passed,
                      profile_experts(p));
    }
    return computed ? profile_save(p, error) : 0;
}
