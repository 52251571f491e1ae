/* SPDX-License-Identifier: Apache-2.0 */
/* Submits a sequence and reads its output to the end. */
#ifndef SLUICE_CLIENTS_COMMON_STREAM_H
#define SLUICE_CLIENTS_COMMON_STREAM_H

#include "procs/clients/common/session.h"

struct stream_result {
    uint32_t *ids; /* all new tokens; freed by stream_result_free */
    size_t count;
    char *text; /* NUL-terminated */
    size_t text_bytes;
    char finish[16];  /* "length", "stop", "cancelled", "error" */
    json_t *stats;    /* statistics of the sequence, or NULL; new reference */
    double *logprobs; /* of scored or chosen tokens, if requested */
    size_t logprobs_count;
};

/* Called with the output since the last call. */
typedef void stream_sink(const struct engine_next *next, void *arg);

/* Runs a sequence. When session_stop is set the sequence is cancelled; the result then has the
 * output so far and finish "cancelled". 0, or -1 with *error (also when the sequence ended with an
 * error). The caller always frees `result`, which holds the output so far in any case. sink may be
 * NULL. */
int stream_run(struct session *s, struct engine_submit *submit, stream_sink *sink, void *arg,
               struct stream_result *result, struct error *error);

/* stream_run in two steps, for a client with several concurrent sequences. */
int stream_submit(struct session *s, struct engine_submit *submit, uint64_t *id,
                  struct error *error);
int stream_follow(struct session *s, uint64_t id, stream_sink *sink, void *arg,
                  struct stream_result *result, struct error *error);

/* Counts the tokens of a request's prompt, and those of the engine's context. */
int stream_count(struct session *s, const struct engine_submit *submit, uint64_t *tokens,
                 uint64_t *context, struct error *error);

/* Reads one reply of a sequence, starting at token *from, into a result that was initialised with
 * zeroes, and advances *from. 1: ended, 0: more to come, -1 as stream_run. */
int stream_step(struct session *s, uint64_t id, uint64_t *from, stream_sink *sink, void *arg,
                struct stream_result *result, struct error *error);

void stream_result_free(struct stream_result *result);

/* ---- how far a prompt is, on a line that disappears when the response begins ---- */

/* "prompt: 512 of 4096 tokens, 12 s left", "2 requests before this one". Pre: known. */
void progress_text(const struct engine_progress *p, char *text, size_t bytes);

/* Writes the line to stderr, over the last one and no wider than the terminal, or removes it if the
 * progress is not known. Nothing if stderr is no terminal, or one without control sequences.
 * *shown: whether there is a line now; false at first. */
void progress_show(const struct engine_progress *p, bool *shown);
/* Removes the line, if there is one: the cursor is at the start of its line then. */
void progress_end(bool *shown);

#endif
