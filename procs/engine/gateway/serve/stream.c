/* SPDX-License-Identifier: Apache-2.0 */
/* Completions: from a sequence of compute to the last event. Calls to compute are asynchronous;
 * text is fetched token by token, and only while the client reads it. A crash of compute loses
 * nothing: the call is repeated, and the token log provides the same tokens. */
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "procs/engine/gateway/serve/serve.h"

#define NEXT_WAIT_MS 1000
#define PING_NS      (5 * NS_PER_S)  /* maximum silence before a keep-alive is sent */
#define PING_PARTS   6               /* or 1/6 of --http-timeout, if shorter */
#define LOST_NS      (60 * NS_PER_S) /* no reply from compute for this long */

_Static_assert(ANSWER_MARKS_MAX <= ENGINE_MARKS_MAX &&
                   ANSWER_MARK_BYTES_MAX <= ENGINE_MARK_BYTES_MAX,
               "compute takes the marks of every answer");

/* ---- end ------------------------------------------------------------------------------------- */

void stream_submitted(struct stream *s)
{
    quota_give(&s->gateway->http.quota, s->prompt_buffered, true);
    s->prompt_buffered = 0;
    quota_give(&s->gateway->http.quota, s->grammar_buffered, false);
    s->grammar_buffered = 0;
}

void stream_free(struct stream *s)
{
    OBJ_CHECK(s, STREAM_MAGIC);
    rpc_async_forget(s->gateway->engine, s->ticket);
    if (s->exchange) {
        s->exchange->stream = NULL;
        s->exchange->prompt_tokens = s->completion.prompt_tokens;
        s->exchange->new_tokens = answers_tokens(s);
    }
    if (s->lead == s)
        answers_drop(s);
    completion_free(&s->completion);
    json_decref(s->stats);
    s->stats = NULL;
    quota_give(&s->gateway->http.quota, s->types_buffered, false);
    s->types_buffered = 0;
    stream_submitted(s);
    s->magic = 0;
    s->state = STREAM_FREE;
}

void stream_refuse(struct exchange *x, const struct error *error, const char *param)
{
    if (x->stream)
        stream_free(x->stream);
    exchange_error(x, error, param);
}

static void on_cancelled(void *arg, json_t *reply, const struct error *error)
{
    /* If the cancel is lost, compute cancels the sequence after its idle timeout. */
    (void)arg, (void)reply, (void)error;
}

void stream_cancel(struct stream *s)
{
    struct error error;
    rpc_async_forget(s->gateway->engine, s->ticket);
    s->ticket = 0;
    if (!rpc_async_call(s->gateway->engine, "cancel", engine_cancel_request(s->sequence),
                        ENGINE_CANCEL_MS, on_cancelled, NULL, &error))
        log_warn("sequence %" PRIu64 " is not cancelled: %s", s->sequence, error.text);
}

void stream_client_left(struct stream *s)
{
    OBJ_CHECK(s, STREAM_MAGIC);
    struct gateway *g = s->gateway;
    if (s->state == STREAM_SUBMIT) {
        s->exchange->stream = NULL;
        s->exchange = NULL;
        s->state = STREAM_LEFT;
        answers_drop(s);
        counter_add(g->child.process, CTR_GATEWAY_streams_cancelled, 1);
        metrics_finished(&g->metrics, "cancelled");
        return;
    }
    if (s->state == STREAM_FOLLOW || s->state == STREAM_DONE) {
        counter_add(g->child.process, CTR_GATEWAY_streams_cancelled, 1);
        metrics_finished(&g->metrics, "cancelled");
    }
    if (s->state == STREAM_FOLLOW)
        stream_cancel(s);
    stream_free(s);
}

/* ---- output ---------------------------------------------------------------------------------- */

static bool streamed(const struct stream *s)
{
    return s->completion.request.stream;
}

/* What the completion wrote is sent. */
static void send_written(struct stream *s)
{
    if (!s->completion.written)
        return;
    s->completion.written = false;
    s->lead->output_ns = clock_now_ns();
    if (streamed(s))
        exchange_resume(s->lead->exchange);
}

