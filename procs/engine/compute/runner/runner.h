/* SPDX-License-Identifier: Apache-2.0 */
/* The runner: a thread that computes sequences, and is thread 0 of the pool. It and the main thread
 * communicate through the kv segment (state of a request, token log) and the atomics of struct
 * runner. */
#ifndef SLUICE_ENGINE_COMPUTE_RUNNER_RUNNER_H
#define SLUICE_ENGINE_COMPUTE_RUNNER_RUNNER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "lib/core/chain/chain.h"
#include "lib/model/tokenizer/tokenizer.h"
#include "lib/sampling/sampler.h"
#include "procs/engine/child/child.h"
#include "procs/engine/compute/experts/experts.h"
#include "procs/engine/compute/prefixes/prefixes.h"
#include "procs/engine/compute/runner/gpu.h"
#include "procs/engine/compute/runner/sequence.h"
#include "procs/engine/compute/slots/slots.h"

#define RECENT_TOKENS_MAX 4096 /* maximum of repeat_last_n in SAMPLING_PARAMS */

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
    struct constraints constraints;
    struct prefixes *prefixes; /* NULL: there is no --prefix-dir */
    uint64_t clear_seen;       /* of kv_head.clear_wanted, those that were begun */
    pthread_t thread;
    const struct tokenizer *tokenizer; /* constant tables */
    struct sequence *sequence;         /* [sequences] */
    uint32_t sequences;                /* that run at a time: kv_head.sequences */
    uint64_t passes;                   /* the number of the last one */
    uint64_t ended;                    /* sequences that have ended: their memory is free */
    bool blames; /* the predecessor crashed in a pass: only its sequences are to blame (in_pass) */
    struct pass *pass;         /* arrays of the pass that is computed (pass.c) */
    struct schedule_pace pace; /* of all passes, and of those without rows of prompts */
    struct schedule_pace stream_pace;
    uint32_t *recent;                  /* [RECENT_TOKENS_MAX] */
    struct tpot tpot[KV_REQUESTS_MAX]; /* read by main after the row's state has ended */

    /* both threads */
    _Atomic uint32_t work; /* futex word: +1 when there may be work */
    _Atomic uint32_t stop;
    _Atomic uint32_t admitted; /* 1: sequences may be computed */
    _Atomic uint32_t busy;     /* 1 while sequences are computed */
    _Atomic uint64_t beat_ns;  /* heartbeat of the runner */
    /* The pass that is computed: layers that are done, and rows of each request (by its row in the
     * request table) whose pass is not committed. */
    _Atomic uint32_t pass_layer;
    _Atomic uint32_t pass_rows[KV_REQUESTS_MAX];
    /* Of each request that waits for rows of another one: 1 + the row of that. 0: it does not. */
    _Atomic uint32_t follows[KV_REQUESTS_MAX];
};

/* Memory, kernels and devices; what a predecessor left in the kv segment. -1 with *error. */
int runner_open(struct runner *r, struct child *child, const struct tokenizer *tokenizer,
                const struct grammars *grammars, struct error *error);
int runner_start(struct runner *r, struct error *error);
/* Sequences are computed from now on: after child_ready, so that one that hangs is found by the
 * heartbeat (until then the limit is that of a start), and one that crashes counts as its crash,
 * not as a failed start. */
void runner_admit(struct runner *r);
void runner_wake(struct runner *r);
/* All sequences wait for rows from storage: until `work` is no more what was seen before, or for
 * some time. */
void runner_wait_for_prefix(struct runner *r, uint32_t seen);
/* Gives up what is kept, in memory and on storage: begins to, and a successor ends it. Returns what
 * kv_head.cleared reaches when it is done. Main thread. */
uint64_t runner_clear(struct runner *r);
bool runner_alive(const struct runner *r, uint64_t heartbeat_ns);

/* What the cache evicted and the loaders read, for all. */
struct engine_counts {
    uint64_t evictions, bytes_read;
};
struct engine_counts runner_counts(const struct runner *r);

/* How many sequences run. */
uint32_t runner_running(const struct runner *r);
/* A change of the preset waits for the end of those that run. */
bool runner_preset_waits(const struct runner *r);
/* Adds what was evicted and read since the last call to the statistics of the sequences that run.
 * Before a sequence begins or ends. */
void runner_share_counts(const struct runner *r);

#endif
