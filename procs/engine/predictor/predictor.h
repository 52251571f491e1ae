/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of the predictor. One thread. */
#ifndef SLUICE_ENGINE_PREDICTOR_PREDICTOR_H
#define SLUICE_ENGINE_PREDICTOR_PREDICTOR_H

#include "lib/kernels/kernels.h"
#include "lib/model/limits.h"
#include "lib/policy/prediction/prediction.h"
#include "lib/policy/sequences.h"
#include "lib/router/row.h"
#include "procs/engine/child/child.h"
#include "procs/engine/predictor/recall.h"

#define PREDICTOR_MAGIC 0x50524544u

struct predictor_idle { /* time of the last load of the cache */
    uint64_t loads, since_ns;
    uint32_t news; /* rows published at that time */
};

struct predictor_sequence { /* one that runs */
    /* experts chosen in the layer routed last [0] and in the one before [1] */
    uint16_t chosen[2][MODEL_TOP_K_MAX];
    uint32_t chosen_count[2], chosen_layer, chosen_position;
};

struct predictor {
    uint32_t magic;
    struct child child;
    struct channel *cache; /* HINT */
    const struct kernel_ops *ops;
    uint32_t preset; /* the current preset and its policy parameters */
    struct knobs knobs;
    struct precision_policy precision_policy;
    const struct prediction_method *method;
    struct path_tables tables;     /* from the plan, in the model segment */
    struct activation *activation; /* of prediction=activation; NULL: not created yet */
    uint32_t want;                 /* predictions per layer */
    struct sequences sequences;
    struct predictor_sequence sequence[SEQUENCES_MAX]; /* by place */
    struct predictor_idle calm;
    struct recall *recall;
    struct access_log_reader accesses;
    float *values;                  /* [width] of the row read last */
    struct router_row *router;      /* of the predicted layer, on that row */
    float *logits;                  /* [experts] */
    float *scratch;                 /* [experts] of predictions */
    struct prediction *predictions; /* [experts] */
    struct msg_hint hint;
};

/* hints.c: allocates these buffers. */
int hints_open(struct predictor *p, struct error *error);
/* Sets the preset and its policy parameters. -1 with ERR_BAD_INPUT when it cannot run here. */
int hints_set_preset(struct predictor *p, uint32_t preset, struct error *error);
/* Sends a HINT for the next layer from the newest row of each sequence, of those numbered from
 * `from` to before `to`. */
void hints_from_rows(struct predictor *p, uint32_t from, uint32_t to);
/* Compares the accesses since the last call with the predictions. */
void hints_measure(struct predictor *p);

#endif