void stream_begin(struct stream *s)
{
    completion_begin(&s->completion);
    send_written(s);
}

/* The stream has ended, with or without an error: the rest to be sent is in `out`. */
static void ended(struct stream *s)
{
    struct gateway *g = s->gateway;
    s->state = STREAM_ENDED;
    rpc_async_forget(g->engine, s->ticket);
    s->ticket = 0;
    send_written(s);
    exchange_resume(s->exchange);
}

void stream_fail(struct stream *s, const struct error *error)
{
    struct gateway *g = s->gateway;
    struct stream *lead = s->lead;
    counter_add(g->child.process, CTR_GATEWAY_streams_failed, 1);
    metrics_finished(&g->metrics, "error");
    if (lead != s && lead->state == STREAM_FOLLOW)
        stream_cancel(lead);
    if (!streamed(lead)) {
        stream_refuse(lead->exchange, error, NULL);
        return;
    }
    answers_drop(lead);
    log_rejection(&g->http, error->text);
    completion_fail(&lead->completion, error_http_status(error->code), error);
    ended(lead);
}

/* Answers that need more than half of all buffers together are not tried again in vain. */
static bool never_fits(const struct stream *s)
{
    return s->completion.too_long ||
           (!streamed(s) && answers_bytes(s->lead) > s->completion.quota->limit / 2);
}

static void too_much(struct stream *s, bool never)
{
    struct error error;
    if (never)
        error_set(&error, ERR_BAD_INPUT,
                  "the response is too long for the buffers (--http-buffer); stream it, or ask for "
                  "less: log-probabilities, answers, tokens");
    else
        error_set(&error, ERR_NO_MEMORY, BUFFERS_FULL);
    stream_fail(s, &error);
}

static enum finish finish_of(const struct engine_next *next)
{
    if (strcmp(next->finish, "length") == 0)
        return FINISH_LENGTH;
    return next->stopped ? FINISH_STOP_TEXT : FINISH_END;
}

static bool is_cancelled(const struct engine_next *next)
{
    return strcmp(next->finish, "cancelled") == 0;
}

/* All answers are complete. */
static void complete(struct stream *lead, const char *reason)
{
    struct gateway *g = lead->gateway;
    struct exchange *x = lead->exchange;
    size_t bytes = 0;
    struct completion *first = streamed(lead) ? NULL : answers_choose(lead);
    char *text = first ? completion_whole(first, &bytes) : NULL;
    if (first && !text) {
        too_much(lead, first->too_long); /* else there was no memory for it */
        return;
    }
    counter_add(g->child.process, CTR_GATEWAY_streams_finished, 1);
    metrics_finished(&g->metrics, reason);
    if (streamed(lead)) {
        ended(lead);
        return;
    }
    stream_free(lead);
    exchange_counted(x, text, bytes);
}

static void finish(struct stream *s, const struct engine_next *next)
{
    struct stream *lead = s->lead;
    s->state = STREAM_DONE;
    s->stats = json_incref(next->stats);
    s->completion.stop = next->stop;
    s->completion.others = answers_run(lead);
    lead->completion.other_tokens = answers_tokens(lead) - lead->completion.new_tokens;
    completion_end(&s->completion, finish_of(next), s->stats);
    if (s->completion.failed)
        too_much(s, never_fits(s));
    else if (s->completion.others)
        send_written(s);
    else
        complete(lead, is_cancelled(next) ? "stop" : next->finish);
}

/* ---- tokens ---------------------------------------------------------------------------------- */

/* Number of tokens of a reply that belong to the text, without those of a stop text. */
static size_t text_token_count(const struct stream *s, const struct engine_next *next)
{
    if (!next->stopped || next->text_tokens >= s->from + next->count)
        return next->count;
    return next->text_tokens > s->from ? (size_t)(next->text_tokens - s->from) : 0;
}

