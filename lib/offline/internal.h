/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by offline.c and runner.c. */
#ifndef SLUICE_OFFLINE_INTERNAL_H
#define SLUICE_OFFLINE_INTERNAL_H

#include <pthread.h>

#include "lib/offline/offline.h"
#include "lib/offline/slots.h"
#include "lib/tensor/precision.h"

#define OFFLINE_MAGIC 0x4f46464cu

/* Quantised forms of an expert: every precision but native, by every method. */
#define OFFLINE_METHODS (QUANT_HQQ + 1)
#define OFFLINE_FORMS   ((PRECISION__COUNT - 1) * OFFLINE_METHODS)

/* Dense matrices at a precision (dense.c). */
struct offline_dense {
    struct model_index *index; /* NULL: not made yet */
    bool *lower;               /* [dense_count] at this precision; else as in the file */
    uint8_t **made;            /* [dense_count]; NULL: not made, or as in the file */
};

/* Program, libraries, stacks and the small allocations of a tool. */
#define OFFLINE_PROGRAM_BYTES (8 * MIB)

struct offline_model {
    uint32_t magic;
    /* within a budget; slots NULL: mapped */
    uint64_t budget;
    struct offline_files files;
    struct slots *slots;
    uint8_t *dense_region, **dense_slot; /* [dense_count] in the region */
    /* mapped */
    const uint8_t *bytes[MODEL_PARTS_MAX]; /* the mapped file, or its parts */
    size_t size[MODEL_PARTS_MAX];
    uint32_t mapped;
    struct model_index *index;
    uint8_t hash[PLAN_HASH_BYTES];
    const struct kernel_ops *ops;
    uint8_t **made;             /* [layers * experts][OFFLINE_FORMS]; set once each */
    pthread_mutex_t dense_lock; /* while a precision is made */
    struct offline_dense dense[PRECISION__COUNT]; /* [native] is unused */
};

/* memory.c: the bound where none was given; of a bound, what is neither experts nor on the heap. */
uint64_t offline_choose_memory(const struct offline_model *m);
uint64_t offline_fixed_bytes(uint64_t budget);
uint64_t offline_with_fixed(uint64_t bytes); /* the bound that leaves so many for these */

/* dense.c: frees what was made. */
void offline_dense_free(struct offline_model *m);

/* offline.c: payload of an extent in the mapped file; of a dense entry also within a budget. */
const uint8_t *offline_payload(const struct offline_model *m, uint32_t entry, uint32_t extent);

/* experts.c: a form of an expert in slots. matrix[].data are offsets in its slot. */
struct offline_form {
    struct slots_form slot;
    uint32_t native; /* entry of the expert as in the file */
    struct kernel_matrix matrix[EXPERT__COUNT];
};
void offline_form(const struct offline_model *m, uint32_t layer, uint32_t expert,
                  enum precision precision, enum quant_method method, struct offline_form *f);
void offline_form_matrices(const struct offline_form *f, const uint8_t *at,
                           struct kernel_matrix out[EXPERT__COUNT]);
/* Makes a form at `at`. stage: offline_stage, for the expert as in the file. */
int offline_form_make(struct offline_model *m, const struct offline_form *f, uint8_t *at,
                      uint8_t *stage, struct error *error);
uint8_t *offline_stage(const struct offline_model *m);

#endif
