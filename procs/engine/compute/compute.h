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
#include "lib/core/weights.h"
#include "lib/deterministic/deterministic.h"
#include "lib/model/limits.h"
#include "lib/model/tokenizer/tokenizer.h"
#include "lib/sampling/sampler.h"
#include "lib/tensor/precision.h"
#include "procs/engine/child/child.h"
#include "procs/engine/compute/main/stops.h"
#include "procs/engine/compute/runner/gpu.h"
#include "procs/engine/compute/runner/histogram.h"
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

/* Rows of gates of the layer being routed, until its DEMAND was sent. */
struct gate_rows {
    enum gates_kind kind;
    const float *inputs; /* GATES_INPUT: [rows][count] */
    uint32_t count;      /* values of a row; 0: nothing to publish */
};

/* Experts from the directory and the arena: experts.c. Runner thread only. */
struct experts {
    struct child *child;
    struct channel *cache;      /* to the cache: DEMAND */
    struct kv_request *request; /* of the current sequence */
    uint64_t tick_due_ns;
    uint64_t *failures_before; /* [experts]: of an entry at the request */
    uint64_t load_timeout_ns, slice_ns;
    _Atomic uint64_t *beat_ns, *pass_row_layers; /* of the runner */
    const _Atomic uint32_t *stop;
    struct msg_demand demand;
    uint32_t attempt;

    /* of the current preset (choose.c) */
    uint32_t preset;
    struct knobs knobs;
    struct precision_policy precision_policy;
    enum prediction_source publishes; /* the rows that the predictor needs */
    bool predicts_chunks;             /* it needs rows of token counts, too */
    struct gate_rows publish;
    bool fixed_mask;                     /* masked routing to the sets in `mask` */
    bool masked;                         /* the current layer was routed under a mask */
    uint32_t *held, held_count;          /* [experts]: entries pinned by a mask: experts_release */
    uint8_t *mask;                       /* [layers][experts], for fixed_mask */
    bool logs_logits;                    /* the eviction uses them */
    uint8_t *levels;                     /* [experts]: of the layer now routed */
    struct deterministic *deterministic; /* --deterministic on; else NULL */
    struct access_record *predictions;   /* of the current layer: written after its accesses */
    uint32_t predictions_count, predictions_max;
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
    uint32_t *tokens;                  /* [chunk] of the current pass */
    float *scores;                     /* [chunk] */
    uint32_t *recent;                  /* [RECENT_TOKENS_MAX] */
    void **keys, **values;             /* [layers] of the current sequence */
    struct histogram token_ns;
    struct tpot tpot[KV_REQUESTS_MAX]; /* read by main after the row's state has ended */

    /* both threads */
    _Atomic uint32_t work; /* futex word: +1 when there may be work */
    _Atomic uint32_t stop;
    _Atomic uint32_t admitted; /* 1: sequences may be computed */
    _Atomic uint32_t busy;     /* 1 while a sequence is computed */
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

/* experts.c */
int experts_open(struct experts *e, struct child *child, const struct runner *runner,
                 struct error *error);
struct weights_source experts_source(struct experts *e);
void experts_tick(struct experts *e, uint64_t now_ns); /* heartbeat; checks of the channel */
/* Waits until every dense entry is READY and services the child meanwhile; fatal when one cannot be
 * read. */
void experts_wait_dense(struct child *child);
/* Entry of an expert at a precision in which it is stored. */
uint32_t experts_entry(const struct experts *e, uint32_t layer, uint32_t expert,
                       enum precision precision);
void experts_make_ready(struct experts *e, const struct expert_step *step,
                        struct expert_item *item);
/* DEMAND: entries are collected, and sent when it is full or at the end. */
void experts_demand_add(struct experts *e, const struct expert_step *step,
                        const struct expert_item *item);
void experts_demand_send(struct experts *e, const struct expert_step *step);
/* Tokens were completed and logged: wakes the cache if it waits for their number. */
void experts_tokens_end(struct experts *e, uint32_t tokens);
/* After routing: unpins what the mask of a chunk pinned and no row was routed to. */
void experts_keep_routed(struct experts *e, const struct expert_step *step,
                         const struct route *routes);
/* Unpins what the mask of a chunk pinned. */
void experts_release(struct experts *e);
/* Publishes the rows that decode once, after the layer's DEMAND: on few CPUs, predictions and prefetch
 * reads would delay the demand. */
void experts_publish_rows(struct experts *e, const struct expert_step *step);
/* Start of the slot of an entry that is not ABSENT. */
const uint8_t *experts_slot(const struct child *child, uint32_t entry);

/* choose.c: which precision of an expert serves, and which experts may be routed to. */
/* Sets the preset and its policy parameters; between sequences. ERR_BAD_INPUT when it cannot run
 * here. */
int experts_set_preset(struct experts *e, uint32_t preset, struct error *error);
/* Deterministic mode: writes the predictions of the layer that ends to the access log. */
void experts_flush_predictions(struct experts *e);
/* Before a pass. -1 while the model is known to have changed in place. */
int experts_check_model(const struct experts *e, struct error *error);
void experts_pass_ends(struct experts *e); /* deterministic mode: of a token or chunk */
bool experts_resident(void *self, uint32_t layer, uint32_t expert);
bool experts_pin_ready(void *self, const struct expert_step *step, struct expert_item *item);
void experts_pin(void *self, const struct expert_step *step, struct expert_item **items,
                 uint32_t count);
/* How many of `rows` tokens of a pass may be routed together: fewer if the set of experts changes
 * meanwhile. */
uint32_t experts_rows(const struct experts *e, uint32_t rows);
bool experts_mask(void *self, const struct expert_step *step, bool *allowed);
void experts_logits(void *self, const struct expert_step *step, const float *logits,
                    uint32_t experts);
void experts_choice(void *self, const struct expert_step *step, const float *importance);
bool experts_alone(void *self, enum precision *precision);
void experts_used(void *self, const struct expert_step *step, const struct route *routes);

/* runner.c */
int runner_open(struct runner *r, struct compute *c, struct error *error);
int runner_start(struct runner *r, struct error *error);
/* Sequences are computed from now on: after child_ready, so that one that hangs is found by the heartbeat (until then the
 * limit is that of a start), and one that crashes counts as its crash, not as a failed start. */
void runner_admit(struct runner *r);
void runner_wake(struct runner *r);
bool runner_alive(const struct runner *r, uint64_t heartbeat_ns);

/* sequence.c: computes a row to its end, or until the runner is stopped. */
void sequence_run(struct runner *r, uint32_t row);

/* requests.c */
/* ERR_CRASHED: compute crashed so often at one request. */
int request_crashed(const struct proc_row *row, uint32_t crashes, struct error *error);
void requests_take(struct compute *c);
void requests_tick(struct compute *c, uint64_t now_ns); /* idle rows, gauges */
struct kv_request *request_find(struct compute *c, uint64_t id, uint32_t *row);

/* response_text.c: fills ids and text of the first tokens of `log` (count of them); returns how
 * many can be sent now. Tokens in the middle of a character are held back unless the sequence
 * ended. The text ends at `cut` (its token counted in `log`); ids do not. marks: of the call (engine_client.h). */
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

static inline bool kv_state_ended(uint32_t state)
{
    return state == KV_DONE || state == KV_FAILED || state == KV_CANCELLED;
}

#endif