static void count_tokens(struct stream *s, uint64_t count)
{
    struct gateway *g = s->gateway;
    uint64_t now = clock_now_ns();
    if (count == 0)
        return;
    if (s->completion.new_tokens == 0)
        metrics_first_token(&g->metrics, now - s->started_ns);
    else
        metrics_tokens(&g->metrics, now - s->token_ns, count);
    s->token_ns = now;
    s->completion.new_tokens += count;
    counter_add(g->child.process, CTR_GATEWAY_tokens, count);
}

/* Of the first tokens from s->from on, those that are no prompt's. */
static uint64_t new_of(const struct stream *s, size_t tokens)
{
    uint64_t prompt = s->completion.request.scored ? s->completion.prompt_tokens : 0;
    uint64_t end = s->from + tokens, begin = s->from > prompt ? s->from : prompt;
    return end > begin ? end - begin : 0;
}

static void take_text(struct stream *s, const struct engine_next *next, size_t tokens)
{
    count_tokens(s, new_of(s, tokens));
    tokens_take(&s->completion, next, tokens);
    completion_text(&s->completion, next->text, next->text_bytes, true);
    send_written(s);
}

/* The last reply. */
static void take_end(struct stream *s, const struct engine_next *next)
{
    struct error error;
    if (strcmp(next->finish, "error") == 0) {
        stream_fail(s, &next->failure);
    } else if (is_cancelled(next) && !completion_is_over(&s->completion)) {
        error_set(&error, ERR_CANCELLED, "the engine cancelled the sequence");
        stream_fail(s, &error);
    } else {
        if (next->stopped)
            counter_add(s->gateway->child.process, CTR_GATEWAY_streams_stopped, 1);
        finish(s, next);
    }
}

/* Where the answer is over before the model ends it, the sequence is cancelled, and its last reply
 * has the numbers. */
static void take_next(struct stream *s, const struct engine_next *next)
{
    bool over = completion_is_over(&s->completion);
    size_t text_tokens = text_token_count(s, next);
    s->reply_ns = clock_now_ns();
    if (!over)
        take_text(s, next, text_tokens);
    s->from = next->next;
    if (s->completion.failed) {
        if (!next->done)
            stream_cancel(s);
        too_much(s, never_fits(s));
        return;
    }
    if (next->done) {
        take_end(s, next);
        return;
    }
    if (!over && completion_is_over(&s->completion))
        stream_cancel(s);
    stream_request_next(s);
}

/* compute is restarting: the token log provides the tokens afterwards. */
static bool worth_repeating(const struct stream *s, const struct error *error)
{
    return (error->code == ERR_TIMEOUT || error->code == ERR_GONE) &&
           clock_now_ns() - s->reply_ns < LOST_NS;
}

/* Of the first answer, and not to a client that does not read. */
static void report_progress(struct stream *s, const struct engine_progress *p)
{
    if (!p->known || !streamed(s) || s->lead != s || buffer_unsent(&s->completion.out) > 0)
        return;
    completion_progress(&s->completion, p);
    send_written(s);
}

static void on_next(void *arg, json_t *reply, const struct error *error)
{
    struct stream *s = arg;
    struct engine_next next;
    struct error own;
    OBJ_CHECK(s, STREAM_MAGIC);
    s->ticket = 0;
    if (error && worth_repeating(s, error))
        return; /* streams_tick calls again */
    if (!error && engine_next_read(json_incref(reply), s->from, &next, &own) != 0)
        error = &own;
    if (error) {
        stream_fail(s, error);
        return;
    }
    child_progress(&s->gateway->child);
    report_progress(s, &next.progress);
    take_next(s, &next);
    engine_next_free(&next);
}

