/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of clients: submit, next, count, encode, decode, cancel, status. Main thread. Every handler
 * is idempotent: a repeated call finds the result of the first one. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <xxhash.h>

#include "lib/base/assert.h"
#include "lib/policy/reuse/reuse.h"
#include "procs/engine/compute/main/compute.h"

#define ENDED_KEEP_NS                                                                              \
    (5 * NS_PER_S) /* a client whose last reply was lost repeats the call within this time */

static struct kv_request *request_at(struct compute *c, uint32_t number)
{
    return &c->child.kv.head->request[number];
}

static uint32_t state_of(const struct kv_request *q)
{
    return atomic_load_explicit(&q->state, memory_order_acquire);
}

struct kv_request *request_find(struct compute *c, uint64_t id, uint32_t *number)
{
    for (uint32_t i = 0; i < KV_REQUESTS_MAX; i++) {
        struct kv_request *q = request_at(c, i);
        if (state_of(q) != KV_FREE && atomic_load(&q->id) == id) {
            *number = i;
            return q;
        }
    }
    return NULL;
}

static struct kv_request *find_key(struct compute *c, uint64_t key_hash)
{
    for (uint32_t i = 0; i < KV_REQUESTS_MAX; i++) {
        struct kv_request *q = request_at(c, i);
        if (state_of(q) != KV_FREE && atomic_load(&q->key_hash) == key_hash)
            return q;
    }
    return NULL;
}

static uint32_t count_state(struct compute *c, enum kv_state state)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < KV_REQUESTS_MAX; i++)
        n += state_of(request_at(c, i)) == (uint32_t)state;
    return n;
}

static void free_request(struct compute *c, uint32_t number)
{
    struct kv_request *q = request_at(c, number);
    sl_assert(kv_state_ended(state_of(q)));
    q->end_sent_ns = 0;
    /* FREE first: after a crash in between, the next request here overwrites the log. In the other
     * order a request could exist without its log. */
    atomic_store_explicit(&q->state, KV_FREE, memory_order_release);
    kv_log_release(&c->child.kv, number);
    grammars_drop(&c->grammars, number);
}

/* A free request; if there is none, the finished one whose end was sent first. */
static bool take_request(struct compute *c, uint32_t *number)
{
    uint64_t oldest = UINT64_MAX;
    for (uint32_t i = 0; i < KV_REQUESTS_MAX; i++) {
        if (state_of(request_at(c, i)) == KV_FREE) {
            *number = i;
            return true;
        }
        uint64_t sent = request_at(c, i)->end_sent_ns;
        if (sent != 0 && sent < oldest) {
            oldest = sent;
            *number = i;
        }
    }
    if (oldest == UINT64_MAX)
        return false;
    free_request(c, *number);
    return true;
}

/* ---- submit ---------------------------------------------------------------------------------- */

static uint64_t resolve_seed(int64_t seed)
{
    uint64_t random = clock_now_ns();
    if (seed >= 0)
        return (uint64_t)seed;
    if (getrandom(&random, sizeof random, GRND_NONBLOCK) != (ssize_t)sizeof random)
        random ^= random << 32; /* fall back to the time */
    return random >> 1;
}

static bool is_control(const void *tokenizer, uint32_t token)
{
    return tokenizer_is_control(tokenizer, token);
}

