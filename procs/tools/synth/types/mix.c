/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the type of each tensor by the rules of a mix. */
#include "procs/tools/synth/types/mix.h"

#include <string.h>
#include <strings.h>

#include "lib/base/assert.h"
#include "lib/base/bytes.h"

/* Families follow the mixes in the numbers of rules. */
enum { MIX_ALL = MIX__COUNT, MIX_LOW, MIX_FP4, MIX_PLAIN };

enum role {
    ROLE_OTHER,
    ROLE_OUTPUT,
    ROLE_EMBD,
    ROLE_V,
    ROLE_K,
    ROLE_Q,
    ROLE_O,
    ROLE_GATE,
    ROLE_UP,
    ROLE_DOWN,
    ROLE_EXPERTS, /* in rules only, like the next */
    ROLE_MATRIX
};

enum when {
    WHEN_ALWAYS,
    WHEN_FIRST_2,
    WHEN_FIRST_4,
    WHEN_FIRST_16TH,
    WHEN_FIRST_8TH,
    WHEN_FIRST_TENSORS,
    WHEN_MIDDLE,
    WHEN_MORE,
    WHEN_GQA4,
    WHEN_GQA4_EXPERTS4,
    WHEN_EXPERTS8,
    WHEN_NOT_EXPERTS8,
    WHEN_FIRST_8TH_OR_MORE,
    WHEN_ROW
};

static const struct mix_row {
    const char *name;
    enum tensor_type base;
    uint32_t file_type;
    uint32_t family;
} mixes[] = {
#define MIX(name, base, file_type, family) {#name, TENSOR_##base, file_type, MIX_##family},
#include "procs/tools/synth/types/mixes.tbl.h"
};

static const struct mix_rule {
    uint32_t of;
    enum role role;
    enum when when;
    enum tensor_type type;
} rules[] = {
#define MIX_WHEN(mix, role, when, type) {MIX_##mix, ROLE_##role, WHEN_##when, TENSOR_##type},
#define MIX_RULE(mix, role, type)       {MIX_##mix, ROLE_##role, WHEN_ALWAYS, TENSOR_##type},
#include "procs/tools/synth/types/mixes.tbl.h"
};

static int find_mix(const char *name, enum mix *mix, struct error *error)
{
    char list[400] = "";
    size_t used = 0;
    for (size_t i = 0; i < ARRAY_LEN(mixes) && used < sizeof list; i++) {
        if (strcasecmp(name, mixes[i].name) == 0) {
            *mix = (enum mix)i;
            return 0;
        }
        used +=
            (size_t)snprintf(list + used, sizeof list - used, "%s%s", i ? "|" : "", mixes[i].name);
    }
    return error_set(error, ERR_BAD_INPUT, "--type: '%.40s' is not one of %s", name, list);
}

int mix_option(const char *names, struct mix_list *list, struct error *error)
{
    char copy[256], *rest = copy;
    if (snprintf(copy, sizeof copy, "%s", names) >= (int)sizeof copy)
        return error_set(error, ERR_BAD_INPUT, "--type: a list of more than %zu bytes",
                         sizeof copy - 1);
    list->count = 0;
    for (char *name; (name = strsep(&rest, ",")) != NULL; list->count++) {
        if (list->count == MIX_LIST_MAX)
            return error_set(error, ERR_BAD_INPUT, "--type: more than %d types", MIX_LIST_MAX);
        if (find_mix(name, &list->mix[list->count], error))
            return -1;
    }
    return 0;
}

enum mix mix_of_layer(const struct mix_list *list, uint32_t layer)
{
    return list->mix[layer % list->count];
}

const char *mix_name(enum mix mix)
{
    return mixes[mix].name;
}

uint32_t mix_file_type(enum mix mix)
{
    return mixes[mix].file_type;
}

void mix_help(FILE *out)
{
    size_t column = 0;
    fprintf(out,
            "\nTypes, each a mix of tensor types as llama-quantize makes it; several with commas\n"
            "(Q4_K_M,IQ2_XXS): layers take turns, the rest has the first:\n");
    for (size_t i = 0; i < ARRAY_LEN(mixes); i++) {
        size_t width = strlen(mixes[i].name) + 1;
        if (i > 0 && column + width > 78)
            column = 0;
        column +=
            (size_t)fprintf(out, "%s%s", column == 0 ? i ? "\n  " : "  " : " ", mixes[i].name);
    }
    fprintf(out, "\n");
}

static enum role role_of(const struct model_hparams *h, const struct mix_tensor *t)
{
    static const enum role experts[] = {
        [EXPERT_GATE] = ROLE_GATE, [EXPERT_UP] = ROLE_UP, [EXPERT_DOWN] = ROLE_DOWN};
    if (t->is_expert)
        return h->two_matrices && t->role == EXPERT_GATE ? ROLE_UP : experts[t->role];
    switch ((enum dense_role)t->role) {
    case DENSE_TOKEN_EMBD: return h->tied_output ? ROLE_OUTPUT : ROLE_EMBD;
    case DENSE_OUTPUT: return ROLE_OUTPUT;
    case DENSE_ATTN_Q: return ROLE_Q;
    case DENSE_ATTN_K: return ROLE_K;
    case DENSE_ATTN_V:
    case DENSE_DELTA_QKV:
    case DENSE_ATTN_QKV: return ROLE_V; /* as llama-quantize has it */
    case DENSE_ATTN_OUT: return ROLE_O;
    case DENSE_FFN_GATE:
    case DENSE_SHARED_GATE: return h->two_matrices ? ROLE_UP : ROLE_GATE;
    case DENSE_FFN_UP:
    case DENSE_SHARED_UP: return ROLE_UP;
    case DENSE_FFN_DOWN:
    case DENSE_SHARED_DOWN: return ROLE_DOWN;
    default: return ROLE_OTHER;
    }
}

