/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of lib/model/arch. */
#ifndef SLUICE_MODEL_ARCH_INTERNAL_H
#define SLUICE_MODEL_ARCH_INTERNAL_H

#include <string.h>

#include "lib/model/arch/table.h"

#define ARCH_KEY_BYTES 128

/* Writes "<name of the architecture>.<key>" to buf. */
void arch_full_key(const struct arch *arch, const char *key, char buf[ARCH_KEY_BYTES]);

/* The field of *h at that offset. */
static inline uint32_t *arch_uint(struct model_hparams *h, size_t offset)
{
    return (uint32_t *)(void *)((char *)h + offset);
}

static inline uint32_t arch_uint_of(const struct model_hparams *h, size_t offset)
{
    uint32_t v;
    memcpy(&v, (const char *)h + offset, sizeof v);
    return v;
}

/* The numbers of a field with one per layer. */
static inline float *arch_floats(struct model_hparams *h, size_t offset)
{
    return (float *)(void *)((char *)h + offset);
}

/* The row of a key for the field, and the field for layers with a window (0: one number for all).
 */
const struct arch_row *arch_uint_row(const struct arch *arch, size_t offset);
size_t arch_window_field(const struct arch *arch, size_t field);

/* Reads one row of the architecture. key: its key in the file, with the name of the architecture.
 */
typedef int arch_read_row(const struct arch *arch, const struct arch_row *row, const char *key,
                          const struct gguf *g, struct model_hparams *h, struct error *error);
arch_read_row arch_read_array;  /* ARCH_ARRAY, after the kinds of layers */
arch_read_row arch_read_tensor; /* ARCH_TENSOR */
arch_read_row arch_read_width;  /* ARCH_WIDTH, after all sizes */
arch_read_row arch_read_limits; /* ARCH_LIMITS, after the kinds of layers */
arch_read_row arch_read_same;   /* ARCH_SAME, after the parts of layers */
arch_read_row arch_read_choice; /* ARCH_CHOICE, after the kinds of layers, before the flags */
arch_read_row arch_check_only;  /* keys that select computations which sluice does not support */

/* Reads an array with an element per block, of bools or of integers that are 0 or 1: 1, or 0 if the
 * file has none, or -1. */
int arch_read_bools(const struct gguf *g, const char *key, const struct model_hparams *h,
                    bool *values, struct error *error);

/* flags.c: reads the flags that the file states, sets those of the rule, checks all. */
int arch_read_flags(const struct arch *arch, const struct gguf *g, struct model_hparams *h,
                    struct error *error);
/* Whether a layer has a tensor of an indexer. */
bool arch_has_indexer(const struct gguf *g, const struct model_hparams *h);
void arch_set_flags(const struct arch *arch, struct model_hparams *h);
int arch_check_flags(const struct arch *arch, const struct model_hparams *h, struct error *error);

/* ngrams: which layer has n-grams, and their numbers, of the file; their check. */
int arch_read_ngrams(const struct arch *arch, const struct gguf *g, struct model_hparams *h,
                     struct error *error);
int arch_check_ngrams(const struct model_hparams *h, struct error *error);

/* Sets the kinds from the file, or by the rule. */
int arch_read_kinds(const struct arch *arch, const struct gguf *g, struct model_hparams *h,
                    struct error *error);

/* Sets which layers are recurrent by the array of the file, and with it the number of key heads: 1,
 * or 0 if the file has none, or -1. arch_set_recurrent: all layers but each attention_step-th
 * are. */
int arch_read_recurrent(const struct arch *arch, const struct gguf *g, struct model_hparams *h,
                        struct error *error);
void arch_set_recurrent(struct model_hparams *h);
/* Sets which layers are of kind LAYER_PLAIN by the array of the file. */
int arch_read_networks(const struct arch *arch, const struct gguf *g, struct model_hparams *h,
                       struct error *error);
int arch_check_recurrent(const struct model_hparams *h, struct error *error);

/* True if `name` matches `pattern`, in which %u is a decimal number without leading zeros. *number:
 * the first of these numbers. */
bool arch_name_matches(const char *pattern, const char *name, uint32_t *number);
/* Reads what several keys and tensors state together, after each key was read by itself. */
int arch_read_scaling(const struct arch *arch, const struct gguf *g, struct model_hparams *h,
                      struct error *error);

int arch_check_mla(const struct model_hparams *h, struct error *error);
int arch_check_limits(const struct arch *arch, const struct model_hparams *h, struct error *error);
int arch_check_kinds(const struct model_hparams *h, struct error *error);
/* Checks that the parts of the layers are those that arch_set_parts sets. 0, or -1 with
 * ERR_BAD_INPUT. */
int arch_check_parts(const struct arch *arch, const struct model_hparams *h, struct error *error);
int arch_check_scaling(const struct model_hparams *h, struct error *error);
int arch_check_attention(const struct layer_attention *a, struct error *error);

#endif