static void fill_request(struct compute *c, uint32_t number, const struct engine_submit *s,
                         const struct prompt *p, uint64_t key_hash)
{
    struct kv_head *head = c->child.kv.head;
    struct kv_request *q = request_at(c, number);
    _Atomic uint32_t *log = kv_log(&c->child.kv, number);
    for (size_t i = 0; i < p->count; i++)
        atomic_store_explicit(&log[i], p->ids[i], memory_order_relaxed);
    uint32_t left = head->context - (uint32_t)p->count;
    q->max_tokens = s->max_tokens < left ? (uint32_t)s->max_tokens : left;
    q->forced_tokens = s->forced_count < left ? (uint32_t)s->forced_count : left;
    for (size_t i = 0; i < q->forced_tokens; i++)
        atomic_store_explicit(&log[p->count + i], s->forced[i], memory_order_relaxed);
    q->flags = (s->ignore_eos ? KV_FLAG_IGNORE_EOS : 0) |
               (s->score_prompt ? KV_FLAG_SCORE_PROMPT : 0) |
               (s->cache_prompt ? 0 : KV_FLAG_NO_CACHE) | (s->side ? KV_FLAG_SIDE : 0) |
               (s->prompt ? KV_FLAG_PROMPT_TEXT : 0);
    reuse_turns(is_control, c->tokenizer, p->ids, (uint32_t)p->count, q->turns);
    q->logprobs = (uint32_t)(s->top_logprobs > 0 ? s->top_logprobs : s->logprobs);
    q->top_logprobs = (uint32_t)s->top_logprobs;
    q->grammar = (uint32_t)s->grammar.kind;
    q->grammar_bytes = (uint32_t)s->grammar.bytes;
    q->biases = (uint32_t)s->bias_count;
    q->gateway = (uint32_t)s->gateway;
    q->end_sent_ns = 0;
    q->error_code = ERR_NONE;
    q->error_text[0] = 0;
    snprintf(q->client, sizeof q->client, "%s", s->client ? s->client : "");
    q->stops = s->stops;
    q->stop_token = UINT32_MAX;
    q->stop_bytes = 0;
    q->sampling = s->sampling;
    q->seed = resolve_seed(s->sampling.seed);
    q->stats = (struct kv_stats){.submitted_ns = clock_now_ns(),
                                 .preset = atomic_load(&c->child.procs.head->preset_requested)};
    atomic_store(&q->finish, KV_FINISH_NONE);
    atomic_store(&q->key_hash, key_hash);
    atomic_store(&q->arrival, atomic_fetch_add(&head->next_arrival, 1));
    atomic_store(&q->cancel, 0);
    atomic_store(&q->prompt_tokens, (uint32_t)p->count);
    atomic_store(&q->log_tokens, (uint32_t)p->count);
    atomic_store(&q->kv_valid, 0);
    atomic_store(&q->last_poll_ns, clock_now_ns());
    atomic_store(&q->id, atomic_fetch_add(&head->next_id, 1));
    atomic_store_explicit(&q->state, KV_QUEUED, memory_order_release);
}

static int admit(struct compute *c, const struct engine_submit *s, const struct prompt *p,
                 uint64_t key_hash, uint64_t *id, struct error *error)
{
    uint32_t number, tokens, queued = count_state(c, KV_QUEUED);
    if (procs_check(c->child.procs.head, error) != 0)
        return -1;
    uint32_t draining = atomic_load(&c->child.directory.head->draining);
    if (draining != DRAINING_NO)
        return error_set(error, ERR_UNAVAILABLE, "the engine is %s and accepts no new sequence",
                         draining == DRAINING_STOP ? "stopping" : "draining");
    if (queued >= c->child.params->max_queue)
        return error_set(error, ERR_BUSY,
                         "queue full: %u sequences waiting (--max-queue); retry later", queued);
    if (!take_request(c, &number))
        return error_set(error, ERR_BUSY,
                         "all %d rows of the request table are in use; retry later",
                         KV_REQUESTS_MAX);
    uint64_t wanted = p->count + (uint64_t)s->max_tokens;
    uint32_t context = c->child.kv.head->context;
    tokens = wanted < context ? (uint32_t)wanted : context;
    if (kv_log_allocate(&c->child.kv, number, tokens, error) != 0)
        return -1;
    if (extras_put(c, number, s, error) != 0) {
        kv_log_release(&c->child.kv, number);
        return -1;
    }
    fill_request(c, number, s, p, key_hash);
    *id = atomic_load(&request_at(c, number)->id);
    runner_wake(&c->runner);
    return 0;
}

/* A call at which compute crashes is repeated by its client: it is rejected in the end, like a
 * sequence. Of every call with a prompt, until end_call; key_hash is not 0. */
