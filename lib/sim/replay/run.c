/* SPDX-License-Identifier: Apache-2.0 */
/* Replay of whole traces. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/sim/replay/replay.h"

#include "lib/tensor/precision.h"

static void take_logits(const struct run *r, const struct trace_record *x)
{
    struct residency_step at = {x->sequence, x->position, x->layer};
    uint8_t levels[TRACE_VALUES];
    memcpy(levels, x->values, TRACE_VALUES_HALF);
    memcpy(levels + TRACE_VALUES_HALF, x->more_values, TRACE_VALUES_HALF);
    sim_cache_logits(r->cache, &at, x->expert, levels, x->rank);
}

bool run_has_kind(const struct trace *t, enum trace_kind kind)
{
    for (uint64_t i = 0; i < t->count; i++)
        if (t->records[i].kind == kind)
            return true;
    return false;
}

/* What the GPU of the recorded engine predicted; else what the predictor did, with the same
 * routers. */
static int choose_gpu_kind(struct run *r, const struct sim_gpu *gpu, struct error *error)
{
    if (gpu->places == 0 || gpu->policy != GPU_PREFETCH)
        return 0;
    r->gpu_kind = run_has_kind(r->t, TRACE_GPU_PREDICTED) ? TRACE_GPU_PREDICTED : TRACE_PREDICTED;
    if (run_has_kind(r->t, r->gpu_kind))
        return 0;
    return error_set(error, ERR_BAD_INPUT,
                     "the trace has no predictions, which the policy %s of a GPU needs: record it "
                     "with --gpu-policy prefetch, or with --deterministic on",
                     gpu_policy_name(GPU_PREFETCH));
}

/* ---- passes --------------------------------------------------------------------------------- */

/* Of all its sequences. */
static void end_pass(struct run *r)
{
    sim_cache_token(r->cache);
    r->began = false;
    for (uint32_t i = 0; i < SEQUENCES_MAX; i++) {
        struct run_sequence *s = &r->sequence[i];
        s->in_pass = s->done = false;
        s->chosen_count[0] = s->chosen_count[1] = 0;
    }
    r->in_pass = 0;
}

/* The pass ends with the part of its last sequence. */
static void end_part(struct run *r, uint32_t place)
{
    if (place == SEQUENCE_NONE || !r->sequence[place].in_pass || r->sequence[place].done)
        return;
    r->sequence[place].done = true;
    if (--r->in_pass == 0)
        end_pass(r);
}

/* Tokens of the sequence in the pass that starts at record `at`, from its TOKEN_END. */
static uint32_t pass_tokens(const struct run *r, uint64_t at, uint64_t end)
{
    const struct trace_record *records = r->t->records;
    uint32_t max = records[at].tokens;
    for (uint64_t i = at; i < end; i++) {
        if (records[i].sequence != records[at].sequence)
            continue;
        if (records[i].kind == TRACE_SEQUENCE_END)
            return max;
        if (records[i].kind == TRACE_TOKEN_END)
            return records[i].tokens > max ? records[i].tokens : max;
        if (records[i].kind == TRACE_EXPERT && records[i].tokens > max)
            max = records[i].tokens;
    }
    return max;
}

static uint32_t place_of(struct run *r, uint32_t sequence)
{
    bool displaced;
    uint32_t place = sequences_find(&r->sequences, sequence);
    if (place != SEQUENCE_NONE)
        return place;
    place = sequences_start(&r->sequences, sequence, &displaced);
    if (displaced)
        end_part(r, place);
    return place;
}

static bool is_first_of(const struct run *r, uint64_t block, uint64_t at)
{
    const struct trace_record *records = r->t->records;
    for (uint64_t i = block; i < at; i++)
        if (records[i].kind == TRACE_EXPERT && records[i].sequence == records[at].sequence)
            return false;
    return records[at].kind == TRACE_EXPERT;
}

/* A pass ends before a layer of which a sequence is done, or at another position. */
static void end_pass_before(struct run *r, uint64_t block, uint64_t after)
{
    for (uint64_t at = block; at < after; at++) {
        const struct trace_record *x = &r->t->records[at];
        if (!is_first_of(r, block, at))
            continue;
        const struct run_sequence *s = &r->sequence[place_of(r, x->sequence)];
        if (s->in_pass && (s->done || s->position != x->position))
            end_pass(r);
    }
}

/* The sequence of a layer's access joins the running pass, or begins one. */
static struct run_sequence *join(struct run *r, uint64_t at, uint64_t end)
{
    const struct trace_record *first = &r->t->records[at];
    struct run_sequence *s = &r->sequence[place_of(r, first->sequence)];
    if (!s->in_pass) {
        r->in_pass++;
        s->in_pass = true;
        s->position = first->position;
        s->tokens = pass_tokens(r, at, end);
    }
    return s;
}

