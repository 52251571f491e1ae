/* SPDX-License-Identifier: Apache-2.0 */
/* Replies to next(): the token log from an index on. A long poll waits until a token is available,
 * the sequence ends, or the poll times out. Text is sent in whole UTF-8 characters: tokens in the
 * middle of one are held back until it is complete or the sequence ends.
 *
 * Index 0 is the first generated token; of a scored prompt (score_prompt) its first token, and the
 * generated ones follow those of the prompt. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "lib/base/assert.h"
#include "procs/engine/compute/main/compute.h"

static const char *finish_name(const struct kv_request *q)
{
    switch ((enum kv_state)atomic_load(&q->state)) {
    case KV_DONE: return atomic_load(&q->finish) == KV_FINISH_STOP ? "stop" : "length";
    case KV_CANCELLED: return "cancelled";
    default: return "error";
    }
}

struct available {                /* available tokens of a sequence */
    uint32_t number, base, count; /* log index of index 0; number of final tokens from there on */
    uint32_t first;               /* of them, the first generated one */
    bool ended;
};

static struct available read_standing(struct compute *c, struct kv_request *q, uint32_t number)
{
    struct available s = {.number = number};
    s.ended = kv_state_ended(atomic_load_explicit(&q->state, memory_order_acquire));
    uint32_t prompt = atomic_load_explicit(&q->prompt_tokens, memory_order_relaxed);
    if (q->flags & KV_FLAG_SCORE_PROMPT) { /* token i is scored with row i - 1 */
        uint32_t valid = atomic_load_explicit(&q->kv_valid, memory_order_acquire);
        s.first = prompt;
        s.count =
            valid < prompt ? valid : atomic_load_explicit(&q->log_tokens, memory_order_acquire);
    } else {
        s.base = prompt;
        s.count = atomic_load_explicit(&q->log_tokens, memory_order_acquire) - prompt;
    }
    sl_assert(s.base + s.count <= c->child.kv.head->context);
    return s;
}

static const _Atomic uint32_t *generated(const struct compute *c, const struct available *s)
{
    return kv_log(&c->child.kv, s->number) + s->base + s->first;
}

/* Tokens of a running response that are not, and cannot become, part of a stop text. */
static uint32_t releasable_tokens(const struct compute *c, const struct kv_request *q,
                                  const struct available *s)
{
    if (s->ended || s->count <= s->first)
        return s->count;
    return s->first + stops_settled(&q->stops, c->tokenizer, generated(c, s), s->count - s->first);
}

/* Where the text ends, counted from token `from` on. */
static struct stop_cut cut_from(const struct kv_request *q, const struct available *s,
                                uint64_t from)
{
    if (!s->ended || q->stop_token == UINT32_MAX)
        return STOP_CUT_NONE;
    uint32_t at = s->first + q->stop_token;
    if (at < from) /* the text ended before `from` */
        return (struct stop_cut){0, 0};
    return (struct stop_cut){at - (uint32_t)from, q->stop_bytes};
}

/* Of a scored prompt that was given as a text. */
static struct client_text client_text(const struct compute *c, const struct kv_request *q,
                                      const struct available *s, uint64_t from)
{
    bool ends = (q->flags & KV_FLAG_IGNORE_EOS) != 0;
    if ((q->flags & KV_FLAG_PROMPT_TEXT) == 0)
        return (struct client_text){.ends = ends};
    return (struct client_text){.at = s->base + (uint32_t)from,
                                .first = tokenizer_bos(c->tokenizer) != TOKEN_NONE,
                                .end = s->first,
                                .ends = ends};
}

static void gather_logprobs(struct compute *c, const struct available *s, uint64_t from,
                            size_t count)
{
    const float *logprobs = kv_logprobs(&c->child.kv, s->number);
    for (size_t i = 0; i < count; i++)
        c->response.logprobs[i] = (double)logprobs[s->base + from + i];
}

/* The most probable tokens beside those of the reply. */
static void gather_top(struct compute *c, const struct kv_request *q, const struct available *s,
                       uint64_t from, struct engine_next *next)
{
    next->top = c->response.top;
    next->top_each = q->top_logprobs;
    for (size_t i = 0; i < next->count; i++) {
        const struct kv_top *top = kv_tops(&c->child.kv, s->number, (uint32_t)(from + i));
        for (uint32_t j = 0; j < q->top_logprobs; j++) {
            size_t bytes;
            const char *text = tokenizer_piece(c->tokenizer, top[j].id, &bytes);
            if (bytes == 0)
                text = tokenizer_control_name(c->tokenizer, top[j].id, &bytes);
            c->response.top[i * q->top_logprobs + j] =
                (struct engine_top){.id = top[j].id,
                                    .bytes = (uint32_t)bytes,
                                    .logprob = (double)top[j].logprob,
                                    .text = text};
        }
    }
}

