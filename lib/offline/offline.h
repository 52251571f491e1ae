/* SPDX-License-Identifier: Apache-2.0 */
/* A model without any process: the basis of profile, plan, eval and the golden tests. Mapped: dense
 * weights and native experts are in the mapped file; experts of other precisions are quantised at
 * the first access, and kept. Within a budget: dense weights are in memory, experts are read into
 * slots (slots.h).
 *
 * An offline_model is shared by any number of runners; a runner is one core with one KV cache, used
 * by one thread at a time. */
#ifndef SLUICE_OFFLINE_OFFLINE_H
#define SLUICE_OFFLINE_OFFLINE_H

#include "lib/core/core.h"
#include "lib/plan/plan.h"
#include "lib/quant/quant.h"
#include "lib/router/row.h"
#include "lib/tensor/precision.h"
#include "lib/tensor/tensor_type.h"

struct offline_model;

/* Makes the index of the file open at fd: programs have it made by sluice-inspect, in a sandbox
 * (lib/inspected/inspected.h), tests call model_index_build. */
typedef int offline_index_maker(int fd, const char *path, struct model_index **index,
                                struct error *error);

/* Maps a GGUF file and checks it. NULL with *error, which names the path; a store is
 * ERR_BAD_INPUT. */
struct offline_model *offline_open(const char *path, offline_index_maker *make_index,
                                   struct error *error);
/* A GGUF file, split or not, or a store, whose experts are read as they are needed: the program
 * takes at most `budget` bytes. 0: offline_open. OFFLINE_MEMORY_DEFAULT: offline_default_memory of
 * what is available. */
#define OFFLINE_MEMORY_DEFAULT UINT64_MAX
struct offline_model *offline_open_within(const char *path, offline_index_maker *make_index,
                                          uint64_t budget, struct error *error);
void offline_close(struct offline_model *m);

/* The bound where the user gives none, of `available` bytes (UINT64_MAX: not known). 0: mapped, if
 * a model that needs `needed` bytes when every precision is made fits into 3/4 of them; else they
 * are bounded, minus a reserve. */
uint64_t offline_default_memory(uint64_t needed, bool mappable, uint64_t available);

/* Within a budget (0: mapped; the others are then 0, too): what of it is free, with the slots
 * empty; the slots' size, while no runner is at work; bytes read so far, and the speed of these
 * reads. */
uint64_t offline_budget(const struct offline_model *m);
uint64_t offline_free_bytes(const struct offline_model *m);
uint64_t offline_heap_bytes(void); /* not free, but used again by small allocations */
void offline_slots_resize(struct offline_model *m, uint64_t bytes);
uint64_t offline_slots_bytes(const struct offline_model *m);
/* Runners compute the layers from this one on, cyclically: experts of those before it leave the
 * slots first. */
void offline_slots_from(struct offline_model *m, uint32_t layer);
/* Takes memory from the slots for `bytes` that are about to be allocated. Nothing is pinned. -1
 * with *error: they do not fit into the budget; what: for the message, in the plural. */
int offline_reserve(struct offline_model *m, uint64_t bytes, const char *what, struct error *error);
/* ERR_MEMORY_TOO_SMALL: `what` need a budget of `needed` bytes. */
int offline_too_small(const struct offline_model *m, uint64_t needed, const char *what,
                      struct error *error);
uint64_t offline_read_bytes(const struct offline_model *m);
double offline_read_rate(const struct offline_model *m);

const struct model_index *offline_index(const struct offline_model *m);
const uint8_t *offline_hash(const struct offline_model *m); /* plan_model_hash */

/* Payload of a dense entry in the mapped file; valid until offline_close. */
const void *offline_dense(const struct offline_model *m, uint32_t entry);

/* The model with its dense matrices at a precision, as `sluice pack --dense` writes them (native,
 * int8, int4): an index with those types, until offline_close, and the payload of a dense entry,
 * quantised at the first call and kept: mapped until offline_close, within a budget until
 * offline_dense_prepare of another precision, which makes this one's in memory taken from the
 * slots. Any thread; prepare: while no runner is at work. prepare: -1 with *error. */
int offline_dense_prepare(struct offline_model *m, enum precision dense, struct error *error);
const struct model_index *offline_index_at(struct offline_model *m, enum precision dense);
const void *offline_dense_at(struct offline_model *m, uint32_t entry, enum precision dense);

/* The three matrices of an expert at a precision, until offline_release: read, or quantised by
 * `method`, at this call, if they are not there already. A thread holds one at a time. -1 with
 * *error. */
int offline_hold(struct offline_model *m, uint32_t layer, uint32_t expert, enum precision precision,
                 enum quant_method method, struct kernel_matrix out[EXPERT__COUNT],
                 struct error *error);
void offline_release(struct offline_model *m, uint32_t layer, uint32_t expert,
                     enum precision precision, enum quant_method method);

/* The matrices of an expert of a mapped model, valid until offline_close. Native ones are in the
 * mapped file, others are quantised at the first call, and kept. Any thread. Fatal when memory runs
 * out, since no offline tool can continue. */
void offline_matrices(struct offline_model *m, uint32_t layer, uint32_t expert,
                      enum precision precision, enum quant_method method,
                      struct kernel_matrix out[EXPERT__COUNT]);

