/* SPDX-License-Identifier: Apache-2.0 */
/* Several answers to one request. The other answers are submitted once the first has a token: then
 * the prompt is computed, and they reuse its keys and values. Where the engine's queue has no room
 * for one of them, it waits until an answer of this request has ended. */
#include <inttypes.h>

#include "lib/base/assert.h"
#include "procs/engine/gateway/serve/serve.h"

#define RETRY_NS (1000 * NS_PER_MS)

_Static_assert(API_ANSWERS_MAX <= STREAMS_MAX, "a stream for each answer");

static struct stream *next_other(const struct stream *lead, size_t *at)
{
    struct gateway *g = lead->gateway;
    while (*at < STREAMS_MAX) {
        struct stream *s = &g->streams[(*at)++];
        if (s->state != STREAM_FREE && s->lead == lead && s != lead)
            return s;
    }
    return NULL;
}

static struct stream *other_in(const struct stream *lead, enum stream_state state)
{
    struct stream *s;
    for (size_t at = 0; (s = next_other(lead, &at));)
        if (s->state == state)
            return s;
    return NULL;
}

bool answers_run(const struct stream *lead)
{
    return lead->state == STREAM_SUBMIT || lead->state == STREAM_FOLLOW ||
           other_in(lead, STREAM_WAIT) || other_in(lead, STREAM_SUBMIT) ||
           other_in(lead, STREAM_FOLLOW);
}

uint64_t answers_tokens(const struct stream *lead)
{
    uint64_t sum = lead->completion.new_tokens;
    struct stream *s;
    for (size_t at = 0; (s = next_other(lead, &at));)
        sum += s->completion.new_tokens;
    return sum;
}

size_t answers_bytes(const struct stream *lead)
{
    size_t sum = completion_bytes(&lead->completion);
    struct stream *s;
    for (size_t at = 0; (s = next_other(lead, &at));)
        sum += completion_bytes(&s->completion);
    return sum;
}

/* ---- start ----------------------------------------------------------------------------------- */

/* The first answer has the client's seed. */
static int64_t seed_of(int64_t seed, unsigned number)
{
    return seed < 0 ? seed : (int64_t)(((uint64_t)seed + number) & INT64_MAX);
}

static int open_other(struct stream *lead, unsigned number, struct error *error)
{
    struct stream *s = stream_unused(lead->gateway, error);
    if (!s)
        return -1;
    *s = (struct stream){.magic = STREAM_MAGIC,
                         .state = STREAM_WAIT,
                         .gateway = lead->gateway,
                         .lead = lead,
                         .fd = -1};
    completion_open_other(&s->completion, &lead->completion, number);
    struct sampling *sampling = &s->completion.request.sampling;
    sampling->seed = seed_of(sampling->seed, number);
    return 0;
}

int answers_open(struct stream *lead, struct error *error)
{
    unsigned tries = lead->completion.request.tries;
    uint64_t streams = lead->gateway->child.params->http_streams;
    if (tries > streams)
        return error_set(error, ERR_BAD_INPUT,
                         "the request asks for %u answers; this engine computes at most %" PRIu64
                         " at once (--http-streams)",
                         tries, streams);
    for (unsigned i = 1; i < tries; i++)
        if (open_other(lead, i, error) != 0)
            return -1;
    return 0;
}

/* It was postponed: compute encodes the prompt each time, so it is not asked at once again. */
static bool waits_again(const struct stream *s)
{
    bool others = s->lead->state == STREAM_FOLLOW || other_in(s->lead, STREAM_FOLLOW);
    return others && s->reply_ns != 0 && clock_now_ns() - s->reply_ns < RETRY_NS;
}

void answers_submit(struct stream *lead)
{
    struct error error;
    struct stream *s = other_in(lead, STREAM_WAIT);
    if (other_in(lead, STREAM_SUBMIT) || (s && waits_again(s)))
        return;
    if (!s) {
        api_request_submitted(&lead->completion.request);
        stream_submitted(lead);
        return;
    }
    s->state = STREAM_SUBMIT;
    s->started_ns = s->reply_ns = clock_now_ns();
    if (stream_submit(s, &error) != 0)
        stream_fail(s, &error);
}

bool answers_postpone(struct stream *s, const struct error *error)
{
    bool others = s->lead->state == STREAM_FOLLOW || other_in(s->lead, STREAM_FOLLOW);
    if (error->code != ERR_BUSY || !others)
        return false;
    s->state = STREAM_WAIT;
    return true;
}

/* ---- end ------------------------------------------------------------------------------------- */

void answers_drop(struct stream *lead)
{
    struct stream *s;
    for (size_t at = 0; (s = next_other(lead, &at));) {
        if (s->state == STREAM_SUBMIT && s->ticket != 0) { /* its number is not known yet */
            completion_free(&s->completion);
            s->state = STREAM_LEFT;
            s->lead = NULL;
            continue;
        }
        if (s->state == STREAM_FOLLOW)
            stream_cancel(s);
        stream_free(s);
    }
}

static double mean_logprob(const struct completion *c)
{
    return c->new_tokens > 0 ? c->logprob_sum / (double)c->new_tokens : 0;
}

/* The most probable ones first; those that are equal stay in their order. */
static void rank(struct completion *all[], size_t count)
{
    for (size_t i = 1; i < count; i++) {
        struct completion *c = all[i];
        size_t k = i;
        for (; k > 0 && mean_logprob(all[k - 1]) < mean_logprob(c); k--)
            all[k] = all[k - 1];
        all[k] = c;
    }
}

struct completion *answers_choose(struct stream *lead)
{
    struct completion *all[API_ANSWERS_MAX] = {&lead->completion};
    const struct api_request *r = &lead->completion.request;
    uint64_t tokens = answers_tokens(lead);
    struct stream *s;
    for (size_t at = 0; (s = next_other(lead, &at));)
        all[s->completion.number] = &s->completion;
    if (r->tries > r->answers)
        rank(all, r->tries);
    for (unsigned i = 0; i < r->answers; i++) {
        all[i]->number = i;
        all[i]->next = i + 1 < r->answers ? all[i + 1] : NULL;
    }
    all[0]->stats = lead->stats;
    all[0]->prompt_tokens = lead->completion.prompt_tokens;
    all[0]->other_tokens = tokens - all[0]->new_tokens;
    return all[0];
}