/* The accesses of all sequences in a layer. */
static uint64_t one_layer(struct run *r, uint64_t block, uint64_t end)
{
    uint64_t after = run_layer_end(r, block, end);
    end_pass_before(r, block, after);
    for (uint64_t at = block; at < after; at++) {
        const struct trace_record *x = &r->t->records[at];
        if (x->kind != TRACE_ROWS)
            run_table_read(r);
        if (x->kind == TRACE_LOGITS)
            take_logits(r, x);
        else if (x->kind == TRACE_CANDIDATE)
            run_reroute_take(r, place_of(r, x->sequence), x);
        else if (x->kind == TRACE_ROUTER)
            run_logits_take(r, place_of(r, x->sequence), x);
        else if (x->kind == TRACE_ROWS)
            run_table_take(r, x);
        else if (is_first_of(r, block, at))
            run_layer_add(r, x, join(r, at, end));
    }
    if (!r->began)
        run_layer_known(r, block, end);
    r->began = true;
    run_layer_replay(r, block, after, end);
    return after;
}

static void sequence_starts(struct run *r, uint32_t sequence)
{
    (void)place_of(r, sequence);
    sim_cache_sequence_starts(r->cache, sequence);
}

static void sequence_ends(struct run *r, uint32_t sequence)
{
    end_part(r, sequences_end(&r->sequences, sequence));
    sim_cache_sequence_ends(r->cache, sequence);
    if (r->activation)
        activation_sequence_ends(r->activation, sequence);
}

static void take(struct run *r, const struct trace_record *record)
{
    if (record->kind != TRACE_ROWS)
        run_table_read(r);
    switch (record->kind) {
    case TRACE_ROWS: run_table_take(r, record); break;
    case TRACE_SEQUENCE_START: sequence_starts(r, record->sequence); break;
    case TRACE_SEQUENCE_END: sequence_ends(r, record->sequence); break;
    case TRACE_TOKEN_END: end_part(r, sequences_find(&r->sequences, record->sequence)); break;
    case TRACE_LOGITS: take_logits(r, record); break;
    case TRACE_CANDIDATE: run_reroute_take(r, place_of(r, record->sequence), record); break;
    case TRACE_ROUTER: run_logits_take(r, place_of(r, record->sequence), record); break;
    default: break;
    }
}

static void replay(struct run *r, uint64_t first, uint64_t measure)
{
    uint64_t end = r->t->count;
    bool measuring = measure <= first;
    for (uint64_t at = first; at < end;) {
        const struct trace_record *record = &r->t->records[at];
        if (!measuring && at >= measure && r->in_pass == 0) {
            sim_cache_reset_stats(r->cache);
            measuring = true;
        }
        if (record->kind == TRACE_EXPERT) {
            run_table_read(r);
            at = one_layer(r, at, end);
            continue;
        }
        take(r, record);
        at++;
    }
    run_table_read(r);
    end_pass(r);
}

/* ---- belady --------------------------------------------------------------------------------- */

static double used_again(void *arg, uint32_t slot)
{
    const struct run *r = arg;
    return r->next_access[slot % (r->layers * r->experts)];
}

static bool find_next_accesses(struct run *r)
{
    size_t all = (size_t)r->layers * r->experts;
    r->next = malloc((r->t->count + 1) * sizeof *r->next);
    r->next_access = malloc(all * sizeof *r->next_access);
    if (!r->next || !r->next_access)
        return false;
    for (size_t i = 0; i < all; i++)
        r->next_access[i] = INFINITY;
    for (uint64_t i = r->t->count; i > 0; i--) {
        const struct trace_record *x = &r->t->records[i - 1];
        if (x->kind != TRACE_EXPERT)
            continue;
        double *access = &r->next_access[x->layer * r->experts + x->expert];
        r->next[i - 1] = *access;
        *access = (double)(i - 1);
    }
    return true;
}

/* ---- all of it ------------------------------------------------------------------------------ */

static bool run_init(struct run *r, const struct trace *t, const struct knobs *knobs, bool reroutes,
                     bool belady)
{
    bool activations = knobs->prediction == PREDICTION_ACTIVATION;
    const struct trace_header *h = &t->header;
    *r = (struct run){.t = t, .layers = h->layers, .experts = h->experts, .top_k = h->top_k};
    r->activation = activations ? activation_create(h->layers, h->experts) : NULL;
    r->chosen = calloc((size_t)SEQUENCES_MAX * 2 * h->experts, sizeof *r->chosen);
    for (uint32_t i = 0; r->chosen && i < SEQUENCES_MAX; i++)
        for (uint32_t k = 0; k < 2; k++)
            r->sequence[i].chosen[k] = r->chosen + (2 * (size_t)i + k) * h->experts;
    r->predictions = calloc(h->experts, sizeof *r->predictions);
    r->scratch = calloc(PREDICTION_SCRATCH(h->experts), sizeof *r->scratch);
    r->known = calloc(h->experts, sizeof *r->known);
    return run_layer_create(r) && (r->activation || !activations) && r->chosen && r->predictions &&
           r->scratch && r->known && (!reroutes || run_reroute_create(r)) &&
           run_logits_create(r, knobs->eviction) && run_table_create(r) &&
           (!belady || find_next_accesses(r));
}

