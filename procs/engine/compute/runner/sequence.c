/* SPDX-License-Identifier: Apache-2.0 */
/* One sequence from its first token to its end. The token log is authoritative: each turn computes
 * the tokens of the log that have no KV row yet, and at the end of the log it appends one. So
 * prefill, decode, and resuming after a crash are the same loop. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/assert.h"
#include "procs/engine/compute/compute.h"
#include "procs/engine/compute/slots/kept.h"
#include "procs/engine/compute/slots/state.h"

#define GROWTH_TOKENS 256 /* KV memory is allocated in steps */

struct sequence {
    struct runner *runner;
    struct kv_request *request;
    _Atomic uint32_t *log;
    float *logprobs;
    struct core_sequence view;
    uint32_t row, positions; /* positions: maximum length of the log */
    uint32_t slot;           /* of keys and values; KEPT_NONE: none yet */
    bool score, resumed;
};

/* A start or an end. */
static void log_event(struct sequence *s, enum access_kind kind, uint32_t position, uint32_t tokens)
{
    struct access_record record = {.sequence = s->view.sequence,
                                   .position = position,
                                   .tokens = tokens,
                                   .kind = (uint8_t)kind,
                                   .preset = (uint16_t)s->runner->experts.preset};
    access_log_append(&s->runner->child->access_log, &record);
}

/* Rows of the sequence were completed in the last pass. */
static void log_rows(struct sequence *s, uint32_t position, uint32_t rows)
{
    struct access_record record = {.sequence = s->view.sequence,
                                   .position = position,
                                   .tokens = rows,
                                   .kind = ACCESS_TOKEN_END,
                                   .pass = (uint16_t)chain_pass_number(s->runner->core),
                                   .prefill = core_rows_prefill(rows)};
    access_log_append(&s->runner->child->access_log, &record);
}

static uint32_t get(const _Atomic uint32_t *word)
{
    return atomic_load_explicit(word, memory_order_relaxed);
}

/* Whether a stop text ends in the newest token. Its position is stored before the row's end
 * state. */
static bool stopped(struct sequence *s, uint32_t prompt, uint32_t tokens)
{
    struct stop_cut cut;
    if (!stops_match(&s->request->stops, s->runner->tokenizer, s->log + prompt, tokens - prompt,
                     &cut))
        return false;
    s->request->stop_token = cut.token;
    s->request->stop_bytes = cut.bytes;
    return true;
}

/* The state from the log: KV_FINISH_NONE while there is work. */
static enum kv_finish finished(struct sequence *s)
{
    uint32_t tokens = get(&s->request->log_tokens), prompt = get(&s->request->prompt_tokens);
    if (s->score)
        return get(&s->request->kv_valid) >= prompt ? KV_FINISH_LENGTH : KV_FINISH_NONE;
    bool stops = (s->request->flags & KV_FLAG_IGNORE_EOS) == 0;
    if (tokens > prompt && stops &&
        tokenizer_is_end(s->runner->tokenizer, get(&s->log[tokens - 1])))
        return KV_FINISH_STOP;
    if (stopped(s, prompt, tokens))
        return KV_FINISH_STOP;
    return tokens - prompt >= s->request->max_tokens || tokens >= s->positions ? KV_FINISH_LENGTH
                                                                               : KV_FINISH_NONE;
}

static void end(struct sequence *s, enum kv_state state, enum kv_finish finish)
{
    struct kv_request *q = s->request;
    struct runner *r = s->runner;
    q->stats.finished_ns = clock_now_ns();
    q->stats.evictions_after = stats_evictions(r->child);
    q->stats.bytes_read_after = stats_bytes_read(r->child);
    r->tpot[s->row] = (struct tpot){.id = atomic_load(&q->id),
                                    .p50_ms = histogram_quantile(&r->token_ns, 0.50) / 1e6,
                                    .p95_ms = histogram_quantile(&r->token_ns, 0.95) / 1e6,
                                    .p99_ms = histogram_quantile(&r->token_ns, 0.99) / 1e6};
    log_event(s, ACCESS_SEQUENCE_END, get(&q->log_tokens), 0);
    if (s->slot != KEPT_NONE)
        kept_end(&r->slots, s->slot, q, s->log, state != KV_FAILED);
    counter_set(r->child->row, CTR_COMPUTE_sequences_running, 0);
    child_progress(r->child);
    counter_add(r->child->row,
                state == KV_DONE     ? CTR_COMPUTE_sequences_done
                : state == KV_FAILED ? CTR_COMPUTE_sequences_failed
                                     : CTR_COMPUTE_sequences_cancelled,
                1);
    atomic_store_explicit(&q->finish, (uint32_t)finish, memory_order_relaxed);
    atomic_store_explicit(&q->state, (uint32_t)state, memory_order_release);
}

