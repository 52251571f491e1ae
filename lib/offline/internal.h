/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by offline.c and runner.c. */
#ifndef SLUICE_OFFLINE_INTERNAL_H
#define SLUICE_OFFLINE_INTERNAL_H

#include <pthread.h>

#include "lib/offline/offline.h"
#include "lib/tensor/precision.h"

#define OFFLINE_MAGIC 0x4f46464cu

/* Quantised forms of an expert: every precision but native, by every method. */
#define OFFLINE_METHODS (QUANT_HQQ + 1)
#define OFFLINE_FORMS   ((PRECISION__COUNT - 1) * OFFLINE_METHODS)

/* Dense matrices at a precision (dense.c). */
struct offline_dense {
    struct model_index *index; /* NULL: not made yet */
    uint8_t **made;            /* [dense_count]; NULL: as in the file */
};

struct offline_model {
    uint32_t magic;
    const uint8_t *bytes[MODEL_PARTS_MAX]; /* the mapped file, or its parts */
    size_t size[MODEL_PARTS_MAX];
    uint32_t files;
    struct model_index *index;
    uint8_t hash[PLAN_HASH_BYTES];
    const struct kernel_ops *ops;
    uint8_t **made;             /* [layers * experts][OFFLINE_FORMS]; set once each */
    pthread_mutex_t dense_lock; /* while a precision is made */
    struct offline_dense dense[PRECISION__COUNT]; /* [native] is unused */
};

/* dense.c: frees what was made. */
void offline_dense_free(struct offline_model *m);

#endif
