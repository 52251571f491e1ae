/* SPDX-License-Identifier: Apache-2.0 */
/* Experts from the directory and the arena: the runner's source of weights. Which precision serves
 * an access, pins, DEMANDs, waits, masks, and the records of the access log. In deterministic mode
 * the same source has other functions where a simulated cache decides (deterministic.c). Runner
 * thread only. */
#ifndef SLUICE_ENGINE_COMPUTE_EXPERTS_EXPERTS_H
#define SLUICE_ENGINE_COMPUTE_EXPERTS_EXPERTS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "lib/base/clock.h"
#include "lib/core/weights.h"
#include "lib/deterministic/deterministic.h"
#include "procs/engine/child/child.h"

/* Rows of gates of the layer being routed, until its DEMAND was sent. */
struct gate_rows {
    enum gates_kind kind;
    const float *inputs; /* GATES_INPUT: [rows][count] */
    uint32_t count;      /* values of a row; 0: nothing to publish */
};

struct experts {
    struct child *child;
    struct channel *cache;             /* to the cache: DEMAND */
    struct kv_request *const *request; /* [requests] of the current pass, by expert_row.member */
    uint32_t requests;
    uint64_t tick_due_ns;
    uint64_t *failures_before; /* [experts]: of an entry at the request */
    uint64_t load_timeout_ns, slice_ns;
    _Atomic uint64_t *beat_ns;    /* of the runner */
    _Atomic uint32_t *pass_layer; /* of the runner */
    const _Atomic uint32_t *stop;
    struct msg_demand demand;
    uint32_t attempt;
    struct experts_known *known; /* of tables of experts; NULL: the model has none */
    struct experts_pages *pages; /* of a table on storage; NULL: the model has none */

    /* of the current preset (preset.c) */
    uint32_t preset;
    struct knobs knobs;
    struct precision_policy precision_policy;
    enum prediction_source publishes; /* the rows that the predictor needs */
    bool predicts_chunks;             /* it needs rows of token counts, too */
    struct gate_rows publish;
    bool fixed_mask;            /* masked routing to the sets in `mask` */
    bool masked;                /* the current layer was routed under a mask */
    uint32_t *held, held_count; /* [experts]: entries pinned by a mask: experts_release */
    uint8_t *mask;              /* [layers][experts], for fixed_mask */
    bool logs_logits;           /* the eviction uses them */
    float *margins;  /* [experts] of the row now logged, and scratch of routing_margins */
    uint8_t *levels; /* [experts]: their levels */
    struct resident_first_work reroute;
    bool bias_logged[MODEL_LAYERS_MAX]; /* since a sequence started: values.c */

    /* deterministic mode */
    struct deterministic *deterministic; /* --deterministic on; else NULL */
    struct access_record *predictions;   /* of the current layer: written after its accesses */
    uint32_t predictions_count, predictions_max;
};

/* ---- for the runner ---- */

/* stop: set when the process ends; a wait ends then, too. */
int experts_open(struct experts *e, struct child *child, const _Atomic uint32_t *stop,
                 struct error *error);
/* The functions of this run, for the core. */
struct weights_source experts_source(struct experts *e);
/* Waits until every dense entry is READY and services the child meanwhile; fatal when one cannot be
 * read. */
void experts_wait_dense(struct child *child);
/* Sets the preset and its policy parameters; between sequences. ERR_BAD_INPUT when it cannot run
 * here. */
int experts_set_preset(struct experts *e, uint32_t preset, struct error *error);
/* 0: its output is the model's, as that of all such presets; else a hash of its parameters and of
 * the plan. */
uint64_t experts_preset_class(const struct experts *e);
/* The requests of the next pass, by their numbers in it; the array is read until it ends. */
void experts_pass_begins(struct experts *e, struct kv_request *const *request, uint32_t requests);
/* Before a pass. -1 while the model is known to have changed in place. */
int experts_check_model(const struct experts *e, struct error *error);
/* How many of `rows` tokens of a pass may be routed together: fewer if the set of experts changes
 * meanwhile. */
uint32_t experts_rows(const struct experts *e, uint32_t rows);
/* A pass failed: unpins what its mask pinned. */
void experts_release(struct experts *e);
/* A sequence starts: a trace has biases again; and ends. For both, deterministic mode. */
void experts_sequence_starts(struct experts *e, uint32_t sequence);
void experts_sequence_ends(struct experts *e, uint32_t sequence);
void experts_pass_ends(struct experts *e); /* deterministic mode: of a token or chunk */
/* Tokens were completed and logged: wakes the cache if it waits for their number. */
void experts_tokens_end(struct experts *e, uint32_t tokens);
void experts_tick(struct experts *e, uint64_t now_ns); /* heartbeat; checks of the channel */

/* ---- between the files of this folder ---- */

/* precision.c: which precision of an expert serves. */
uint32_t experts_entry(const struct experts *e, uint32_t layer, uint32_t expert,
                       enum precision precision);
/* NULL: the expert is not stored in this precision. */
struct directory_entry *experts_directory_entry(const struct experts *e, uint32_t layer,
                                                uint32_t expert, enum precision precision);
/* The precisions that may serve an access, among those in which the expert is stored. */
struct precision_choice experts_precision_choice(const struct experts *e,
                                                 const struct expert_step *step,
                                                 const struct expert_item *item);
void experts_make_ready(struct experts *e, const struct expert_step *step,
                        struct expert_item *item);
/* Pins what serves or is waited for, and sets the item's state and precision. */
enum access_outcome experts_pin_choice(struct experts *e, const struct expert_step *step,
                                       struct expert_item *item,
                                       const struct precision_choice *choice);
