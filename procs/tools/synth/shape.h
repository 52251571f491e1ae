/* SPDX-License-Identifier: Apache-2.0 */
/* A synthetic model: an architecture of arch.tbl.h, its sizes, and the properties of its
 * routing. */
#ifndef SLUICE_TOOLS_SYNTH_SHAPE_H
#define SLUICE_TOOLS_SYNTH_SHAPE_H

#include <stdio.h>

#include "lib/model/arch/table.h"
#include "lib/model/gguf/write.h"
#include "procs/tools/synth/types/mix.h"

struct shape {
    char name[64];
    const struct arch *arch;
    struct model_hparams h;
    struct mix_list mixes; /* of experts and dense matrices; norms and routers are F32 */
    bool pure;             /* all of them of the base type of the mix */
    uint64_t seed;
    /* standard deviation of an expert's bias in the router logits, relative to that of their
     * token-dependent part; 0: no bias */
    double skew;
    double locality; /* share of the token-dependent variance common to a group of tokens */
    double update; /* variance that all layers together add to the residual stream of variance 1 */
    double sharpness; /* standard deviation of the router logits */
    /* where an architecture leaves the choice: */
    double full_every;   /* models with a window: every so many layers, the last of them has none */
    double tied;         /* 1: the output matrix is the embedding */
    double joined;       /* 1: gate and up of the experts are one tensor */
    double no_rope_full; /* 1: those do not rotate, if the file states which layers do */
    double experts_every; /* only every so many layers have experts, if files show which do */
    double index_every;   /* the first and only every so many layers have an indexer, if files state
                         * which do; the others take its choice */
    double full_v; /* 0: layers without a window have no attn_v, if the architecture allows it */
    /* Where a layer is one of mixers and networks: M recurrent, * attention, E experts;
     * repeated. */
    char pattern[64];
};

/* Sets the shape of that name with its defaults. -1 with ERR_BAD_INPUT: unknown name (the message
 * lists the names) or unsupported architecture. */
int shape_named(struct shape *s, const char *name, struct error *error);

/* Applies "field=value"; any order. */
int shape_set(struct shape *s, const char *setting, struct error *error);

/* Derives the fields not given and checks all. */
int shape_finish(struct shape *s, struct error *error);

/* Writes the keys of the architecture, the general keys and the synth.* keys. */
void shape_put_keys(const struct shape *s, struct gguf_writer *w);

/* Prints the names of shapes and of settable fields, for --help. */
void shape_help(FILE *out);

#endif