static void fail(struct sequence *s, const struct error *error)
{
    struct kv_request *q = s->request;
    if (error->code == ERR_CANCELLED) {
        end(s, KV_CANCELLED, KV_FINISH_CANCELLED);
        return;
    }
    q->error_code = error->code;
    snprintf(q->error_text, sizeof q->error_text, "%.255s", error->text);
    log_warn("sequence %llu: %s", (unsigned long long)atomic_load(&q->id), error->text);
    /* end() frees the KV before the row is FAILED; a successor that finds it RUNNING in between
     * computes it again. */
    atomic_store_explicit(&q->kv_valid, 0, memory_order_release);
    end(s, KV_FAILED, KV_FINISH_ERROR);
}

/* Crashes of compute are counted from here on. */
static void note_progress(struct sequence *s)
{
    s->request->crashes_seen =
        atomic_load_explicit(&s->runner->child->row->crashes, memory_order_relaxed);
}

/* A sequence at which compute crashes again and again must not be computed forever. */
static int check_crashes(const struct sequence *s, struct error *error)
{
    const struct proc_row *row = s->runner->child->row;
    uint32_t crashes =
        atomic_load_explicit(&row->crashes, memory_order_relaxed) - s->request->crashes_seen;
    return crashes < SEQUENCE_CRASHES_MAX ? 0 : request_crashed(row, crashes, error);
}

/* Claims a QUEUED row, or resumes a RUNNING one. False: it was cancelled. */
static bool claim(struct sequence *s)
{
    struct kv_request *q = s->request;
    struct child *child = s->runner->child;
    uint32_t state = KV_QUEUED;
    if (atomic_compare_exchange_strong(&q->state, &state, KV_RUNNING)) {
        note_progress(s);
        q->stats.started_ns = clock_now_ns();
        q->stats.evictions_before = stats_evictions(child);
        q->stats.bytes_read_before = stats_bytes_read(child);
    } else if (state == KV_RUNNING) {
        q->stats.resumes++;
        s->resumed = true;
        counter_add(child->row, CTR_COMPUTE_sequences_resumed, 1);
        log_info("sequence %llu: resumed at token %u", (unsigned long long)atomic_load(&q->id),
                 get(&q->log_tokens));
    } else {
        return false;
    }
    counter_set(child->row, CTR_COMPUTE_sequences_running, 1);
    return true;
}

/* A preset changes at the start of a sequence; running sequences keep theirs. */
static int switch_preset(struct sequence *s, struct error *error)
{
    struct runner *r = s->runner;
    struct procs_head *head = r->child->procs.head;
    uint32_t wanted = atomic_load(&head->preset_requested);
    if (s->resumed || wanted == r->experts.preset)
        return 0;
    if (experts_set_preset(&r->experts, wanted, error) != 0)
        return -1;
    r->slots.preset = r->experts.preset;
    r->slots.lossy = knobs_lossy(&r->experts.knobs);
    chain_prefill_order(r->core, prefill_order_of(r->experts.knobs.prefill_order));
    atomic_store(&head->preset_active, wanted);
    log_info("preset %s from this sequence on", preset_at(wanted)->name);
    return 0;
}

/* Memory for the tokens of the log and some more: an answer may end long before its limit. */
static int grow(struct sequence *s, struct error *error)
{
    uint64_t wanted = (uint64_t)get(&s->request->log_tokens) + GROWTH_TOKENS;
    uint32_t tokens = wanted < s->positions ? (uint32_t)wanted : s->positions;
    return kept_resize(&s->runner->slots, s->slot, tokens, error);
}

static int start_sequence(struct sequence *s, struct error *error)
{
    struct runner *r = s->runner;
    struct child *child = r->child;
    struct kv_request *q = s->request;
    uint64_t wanted = get(&q->prompt_tokens) + (uint64_t)(s->score ? 0 : q->max_tokens);
    uint32_t context = child->kv.head->context;
    s->positions = wanted < context ? (uint32_t)wanted : context;
    histogram_clear(&r->token_ns);
    r->experts.request = q;
    if (switch_preset(s, error) != 0)
        return -1;
    q->stats.preset = r->experts.preset;
    s->slot = kept_take(&r->slots, q, s->log);
    if (grow(s, error) != 0)
        return -1;
    for (uint32_t l = 0; l < child->model->hparams.layers; l++) {
        r->keys[l] = kv_keys(&child->kv, s->slot, l);
        r->values[l] = kv_values(&child->kv, s->slot, l);
    }
    if (get(&q->kv_valid) == 0 || r->slots.content[s->slot] == 0)
        r->slots.content[s->slot] = ++r->slots.contents;
    s->view = (struct core_sequence){.sequence = (uint32_t)atomic_load(&q->id),
                                     .kv_type = (enum kv_type)child->kv.head->kv_type,
                                     .keys = r->keys,
                                     .values = r->values,
                                     .ring = child->kv.head->ring,
                                     .renormalise_skips = r->experts.knobs.skip_renormalise};
    gpu_sequence(&r->gpus);
    log_event(s, ACCESS_SEQUENCE_START, get(&q->kv_valid), get(&q->prompt_tokens));
    return 0;
}

