/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of compute. Two threads in addition to the pool's workers:
 *   main    rpc server, requests and responses, controls, heartbeat
 *   runner  the model: takes sequences in order of arrival, is thread 0 of the pool
 * They communicate through the kv segment (state of a request, token log) and the atomics of struct
 * runner. */
#ifndef SLUICE_ENGINE_COMPUTE_COMPUTE_H
#define SLUICE_ENGINE_COMPUTE_COMPUTE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "ipc/rpc/rpc.h"
#include "lib/base/clock.h"
#include "lib/core/core.h"
#include "lib/model/limits.h"
#include "lib/model/tokenizer/tokenizer.h"
#include "lib/sampling/sampler.h"
#include "lib/tensor/precision.h"
#include "procs/engine/child/child.h"
#include "procs/engine/compute/experts/experts.h"
#include "procs/engine/compute/main/stops.h"
#include "procs/engine/compute/runner/gpu.h"
#include "procs/engine/compute/runner/sequence.h"
#include "procs/engine/compute/slots/slots.h"

#define COMPUTE_MAGIC 0x434d5055u

#define RPC_CONTEXTS      256
#define RECENT_TOKENS_MAX 4096 /* maximum of repeat_last_n in SAMPLING_PARAMS */
/* A reply also ends when this is full. The longest token piece that inspect accepts fits. */
#define RESPONSE_TEXT_BYTES (64u << 10)

/* ---- runner ---------------------------------------------------------------------------------- */

struct tpot { /* of a finished sequence; lost when compute crashes before a client reads them */
    uint64_t id;
    double p50_ms, p95_ms, p99_ms;
};

struct runner {
    struct child *child;
    struct chain *core;
    struct gpus gpus;
    struct sampler *sampler;
    struct experts experts;
    struct slots slots;
    pthread_t thread;
    const struct tokenizer *tokenizer; /* constant tables */
    struct sequence *sequence;         /* [sequences] */
    uint32_t sequences;                /* that run at a time: kv_head.sequences */
    uint32_t *tokens;                  /* [chunk] of the current pass */
    float *scores;                     /* [chunk] */
    uint32_t *recent;                  /* [RECENT_TOKENS_MAX] */
    struct tpot tpot[KV_REQUESTS_MAX]; /* read by main after the row's state has ended */

    /* both threads */
    _Atomic uint32_t work; /* futex word: +1 when there may be work */
    _Atomic uint32_t stop;
    _Atomic uint32_t admitted; /* 1: sequences may be computed */
    _Atomic uint32_t busy;     /* 1 while sequences are computed */
    _Atomic uint64_t beat_ns;  /* heartbeat of the runner */
    /* Rows of the pass times the layers that it has computed; divided by the layers: rows. */
    _Atomic uint64_t pass_row_layers;
};

/* ---- main ------------------------------------------------------------------------------------ */

struct pending { /* a next() that waits for tokens */
    struct rpc_request *request;
    uint64_t id, from, deadline_ns;
};

struct response { /* buffers of the current reply */
    uint32_t ids[ENGINE_NEXT_IDS_MAX];
    double logprobs[ENGINE_NEXT_IDS_MAX];
    uint32_t piece_bytes[ENGINE_NEXT_IDS_MAX];
    char text[RESPONSE_TEXT_BYTES];
};

struct compute {
    uint32_t magic;
    struct child child;
    struct tokenizer *tokenizer;
    struct rpc_server *rpc;
    struct runner runner;
    struct pending pending[RPC_CONTEXTS];
    uint32_t pending_count;
    uint64_t rejected; /* requests; the server counts malformed ones itself */
    struct response response;
};

/* runner.c */
int runner_open(struct runner *r, struct compute *c, struct error *error);
int runner_start(struct runner *r, struct error *error);
/* Sequences are computed from now on: after child_ready, so that one that hangs is found by the
 * heartbeat (until then the limit is that of a start), and one that crashes counts as its crash,
 * not as a failed start. */
void runner_admit(struct runner *r);
void runner_wake(struct runner *r);
bool runner_alive(const struct runner *r, uint64_t heartbeat_ns);

/* How many sequences run. */
uint32_t runner_running(const struct runner *r);
/* Adds what the engine evicted and read since the last call to the statistics of the sequences that
 * run. Before a sequence begins or ends. */
void runner_share_counts(const struct runner *r);

/* requests.c */
/* ERR_CRASHED: compute crashed so often at one request. */
int request_crashed(const struct proc_row *row, uint32_t crashes, struct error *error);
void requests_take(struct compute *c);
void requests_tick(struct compute *c, uint64_t now_ns); /* idle rows, gauges */
struct kv_request *request_find(struct compute *c, uint64_t id, uint32_t *row);

/* response_text.c: fills ids and text of the first tokens of `log` (count of them); returns how
 * many can be sent now. Tokens in the middle of a character are held back unless the sequence
 * ended. The text ends at `cut` (its token counted in `log`); ids do not. marks: of the call
 * (engine_client.h). */
size_t response_gather(struct response *a, const struct tokenizer *tokenizer,
                       const _Atomic uint32_t *log, uint32_t count, bool ended, struct stop_cut cut,
                       const struct engine_marks *marks, size_t *text_bytes);

/* responses.c */
void responses_add(struct compute *c, struct rpc_request *request);
void responses_tick(struct compute *c, uint64_t now_ns);

/* progress.c: of a sequence that has not generated yet. */
struct engine_progress progress_of(const struct compute *c, const struct kv_request *q,
                                   uint64_t now_ns);

/* stats.c */
json_t *stats_json(const struct compute *c, uint32_t row);
uint64_t stats_evictions(const struct child *child);
uint64_t stats_bytes_read(const struct child *child);
/* Of a counter that may have begun again. */
static inline uint64_t stats_grown(uint64_t before, uint64_t after)
{
    return after > before ? after - before : 0;
}

static inline bool kv_state_ended(uint32_t state)
{
    return state == KV_DONE || state == KV_FAILED || state == KV_CANCELLED;
}

#endif
