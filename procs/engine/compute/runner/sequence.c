/* SPDX-License-Identifier: Apache-2.0 */
/* One sequence: its start, what comes before and after each of its passes, and its end. */
#include "procs/engine/compute/runner/sequence.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "procs/engine/compute/runner/memory.h"
#include "procs/engine/compute/runner/runner.h"
#include "procs/engine/compute/runner/stops.h"
#include "procs/engine/compute/slots/kept.h"

#define GROWTH_TOKENS   256 /* KV memory is allocated in steps */
#define SUSPECT_CRASHES 2

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

enum kv_finish sequence_finish(struct sequence *s)
{
    uint32_t tokens = sequence_get(&s->request->log_tokens),
             prompt = sequence_get(&s->request->prompt_tokens);
    if (s->score && sequence_get(&s->request->kv_valid) < prompt)
        return KV_FINISH_NONE;
    bool stops = (s->request->flags & KV_FLAG_IGNORE_EOS) == 0;
    if (tokens > prompt && stops &&
        tokenizer_is_end(s->runner->tokenizer, sequence_get(&s->log[tokens - 1])))
        return KV_FINISH_STOP;
    if (stopped(s, prompt, tokens))
        return KV_FINISH_STOP;
    if (constraint_is_on(&s->constraint) && constraint_is_complete(&s->constraint))
        return KV_FINISH_STOP;
    return tokens - prompt >= s->request->max_tokens || tokens >= s->positions ? KV_FINISH_LENGTH
                                                                               : KV_FINISH_NONE;
}

static void end(struct sequence *s, enum kv_state state, enum kv_finish finish)
{
    struct kv_request *q = s->request;
    struct runner *r = s->runner;
    q->stats.finished_ns = clock_now_ns();
    runner_share_counts(r);
    r->tpot[s->row] = (struct tpot){.id = atomic_load(&q->id),
                                    .p50_ms = histogram_quantile(&s->token_ns, 0.50) / 1e6,
                                    .p95_ms = histogram_quantile(&s->token_ns, 0.95) / 1e6,
                                    .p99_ms = histogram_quantile(&s->token_ns, 0.99) / 1e6};
    if (s->entered) { /* else it has no START, and the view is that of an earlier one */
        log_event(s, ACCESS_SEQUENCE_END, sequence_get(&q->log_tokens), 0);
        experts_sequence_ends(&r->experts, s->view.sequence);
    }
    constraint_end(&s->constraint);
    prefixes_cancel(r->prefixes, s->slot);
    if (s->slot != KEPT_NONE)
        kept_end(&r->slots, s->slot, q, s->log, state != KV_FAILED);
    s->request = NULL;
    r->ended++;
    atomic_store_explicit(&q->in_pass, 0, memory_order_relaxed);
    atomic_store_explicit(&r->pass_rows[s->row], 0, memory_order_relaxed);
    atomic_store_explicit(&r->follows[s->row], 0, memory_order_relaxed);
    counter_set(r->child->process, CTR_COMPUTE_sequences_running, runner_running(r));
    child_progress(r->child);
    counter_add(r->child->process,
                state == KV_DONE     ? CTR_COMPUTE_sequences_done
                : state == KV_FAILED ? CTR_COMPUTE_sequences_failed
                                     : CTR_COMPUTE_sequences_cancelled,
                1);
    atomic_store_explicit(&q->finish, (uint32_t)finish, memory_order_relaxed);
    atomic_store_explicit(&q->state, (uint32_t)state, memory_order_release);
}

void sequence_fail(struct sequence *s, const struct error *error)
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
        atomic_load_explicit(&s->runner->child->process->crashes, memory_order_relaxed);
}

int request_crashed(const struct process *process, uint32_t crashes, struct error *error)
{
    char why[SHARED_TEXT_BYTES];
    shared_text_get(&process->crash_reason, why);
    return error_set(error, ERR_CRASHED,
                     "compute crashed %" PRIu32
                     " times at this request without progress (%.120s); it is not computed again",
                     crashes, why);
}

static uint32_t crashes_of(const struct sequence *s)
{
    return atomic_load_explicit(&s->runner->child->process->crashes, memory_order_relaxed) -
           s->request->crashes_seen;
}

/* A sequence at which compute crashes again and again must not be computed forever. */
static int check_crashes(const struct sequence *s, struct error *error)
{
    uint32_t crashes = crashes_of(s);
    return crashes < SEQUENCE_CRASHES_MAX
               ? 0
               : request_crashed(s->runner->child->process, crashes, error);
}

bool sequence_is_suspect(const struct sequence *s)
{
    return crashes_of(s) >= SUSPECT_CRASHES;
}

bool sequence_is_side(const struct kv_request *q)
{
    return (q->flags & KV_FLAG_SIDE) != 0;
}

