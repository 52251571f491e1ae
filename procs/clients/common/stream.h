/* Submits a sequence and follows it to its end. */
#ifndef SLUICE_CLIENTS_COMMON_STREAM_H
#define SLUICE_CLIENTS_COMMON_STREAM_H

#include "procs/clients/common/session.h"

struct stream_result {
    uint32_t *ids; /* all new tokens; freed by stream_result_free */
    size_t count;
    char *text; /* NUL-terminated */
    size_t text_bytes;
    char finish[16];  /* "length", "stop", "cancelled", "error" */
    json_t *stats;    /* the sequence's figures, or NULL; new reference */
    double *logprobs; /* of scored or chosen tokens, when asked for */
    size_t logprobs_count;
};

/* Called with what came since the last call. */
typedef void stream_sink(const struct engine_next *next, void *arg);

/* Runs a sequence. When session_stop is raised it is cancelled, and what came until then is the
 * result with finish "cancelled". 0, or -1 with *error (also when the sequence ended by an error);
 * `result` holds what came in any case and is always freed by the caller. sink may be NULL. */
int stream_run(struct session *s, struct engine_submit *submit, stream_sink *sink, void *arg,
               struct stream_result *result, struct error *error);

/* The parts of it, for a client that keeps several sequences going. */
int stream_submit(struct session *s, struct engine_submit *submit, uint64_t *id,
                  struct error *error);
int stream_follow(struct session *s, uint64_t id, stream_sink *sink, void *arg,
                  struct stream_result *result, struct error *error);

/* One reply of a sequence, from token *from on, into a result that began as zeroes; *from moves on.
 * 1: it has ended, 0: there is more to come, -1 as stream_run. */
int stream_step(struct session *s, uint64_t id, uint64_t *from, stream_sink *sink, void *arg,
                struct stream_result *result, struct error *error);

void stream_result_free(struct stream_result *result);

#endif