static bool role_fits(enum role rule, enum role role, const struct mix_tensor *t)
{
    return rule == role || rule == ROLE_MATRIX || (rule == ROLE_EXPERTS && t->is_expert);
}

static bool more_bits(uint32_t layer, uint32_t layers)
{
    return layer < layers / 8 || layer >= 7 * layers / 8 || (layer - layers / 8) % 3 == 2;
}

/* Down matrices of a layer; those of all its experts are one. */
static uint32_t downs_of(const struct model_hparams *h, uint32_t layer)
{
    enum layer_ffn ffn = (enum layer_ffn)h->layer_ffn[layer];
    return ffn_has_dense(ffn) + (ffn_has_experts(ffn) ? 1 + (h->shared_inner > 0) : 0);
}

/* Down matrices before this one. Within a layer by name: those of experts come before the shared
 * one, and after a dense one. */
static uint32_t down_number(const struct model_hparams *h, const struct mix_tensor *t)
{
    uint32_t number = 0;
    for (uint32_t l = 0; l < t->layer; l++)
        number += downs_of(h, l);
    if (!hparams_layer_has_experts(h, t->layer))
        return number;
    return number + (h->shared_inner > 0
                         ? !t->is_expert
                         : ffn_has_dense((enum layer_ffn)h->layer_ffn[t->layer]) && t->is_expert);
}

/* Of the first layer, as the quantiser reads it. For a recurrent one: a file with one number of key
 * heads has it for all layers, with the number of each layer it is 0 there, and not four or
 * more. */
static bool is_gqa4(const struct model_hparams *h)
{
    struct layer_attention first = model_attention_of(h, 0);
    if (first.kv_heads > 0)
        return first.heads / first.kv_heads >= 4;
    return h->layer_mixer[0] == MIXER_DELTANET && h->heads / h->kv_heads >= 4;
}

static bool holds(enum when when, enum tensor_type base, const struct model_hparams *h,
                  const struct mix_tensor *t)
{
    uint32_t layer = t->count ? t->number : t->layer, layers = t->count ? t->count : h->layers;
    switch (when) {
    case WHEN_ALWAYS: return true;
    case WHEN_FIRST_2: return layer < 2;
    case WHEN_FIRST_4: return layer < 4;
    case WHEN_FIRST_16TH: return layer < layers / 16;
    case WHEN_FIRST_8TH: return layer < layers / 8;
    case WHEN_FIRST_TENSORS: return down_number(h, t) < h->layers / 8;
    case WHEN_MIDDLE: return layer >= layers / 8 && layer < 7 * layers / 8;
    case WHEN_MORE: return more_bits(layer, layers);
    case WHEN_GQA4: return is_gqa4(h);
    case WHEN_GQA4_EXPERTS4: return is_gqa4(h) || h->experts >= 4;
    case WHEN_EXPERTS8: return h->experts == 8;
    case WHEN_NOT_EXPERTS8: return h->experts != 8;
    case WHEN_FIRST_8TH_OR_MORE:
        return layer < layers / 8 || (h->experts == 8 && more_bits(layer, layers));
    case WHEN_ROW: return t->k % tensor_type_info(base)->block_elems != 0;
    }
    return false;
}

static bool fits(enum tensor_type type, uint64_t k)
{
    return k % tensor_type_info(type)->block_elems == 0;
}

/* The type of a row that is no multiple of the block. */
static enum tensor_type instead(enum tensor_type type)
{
    switch (type) {
    case TENSOR_IQ1_S:
    case TENSOR_IQ1_M:
    case TENSOR_IQ2_XXS:
    case TENSOR_IQ2_XS:
    case TENSOR_IQ2_S:
    case TENSOR_IQ3_XXS:
    case TENSOR_IQ3_S:
    case TENSOR_IQ4_XS: return TENSOR_IQ4_NL;
    case TENSOR_Q1_0:
    case TENSOR_Q2_0:
    case TENSOR_Q2_K:
    case TENSOR_Q3_K:
    case TENSOR_TQ1_0:
    case TENSOR_TQ2_0: return TENSOR_Q4_0;
    case TENSOR_Q4_K: return TENSOR_Q5_0;
    case TENSOR_Q5_K: return TENSOR_Q5_1;
    case TENSOR_Q6_K: return TENSOR_Q8_0;
    default: return TENSOR_F16;
    }
}

enum tensor_type mix_type(enum mix mix, bool pure, const struct model_hparams *h,
                          const struct mix_tensor *t)
{
    const struct mix_row *row = &mixes[mix];
    enum role role = role_of(h, t);
    enum tensor_type type = row->base;
    for (size_t i = 0; i < ARRAY_LEN(rules) && !pure; i++) {
        const struct mix_rule *r = &rules[i];
        if ((r->of == (uint32_t)mix || r->of == row->family) && role_fits(r->role, role, t) &&
            holds(r->when, row->base, h, t)) {
            type = r->type;
            break;
        }
    }
    if (!fits(type, t->k))
        type = instead(type);
    return fits(type, t->k) ? type : TENSOR_F16;
}