static int begin_call(struct compute *c, uint64_t key_hash, struct error *error)
{
    struct kv_head *head = c->child.kv.head;
    uint32_t crashes = atomic_load(&c->child.process->crashes);
    if (head->call_key != key_hash) {
        head->call_crashes = crashes;
        head->call_key = key_hash;
    }
    head->call_runs = 1;
    child_inject(&c->child, INJECT_COMPUTE_CALL);
    if (crashes - head->call_crashes < SEQUENCE_CRASHES_MAX)
        return 0;
    return request_crashed(c->child.process, crashes - head->call_crashes, error);
}

static void end_call(struct compute *c)
{
    c->child.kv.head->call_key = 0;
    c->child.kv.head->call_runs = 0;
}

static int submit(struct compute *c, json_t *body, uint64_t *id, uint32_t *prompt_tokens,
                  struct error *error)
{
    struct engine_submit s;
    struct prompt prompt = {0};
    int rc = engine_submit_parse(body, &s, error);
    if (rc == 0) {
        uint64_t key_hash = XXH3_64bits(s.request_key, strlen(s.request_key));
        struct kv_request *known = find_key(c, key_hash);
        rc = begin_call(c, key_hash, error);
        if (rc == 0 && known) {
            *id = atomic_load(&known->id);
            *prompt_tokens = atomic_load(&known->prompt_tokens);
        } else if (rc == 0) {
            rc = prompt_make(c, &s, &prompt, error);
            if (rc == 0)
                rc = admit(c, &s, &prompt, key_hash, id, error);
            *prompt_tokens = (uint32_t)prompt.count;
        }
        end_call(c);
    }
    free(prompt.ids);
    engine_submit_parsed_free(&s);
    return rc;
}

/* ---- count, cancel, status ------------------------------------------------------------------- */

/* A question about a prompt. The same question of several clients is one call for begin_call. */
struct question {
    struct engine_submit s;
    struct prompt prompt;
};

static uint64_t key_of(const struct engine_submit *s)
{
    uint64_t key = XXH3_64bits(s->prompt_ids, s->prompt_ids_count * sizeof *s->prompt_ids);
    return XXH3_64bits_withSeed(s->prompt, s->prompt_bytes, key) | 1;
}

/* Encodes it. end_question in any case. */
static int begin_question(struct compute *c, json_t *body, struct question *q, struct error *error)
{
    q->prompt = (struct prompt){.ids = NULL};
    if (engine_count_parse(body, &q->s, error) != 0 || begin_call(c, key_of(&q->s), error) != 0)
        return -1;
    return prompt_encode(c, &q->s, &q->prompt, error);
}

static void end_question(struct compute *c, struct question *q)
{
    end_call(c);
    free(q->prompt.ids);
    engine_submit_parsed_free(&q->s);
}

static int count(struct compute *c, json_t *body, uint64_t *tokens, struct error *error)
{
    struct question q;
    int rc = begin_question(c, body, &q, error);
    *tokens = q.prompt.count;
    end_question(c, &q);
    return rc;
}

/* Both calls are as count: the prompt is encoded, or its ids are decoded. */
static int encode_call(struct compute *c, json_t *body, json_t **out, struct error *error)
{
    struct question q;
    int rc = begin_question(c, body, &q, error);
    if (rc == 0 && q.prompt.count > ENGINE_PROMPT_IDS_MAX)
        rc = error_set(error, ERR_BAD_INPUT, "the text has %zu tokens; the maximum is %u",
                       q.prompt.count, ENGINE_PROMPT_IDS_MAX);
    if (rc == 0)
        *out = engine_encode_reply(q.prompt.ids, q.prompt.count,
                                   q.s.prompt && tokenizer_bos(c->tokenizer) != TOKEN_NONE);
    end_question(c, &q);
    return rc;
}

static char *text_of_ids(const struct compute *c, const struct prompt *p, size_t *bytes)
{
    char *text = NULL;
    FILE *out = open_memstream(&text, bytes);
    for (size_t i = 0; out && i < p->count; i++) {
        size_t n;
        const char *piece = tokenizer_piece(c->tokenizer, p->ids[i], &n);
        fwrite(piece, 1, n, out);
    }
    bool fine = out && !ferror(out);
    if (out && fclose(out) == 0 && fine)
        return text;
    free(text);
    return NULL;
}

