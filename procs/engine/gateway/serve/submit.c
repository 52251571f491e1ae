/* SPDX-License-Identifier: Apache-2.0 */
/* Completions: from a body to a sequence of compute. Then stream.c follows it. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "lib/base/assert.h"
#include "procs/engine/gateway/serve/serve.h"

#define BLOCK_BYTES  4096 /* written at once */
#define RANGE_BYTES  16   /* of the text of a call, at most: "[524287,524288]," */
#define CLASS_HEADER "X-Sluice-Class"

/* A random identifier, not a secret. */
static void make_id(char id[COMPLETION_ID_BYTES])
{
    uint64_t random[2] = {0};
    ssize_t n = getrandom(random, sizeof random, GRND_NONBLOCK);
    (void)n;
    snprintf(id, COMPLETION_ID_BYTES, "%016" PRIx64 "%08" PRIx64, random[0],
             random[1] & 0xffffffff);
}

static void stream_init(struct stream *s, struct exchange *x)
{
    struct gateway *g = x->gateway;
    uint64_t now = clock_now_ns();
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(x->connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    *s = (struct stream){.magic = STREAM_MAGIC,
                         .state = STREAM_SUBMIT,
                         .gateway = g,
                         .lead = s,
                         .exchange = x,
                         .fd = info ? info->connect_fd : -1,
                         .completion = {.dialect = x->dialect,
                                        .created = (int64_t)time(NULL),
                                        .model = g->model.name,
                                        .stored = &g->stored,
                                        .quota = &g->http.quota},
                         .started_ns = now,
                         .output_ns = now,
                         .reply_ns = now};
    make_id(s->completion.id);
    x->stream = s;
}

struct stream *stream_unused(struct gateway *g, struct error *error)
{
    for (size_t i = 0; i < g->child.params->http_streams && i < STREAMS_MAX; i++)
        if (g->streams[i].state == STREAM_FREE)
            return &g->streams[i];
    error_set(error, ERR_BUSY,
              "%" PRIu64 " completions are in progress (--http-streams); retry later",
              g->child.params->http_streams);
    return NULL;
}

static struct stream *stream_new(struct exchange *x, struct error *error)
{
    struct stream *s = stream_unused(x->gateway, error);
    if (s)
        stream_init(s, x);
    return s;
}

/* Of the answers whose events these are. */
static void request_more(struct stream *lead)
{
    struct gateway *g = lead->gateway;
    for (size_t i = 0; i < STREAMS_MAX; i++)
        if (g->streams[i].state == STREAM_FOLLOW && g->streams[i].lead == lead)
            stream_request_next(&g->streams[i]);
}

static ssize_t read_events(void *arg, uint64_t position, char *out, size_t cap)
{
    struct exchange *x = arg;
    struct stream *s = x->stream;
    (void)position;
    if (!s || x->gone) {
        x->http->closing = true;
        return MHD_CONTENT_READER_END_WITH_ERROR;
    }
    struct buffer *from = &s->completion.out;
    size_t left = buffer_unsent(from), n = left < cap ? left : cap;
    if (n > 0) {
        memcpy(out, from->data + from->sent, n);
        buffer_mark_sent(from, n, STREAM_AHEAD_BYTES);
        x->sent_bytes += n;
        request_more(s);
        return (ssize_t)n;
    }
    if (s->completion.broken) {
        x->http->closing = true;
        return MHD_CONTENT_READER_END_WITH_ERROR;
    }
    if (s->state == STREAM_ENDED)
        return MHD_CONTENT_READER_END_OF_STREAM;
    x->suspended = true;
    MHD_suspend_connection(x->connection);
    return 0;
}

static void start_events(struct stream *s)
{
    struct MHD_Response *response = MHD_create_response_from_callback(
        MHD_SIZE_UNKNOWN, BLOCK_BYTES, read_events, s->exchange, NULL);
    if (response) {
        MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE,
                                s->completion.dialect->framing->type);
        MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-cache");
        MHD_add_response_header(response, "X-Accel-Buffering", "no");
    }
    exchange_respond(s->exchange, MHD_HTTP_OK, response);
}

/* compute rejected it. */
void stream_reject(struct stream *s, const struct error *error)
{
    if (s->lead != s) {
        if (!answers_postpone(s, error))
            stream_fail(s, error);
        return;
    }
    counter_add(s->gateway->child.process, CTR_GATEWAY_streams_failed, 1);
    stream_refuse(s->exchange, error, NULL);
}

/* The sequence runs. */
static void follow(struct stream *s)
{
    s->state = STREAM_FOLLOW;
    s->reply_ns = clock_now_ns();
    if (s->lead == s && s->completion.request.stream)
        start_events(s);
    stream_begin(s);
    stream_request_next(s);
    if (s->lead != s)
        answers_submit(s->lead);
}

