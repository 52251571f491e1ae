/* SPDX-License-Identifier: Apache-2.0 */
/* Layers with a recurrent state: which ones they are, and their sizes. */
#include <inttypes.h>
#include <string.h>

#include "lib/model/arch/internal.h"

#define DELTA_SIZE_MAX 256

static const struct arch_row *list_of(const struct arch *arch)
{
    return arch_first(arch->rows, ARCH_ROWS(RECURRENT_FLAGS) | ARCH_ROWS(RECURRENT_HEADS));
}

const char *arch_recurrent_key(const struct arch *arch, bool *heads)
{
    const struct arch_row *list = list_of(arch);
    if (list)
        *heads = list->kind == ARCH_RECURRENT_HEADS;
    return list ? list->key : NULL;
}

void arch_set_recurrent(struct model_hparams *h)
{
    for (uint32_t layer = 0; h->attention_step > 0 && layer < h->layers; layer++)
        if ((layer + 1) % h->attention_step != 0)
            h->layer_kind[layer] = LAYER_RECURRENT;
}

/* Key heads of each block: 0 in recurrent ones, one number in the others. */
static int read_heads(const char *key, struct gguf_array *a, struct model_hparams *h,
                      struct error *error)
{
    for (uint32_t layer = 0; layer < h->layers; layer++) {
        uint64_t heads;
        if (gguf_array_uint(a, key, &heads, error) != 0)
            return -1;
        h->layer_kind[layer] = heads == 0 ? LAYER_RECURRENT : LAYER_FULL;
        if (heads == 0)
            continue;
        if (heads > 1024 || (h->kv_heads != 0 && h->kv_heads != heads))
            return error_set(error, ERR_BAD_INPUT,
                             "key '%s' is %" PRIu64 " for layer %" PRIu32
                             ": 0 or one number up to 1024 is possible",
                             key, heads, layer);
        h->kv_heads = (uint32_t)heads;
    }
    return 0;
}

int arch_read_recurrent(const struct arch *arch, const struct gguf *g, struct model_hparams *h,
                        struct error *error)
{
    const struct arch_row *list = list_of(arch);
    char key[ARCH_KEY_BYTES];
    struct gguf_array a;
    if (!list)
        return 0;
    arch_full_key(arch, list->key, key);
    int found = list->kind == ARCH_RECURRENT_HEADS ? gguf_get_uints(g, key, &a, error)
                                                   : gguf_get_array(g, key, GGUF_BOOL, &a, error);
    if (found <= 0)
        return found;
    if (a.left < h->layers)
        return error_set(error, ERR_BAD_INPUT,
                         "key '%s' has %" PRIu64 " elements for %" PRIu32 " layers", key, a.left,
                         h->layers);
    memset(h->layer_kind, LAYER_FULL, sizeof h->layer_kind); /* and not by the interval */
    if (list->kind == ARCH_RECURRENT_HEADS)
        return read_heads(key, &a, h, error) != 0 ? -1 : 1;
    for (uint32_t layer = 0; layer < h->layers; layer++)
        h->layer_kind[layer] = gguf_array_bool(&a) ? LAYER_RECURRENT : LAYER_FULL;
    return 1;
}

int arch_check_recurrent(const struct model_hparams *h, struct error *error)
{
    if (h->gated_attention && h->value_size != h->head_size)
        return error_set(error, ERR_BAD_INPUT,
                         "key_length %" PRIu32 " and value_length %" PRIu32
                         " differ: a gated head has one size",
                         h->head_size, h->value_size);
    if (h->delta_size == 0)
        return 0;
    if (h->delta_size > DELTA_SIZE_MAX || h->delta_v_heads % h->delta_k_heads != 0)
        return error_set(error, ERR_BAD_INPUT,
                         "ssm.state_size %" PRIu32 ", ssm.time_step_rank %" PRIu32
                         ": not up to %d, a multiple of ssm.group_count %" PRIu32,
                         h->delta_size, h->delta_v_heads, DELTA_SIZE_MAX, h->delta_k_heads);
    if (h->delta_inner != (uint64_t)h->delta_v_heads * h->delta_size)
        return error_set(error, ERR_BAD_INPUT,
                         "ssm.inner_size is %" PRIu32 ": not ssm.time_step_rank * ssm.state_size",
                         h->delta_inner);
    return 0;
}
