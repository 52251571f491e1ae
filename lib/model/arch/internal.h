/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of lib/model/arch. */
#ifndef SLUICE_MODEL_ARCH_INTERNAL_H
#define SLUICE_MODEL_ARCH_INTERNAL_H

#include "lib/model/arch/table.h"

#define ARCH_KEY_BYTES 128

/* "<name of the architecture>.<key>" */
void arch_full_key(enum arch_id arch, const char *key, char buf[ARCH_KEY_BYTES]);

/* The field at that offset. */
static inline uint32_t *arch_uint(struct model_hparams *h, size_t offset)
{
    return (uint32_t *)(void *)((char *)h + offset);
}

/* A field with a number of each kind of layer. */
struct arch_range {
    size_t field, field_window; /* offsets */
    uint32_t min, max;
};

/* Offset of the field for layers with a window; 0: the architecture has one number for all. */
size_t arch_window_field(enum arch_id arch, size_t field);

/* Sets the kinds from the file, or by the rule. */
int arch_read_kinds(enum arch_id arch, const struct gguf *g, struct model_hparams *h,
                    struct error *error);

/* Kinds of recurrent layers: by the array of the file (1: it has one, and then also the number of key heads),
 * or every layer but each attention_step-th. */
int arch_read_recurrent(enum arch_id arch, const struct gguf *g, struct model_hparams *h,
                        struct error *error);
void arch_set_recurrent(struct model_hparams *h);
int arch_check_recurrent(const struct model_hparams *h, struct error *error);

/* Reads a key that may be an array, after the kinds: 1 if it is one, 0 if not; range->field_window is
 * set here. */
int arch_read_array(enum arch_id arch, const struct gguf *g, const char *name,
                    const struct arch_range *range, struct model_hparams *h, struct error *error);

/* Checks the keys that select computations which sluice does not support. */
int arch_check_only(enum arch_id arch, const struct gguf *g, const struct model_hparams *h,
                    struct error *error);

/* What the keys and tensors say together, after the keys were read by themselves. */
int arch_read_scaling(enum arch_id arch, const struct gguf *g, struct model_hparams *h,
                      struct error *error);

int arch_check_mla(const struct model_hparams *h, struct error *error);
int arch_check_kinds(const struct model_hparams *h, struct error *error);
int arch_check_scaling(const struct model_hparams *h, struct error *error);
int arch_check_attention(const struct layer_attention *a, struct error *error);

#endif