static int decode_call(struct compute *c, json_t *body, json_t **out, struct error *error)
{
    struct question q;
    size_t bytes = 0;
    int rc = begin_question(c, body, &q, error);
    if (rc == 0 && q.s.prompt)
        rc = error_set(error, ERR_BAD_INPUT, "decode takes ids");
    char *text = rc == 0 ? text_of_ids(c, &q.prompt, &bytes) : NULL;
    if (rc == 0 && !text)
        rc = error_set(error, ERR_NO_MEMORY, "out of memory (text)");
    if (rc == 0)
        *out = engine_decode_reply(text, bytes);
    free(text);
    end_question(c, &q);
    return rc;
}

static void cancel_request(struct compute *c, struct kv_request *q)
{
    atomic_store(&q->cancel, 1);
    uint32_t state = KV_QUEUED;
    if (atomic_compare_exchange_strong(&q->state, &state,
                                       KV_CANCELLED)) { /* else the runner does */
        q->stats.finished_ns = clock_now_ns();
        counter_add(c->child.process, CTR_COMPUTE_sequences_cancelled, 1);
    }
}

static int cancel(struct compute *c, json_t *body, struct error *error)
{
    uint64_t id;
    uint32_t number;
    if (engine_cancel_parse(body, &id, error) != 0)
        return -1;
    struct kv_request *q = request_find(c, id, &number);
    if (!q)
        return error_set(error, ERR_NOT_FOUND, "unknown sequence %" PRIu64, id);
    if (!kv_state_ended(state_of(q)))
        cancel_request(c, q);
    return 0;
}

static json_t *status(struct compute *c)
{
    const struct model_index *m = c->child.model;
    return json_pack(
        "{s:I, s:I, s:I, s:s, s:s, s:I, s:I, s:o}", "queued", (json_int_t)count_state(c, KV_QUEUED),
        "running", (json_int_t)count_state(c, KV_RUNNING), "context",
        (json_int_t)c->child.kv.head->context, "arch", m->arch, "model", m->name, "vocab",
        (json_int_t)m->hparams.vocab, "trained_context", (json_int_t)m->hparams.context,
        "sequences", progress_of_all(c, clock_now_ns()));
}

/* ---- called by the event loop ---------------------------------------------------------------- */

static void reply(struct compute *c, struct rpc_request *request, int rc, json_t *fields,
                  const struct error *error)
{
    if (rc == 0) {
        rpc_reply(c->rpc, request, fields);
        return;
    }
    c->rejected++;
    rpc_reply_error(c->rpc, request, error);
}

static void op_submit(struct compute *c, struct rpc_request *request)
{
    struct error error;
    uint64_t id = 0;
    uint32_t prompt_tokens = 0;
    int rc = submit(c, request->body, &id, &prompt_tokens, &error);
    reply(c, request, rc, rc == 0 ? engine_submit_reply(id, prompt_tokens) : NULL, &error);
}

static void op_count(struct compute *c, struct rpc_request *request)
{
    struct error error;
    uint64_t tokens = 0;
    int rc = count(c, request->body, &tokens, &error);
    uint32_t context = c->child.kv.head->context;
    reply(c, request, rc, rc == 0 ? engine_count_reply(tokens, context) : NULL, &error);
}

static void op_encode(struct compute *c, struct rpc_request *request)
{
    struct error error;
    json_t *fields = NULL;
    int rc = encode_call(c, request->body, &fields, &error);
    reply(c, request, rc, fields, &error);
}

static void op_decode(struct compute *c, struct rpc_request *request)
{
    struct error error;
    json_t *fields = NULL;
    int rc = decode_call(c, request->body, &fields, &error);
    reply(c, request, rc, fields, &error);
}

static void op_cancel(struct compute *c, struct rpc_request *request)
{
    struct error error;
    reply(c, request, cancel(c, request->body, &error), NULL, &error);
}

static void op_status(struct compute *c, struct rpc_request *request)
{
    reply(c, request, 0, status(c), NULL);
}

static void op_prefixes(struct compute *c, struct rpc_request *request)
{
    struct error error;
    const json_t *clear = json_object_get(request->body, "clear");
    int rc = clear && !json_is_boolean(clear)
                 ? error_set(&error, ERR_BAD_INPUT, "clear must be true or false")
                 : 0;
    reply(c, request, rc, rc == 0 ? prefixes_reply(c, json_is_true(clear)) : NULL, &error);
}

