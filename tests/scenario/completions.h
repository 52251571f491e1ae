/* SPDX-License-Identifier: Apache-2.0 */
/* Greedy completions over HTTP that ignore end-of-text, as engine_generate does. */
#ifndef SLUICE_TESTS_SCENARIO_COMPLETIONS_H
#define SLUICE_TESTS_SCENARIO_COMPLETIONS_H

#include "tests/scenario/http.h"

#define END_MS 60000
#define LONG   1500 /* tokens of a stream that outlasts the test */

/* Starts an engine with these options; *port: its gateway's. */
struct engine *gateway_start(unsigned *port, const char *const opts[]);

/* The body of a request; `more`: additional fields, or "". The caller frees. */
char *completion_body(const char *prompt, size_t tokens, const char *more);
void completion_call(struct http *h, unsigned port, const char *prompt, size_t tokens,
                     const char *more, int status);
/* The text of a completion that is not streamed; the caller frees. */
char *completion_text(unsigned port, const char *prompt, size_t tokens);

/* How a client samples; as text, for options of programs, too. */
struct sampling_way {
    const char *temperature, *seed;
};

/* A request body with these settings; `rest`: prompt or messages (stolen). The caller frees. */
char *sampled_body(const struct sampling_way *way, unsigned tokens, json_t *rest, bool stream);
/* The text of a completion or chat reply, streamed or not; the caller frees. */
char *reply_text(const struct http *h, bool stream);
/* Both: the text of a request to `path`. */
char *sampled_text(unsigned port, const char *path, const struct sampling_way *way, unsigned tokens,
                   json_t *rest, bool stream);

/* Starts a stream; completion_check reads it to its end and checks text and usage. */
void completion_start(struct http *h, unsigned port, const char *prompt, size_t tokens);
void completion_check(struct http *h, const char *expected, size_t tokens, const char *what);

#endif