static void reply_next(struct compute *c, const struct pending *p, const struct engine_next *next)
{
    struct error error;
    json_t *fields = engine_next_reply(next);
    if (fields) {
        rpc_reply(c->rpc, p->request, fields);
        return;
    }
    error_set(&error, ERR_NO_MEMORY, "out of memory (reply)");
    rpc_reply_error(c->rpc, p->request, &error);
}

/* Replies when tokens are available or `last` is set. False: the poll continues to wait. */
static bool respond(struct compute *c, const struct pending *p, uint64_t now_ns, bool last)
{
    uint32_t number;
    struct error error;
    struct kv_request *q = request_find(c, p->id, &number);
    if (!q) {
        error_set(&error, ERR_NOT_FOUND, "unknown sequence %" PRIu64, p->id);
        rpc_reply_error(c->rpc, p->request, &error);
        return true;
    }
    struct available s = read_standing(c, q, number);
    struct engine_next next = {.ids = c->response.ids, .text = c->response.text};
    struct engine_marks marks;
    engine_next_marks(p->request->body, &marks);
    uint32_t releasable = releasable_tokens(c, q, &s);
    uint64_t left = p->from < releasable ? releasable - p->from : 0;
    bool all = q->top_logprobs == 0 || left <= ENGINE_NEXT_TOPS_MAX;
    left = all ? left : ENGINE_NEXT_TOPS_MAX;
    struct client_text prompt = client_text(c, q, &s, left ? p->from : 0);
    next.count = response_gather(&c->response, c->tokenizer,
                                 kv_log(&c->child.kv, number) + s.base + (left ? p->from : 0),
                                 (uint32_t)left, s.ended && all, cut_from(q, &s, p->from), &marks,
                                 &prompt, &next.text_bytes);
    next.next = p->from + next.count;
    next.done = s.ended && next.next >= s.count;
    next.stopped = s.ended && q->stop_token != UINT32_MAX && s.count >= s.first;
    if (next.stopped) {
        next.text_tokens = (uint64_t)s.first + q->stop_token + (q->stop_bytes > 0);
        next.stop = stops_which(&q->stops, c->tokenizer, generated(c, &s), s.count - s.first,
                                (struct stop_cut){q->stop_token, q->stop_bytes});
    }
    if (next.count == 0 && !next.done && !last)
        return false;
    if (next.count == 0 && !next.done)
        next.progress = progress_of(c, q, now_ns);
    if (q->logprobs || (q->flags & KV_FLAG_SCORE_PROMPT)) {
        gather_logprobs(c, &s, p->from, next.count);
        next.logprobs = c->response.logprobs;
        next.logprobs_count = next.count;
        next.piece_bytes = c->response.piece_bytes;
        next.piece_bytes_count = q->logprobs ? next.count : 0; /* without: scores only */
    }
    if (q->top_logprobs)
        gather_top(c, q, &s, p->from, &next);
    atomic_store_explicit(&q->last_poll_ns, now_ns, memory_order_relaxed);
    if (next.done) {
        next.finish = finish_name(q);
        if (atomic_load(&q->state) == KV_FAILED)
            error_set(&next.failure, (enum error_code)q->error_code, "%s", q->error_text);
        next.stats = stats_json(c, number);
        q->end_sent_ns = now_ns;
        child_inject(&c->child, INJECT_COMPUTE_END_SENT);
    }
    reply_next(c, p, &next);
    json_decref(next.stats);
    return true;
}

void responses_add(struct compute *c, struct rpc_request *request)
{
    struct error error;
    unsigned wait_ms = 0;
    uint32_t number;
    struct pending p = {.request = request};
    uint64_t now = clock_now_ns();
    if (engine_next_parse(request->body, &p.id, &p.from, &wait_ms, &error) != 0) {
        c->rejected++;
        rpc_reply_error(c->rpc, request, &error);
        return;
    }
    p.deadline_ns = now + wait_ms * NS_PER_MS;
    struct kv_request *q = request_find(c, p.id, &number);
    if (q)
        atomic_store_explicit(&q->last_poll_ns, now, memory_order_relaxed);
    /* Tokens are sent at the next tick, so that a fast model does not send a reply per token; the
     * end, and expired polls, at once. */
    bool reply_now = wait_ms == 0 || c->pending_count == RPC_CONTEXTS || !q;
    if (reply_now || kv_state_ended(atomic_load(&q->state)))
        respond(c, &p, now, true);
    else
        c->pending[c->pending_count++] = p;
}

void responses_tick(struct compute *c, uint64_t now_ns)
{
    for (uint32_t i = 0; i < c->pending_count;) {
        struct pending *p = &c->pending[i];
        if (respond(c, p, now_ns, now_ns >= p->deadline_ns))
            *p = c->pending[--c->pending_count];
        else
            i++;
    }
}