/* Whether an access would be a hit now; nothing is pinned. */
bool experts_serves(const struct experts *e, const struct expert_step *step, uint32_t expert,
                    float weight_before);
bool experts_resident(void *self, uint32_t layer, uint32_t expert);
bool experts_pin_ready(void *self, const struct expert_step *step, struct expert_item *item);
bool experts_whole_on_device(void *self, enum precision *precision);

/* known.c: experts that a table names, when a pass begins. */
int experts_open_known(struct experts *e, struct error *error);
void experts_known(void *self, const struct expert_step *step, uint32_t layer, uint32_t row,
                   const uint32_t *tokens);

/* mask.c: which experts may be routed to. */
bool experts_mask(void *self, const struct expert_step *step, bool *allowed);
/* After routing: unpins what the mask of a chunk pinned and no row was routed to. */
void experts_keep_routed(struct experts *e, const struct expert_step *step,
                         const struct route *routes);
/* An item that is WAITED becomes LOST and is unpinned, if the core is to route around it. */
bool experts_drop_evicted(struct experts *e, const struct expert_step *step,
                          struct expert_item *item);

/* reroute.c: cache-aware routing. The routes of rows that decode, [rows][top-k], are replaced; the
 * candidates of such rows are logged before, if a trace is recorded. */
bool experts_reroutes(void *self);
void experts_reroute(void *self, const struct expert_step *step, const float *logits,
                     const struct model_router *rule, struct route *routes);
void experts_log_candidates(struct experts *e, const struct expert_step *step, const float *logits,
                            const struct model_router *rule, const struct route *routes);

/* accesses.c: the access log. */
/* Adds the records of an item, and counts them in the tally. */
struct access_tally {
    uint64_t outcome[ACCESS_SKIPPED + 1], low, experts, rows;
};
void experts_log_access(struct experts *e, const struct expert_step *step,
                        const struct expert_item *item, enum precision_need need,
                        enum access_outcome outcome, struct access_tally *tally);
void experts_count_accesses(struct experts *e, const struct access_tally *tally);
void experts_log_predicted(struct experts *e, const struct expert_step *step,
                           const struct expert_item *item);
/* The levels of a row's margins, which are in e->levels afterwards. */
void experts_log_levels(struct experts *e, uint32_t layer, const struct expert_row *row,
                        const float *logits, const struct model_router *rule);
void experts_logits(void *self, const struct expert_step *step, const float *logits,
                    const struct model_router *rule);
void experts_choice(void *self, const struct expert_step *step, const float *importance);
void experts_used(void *self, const struct expert_step *step, const struct route *routes);

/* values.c: router logits and gate inputs of rows that decode, and rows of a table on storage, if a
 * trace is recorded with them. */
void experts_log_router(struct experts *e, const struct expert_step *step, const float *logits,
                        const struct model_router *rule);
/* x: [rows][n] */
void experts_log_inputs(struct experts *e, const struct expert_step *step, const float *x,
                        uint32_t n);
void experts_log_table(void *self, const struct expert_step *step, const uint32_t *row,
                       uint32_t rows_of_token);

/* preset.c: bytes of the arena available to experts. */
uint64_t experts_capacity_bytes(const struct experts *e);

/* gates.c: rows for the predictor. */
void experts_gate_input(void *self, const struct expert_step *step, const float *x, uint32_t n);
void experts_routed(void *self, const struct expert_step *step, const struct route *routes);
void experts_next_counts(void *self, const struct expert_step *step, const float *counts,
                         uint32_t experts);
/* Publishes the rows that decode once, after the layer's DEMAND: on few CPUs, predictions and
 * prefetch reads would delay the demand. */
void experts_publish_rows(struct experts *e, const struct expert_step *step);

/* experts.c: pins, DEMANDs and waits. */
/* Pins one item. *need: what the policy asked for. */
typedef enum access_outcome experts_pin_item(struct experts *e, const struct expert_step *step,
                                             struct expert_item *item, enum precision_need *need);
/* Pins all with `pin_item`, logs them, and demands those that are WAITED. */
void experts_pin_items(struct experts *e, const struct expert_step *step,
                       struct expert_item **items, uint32_t count, experts_pin_item *pin_item);
/* Start of the slot of an entry that is not ABSENT. */
const uint8_t *experts_slot(const struct child *child, uint32_t entry);
const void *experts_dense(void *self, uint32_t entry);
void experts_layer_starts(void *self, const struct expert_step *step);

/* A wait for loaders. After what is waited for was looked for: */
struct experts_wait {
    uint64_t now, moved_ns, progress, timeout, retry_ns;
};
struct experts_wait experts_wait_begin(const struct experts *e);
/* -1 with *error: the sequences are cancelled, or no loader makes progress. *again: it is to be
 * requested again. */
int experts_wait_check(struct experts *e, struct experts_wait *w, bool *again, const char *what,
                       struct error *error);
/* Sleeps while the directory's counter is `seen`, read before what is waited for was looked for. */
void experts_wait_sleep(struct experts *e, struct experts_wait *w, uint32_t counter, uint32_t seen);

/* pages.c: rows of a table on storage. */
int experts_open_pages(struct experts *e, struct error *error);
void experts_table_ask(void *self, const uint32_t *row, uint32_t rows);
int experts_table_read(void *self, const uint32_t *row, uint32_t rows, uint8_t *to,
                       struct error *error);

/* deterministic.c */
/* Replaces what the simulated cache decides. */
void experts_simulate(struct weights_source *source);
/* A new simulated cache for the preset, in deterministic mode. */
int experts_make_deterministic(struct experts *e, struct error *error);

#endif