uint64_t sequence_turn(const struct kv_request *q)
{
    return schedule_turn(atomic_load_explicit(&q->arrival, memory_order_relaxed),
                         sequence_is_side(q));
}

/* Claims a QUEUED row, or resumes a RUNNING one. False: it was cancelled. */
static bool claim(struct sequence *s)
{
    struct kv_request *q = s->request;
    struct runner *r = s->runner;
    struct child *child = r->child;
    uint32_t state = KV_QUEUED;
    if (atomic_compare_exchange_strong(&q->state, &state, KV_RUNNING)) {
        note_progress(s);
        q->stats.started_ns = clock_now_ns();
        struct engine_counts now = runner_counts(r);
        q->stats.evictions_seen = now.evictions;
        q->stats.bytes_read_seen = q->stats.bytes_read_before = now.bytes_read;
    } else if (state == KV_RUNNING) {
        q->stats.resumes++;
        s->resumed = true;
        q->crashes_seen += r->blames && !atomic_load(&q->in_pass) && crashes_of(s) > 0;
        counter_add(child->process, CTR_COMPUTE_sequences_resumed, 1);
        log_info("sequence %llu: resumed at token %u", (unsigned long long)atomic_load(&q->id),
                 sequence_get(&q->log_tokens));
    } else {
        return false;
    }
    atomic_store(&q->in_pass, 0);
    counter_set(child->process, CTR_COMPUTE_sequences_running, runner_running(r));
    return true;
}

/* A preset changes at the start of a sequence that runs alone: those that run keep theirs, and
 * until they have ended no other one starts (runner.c). */
static int switch_preset(struct sequence *s, struct error *error)
{
    struct runner *r = s->runner;
    struct procs_head *head = r->child->procs.head;
    uint32_t wanted = atomic_load(&head->preset_requested);
    if (s->resumed || !runner_preset_waits(r) || runner_running(r) > 1)
        return 0;
    if (experts_set_preset(&r->experts, wanted, error) != 0)
        return -1;
    r->slots.preset = r->experts.preset;
    r->slots.lossy = knobs_lossy(&r->experts.knobs);
    r->slots.preset_class = experts_preset_class(&r->experts);
    chain_prefill_order(r->core, prefill_order_of(r->experts.knobs.prefill_order));
    atomic_store(&head->preset_active, wanted);
    log_info("preset %s from this sequence on", preset_at(wanted)->name);
    return 0;
}

/* An answer may end long before its limit. */
uint32_t sequence_growth(const struct sequence *s)
{
    uint64_t wanted = (uint64_t)sequence_get(&s->request->log_tokens) + GROWTH_TOKENS;
    return wanted < s->positions ? (uint32_t)wanted : s->positions;
}

int sequence_grow(struct sequence *s, struct error *error)
{
    return kept_resize(&s->runner->slots, s->slot, sequence_growth(s), error);
}

static int take_slot(struct sequence *s, struct error *error)
{
    struct runner *r = s->runner;
    s->slot = kept_take(&r->slots, s->request, s->log);
    if (sequence_grow(s, error) != 0) {
        if (error->code != ERR_BUSY)
            return -1;
        /* memory.c makes room. A slot that was taken over may have more memory than it needs, but
         * nobody has checked that this fits beside the others. */
        kept_trim(&r->slots, s->slot, sequence_get(&s->request->kv_valid));
    } else if (!sequence_is_suspect(s)) {
        prefixes_begin(r->prefixes, s->slot, s->request, s->log);
    }
    for (uint32_t l = 0; l < r->child->model->hparams.layers; l++) {
        s->keys[l] = kv_keys(&r->child->kv, s->slot, l);
        s->values[l] = kv_values(&r->child->kv, s->slot, l);
        s->index[l] = kv_index(&r->child->kv, s->slot, l);
    }
    if (sequence_get(&s->request->kv_valid) == 0 || r->slots.content[s->slot] == 0)
        r->slots.content[s->slot] = ++r->slots.contents;
    return 0;
}

void sequence_pause(struct sequence *s)
{
    struct runner *r = s->runner;
    log_info("sequence %llu: gives %u rows up for a sequence that is older",
             (unsigned long long)atomic_load(&s->request->id), sequence_get(&s->request->kv_valid));
    atomic_store_explicit(&s->request->kv_valid, 0, memory_order_release); /* as in sequence_fail */
    prefixes_cancel(r->prefixes, s->slot);
    kept_end(&r->slots, s->slot, s->request, s->log, false);
    s->slot = KEPT_NONE;
    s->paused = r->ended;
    counter_add(r->child->process, CTR_COMPUTE_sequences_paused, 1);
}

