/* What a synthetic model is like: an architecture of arch.tbl.h with its sizes, and how its routing
 * behaves. */
#ifndef SLUICE_TOOLS_SYNTH_SHAPE_H
#define SLUICE_TOOLS_SYNTH_SHAPE_H

#include <stdio.h>

#include "lib/model/arch/table.h"
#include "lib/model/gguf/write.h"
#include "lib/tensor/tensor_type.h"

struct shape {
    char name[64];
    enum arch_id arch;
    struct model_hparams h;
    enum tensor_type type; /* of experts and dense matrices; norms and routers are F32 */
    uint64_t seed;
    double skew; /* standard deviation of an expert's popularity in the router's logits, in units of
                    that of what depends on the token; 0: all experts alike */
    double
        locality;  /* share of the token-dependent variance that a group of tokens has in common */
    double update; /* variance that all layers together add to the residual stream of variance 1 */
    double sharpness; /* standard deviation of the router's logits */
};

/* The shape of that name with its defaults. -1: ERR_BAD_INPUT, which lists the names, or says that
 * sluice has no such architecture. */
int shape_named(struct shape *s, const char *name, struct error *error);

/* "field=value", in any order. */
int shape_set(struct shape *s, const char *setting, struct error *error);

/* Derives what was left out, and checks everything. */
int shape_finish(struct shape *s, struct error *error);

/* The keys of the architecture and what the file says about itself. */
void shape_put_keys(const struct shape *s, struct gguf_writer *w);

/* Names of shapes and of settable fields, for --help. */
void shape_help(FILE *out);

#endif
