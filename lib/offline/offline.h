/* A model file in memory, without any process: what profile, plan, eval and the golden tests
 * compute with. Dense weights and native experts are read where the file is mapped; experts of
 * other tiers are quantised when they are first asked for, and kept.
 *
 * An offline_model is shared by any number of runners; a runner is one core with one KV cache, used
 * by one thread at a time. */
#ifndef SLUICE_OFFLINE_OFFLINE_H
#define SLUICE_OFFLINE_OFFLINE_H

#include "lib/core/core.h"
#include "lib/plan/plan.h"
#include "lib/quant/quant.h"
#include "lib/tensor/precision.h"
#include "lib/tensor/tensor_type.h"

struct offline_model;

/* Maps a GGUF file and checks it. NULL with *error (its line names the path). */
struct offline_model *offline_open(const char *path, struct error *error);
void offline_close(struct offline_model *m);

const struct model_index *offline_index(const struct offline_model *m);
const uint8_t *offline_hash(const struct offline_model *m); /* plan_model_hash */

/* Payload of a dense entry, where it lies in the file. */
const void *offline_dense(const struct offline_model *m, uint32_t entry);

/* The three matrices of an expert at a tier; valid until offline_close. Native ones lie in the
 * file, others are made by `method` at the first call, and kept. Any thread. Fatal when memory runs
 * out: there is nothing an offline tool could do. */
void offline_matrices(struct offline_model *m, uint32_t layer, uint32_t expert,
                      enum precision precision, enum quant_method method,
                      struct kernel_matrix out[EXPERT__COUNT]);

/* The type of a tier that is not native. */
enum tensor_type offline_type(enum precision precision, enum quant_method method);

/* Bytes of an expert's three matrices at a tier, without making them. */
uint64_t offline_expert_bytes(const struct offline_model *m, uint32_t layer, uint32_t expert,
                              enum precision precision, enum quant_method method);

/* |E_i|: the Frobenius norm of the three matrices of an expert together. */
double offline_expert_norm(const struct offline_model *m, uint32_t layer, uint32_t expert);

/* A dense tensor as floats: norms, routers. Row `row` of the matrix, or the vector (row 0). */
void offline_dense_row(const struct offline_model *m, uint32_t layer, enum dense_role role,
                       uint32_t row, float *out);

/* Neighbours of a layer whose importance is measured together first (profile), and towards whose
 * mean each one's is drawn (plan). */
#define OFFLINE_IMPORTANCE_GROUP 8

/* ---- runners ---- */

#define OFFLINE_SKIP (-1)

/* What a runner asks and tells; every function may be NULL. */
struct offline_hooks {
    void *arg;
    /* Which tier serves an item (enum tier), or OFFLINE_SKIP. NULL: native. In prefill an item is
     * all tokens of the chunk that use the expert. */
    int (*serve)(void *arg, const struct expert_step *step, const struct expert_item *item);
    /* As in struct weights_source. */
    bool (*mask)(void *arg, const struct expert_step *step, bool *allowed);
    void (*choice)(void *arg, const struct expert_step *step, const float *importance);
    void (*routed)(void *arg, const struct expert_step *step, const struct route *routes);
    void (*layer_inputs)(void *arg, const struct expert_step *step, const float *x, size_t stride,
                         uint32_t n);
    void (*gate_inputs)(void *arg, const struct expert_step *step, const float *x, size_t stride,
                        uint32_t n);
    void (*gate_input)(void *arg, const struct expert_step *step, const float *x, uint32_t n);
    void (*logits)(void *arg, const struct expert_step *step, const float *logits,
                   uint32_t experts);
    /* Order of work only: see weights_source.resident. NULL: all are. */
    bool (*resident)(void *arg, uint32_t layer, uint32_t expert);
    uint64_t pin_limit; /* slot bytes of a chunk's window; 0: no bound */
};

struct offline_runner_config {
    const struct kernel_ops *ops; /* NULL: the best there are */
    uint32_t threads, chunk, context;
    enum quant_method method; /* of the tiers `serve` names */
    bool renormalise_skips;
    const struct offline_hooks *hooks; /* copied; NULL: none */
};

struct offline_runner;

struct offline_runner *offline_runner_create(struct offline_model *m,
                                             const struct offline_runner_config *config,
                                             struct error *error);
void offline_runner_destroy(struct offline_runner *r);

struct core *offline_core(struct offline_runner *r);
const struct core_sequence *offline_sequence(const struct offline_runner *r);

#endif