/* Until the call that may follow is made. */
static bool keeps_prompt(const struct stream *s)
{
    const struct api_request *r = &s->completion.request;
    return r->tries > 1 || (r->grammar.kind != GRAMMAR_NONE && r->grammar_optional);
}

/* What the engine cannot enforce of tools that the model may call is left out. */
static bool may_go_without_grammar(const struct stream *s, const struct error *error)
{
    const struct api_request *r = &s->completion.request;
    return s->lead == s && s->state != STREAM_LEFT && error->code == ERR_BAD_INPUT &&
           r->grammar.kind != GRAMMAR_NONE && r->grammar_optional;
}

static void leave_schemas_out(struct stream *s)
{
    api_drop_grammar(&s->completion.request);
    ignored_add(s->gateway, API_LEFT_OUT_ALL);
}

/* Without the schema that the engine refuses, so that the other ones are still enforced; without
 * all of them where it refuses what is no schema of a tool, such as their number. */
static bool goes_without_refused(struct stream *s, const struct error *error)
{
    struct error why;
    char what[API_LEFT_OUT_BYTES];
    if (!may_go_without_grammar(s, error) || !api_is_of_grammar(error))
        return false;
    if (api_leave_out(&s->completion.request, error, what))
        ignored_add(s->gateway, what);
    else
        leave_schemas_out(s);
    if (stream_submit(s, &why) != 0)
        stream_reject(s, &why);
    return true;
}

static void on_submitted(void *arg, json_t *reply, const struct error *error)
{
    struct stream *s = arg;
    struct error own;
    OBJ_CHECK(s, STREAM_MAGIC);
    s->ticket = 0;
    if (error && goes_without_refused(s, error))
        return;
    if (s->lead == s && s->completion.request.tries == 1) {
        api_request_submitted(&s->completion.request);
        stream_submitted(s);
    }
    if (!error && engine_submit_read(reply, &s->sequence, &s->completion.prompt_tokens, &own) != 0)
        error = &own;
    if (s->state == STREAM_LEFT) {
        if (!error)
            stream_cancel(s);
        stream_free(s);
        return;
    }
    if (error) {
        struct error why = *error;
        api_explain(&s->lead->completion.request, &why);
        stream_reject(s, &why);
        return;
    }
    follow(s);
}

void stream_put_prompt(const struct api_request *r, struct engine_submit *out)
{
    engine_submit_defaults(out);
    out->prompt = r->prompt;
    out->prompt_bytes = r->prompt_bytes;
    out->prompt_ids = r->ids;
    out->prompt_ids_count = r->ids_count;
    out->special = r->special;
}

/* What the client says in a header goes before what its request looks like. */
static int read_class(struct stream *lead, struct error *error)
{
    const char *name =
        MHD_lookup_connection_value(lead->exchange->connection, MHD_HEADER_KIND, CLASS_HEADER);
    lead->side = name ? strcmp(name, "side") == 0 : api_is_side(&lead->completion.request);
    if (!name || lead->side || strcmp(name, "conversation") == 0)
        return 0;
    return error_set(error, ERR_BAD_INPUT,
                     "the header " CLASS_HEADER " is \"side\" or \"conversation\"");
}

static int submit(struct stream *s, struct error *error)
{
    struct engine_submit submit;
    const struct exchange *x = s->lead->exchange; /* other answers have none */
    const struct api_request *r = &s->completion.request;
    char address[INET6_ADDRSTRLEN], client[ENGINE_CLIENT_BYTES_MAX + 1];
    exchange_client(x, address);
    snprintf(client, sizeof client, "%s %s", address, x->route->path);
    stream_put_prompt(&s->lead->completion.request, &submit);
    submit.client = client;
    submit.side = s->lead->side;
    s->lead->exchange->class = submit.side ? "side" : "conversation";
    submit.max_tokens = r->max_tokens;
    submit.ignore_eos = r->ignore_eos;
    submit.cache_prompt = r->cache_prompt;
    const struct api_request *lead = &s->lead->completion.request;
    submit.grammar = lead->grammar;
    submit.bias = lead->bias;
    submit.bias_count = lead->bias_count;
    submit.top_logprobs = r->top_logprobs;
    submit.logprobs = r->logprobs || r->tries > r->answers;
    submit.score_prompt = r->scored;
    submit.sampling = r->sampling;
    submit.gateway = s->gateway->child.incarnation;
    submit.stops = r->stops;
    json_t *request = engine_submit_request(&submit, error);
    if (!request)
        return -1;
    s->ticket = rpc_async_call(s->gateway->engine, "submit", request, ENGINE_SUBMIT_MS,
                               on_submitted, s, error);
    return s->ticket ? 0 : -1;
}

