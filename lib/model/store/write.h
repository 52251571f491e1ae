/* SPDX-License-Identifier: Apache-2.0 */
/* Writer of expert stores (format: store.h). Steps of the caller, in this order:
 *
 *  1. fill a struct store_manifest: arch, layers, experts, layout, stripe paths, precisions, groups
 *      with the types, k and n of their matrices; store_group_layout for every group
 *   2. store_table_new: computes the offset of every expert and the size of the stripes
 *   3. write model.gguf, set model_hash and source_hash; store_make_id; page 0 of every stripe
 *   4. write the experts to the stripes, and their checksums to the table
 *   5. store_write_entries, then store_write_manifest, which completes the store
 *
 * The output is deterministic: the same model with the same options gives the same bytes. */
#ifndef SLUICE_MODEL_STORE_WRITE_H
#define SLUICE_MODEL_STORE_WRITE_H

#include "lib/model/store/store.h"

/* Makes a table with the offset of every expert at every precision, in the order of the records,
 * and checksums of 0; the caller frees it. Sets the size of the stripes and entries_bytes. NULL
 * when memory is short. store_write_entries sets the table's header. */
void *store_table_new(struct store_manifest *manifest);

/* store_record for a table that is being written. */
static inline uint64_t *store_table_record(const struct store_manifest *m, void *table,
                                           uint32_t precision, uint32_t layer, uint32_t expert)
{
    return (uint64_t *)(uintptr_t)store_record(m, table, precision, layer, expert);
}

/* Whether the stripes have this expert at manifest->precision[precision]. */
static inline bool store_writes(const struct store_manifest *m, uint32_t precision, uint32_t layer,
                                uint32_t expert)
{
    return !store_group_of(m, precision, layer)->absent &&
           (!m->chosen ||
            m->chosen[layer * m->experts + expert] == m->precision[precision].precision);
}

/* Sets id from model_hash, source_hash, precisions, types, layout and the number of stripes. */
void store_make_id(struct store_manifest *manifest);

/* Fills page 0 of a stripe file. */
void store_stripe_page(const struct store_manifest *manifest, uint32_t stripe,
                       unsigned char page[PAGE_BYTES]);

/* Writes entries.bin in the directory open at dir_fd, under a temporary name that is then renamed;
 * sets entries_xxh3. 0, or -1 with an error. */
int store_write_entries(int dir_fd, struct store_manifest *manifest, void *table,
                        struct error *error);

/* Writes manifest.json in the same directory, also under a temporary name first. info: a JSON
 * object as text, or NULL. 0, or -1 with an error. */
int store_write_manifest(int dir_fd, const struct store_manifest *manifest, const char *info,
                         struct error *error);

#endif