/* The tensor type of a precision that is not native. */
enum tensor_type offline_type(enum precision precision, enum quant_method method);

/* Bytes of an expert's three matrices at a precision, without quantising them; 0 in a layer without
 * experts. */
uint64_t offline_expert_bytes(const struct offline_model *m, uint32_t layer, uint32_t expert,
                              enum precision precision, enum quant_method method);

/* Whether the experts can have lower precisions: -1 with ERR_BAD_INPUT if the blocks of one do not
 * divide their rows. To be called before a precision other than PRECISION_NATIVE is given to the
 * functions below. */
int offline_check_precisions(const struct offline_model *m, struct error *error);

/* Within a budget: bytes of its slot at a precision; 0 in a layer without experts. */
uint64_t offline_slot_bytes(const struct offline_model *m, uint32_t layer, uint32_t expert,
                            enum precision precision, enum quant_method method);

/* |E_i|: the Frobenius norm of the three matrices of an expert together. -1 with *error. */
double offline_expert_norm(struct offline_model *m, uint32_t layer, uint32_t expert,
                           struct error *error);

/* The routers of the model, on one row of one thread. NULL: out of memory. */
struct router_row *offline_router(struct offline_model *m, const struct kernel_ops *ops);

/* norm[2][hidden]: weights and bias of the norm that makes the gate input of a layer from the
 * residual stream. */
void offline_gate_norm(const struct offline_model *m, uint32_t layer, float *norm);

/* The gate input that a residual x[hidden] gives in a layer with that norm: x itself where the
 * router reads the input of the layer. */
void offline_gate_input(const struct offline_model *m, const float *norm, const float *x,
                        float *out);

/* Neighbouring experts of a layer whose importance is measured together first, and towards whose
 * mean each one is shrunk (plan), unless profile is given another number
 * (PLAN_importance_group). */
#define OFFLINE_IMPORTANCE_GROUP 8

/* ---- runners ---- */

#define OFFLINE_SKIP (-1)

/* Hooks of a runner; every function may be NULL. */
struct offline_hooks {
    void *arg;
    /* Precision that serves an item (enum precision), or OFFLINE_SKIP. NULL: native. In prefill an
     * item is all tokens of the chunk that access the expert. */
    int (*serve)(void *arg, const struct expert_step *step, const struct expert_item *item);
    /* The same for one row of a pass, whatever serves its others: as if it were computed alone, so
     * that decisions of decode are exact for many rows at once. Instead of serve. weight_before: as
     * in struct expert_item, of this row. */
    int (*serve_row)(void *arg, const struct expert_step *step, uint32_t row,
                     const struct route *route, float weight_before);
    /* The functions of struct weights_source. */
    bool (*mask)(void *arg, const struct expert_step *step, bool *allowed);
    void (*choice)(void *arg, const struct expert_step *step, const float *importance);
    void (*routed)(void *arg, const struct expert_step *step, const struct route *routes);
    void (*layer_inputs)(void *arg, const struct expert_step *step, const float *x, size_t stride,
                         uint32_t n);
    void (*gate_inputs)(void *arg, const struct expert_step *step, const float *x, size_t stride,
                        uint32_t n);
    void (*gate_input)(void *arg, const struct expert_step *step, const float *x, uint32_t n);
    void (*logits)(void *arg, const struct expert_step *step, const float *logits,
                   const struct model_router *rule);
    void (*reroute)(void *arg, const struct expert_step *step, const float *logits,
                    const struct model_router *rule, struct route *routes);
    /* Affects the order of work only: see weights_source.resident. NULL: all are resident. */
    bool (*resident)(void *arg, uint32_t layer, uint32_t expert);
    uint64_t pin_limit; /* slot bytes of a chunk's window; 0: unlimited */
};

struct offline_runner_config {
    const struct kernel_ops *ops; /* NULL: the best available */
    uint32_t threads, chunk, context;
    uint32_t sequences;       /* of offline_sequences; 0: one */
    enum quant_method method; /* of the precisions that `serve` returns */
    enum precision dense;     /* of dense matrices (offline_index_at) */
    enum kv_type kv_type;     /* of the KV cache */
    bool renormalise_skips;
    bool one_layer; /* keys and values of one layer at a time: for core_pass_layers of single
                    * layers */
    size_t scratch_limit, output_bytes; /* as in core_config */
    uint32_t worker,
        share; /* within a budget: its number, and the number of runners at work; 0: one */
    const struct offline_hooks *hooks; /* copied; NULL: none */
};

struct offline_runner;

struct offline_runner *offline_runner_create(struct offline_model *m,
                                             const struct offline_runner_config *config,
                                             struct error *error);
void offline_runner_destroy(struct offline_runner *r);

struct core *offline_core(struct offline_runner *r);
const struct core_sequence *offline_sequence(const struct offline_runner *r); /* the first one */
/* All of them; their numbers are 1, 2, ... */
const struct core_sequence *offline_sequences(const struct offline_runner *r);
/* Within a budget: time spent waiting for experts so far, for measurements of compute. */
uint64_t offline_waited_ns(const struct offline_runner *r);

#endif
