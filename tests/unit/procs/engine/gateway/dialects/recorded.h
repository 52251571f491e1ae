/* SPDX-License-Identifier: Apache-2.0 */
/* Runs texts of a model through a dialect, for tests that compare the whole output. */
#ifndef SLUICE_TESTS_UNIT_GATEWAY_RECORDED_H
#define SLUICE_TESTS_UNIT_GATEWAY_RECORDED_H

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "procs/engine/gateway/api/completion.h"

/* Of models with thoughts and calls. */
static const struct answer_form recorded_form = {
    .reasoning = {"<think>", "</think>"},
    .call = {.open = "<tool_call>", .close = "</tool_call>", .call_open = ""}};

#define RECORDED_CALL(name, arguments)                                                             \
    "<tool_call>{\"name\":\"" name "\",\"arguments\":" arguments "}</tool_call>"

struct recorded {
    const struct dialect *dialect;
    const char *text; /* of the model */
    enum finish finish;
    const char *stop; /* with FINISH_STOP_TEXT */
    bool one_call, inside, logprobs;
    const char *expected;
};

static inline void recorded_open(struct completion *c, const struct recorded *r, bool stream,
                                 struct quota *quota)
{
    struct error error;
    *quota = (struct quota){.limit = 1 << 20};
    *c = (struct completion){.dialect = r->dialect,
                             .quota = quota,
                             .id = "x",
                             .created = 7,
                             .model = "m",
                             .prompt_tokens = 9,
                             .new_tokens = 4,
                             .request = {.stream = stream,
                                         .one_call = r->one_call,
                                         .inside = r->inside,
                                         .logprobs = r->logprobs,
                                         .answer = recorded_form}};
    if (r->stop)
        stop_texts_add(&c->request.stops, r->stop, strlen(r->stop), &error);
    completion_open(c);
    completion_begin(c);
}

/* Each byte is a token, if log-probabilities are wanted. */
static inline void recorded_tokens(struct completion *c, const char *text, size_t bytes)
{
    static const uint32_t pieces[] = {1, 1, 1, 1, 1, 1};
    static const double logprobs[] = {-1, -1, -1, -1, -1, -1};
    struct engine_next next = {.count = bytes,
                               .text = text,
                               .text_bytes = bytes,
                               .logprobs = logprobs,
                               .logprobs_count = bytes,
                               .piece_bytes = pieces,
                               .piece_bytes_count = bytes};
    tokens_take(c, &next, bytes);
}

/* Six bytes at a time, so that marks are cut. */
static inline void recorded_take(struct completion *c, const char *text)
{
    for (size_t left = strlen(text), n; left > 0; left -= n, text += n) {
        n = left < 6 ? left : 6;
        recorded_tokens(c, text, n);
        completion_text(c, text, n, true);
    }
}

static inline void recorded_check(const struct recorded *r, bool stream)
{
    struct quota quota;
    struct completion c;
    json_t *stats = json_pack("{s:i, s:f, s:f, s:f, s:f}", "cached_tokens", 5, "ttft_ms", 3.0,
                              "queue_ms", 1.0, "total_ms", 8.0, "decode_tps", 4.0);
    size_t bytes = 0;
    recorded_open(&c, r, stream, &quota);
    recorded_take(&c, r->text);
    completion_end(&c, r->finish, stats);
    ck_assert(!c.failed);
    char *got =
        stream ? strndup(c.out.data ? c.out.data : "", c.out.bytes) : completion_whole(&c, &bytes);
    ck_assert_ptr_nonnull(got);
    ck_assert_str_eq(got, r->expected);
    free(got);
    json_decref(stats);
    completion_free(&c);
    ck_assert_uint_eq(quota.buffered, 0);
}

#endif
