/* SPDX-License-Identifier: Apache-2.0 */
/* A sequence from its first token to its end. The token log is authoritative: each pass computes
 * tokens of the log that have no KV row yet, and a pass that reaches the end of the log appends
 * one. So prefill, decode, and resuming after a crash are the same loop (pass.c):
 *
 *   sequence_begin -> { sequence_goes_on -> prepare -> forward pass -> commit }* -> the end
 *                        <- resume <- pause (memory.c)
 *
 * Nothing here is about more than one sequence: what a pass computes together, pass.c and
 * lib/policy/schedule say. Runner thread only. */
#ifndef SLUICE_ENGINE_COMPUTE_RUNNER_SEQUENCE_H
#define SLUICE_ENGINE_COMPUTE_RUNNER_SEQUENCE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "lib/core/core.h"
#include "lib/policy/schedule/schedule.h"
#include "procs/engine/compute/constraints/constraint.h"
#include "procs/engine/compute/runner/histogram.h"
#include "procs/engine/compute/slots/state.h"
#include "shm/kv/kv.h"
#include "shm/table/process_table.h"

#define RUNNER_SEQUENCES_MAX KV_SEQUENCES_MAX

struct runner;

struct sequence {
    struct runner *runner;
    struct kv_request *request; /* NULL: none */
    _Atomic uint32_t *log;
    float *logprobs;
    uint32_t row, positions; /* positions: maximum length of the log */
    uint32_t slot;           /* of keys and values; KEPT_NONE: none yet */
    bool score, resumed;
    bool entered;            /* it has had a slot; else it has not begun */
    struct sequence *leader; /* without a slot: the one that computes its rows; NULL: none */
    uint64_t leader_id;      /* request of that one */
    uint32_t awaits;         /* rows that it takes from there */
    uint64_t since, served;  /* passes: the next one at its start, the last one with rows of it */
    uint64_t paused;         /* without a slot: runner.ended when it lost its slot */
    void **keys, **values, **index; /* [layers]; allocated once */
    struct core_sequence view;
    struct histogram token_ns;
    struct constraint constraint;
    struct error failure; /* found while a token was appended: it ends before its next pass */
    struct {              /* what it has of the pass that is computed */
        uint32_t position, rows;
        uint32_t first; /* number of its first row in the pass */
        struct state_pass state;
        const float *logits; /* of its last row, if a token follows; else NULL */
        uint32_t appended;   /* tokens that followed */
    } pass;
};

/* Memory for any sequence of this model, before compute is READY. -1 with *error. */
int sequence_open(struct sequence *s, struct runner *r, struct error *error);

/* Claims a QUEUED row, or resumes a RUNNING one, and takes a slot, unless it waits for rows that
 * another one computes (memory.h). Then it has a request, unless it ended at once, or was cancelled
 * before. */
void sequence_begin(struct sequence *s, uint32_t row);

bool sequence_is_side(const struct kv_request *q);
/* Its number in the order of schedule_turn. */
uint64_t sequence_turn(const struct kv_request *q);

/* False: it has ended, and has no request any more. */
bool sequence_goes_on(struct sequence *s);

/* What it lacks, for the choice of the rows of the next pass, which has at most `limit` rows. */
struct schedule_sequence sequence_wants(const struct sequence *s, uint32_t limit);

/* States and view of a pass of so many rows, when memory_ready. -1 with *error: it fails. */
int sequence_prepare(struct sequence *s, uint32_t rows, struct error *error);

/* The pass was computed: appends a token if there are logits, and publishes the rows. Then the time
 * that the pass took, in all: the client waited for all of it. */
void sequence_commit(struct sequence *s);
void sequence_account(struct sequence *s, uint64_t ns);
/* Whether its rows of the pass are of the prompt; and how many of them were never computed before:
 * the others are repeated after a pause or a restart of compute. */
bool sequence_in_prompt(const struct sequence *s);
uint32_t sequence_new_rows(const struct sequence *s);

/* Whether and how it has ended, from its log: KV_FINISH_NONE while there is work. */
enum kv_finish sequence_finish(struct sequence *s);

/* tokens.c: appends the token that follows, and those behind it that its grammar forces. */
void sequence_append(struct sequence *s, const float *logits);
/* Of a prompt that is scored: records the log-probabilities of its tokens from `at` on, of rows of
 * logits; and that its first token has none. -1 with *error. */
int sequence_record(struct sequence *s, const float *logits, uint32_t at, uint32_t count,
                    struct error *error);
int sequence_record_first(struct sequence *s, struct error *error);

/* Tokens that it wants memory for: those of its log and some more; and takes it. -1 with *error,
 * ERR_BUSY: others that run have it. */
uint32_t sequence_growth(const struct sequence *s);
int sequence_grow(struct sequence *s, struct error *error);
/* It gives its slot up, with all its rows, for others that run; and takes one again, or its first
 * one: it computes the tokens of its log that lack a row, after a pause with the same bits. -1 with
 * *error: it fails. */
void sequence_pause(struct sequence *s);
int sequence_resume(struct sequence *s, struct error *error);

/* Compute crashed more than once while it made no progress: it may be the cause. */
bool sequence_is_suspect(const struct sequence *s);

/* ERR_CRASHED: compute crashed so often at one request. */
int request_crashed(const struct process *process, uint32_t crashes, struct error *error);

/* Ends it with an error, or as cancelled. */
void sequence_fail(struct sequence *s, const struct error *error);

static inline uint32_t sequence_get(const _Atomic uint32_t *word)
{
    return atomic_load_explicit(word, memory_order_relaxed);
}

#endif