/* The call, too, may be larger with the grammar than a call can be. */
int stream_submit(struct stream *s, struct error *error)
{
    if (submit(s, error) == 0)
        return 0;
    if (!may_go_without_grammar(s, error))
        return -1;
    leave_schemas_out(s);
    return submit(s, error);
}

int stream_may_start(const struct gateway *g, struct error *error)
{
    if (g->child.stop)
        return error_set(error, ERR_GONE, STREAM_STOPPING);
    sl_assert(g->http.accepts);
    return stream_check_compute(g, error);
}

static void beat(void *gateway)
{
    child_heartbeat(&((struct gateway *)gateway)->child);
}

struct api_limits stream_limits(struct gateway *g)
{
    return (struct api_limits){.prompt_bytes = g->child.params->http_prompt,
                               .chat = &g->chat,
                               .beat = beat,
                               .beat_arg = g,
                               .ignored = ignored_add,
                               .ignored_arg = g,
                               .stored = g->stored.count > 0 ? &g->stored : NULL};
}

/* Takes the body of the exchange; its prompt is then part of the call's text, which is kept until
 * compute has it. */
static int parse_body(struct stream *s, char param[API_PARAM_BYTES], struct error *error)
{
    struct exchange *x = s->exchange;
    struct api_limits limits = stream_limits(s->gateway);
    int rc = api_request_parse(x->dialect, x->body.data ? x->body.data : "", x->body.bytes, &limits,
                               &s->completion.request, param, error);
    s->prompt_buffered = buffer_detach(&x->body);
    return rc;
}

/* What is known of the tools, the beginning of the answer and the conversation stay as long as the
 * stream. */
static bool keep_types(struct stream *s)
{
    const struct api_request *r = &s->completion.request;
    const char *front = r->front ? r->front : "",
               *conversation = r->conversation ? r->conversation : "";
    size_t bytes = r->types_bytes + r->tool_names_bytes + strlen(front) + strlen(conversation) +
                   api_lines_bytes(r);
    if (!quota_take(&s->gateway->http.quota, bytes, false))
        return false;
    s->types_buffered = bytes;
    return true;
}

/* The grammar, until compute has it; its text may be far larger than the schemas of the tools. */
static bool keep_grammar(struct stream *s)
{
    struct api_request *r = &s->completion.request;
    size_t bytes = r->grammar_text ? r->grammar.bytes : 0;
    if (quota_take(&s->gateway->http.quota, bytes, false)) {
        s->grammar_buffered += bytes;
        return true;
    }
    if (!r->grammar_optional)
        return false;
    leave_schemas_out(s);
    return true;
}

/* Where the template wrote, until then: with short values that may be longer than the prompt. */
static bool keep_ranges(struct stream *s)
{
    size_t bytes = RANGE_BYTES * s->completion.request.special.count;
    if (!quota_take(&s->gateway->http.quota, bytes, false))
        return false;
    s->grammar_buffered += bytes;
    return true;
}

static int keep_parts(struct stream *s, struct error *error)
{
    return keep_ranges(s) && keep_grammar(s) && keep_types(s)
               ? 0
               : error_set(error, ERR_NO_MEMORY, BUFFERS_FULL);
}

/* There is nothing to compute: the answer is whole, also where a stream was asked for. */
static int finish_nothing(struct stream *s, struct error *error)
{
    struct exchange *x = s->exchange;
    size_t bytes = 0;
    s->completion.finish = FINISH_END;
    char *text = completion_whole(&s->completion, &bytes);
    if (!text)
        return error_set(error, ERR_NO_MEMORY, BUFFERS_FULL);
    counter_add(s->gateway->child.process, CTR_GATEWAY_streams_finished, 1);
    metrics_finished(&s->gateway->metrics, "stop");
    stream_free(s);
    exchange_counted(x, text, bytes);
    return 0;
}

/* Until compute has accepted it. */
static int start(struct exchange *x, char param[API_PARAM_BYTES], struct error *error)
{
    if (stream_may_start(x->gateway, error) != 0)
        return -1;
    struct stream *s = stream_new(x, error);
    if (!s || parse_body(s, param, error) != 0 || read_class(s, error) != 0 ||
        keep_parts(s, error) != 0)
        return -1;
    completion_open(&s->completion);
    if (s->completion.request.nothing)
        return finish_nothing(s, error);
    if (answers_open(s, error) != 0 || stream_submit(s, error) != 0)
        return -1;
    if (!keeps_prompt(s))
        api_request_submitted(&s->completion.request);
    return 0;
}

void stream_start(struct exchange *x)
{
    struct error error;
    char param[API_PARAM_BYTES] = "";
    sl_assert(x->dialect->parse != NULL);
    if (start(x, param, &error) == 0)
        counter_add(x->gateway->child.process, CTR_GATEWAY_streams_started, 1);
    else
        stream_refuse(x, &error, param);
}
