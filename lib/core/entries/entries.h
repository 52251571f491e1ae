/* SPDX-License-Identifier: Apache-2.0 */
/* Weights of attention to a window and entries (MIXER_ENTRIES), beside those that MLA has, too: q =
 * W_q norm(W_q_a x), and the keys, which are values, are norm(W_kv_a x). */
#ifndef SLUICE_CORE_ENTRIES_ENTRIES_H
#define SLUICE_CORE_ENTRIES_ENTRIES_H

#include "lib/device/device.h"

struct core;

/* What stands next to each other in a row: values and gates of entries, then those of keys of the
 * indexer. */
#define CORE_ENTRY_PARTS 4

struct core_entries_weights {
    struct device_entries shape;
    struct device_matrix project[CORE_ENTRY_PARTS]; /* without data: the layer has none */
    struct device_matrix index_q, index_weights;    /* without data: nothing is chosen */
    struct device_at bias, norm, index_bias, index_norm;
    struct device_matrix groups; /* of all groups of heads, one below the other */
    uint64_t state_at;           /* floats: its place in the state of a sequence */
};

/* The mixer; the sizes of its layer; its weights, and the floats that it takes of c->vectors;
 * floats of the keys that a row attends to. -1 with *error: the device does not compute what the
 * layers need. */
void core_entries(struct core *c);
void core_entries_sizes(struct core *c, uint32_t i);
void core_bind_entries(struct core *c, uint32_t i, uint64_t *vectors);
size_t core_entries_floats(const struct core *c, uint32_t layer);
size_t core_entries_keys(const struct core *c);
int core_check_entries(const struct core *c, struct error *error);
/* Tables of the experts that tokens use; -1 with *error: most rows of one have experts that are not
 * there, or twice. */
int core_bind_tables(struct core *c, struct error *error);
/* -1 with *error: a table has no right row for a token of the pass. */
int core_check_tokens(const struct core *c, struct error *error);
/* Gives the source what they name for the rows of a pass, before its first layer. */
void core_give_known(struct core *c);

#endif