/* The tokens of the repeat penalty: the end of the log. */
static size_t recent_tokens(struct sequence *s, uint32_t tokens)
{
    int64_t wanted = s->request->sampling.repeat_last_n;
    uint32_t n = wanted < tokens ? (uint32_t)wanted : tokens;
    n = n < RECENT_TOKENS_MAX ? n : RECENT_TOKENS_MAX;
    for (uint32_t i = 0; i < n; i++)
        s->runner->recent[i] = get(&s->log[tokens - n + i]);
    return n;
}

/* Samples the token after the last row of the pass and appends it. A forced token is already in the
 * log; its logits are computed anyway, so that it takes the time of a sampled one. */
static void append_token(struct sequence *s, const float *logits)
{
    struct runner *r = s->runner;
    struct kv_request *q = s->request;
    uint32_t at = get(&q->log_tokens), vocab = r->child->model->hparams.vocab;
    const struct sampling *p = &q->sampling;
    struct sampler_settings settings = {
        .temperature = p->temperature,
        .top_p = p->top_p,
        .min_p = p->min_p,
        .repeat_penalty = p->repeat_penalty,
        .top_k = p->top_k < vocab ? (uint32_t)p->top_k : 0,
        .seed = q->seed,
    };
    size_t recent = settings.repeat_penalty != 1.0 ? recent_tokens(s, at) : 0;
    bool forced = at - get(&q->prompt_tokens) < q->forced_tokens;
    uint32_t token = forced ? get(&s->log[at])
                            : sampler_choose(r->sampler, &settings, logits, r->recent, recent, at);
    s->logprobs[at] = q->logprobs ? core_log_probability(logits, vocab, token) : NAN;
    atomic_store_explicit(&s->log[at], token, memory_order_relaxed);
    atomic_store_explicit(&q->log_tokens, at + 1, memory_order_release);
}

/* Log-probabilities of the prompt's tokens position + 1 .. position + rows, where they exist. */
static int score_rows(struct sequence *s, uint32_t position, uint32_t rows, struct error *error)
{
    struct runner *r = s->runner;
    uint32_t prompt = get(&s->request->prompt_tokens);
    uint32_t n = position + rows < prompt ? rows : rows - 1;
    if (position == 0)
        s->logprobs[0] = NAN;
    for (uint32_t i = 0; i < n; i++) /* the pass is done: its tokens are no longer needed */
        r->tokens[i] = get(&s->log[position + 1 + i]);
    if (n > 0)
        chain_score(r->core, 0, n, r->tokens, r->scores);
    memcpy(&s->logprobs[position + 1], r->scores, n * sizeof *r->scores);
    return chain_check_output(r->core, r->scores, n, error);
}

/* Passes that are -1 with values that are not finite have the layer in their error, or are repeated
 * to find it. */
static int forward(struct sequence *s, uint32_t position, uint32_t rows, const float **logits,
                   struct error *error)
{
    struct runner *r = s->runner;
    bool appends = !s->score && position + rows == get(&s->request->log_tokens);
    if (chain_forward(r->core, &s->view, r->tokens, position, rows, error) != 0)
        return -1;
    *logits = appends ? chain_output(r->core, rows - 1, 1) : NULL;
    int status = appends
                     ? chain_check_output(r->core, *logits, r->child->model->hparams.vocab, error)
                 : s->score ? score_rows(s, position, rows, error)
                            : 0;
    if (status == 0)
        return 0;
    chain_find_layer(r->core, true);
    for (uint32_t i = 0; i < rows; i++) /* score_rows had other tokens there */
        r->tokens[i] = get(&s->log[position + i]);
    (void)chain_forward(r->core, &s->view, r->tokens, position, rows, error);
    chain_find_layer(r->core, false);
    return -1;
}

/* The prompt ends: what is counted from here on is decode. */
static void note_first(const struct child *child, struct kv_stats *f)
{
    f->first_token_ns = clock_now_ns();
    f->at_first = (struct kv_accesses){.hits = f->hits,
                                       .hits_inflight = f->hits_inflight,
                                       .misses = f->misses,
                                       .skipped = f->skipped,
                                       .bytes_read = stats_bytes_read(child)};
}

