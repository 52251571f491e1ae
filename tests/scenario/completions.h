/* Completions over HTTP: greedy, as generate of the harness makes them, end-of-text not a stop. */
#ifndef SLUICE_TESTS_SCENARIO_COMPLETIONS_H
#define SLUICE_TESTS_SCENARIO_COMPLETIONS_H

#include "tests/scenario/http.h"

#define END_MS 60000
#define LONG   1500 /* tokens of a stream that does not end on its own */

/* An engine with these options, and the port its gateway listens on. */
struct engine *gateway_start(unsigned *port, const char *const opts[]);

/* A request's body; `more`: further fields, or "". The caller frees. */
char *completion_body(const char *prompt, size_t tokens, const char *more);
void completion_call(struct http *h, unsigned port, const char *prompt, size_t tokens,
                     const char *more, int status);
/* The text of a whole completion; the caller frees. */
char *completion_text(unsigned port, const char *prompt, size_t tokens);

/* A stream, and its end: the text and the usage have to be right. */
void completion_start(struct http *h, unsigned port, const char *prompt, size_t tokens);
void completion_check(struct http *h, const char *expected, size_t tokens, const char *what);

#endif