static void run_free(struct run *r)
{
    activation_destroy(r->activation);
    run_layer_free(r);
    run_reroute_free(r);
    run_logits_free(r);
    run_table_free(r);
    free(r->chosen);
    free(r->predictions);
    free(r->scratch);
    free(r->known);
    free(r->next);
    free(r->next_access);
}

/* Its tokens. */
static uint32_t largest_pass(const struct trace *t)
{
    uint32_t most = 0;
    for (uint64_t i = 0; i < t->count; i++)
        if (t->records[i].kind == TRACE_TOKEN_END && t->records[i].tokens > most)
            most = t->records[i].tokens;
    return most;
}

int sim_run(const struct trace *t, uint64_t first, uint64_t measure,
            const struct sim_config *config, bool belady, struct sim_result *out,
            struct error *error)
{
    struct run r;
    struct sim_config k = *config;
    sl_assert(first <= t->count);
    k.layers = t->header.layers;
    k.expert_layers = t->header.expert_layers;
    k.experts = t->header.experts;
    k.top_k = t->header.top_k;
    k.precision_mask = t->header.precision_mask;
    memcpy(k.precision_bytes, t->header.precision_bytes, sizeof k.precision_bytes);
    bool reroutes;
    if (run_reroute_check(t, &k.knobs, belady, &reroutes, error) != 0)
        return -1;
    if (!run_init(&r, t, &k.knobs, reroutes, belady)) {
        run_free(&r);
        return error_set(error, ERR_NO_MEMORY, "out of memory (replay of the trace)");
    }
    if (choose_gpu_kind(&r, &k.gpu, error) != 0) {
        run_free(&r);
        return -1;
    }
    k.gpu.rows = largest_pass(t);
    if (belady) {
        k.score = used_again;
        k.score_arg = &r;
    }
    r.cache = sim_cache_create(&k, error);
    if (r.cache) {
        replay(&r, first, measure);
        for (int p = 0; p < SIM_PHASES; p++)
            out->phase[p] = *sim_cache_stats(r.cache, (enum sim_phase)p);
        out->ns = 0;
        for (int p = 0; p < SIM_PHASES; p++)
            out->ns += out->phase[p].stall_ns + out->phase[p].compute_ns;
    }
    int rv = r.cache ? 0 : -1;
    sim_cache_destroy(r.cache);
    run_free(&r);
    return rv;
}

double sim_token_ns(const struct sim_stats *f, bool spare_cpu)
{
    double loads = spare_cpu ? 0 : (double)(f->demands + f->prefetches) * SIM_LOAD_NS;
    sl_assert(f->tokens > 0);
    return (f->compute_ns + f->stall_ns + loads) / (double)f->tokens;
}

uint64_t sim_split(const struct trace *t, double share)
{
    uint64_t passes = 0, seen = 0;
    for (uint64_t i = 0; i < t->count; i++)
        passes += t->records[i].kind == TRACE_TOKEN_END;
    uint64_t wanted = (uint64_t)((double)passes * share);
    for (uint64_t i = 0; i < t->count && wanted > 0; i++) {
        seen += t->records[i].kind == TRACE_TOKEN_END;
        if (seen >= wanted)
            return i + 1;
    }
    return 0;
}

uint32_t sim_gpu_places(const struct trace_header *h, uint64_t bytes)
{
    uint64_t largest = 1, all = 0;
    for (uint32_t t = 0; t < PRECISION__COUNT; t++) {
        if ((h->precision_mask >> t & 1) == 0)
            continue;
        all += (uint64_t)trace_expert_layers(h) * h->experts;
        largest = h->precision_bytes[t] > largest ? h->precision_bytes[t] : largest;
    }
    return (uint32_t)(bytes / largest < all ? bytes / largest : all);
}

uint64_t sim_all_bytes(const struct trace_header *h)
{
    for (uint32_t t = 0; t < PRECISION__COUNT; t++)
        if (h->precision_mask >> t & 1)
            return h->precision_bytes[t] * trace_expert_layers(h) * h->experts;
    return 0;
}