void stream_request_next(struct stream *s)
{
    struct error error;
    bool ahead = streamed(s) && buffer_unsent(&s->lead->completion.out) > STREAM_AHEAD_BYTES;
    if (s->state != STREAM_FOLLOW || s->ticket || ahead)
        return;
    struct engine_marks marks = {.count = 0};
    if (completion_splits(&s->completion))
        marks.count = answer_marks(&s->completion.request.answer, marks.text);
    s->ticket = rpc_async_call(
        s->gateway->engine, "next",
        engine_next_request(s->sequence, s->from, NEXT_WAIT_MS, marks.count > 0 ? &marks : NULL),
        NEXT_WAIT_MS + ENGINE_NEXT_GRACE_MS, on_next, s, &error);
    /* Without a free call slot, streams_tick calls again. */
}

/* compute is down and cannot be kept running: no call will get its reply. While it runs, it
 * rejects requests itself. */
int stream_check_compute(const struct gateway *g, struct error *error)
{
    const struct procs_head *procs = g->child.procs.head;
    const struct process *compute = &procs->process[procs_index_of(SERVICE_COMPUTE, 0)];
    return atomic_load_explicit(&compute->state, memory_order_relaxed) == PROC_READY
               ? 0
               : procs_check(procs, error);
}

static void fail_all(struct gateway *g, const struct error *error)
{
    for (size_t i = 0; i < STREAMS_MAX; i++) {
        struct stream *s = &g->streams[i];
        if (s->state == STREAM_FOLLOW) {
            stream_cancel(s);
            stream_fail(s, error);
        } else if (s->state == STREAM_SUBMIT) {
            stream_reject(s, error);
        } else if (s->state == STREAM_WAIT && s->lead->state == STREAM_DONE) {
            stream_fail(s, error); /* nothing else of its request may run */
        }
    }
    asks_refuse(g, error);
}

/* ---- called by the event loop ---------------------------------------------------------------- */

/* Silence after which a keep-alive is sent to proxies and clients; shorter with a shorter
 * --http-timeout. */
static uint64_t ping_ns(const struct gateway *g)
{
    uint64_t part = g->child.params->http_timeout * NS_PER_S / PING_PARTS;
    return part < PING_NS ? part : PING_NS;
}

/* Of a request whose answers are not complete. */
static void tick_response(struct stream *lead, uint64_t now_ns)
{
    bool silent = streamed(lead) && buffer_unsent(&lead->completion.out) == 0;
    if (silent && now_ns - lead->output_ns > ping_ns(lead->gateway)) {
        completion_keep_alive(&lead->completion);
        send_written(lead);
    }
    if (lead->from > 0 || lead->state == STREAM_DONE)
        answers_submit(lead);
}

void streams_tick(struct gateway *g, uint64_t now_ns)
{
    uint64_t running = 0;
    struct error error;
    if (stream_check_compute(g, &error) != 0)
        fail_all(g, &error);
    for (size_t i = 0; i < STREAMS_MAX; i++) {
        struct stream *s = &g->streams[i];
        running += s->state == STREAM_SUBMIT || s->state == STREAM_FOLLOW;
        stream_request_next(s);
        if (s->lead == s && (s->state == STREAM_FOLLOW || s->state == STREAM_DONE))
            tick_response(s, now_ns);
    }
    counter_set(g->child.process, CTR_GATEWAY_streams, running);
    counter_set(g->child.process, CTR_GATEWAY_buffered_bytes, g->http.quota.buffered);
    counter_set(g->child.process, CTR_GATEWAY_calls_retried, rpc_async_repeated(g->engine));
}

void streams_stop(struct gateway *g)
{
    struct error error;
    error_set(&error, ERR_GONE, STREAM_STOPPING);
    fail_all(g, &error);
}

nfds_t streams_poll(struct gateway *g, struct pollfd *fds, struct stream **of)
{
    nfds_t n = 0;
    for (size_t i = 0; i < STREAMS_MAX; i++) {
        struct stream *s = &g->streams[i];
        bool waits =
            s->state == STREAM_SUBMIT || s->state == STREAM_FOLLOW || s->state == STREAM_DONE;
        if (!waits || !s->exchange || !s->exchange->suspended || s->fd < 0)
            continue;
        fds[n] = (struct pollfd){.fd = s->fd, .events = POLLRDHUP};
        of[n++] = s;
    }
    return n;
}