static const struct op {
    const char *name;
    void (*handle)(struct compute *c, struct rpc_request *request);
} ops[] = {{"submit", op_submit}, {"next", responses_add},  {"count", op_count},
           {"encode", op_encode}, {"decode", op_decode},    {"cancel", op_cancel},
           {"status", op_status}, {"prefixes", op_prefixes}};

static void handle(struct compute *c, struct rpc_request *request)
{
    struct error error;
    counter_add(c->child.process, CTR_COMPUTE_requests, 1);
    for (size_t i = 0; i < ARRAY_LEN(ops); i++)
        if (strcmp(request->op, ops[i].name) == 0) {
            ops[i].handle(c, request);
            return;
        }
    error_set(&error, ERR_BAD_INPUT,
              "unknown operation \"%.40s\"; expected submit, next, count, encode, decode, cancel, "
              "status or prefixes",
              request->op);
    reply(c, request, -1, NULL, &error);
}

void requests_take(struct compute *c)
{
    struct rpc_request *request;
    while ((request = rpc_server_take(c->rpc)) != NULL)
        handle(c, request);
}

static bool has_pending(const struct compute *c, uint64_t id)
{
    for (uint32_t i = 0; i < c->pending_count; i++)
        if (c->pending[i].id == id)
            return true;
    return false;
}

/* Its gateway has exited: its client's connection is broken, and the client sends the request
 * again. */
static bool abandoned(const struct compute *c, const struct kv_request *q)
{
    const struct process *gateway =
        &c->child.procs.head->process[procs_index_of(SERVICE_GATEWAY, 0)];
    return q->gateway != 0 &&
           atomic_load_explicit(&gateway->reaped, memory_order_relaxed) >= q->gateway;
}

static void tick_request(struct compute *c, uint32_t number, uint64_t now_ns)
{
    struct kv_request *q = request_at(c, number);
    uint32_t state = state_of(q);
    uint64_t limit = c->child.params->idle_timeout * NS_PER_MS;
    uint64_t last_poll = atomic_load_explicit(&q->last_poll_ns, memory_order_relaxed);
    bool silent = now_ns > last_poll && now_ns - last_poll > limit;
    bool left = abandoned(c, q);
    if (state == KV_FREE || (!left && has_pending(c, atomic_load(&q->id))))
        return;
    if (!kv_state_ended(state)) {
        if (left && !atomic_load(&q->cancel)) {
            log_debug("sequence %" PRIu64 ": its gateway has ended, cancelled",
                      atomic_load(&q->id));
            cancel_request(c, q);
        } else if (silent && !atomic_load(&q->cancel)) {
            log_info("sequence %" PRIu64 ": not polled by a client for %" PRIu64 " ms, cancelled",
                     atomic_load(&q->id), limit / NS_PER_MS);
            cancel_request(c, q);
        }
        return;
    }
    uint64_t sent = q->end_sent_ns;
    uint64_t ended = q->stats.finished_ns > last_poll ? q->stats.finished_ns : last_poll;
    if ((sent != 0 && now_ns > sent && now_ns - sent > ENDED_KEEP_NS) ||
        (silent && now_ns > ended && now_ns - ended > limit) || left)
        free_request(c, number);
}

/* Idle requests; gauges. */
void requests_tick(struct compute *c, uint64_t now_ns)
{
    c->child.kv.head->alive_ns = now_ns;
    for (uint32_t i = 0; i < KV_REQUESTS_MAX; i++)
        tick_request(c, i, now_ns);
    counter_set(c->child.process, CTR_COMPUTE_sequences_queued, count_state(c, KV_QUEUED));
    struct rpc_server_stats rpc;
    rpc_server_stats_get(c->rpc, &rpc);
    counter_set(c->child.process, CTR_COMPUTE_requests_rejected, c->rejected + rpc.rejected);
    struct channel_stats channel;
    channel_stats_get(c->child.supervisor, &channel);
    counter_set(c->child.process, CTR_COMPUTE_messages_invalid, channel.invalid);
}