static void account(struct sequence *s, uint32_t position, uint32_t rows, uint64_t ns,
                    bool appended)
{
    struct proc_row *row = s->runner->child->row;
    struct kv_stats *f = &s->request->stats;
    if (position < get(&s->request->prompt_tokens)) {
        f->prefill_ns += ns;
        counter_add(row, CTR_COMPUTE_prefill_ns, ns);
        counter_add(row, CTR_COMPUTE_tokens_prefill, rows);
    } else {
        f->decode_ns += ns;
        counter_add(row, CTR_COMPUTE_decode_ns, ns);
        histogram_add(&s->runner->token_ns, ns);
    }
    if (appended) {
        counter_add(row, CTR_COMPUTE_tokens_decode, 1);
        if (f->first_token_ns == 0)
            note_first(s->runner->child, f);
    }
    note_progress(s);
    child_progress(s->runner->child);
}

/* One forward pass and what follows from it. */
static int turn(struct sequence *s, struct error *error)
{
    struct runner *r = s->runner;
    struct kv_request *q = s->request;
    uint64_t start = clock_now_ns();
    uint32_t position = get(&q->kv_valid), tokens = get(&q->log_tokens);
    sl_assert(position < tokens);
    if (experts_check_model(&r->experts, error) != 0)
        return -1;
    if (tokens > get(&r->child->kv.head->slot[s->slot].allocated) && grow(s, error) != 0)
        return -1;
    uint32_t rows = tokens - position;
    rows = rows < chain_rows(r->core) ? rows : chain_rows(r->core);
    /* A chunk never contains both prompt and response tokens, so that their times are separate. */
    uint32_t prompt = get(&q->prompt_tokens);
    if (position < prompt && rows > prompt - position)
        rows = prompt - position;
    rows = state_rows(&r->slots, q, position, experts_rows(&r->experts, rows));
    for (uint32_t i = 0; i < rows; i++)
        r->tokens[i] = get(&s->log[position + i]);
    struct state_pass state;
    if (state_begin(&r->slots, s->slot, q, position, rows, &state, error) != 0)
        return -1;
    s->view.content = r->slots.content[s->slot];
    s->view.state = state.before;
    s->view.next_state = state.after;
    const float *logits;
    if (forward(s, position, rows, &logits, error) != 0) {
        experts_release(&r->experts);
        return -1;
    }
    experts_pass_ends(&r->experts);
    /* The token is appended before kv_valid is set: after a crash in between, these rows are
     * computed again with the same bits. In the other order the logits of the last row would be
     * lost. The store of kv_valid also commits the recurrent state. */
    if (logits)
        append_token(s, logits);
    state_end(&r->slots, s->slot, q, &state, position + rows);
    child_inject(r->child, INJECT_COMPUTE_STATE_WRITTEN);
    atomic_store_explicit(&r->pass_row_layers, 0, memory_order_relaxed);
    atomic_store_explicit(&q->kv_valid, position + rows, memory_order_release);
    log_rows(s, position, rows);
    experts_tokens_end(&r->experts, rows);
    gpus_count(&r->gpus, r->child);
    uint64_t ns = clock_now_ns() - start;
    gpu_policy_pass(&r->gpus, r->child, rows, ns);
    account(s, position, rows, ns, logits != NULL);
    return 0;
}

void sequence_run(struct runner *r, uint32_t row)
{
    struct kv *kv = &r->child->kv;
    struct sequence s = {.runner = r,
                         .request = &kv->head->request[row],
                         .log = kv_log(kv, row),
                         .logprobs = kv_logprobs(kv, row),
                         .row = row};
    struct error error;
    if (!claim(&s))
        return;
    s.slot = kept_owned(&r->slots, s.request);
    s.score = (s.request->flags & KV_FLAG_SCORE_PROMPT) != 0; /* of the request that was claimed */
    if (check_crashes(&s, &error) != 0 || start_sequence(&s, &error) != 0) {
        fail(&s, &error);
        return;
    }
    enum kv_finish finish;
    while ((finish = finished(&s)) == KV_FINISH_NONE) {
        if (get(&s.request->cancel)) {
            end(&s, KV_CANCELLED, KV_FINISH_CANCELLED);
            return;
        }
        if (turn(&s, &error) != 0) {
            if (!atomic_load(&r->stop)) /* else the row stays as it is: the process ends */
                fail(&s, &error);
            return;
        }
        if (atomic_load_explicit(&r->stop, memory_order_relaxed))
            return;
    }
    end(&s, KV_DONE, finish);
}