/* The main thread has compiled it, also after a restart of compute. */
static int take_grammar(struct sequence *s, struct error *error)
{
    struct runner *r = s->runner;
    const struct kv_request *q = s->request;
    const struct grammar *grammar = r->constraints.grammars->of_row[s->row];
    uint32_t prompt = sequence_get(&q->prompt_tokens);
    if (q->grammar == GRAMMAR_NONE)
        return 0;
    if (!grammar)
        return error_set(error, ERR_NO_MEMORY,
                         "out of memory (the grammar of the answer, after a restart)");
    if (!s->resumed)
        counter_add(r->child->process, CTR_COMPUTE_sequences_constrained, 1);
    return constraint_begin(&s->constraint, &r->constraints, grammar, s->log + prompt,
                            sequence_get(&q->log_tokens) - prompt, error);
}

/* Its first slot: its rows begin. */
static int enter(struct sequence *s, struct error *error)
{
    struct runner *r = s->runner;
    if (take_slot(s, error) != 0)
        return -1;
    s->view = (struct core_sequence){.sequence = (uint32_t)atomic_load(&s->request->id),
                                     .kv_type = (enum kv_type)r->child->kv.head->kv_type,
                                     .keys = s->keys,
                                     .values = s->values,
                                     .index = s->index,
                                     .ring = r->child->kv.head->ring,
                                     .renormalise_skips = r->experts.knobs.skip_renormalise};
    s->entered = true;
    gpu_sequence(&r->gpus);
    log_event(s, ACCESS_SEQUENCE_START, sequence_get(&s->request->kv_valid),
              sequence_get(&s->request->prompt_tokens));
    experts_sequence_starts(&r->experts, s->view.sequence);
    return 0;
}

int sequence_resume(struct sequence *s, struct error *error)
{
    sl_assert(s->slot == KEPT_NONE);
    return s->entered ? take_slot(s, error) : enter(s, error);
}

static int start_sequence(struct sequence *s, struct error *error)
{
    struct runner *r = s->runner;
    struct kv_request *q = s->request;
    uint64_t wanted = sequence_get(&q->prompt_tokens) + q->max_tokens;
    uint32_t context = r->child->kv.head->context;
    s->positions = wanted < context ? (uint32_t)wanted : context;
    histogram_clear(&s->token_ns);
    if (switch_preset(s, error) != 0)
        return -1;
    q->stats.preset = r->experts.preset;
    if (take_grammar(s, error) != 0 || (s->score && sequence_record_first(s, error) != 0))
        return -1;
    return memory_follows(r, s) ? 0 : enter(s, error);
}

/* The prompt ends: what is counted from here on is decode. */
static void note_first(struct runner *r, struct kv_stats *f)
{
    f->first_token_ns = clock_now_ns();
    runner_share_counts(r);
    f->at_first = (struct kv_accesses){.hits = f->hits,
                                       .hits_inflight = f->hits_inflight,
                                       .misses = f->misses,
                                       .skipped = f->skipped,
                                       .bytes_read = f->bytes_read};
}

bool sequence_in_prompt(const struct sequence *s)
{
    return s->pass.position < sequence_get(&s->request->prompt_tokens);
}

uint32_t sequence_new_rows(const struct sequence *s)
{
    uint32_t end = s->pass.position + s->pass.rows, counted = s->request->stats.counted;
    return counted <= s->pass.position ? s->pass.rows : end > counted ? end - counted : 0;
}

/* The time of rows that are repeated is part of no rate; the client waited for it, so that it is in
 * the time of the token that follows. */
void sequence_account(struct sequence *s, uint64_t ns)
{
    struct process *process = s->runner->child->process;
    struct kv_stats *f = &s->request->stats;
    uint32_t new_rows = sequence_new_rows(s);
    uint64_t new_ns = (uint64_t)((double)ns * new_rows / s->pass.rows);
    if (new_rows > 0)
        f->counted = s->pass.position + s->pass.rows;
    counter_add(process, CTR_COMPUTE_tokens_repeated, s->pass.rows - new_rows);
    if (sequence_in_prompt(s)) {
        f->prefill_ns += new_ns;
        counter_add(process, CTR_COMPUTE_tokens_prefill, new_rows);
    } else {
        f->decode_ns += new_ns;
        if (s->pass.logits)
            histogram_add(&s->token_ns, ns);
    }
    if (s->pass.appended > 0) {
        counter_add(process, CTR_COMPUTE_tokens_decode, s->pass.appended);
        if (f->first_token_ns == 0)
            note_first(s->runner, f);
    }
    note_progress(s);
    child_progress(s->runner->child);
}

