/* SPDX-License-Identifier: Apache-2.0 */
/* Submits a sequence, polls its tokens, and shows the progress of its prompt. */
#include "procs/clients/common/stream.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "lib/terminal/display.h"

#define NEXT_WAIT_MS 500
#define BUSY_WAIT_MS 50
#define ENGINE_GONE_NS                                                                             \
    (60 * NS_PER_S) /* compute may be restarting and reading the dense weights
                                          * again */
#define CANCEL_LIMIT_NS  (3 * NS_PER_S)
#define REQUEST_KEY_SIZE 40

static void make_key(char key[REQUEST_KEY_SIZE])
{
    uint64_t number[2] = {clock_now_ns(), (uint64_t)getpid()};
    if (getrandom(number, sizeof number, 0) != (ssize_t)sizeof number)
        number[0] ^= clock_now_ns() << 20; /* fall back to time and pid */
    snprintf(key, REQUEST_KEY_SIZE, "%016" PRIx64 "%016" PRIx64, number[0], number[1]);
}

/* True when a failed call may succeed later: the engine is running but compute is not. */
static bool worth_repeating(struct session *s, uint64_t *since, struct error *error)
{
    if ((error->code != ERR_GONE && error->code != ERR_TIMEOUT) || session_gone(s))
        return false;
    uint64_t now = clock_now_ns();
    if (*since == 0)
        *since = now;
    if (now - *since > ENGINE_GONE_NS || session_stop || !session_alive(s, error))
        return false;
    poll(NULL, 0, BUSY_WAIT_MS);
    return true;
}

int stream_submit(struct session *s, struct engine_submit *submit, uint64_t *id,
                  struct error *error)
{
    char key[REQUEST_KEY_SIZE];
    make_key(key);
    submit->request_key = key;
    submit->client = s->command;
    uint64_t gone_since = 0;
    int result;
    do
        result = engine_submit(s->engine, submit, id, error);
    while (result != 0 && worth_repeating(s, &gone_since, error));
    submit->request_key = NULL;
    return result;
}

int stream_count(struct session *s, const struct engine_submit *submit, uint64_t *tokens,
                 uint64_t *context, struct error *error)
{
    uint64_t gone_since = 0;
    int result;
    do
        result = engine_count(s->engine, submit, tokens, context, error);
    while (result != 0 && worth_repeating(s, &gone_since, error));
    return result;
}

static int grow(void **array, size_t bytes)
{
    void *grown = realloc(*array, bytes);
    if (grown)
        *array = grown;
    return grown ? 0 : -1;
}

static int append(struct stream_result *r, const struct engine_next *next, struct error *error)
{
    size_t scores = next->logprobs_count;
    if (grow((void **)&r->ids, (r->count + next->count + 1) * sizeof *r->ids) != 0 ||
        grow((void **)&r->text, r->text_bytes + next->text_bytes + 1) != 0 ||
        grow((void **)&r->logprobs, (r->logprobs_count + scores + 1) * sizeof *r->logprobs) != 0)
        return error_set(error, ERR_NO_MEMORY, "out of memory (response)");
    if (next->count)
        memcpy(r->ids + r->count, next->ids, next->count * sizeof *r->ids);
    if (next->text_bytes)
        memcpy(r->text + r->text_bytes, next->text, next->text_bytes);
    if (scores)
        memcpy(r->logprobs + r->logprobs_count, next->logprobs, scores * sizeof *r->logprobs);
    r->count += next->count;
    r->text_bytes += next->text_bytes;
    r->logprobs_count += scores;
    r->text[r->text_bytes] = 0;
    return 0;
}

/* Adds a reply to the result. 1: done, 0: more to come, -1: the sequence failed. */
static int take(struct stream_result *r, const struct engine_next *next, struct error *error)
{
    if (append(r, next, error) != 0)
        return -1;
    if (!next->done)
        return 0;
    snprintf(r->finish, sizeof r->finish, "%s", next->finish ? next->finish : "");
    if (next->stats)
        r->stats = json_incref(next->stats);
    if (strcmp(r->finish, "error") == 0) {
        if (error)
            *error = next->failure;
        return -1;
    }
    return 1;
}

