/* SPDX-License-Identifier: Apache-2.0 */
/* Rotations of contexts longer than the trained one, queries that grow with their position, and
 * what tensors say. */
#include <inttypes.h>
#include <string.h>

#include "lib/model/arch/internal.h"

static const struct model_tensor *tensor_named(const struct gguf *g, const char *name)
{
    for (uint32_t i = 0; i < g->tensor_count; i++)
        if (strcmp(g->tensors[i].name, name) == 0)
            return &g->tensors[i];
    return NULL;
}

int arch_read_tensor(const struct arch *arch, const struct arch_row *row, const char *key,
                     const struct gguf *g, struct model_hparams *h, struct error *error)
{
    (void)arch, (void)key, (void)error;
    if (arch_uint_of(h, row->offset) == 0 && tensor_named(g, row->key))
        *arch_uint(h, row->offset) = (uint32_t)row->value;
    return 0;
}

int arch_read_width(const struct arch *arch, const struct arch_row *row, const char *key,
                    const struct gguf *g, struct model_hparams *h, struct error *error)
{
    (void)arch, (void)key, (void)error;
    const struct model_tensor *t = tensor_named(g, row->key);
    if (t && t->ne[1] == arch_dim_size(h, 0, (enum arch_dim)row->dim))
        *arch_uint(h, row->offset) = (uint32_t)row->value;
    return 0;
}

int arch_read_scaling(const struct arch *arch, const struct gguf *g, struct model_hparams *h,
                      struct error *error)
{
    char key[ARCH_KEY_BYTES];
    const char *text;
    size_t n;
    arch_full_key(arch, "rope.scaling.type", key);
    int found = gguf_get_string(g, key, &text, &n, error);
    if (found < 0)
        return -1;
    if (h->rope_scaling == ROPE_UNSCALED && found == 1) /* "none" */
        h->rope_factor = 0;
    return 0;
}

/* The defaults are those of YaRN's paper. */
void arch_derive_scaling(struct model_hparams *h)
{
    if (h->rope_scaling == ROPE_UNSCALED && h->rope_factor != 0 && h->rope_factor != 1)
        h->rope_scaling = ROPE_LINEAR; /* a factor without a type */
    if (h->rope_scaling == ROPE_SHORT && h->rope_context != 0 && h->rope_context < h->context)
        h->context = h->rope_context;
    bool query = h->query_scale != 0 && h->query_context == 0;
    if (h->rope_context == 0 && (h->rope_scaling == ROPE_YARN || query))
        h->rope_context = h->context;
    if (query)
        h->query_context = h->rope_context;
    if (h->rope_scaling != ROPE_YARN)
        return;
    if (h->rope_beta_fast == 0)
        h->rope_beta_fast = 32;
    if (h->rope_beta_slow == 0)
        h->rope_beta_slow = 1;
    if (h->rope_log_multiplier > 0 && h->rope_magnitude == 0)
        h->rope_magnitude = 1; /* scores have the factor instead */
}

int arch_check_scaling(const struct model_hparams *h, struct error *error)
{
    if (h->query_scale != 0 && h->query_context == 0)
        return error_set(error, ERR_BAD_INPUT, "attention.temperature_length is 0");
    if (h->rope_scaling == ROPE_UNSCALED)
        return 0;
    if (h->rope_scaling == ROPE_SHORT) {
        if (h->rope_context != 0 && h->context > h->rope_context)
            return error_set(error, ERR_BAD_INPUT, "the context is longer than the original one");
        return 0;
    }
    if (h->rope_scaling > ROPE_YARN || !(h->rope_factor >= 1))
        return error_set(error, ERR_BAD_INPUT, "rope.scaling.factor is %g: not 1 or more",
                         (double)h->rope_factor);
    if (h->rope_scaling == ROPE_YARN &&
        (h->rope_context == 0 || !(h->rope_beta_fast >= h->rope_beta_slow)))
        return error_set(error, ERR_BAD_INPUT,
                         "rope.scaling: YaRN needs the original context length, and beta_fast not "
                         "below beta_slow");
    return 0;
}
