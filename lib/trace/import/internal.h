/* SPDX-License-Identifier: Apache-2.0 */
/* A recording as the parsers of lib/trace/import read it, before it becomes a trace. */
#ifndef SLUICE_TRACE_IMPORT_INTERNAL_H
#define SLUICE_TRACE_IMPORT_INTERNAL_H

#include <stdbool.h>

#include "lib/trace/import/import.h"

/* One expert of one layer that one token uses. */
struct use {
    uint32_t turn, step; /* of the token: steps count within a turn and phase */
    uint16_t layer, slot, expert;
    bool decoded;
    float weight;
};

struct recording {
    const struct trace_import *how;
    uint32_t layers, experts, top_k; /* 0: not known, for the last two */
    uint64_t expert_bytes;           /* 0: not known */
    bool has_experts[MODEL_LAYERS_MAX];
    struct use *use;
    uint64_t count, capacity;
};

/* Adds a use; its numbers may be anything. -1 with ERR_BAD_INPUT or ERR_NO_MEMORY. */
int recording_add(struct recording *r, const struct use *use, struct error *error);

/* -1 with ERR_BAD_INPUT if settings say which layers a recording with numbers of layers has. */
int recording_names_layers(const struct recording *r, struct error *error);

/* Fill a recording. -1 with *error. */
int import_csv(struct recording *r, const char *text, size_t bytes, struct error *error);
int import_json(struct recording *r, const char *text, size_t bytes, struct error *error);

#endif
