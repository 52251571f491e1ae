/* SPDX-License-Identifier: Apache-2.0 */
/* Mixes of tensor types, as llama-quantize makes them (mixes.tbl.h). */
#ifndef SLUICE_TOOLS_SYNTH_MIX_H
#define SLUICE_TOOLS_SYNTH_MIX_H

#include <stdio.h>

#include "lib/base/error.h"
#include "lib/model/arch/table.h"
#include "lib/tensor/tensor_type.h"

enum mix {
#define MIX(name, base, file_type, family) MIX_##name,
#include "procs/tools/synth/types/mixes.tbl.h"
    MIX__COUNT
};

/* A matrix of a model. */
struct mix_tensor {
    bool is_expert;
    uint32_t role;  /* enum dense_role, or enum expert_matrix */
    uint32_t layer; /* of a tensor that belongs to one */
    uint64_t k;     /* elements of a row */
    /* attn_v: layers before this one that have it, and all; count 0: every layer has it */
    uint32_t number, count;
};

#define MIX_LIST_MAX 8

/* Layers take turns; what belongs to no layer has the first. */
struct mix_list {
    enum mix mix[MIX_LIST_MAX];
    uint32_t count;
};

/* The value of --type: names with commas between them. -1 with ERR_BAD_INPUT. */
int mix_option(const char *names, struct mix_list *list, struct error *error);
enum mix mix_of_layer(const struct mix_list *list, uint32_t layer);
const char *mix_name(enum mix mix);
uint32_t mix_file_type(enum mix mix);

/* The type of a tensor; pure: the base type for every matrix. Rows that are no
 * multiple of the type's block get another type, as there; F16 if no other
 * fits. */
enum tensor_type mix_type(enum mix mix, bool pure, const struct model_hparams *h,
                          const struct mix_tensor *t);

/* Prints the names, for --help. */
void mix_help(FILE *out);

#endif