struct schedule_sequence sequence_wants(const struct sequence *s, uint32_t limit)
{
    const struct kv_request *q = s->request;
    uint32_t computed = sequence_get(&q->kv_valid), known = sequence_get(&q->log_tokens);
    uint32_t prompt = sequence_get(&q->prompt_tokens);
    uint32_t most = state_rows(&s->runner->slots, q, computed, limit);
    /* A chunk never contains both prompt and response tokens, so that their times are separate. */
    if (computed < prompt && most > prompt - computed)
        most = prompt - computed;
    /* A loss that depends on what is resident at each token is that of decode. */
    if (s->score && experts_reroutes(&s->runner->experts))
        most = 1;
    return (struct schedule_sequence){.arrival = sequence_turn(q),
                                      .served = s->served,
                                      .since = s->since,
                                      .missing = known - computed,
                                      .rows_max = most,
                                      .side = sequence_is_side(q)};
}

int sequence_prepare(struct sequence *s, uint32_t rows, struct error *error)
{
    struct runner *r = s->runner;
    struct kv_request *q = s->request;
    uint32_t position = sequence_get(&q->kv_valid), tokens = sequence_get(&q->log_tokens);
    sl_assert(position < tokens);
    s->pass.position = position;
    s->pass.rows = rows;
    s->served = r->passes;
    s->pass.logits = NULL;
    s->pass.appended = 0;
    sl_assert(tokens <= sequence_get(&r->child->kv.head->slot[s->slot].allocated)); /* memory.c */
    if (state_begin(&r->slots, s->slot, q, position, rows, &s->pass.state, error) != 0)
        return -1;
    s->view.content = r->slots.content[s->slot];
    s->view.state = s->pass.state.before;
    s->view.next_state = s->pass.state.after;
    return 0;
}

void sequence_commit(struct sequence *s)
{
    struct runner *r = s->runner;
    struct kv_request *q = s->request;
    uint32_t end = s->pass.position + s->pass.rows;
    /* The token is appended before kv_valid is set: after a crash in between, these rows are
     * computed again with the same bits. In the other order the logits of the last row would be
     * lost. The store of kv_valid also commits the recurrent state. */
    if (s->pass.logits)
        sequence_append(s, s->pass.logits);
    /* Without a token, the reason is known here only: a successor must find it again. */
    bool failed =
        s->pass.logits && s->failure.code != ERR_NONE && sequence_get(&q->log_tokens) == end;
    if (!failed)
        state_end(&r->slots, s->slot, q, &s->pass.state, end);
    child_inject(r->child, INJECT_COMPUTE_STATE_WRITTEN);
    atomic_store_explicit(&r->pass_rows[s->row], 0, memory_order_relaxed);
    if (!failed)
        atomic_store_explicit(&q->kv_valid, end, memory_order_release);
    log_rows(s, s->pass.position, s->pass.rows);
    experts_tokens_end(&r->experts, s->pass.rows);
    child_inject(r->child, INJECT_COMPUTE_ROWS_COMMITTED);
}

int sequence_open(struct sequence *s, struct runner *r, struct error *error)
{
    uint32_t layers = r->child->model->hparams.layers;
    s->runner = r;
    s->keys = calloc(layers, sizeof *s->keys);
    s->values = calloc(layers, sizeof *s->values);
    s->index = calloc(layers, sizeof *s->index);
    return s->keys && s->values && s->index
               ? 0
               : error_set(error, ERR_NO_MEMORY, "out of memory (sequence)");
}

void sequence_begin(struct sequence *s, uint32_t row)
{
    struct kv *kv = &s->runner->child->kv;
    struct error error;
    s->request = &kv->head->request[row];
    s->log = kv_log(kv, row);
    s->logprobs = kv_logprobs(kv, row);
    s->row = row;
    s->resumed = s->entered = false;
    s->leader = NULL;
    s->paused = UINT64_MAX;
    s->failure.code = ERR_NONE;
    s->since = s->runner->passes + 1;
    s->served = 0;
    if (!claim(s)) {
        s->request = NULL;
        return;
    }
    s->view.sequence = (uint32_t)atomic_load(&s->request->id); /* it may end before it starts */
    s->slot = kept_owned(&s->runner->slots, s->request);
    s->score =
        (s->request->flags & KV_FLAG_SCORE_PROMPT) != 0; /* of the request that was claimed */
    if (check_crashes(s, &error) != 0 || start_sequence(s, &error) != 0)
        sequence_fail(s, &error);
}

bool sequence_goes_on(struct sequence *s)
{
    enum kv_finish finish = sequence_finish(s);
    if (s->failure.code != ERR_NONE)
        sequence_fail(s, &s->failure);
    else if (finish != KV_FINISH_NONE)
        end(s, KV_DONE, finish);
    else if (sequence_get(&s->request->cancel))
        end(s, KV_CANCELLED, KV_FINISH_CANCELLED);
    return s->request != NULL;
}