/* Cancels the sequence; errors and a missing reply are ignored. */
static void cancel(struct session *s, uint64_t id, uint64_t from, struct stream_result *r)
{
    struct error ignored;
    struct engine_next next;
    rpc_client_set_stop(s->engine, NULL);
    uint64_t limit = clock_now_ns() + CANCEL_LIMIT_NS;
    bool done = engine_cancel(s->engine, id, &ignored) != 0;
    while (!done && clock_now_ns() < limit &&
           engine_next(s->engine, id, from, BUSY_WAIT_MS, &next, &ignored) == 0) {
        done = take(r, &next, &ignored) != 0;
        from = next.next;
        engine_next_free(&next);
    }
    snprintf(r->finish, sizeof r->finish, "cancelled");
    rpc_client_set_stop(s->engine, &session_stop);
}

int stream_step(struct session *s, uint64_t id, uint64_t *from, stream_sink *sink, void *arg,
                struct stream_result *r, struct error *error)
{
    struct engine_next next;
    uint64_t gone_since = 0;
    for (;;) {
        if (session_stop) {
            cancel(s, id, *from, r);
            return 1;
        }
        if (engine_next(s->engine, id, *from, NEXT_WAIT_MS, &next, error) == 0)
            break;
        if (!session_stop && !worth_repeating(s, &gone_since, error))
            return -1;
    }
    if (sink)
        sink(&next, arg);
    *from = next.next;
    int state = take(r, &next, error);
    engine_next_free(&next);
    return state;
}

int stream_follow(struct session *s, uint64_t id, stream_sink *sink, void *arg,
                  struct stream_result *r, struct error *error)
{
    memset(r, 0, sizeof *r);
    r->text = calloc(1, 1);
    if (!r->text)
        return error_set(error, ERR_NO_MEMORY, "out of memory (response)");
    uint64_t from = 0;
    for (;;) {
        int state = stream_step(s, id, &from, sink, arg, r, error);
        if (state != 0)
            return state > 0 ? 0 : -1;
    }
}

int stream_run(struct session *s, struct engine_submit *submit, stream_sink *sink, void *arg,
               struct stream_result *result, struct error *error)
{
    memset(result, 0, sizeof *result);
    uint64_t id;
    if (stream_submit(s, submit, &id, error) != 0)
        return -1;
    return stream_follow(s, id, sink, arg, result, error);
}

void stream_result_free(struct stream_result *r)
{
    free(r->ids);
    free(r->text);
    json_decref(r->stats);
    free(r->logprobs);
    memset(r, 0, sizeof *r);
}

/* ---- progress ---- */

#define CLEAR "\r\033[K"
/* For the ^C that the terminal writes at the cursor: a line that breaks is not removed wholly. */
#define ECHO_COLUMNS 3

static void time_text(uint64_t ms, char *text, size_t bytes)
{
    uint64_t s = (ms + 999) / 1000;
    if (s < 120)
        snprintf(text, bytes, "%" PRIu64 " s", s);
    else
        snprintf(text, bytes, "%" PRIu64 " min", (s + 59) / 60);
}

void progress_text(const struct engine_progress *p, char *text, size_t bytes)
{
    char left[32];
    if (p->queue > 0) {
        snprintf(text, bytes, "%" PRIu64 " request%s before this one", p->queue,
                 p->queue > 1 ? "s" : "");
        return;
    }
    int n = snprintf(text, bytes, "prompt: %" PRIu64 " of %" PRIu64 " tokens", p->done, p->tokens);
    if (p->left_ms == UINT64_MAX || n < 0 || (size_t)n >= bytes)
        return;
    time_text(p->left_ms, left, sizeof left);
    snprintf(text + n, bytes - (size_t)n, ", %s left", left);
}

void progress_end(bool *shown)
{
    if (*shown)
        fputs(CLEAR, stderr);
    *shown = false;
}

void progress_show(const struct engine_progress *p, bool *shown)
{
    char text[96];
    if (!p->known) {
        progress_end(shown);
        return;
    }
    unsigned columns = display_columns(STDERR_FILENO);
    if (columns == 0)
        return;
    progress_text(p, text, sizeof text);
    fprintf(stderr, CLEAR "%.*s", (int)columns - ECHO_COLUMNS, text);
    fflush(stderr);
    *shown = true;
}
