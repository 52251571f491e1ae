/* Writer of expert stores (format: store.h), for who packs one. In order:
 *
 *   1. fill a struct store_manifest: arch, layers, experts, layout, stripe paths, tiers, groups
 * with the types, k and n of their matrices; store_group_layout for every group
 *   2. store_table_new: every expert's place in the stripes, and the stripes' sizes
 *   3. model.gguf -> model_hash; store_make_id; the head of every stripe
 *   4. the experts' bytes into the stripes, their checksums into the table
 *   5. store_write_entries, then store_write_manifest: only now it is a store
 *
 * Everything that is written follows from the manifest's fields: the same model with the same
 * options gives the same bytes. */
#ifndef SLUICE_MODEL_STORE_WRITE_H
#define SLUICE_MODEL_STORE_WRITE_H

#include "lib/model/store/store.h"

/* A new table (caller frees) in which every expert of every tier has its offset and no checksum
 * yet: tier by tier, layer by layer. Sets the size of the stripes and entries_bytes. NULL: no
 * memory. The head's id is set by store_write_entries. */
void *store_table_new(struct store_manifest *manifest);

/* Record of an expert in a table being made: offset, then a checksum per stripe. */
static inline uint64_t *store_table_record(const struct store_manifest *m, void *table,
                                           uint32_t precision, uint32_t layer, uint32_t expert)
{
    return (uint64_t *)(uintptr_t)store_record(m, table, precision, layer, expert);
}

/* id from model_hash, source_hash, tiers, types, layout and the number of stripes. */
void store_make_id(struct store_manifest *manifest);

/* Page 0 of a stripe file. */
void store_stripe_page(const struct store_manifest *manifest, uint32_t stripe,
                       unsigned char page[PAGE_BYTES]);

/* entries.bin, written under another name and renamed; sets entries_xxh3. The directory is open at dir_fd. */
int store_write_entries(int dir_fd, struct store_manifest *manifest, void *table,
                        struct error *error);

/* manifest.json, likewise; info: a JSON object as text, or NULL. */
int store_write_manifest(int dir_fd, const struct store_manifest *manifest, const char *info,
                         struct error *error);

#endif
