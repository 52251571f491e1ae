/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: the manifest of a store and its table of entries. For any bytes, reading them
 * succeeds or fails with an error; accepted experts pass the check of the index.
 *
 * Input: flags (1 byte), length of the manifest (3 bytes, little-endian), the manifest, the table.
 * Flag 1: the table is repeated or cut to the expected length and gets a valid header, so that its
 * records are checked. The checksum is always corrected. A delta gets native experts in a model
 * file; flag 2: the last four bytes of the input (offset, value) change one byte of these. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "lib/base/assert.h"
#include "lib/model/index/derive.h"
#include "lib/model/limits.h"
#include "lib/model/store/store.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define TABLE_MAX (256 * KIB)

static void make_head(const struct store_manifest *m, void *table)
{
    struct store_entries_head head = {.magic = STORE_ENTRIES_MAGIC,
                                      .version = STORE_VERSION,
                                      .stripes = m->stripe_count,
                                      .layers = m->layers,
                                      .experts = m->experts,
                                      .precision_mask = m->precision_mask};
    head.count = (uint64_t)m->precision_count * m->layers * m->experts;
    memcpy(head.id, m->id, sizeof head.id);
    memcpy(table, &head, sizeof head);
}

/* The index has one shape for all experts; a manifest can have any. */
static bool one_shape(const struct store_manifest *m, uint32_t hidden, uint32_t inner)
{
    for (uint32_t i = 0; i < m->group_count; i++) {
        const struct model_matrix *x = m->groups[i].matrix;
        for (int k = 0; k < EXPERT__COUNT; k++)
            if (x[k].k != (k == EXPERT_DOWN ? inner : hidden) ||
                x[k].n != (k == EXPERT_DOWN ? hidden : inner))
                return false;
    }
    return true;
}

/* The native experts of a delta, one after the other in the file after the stripes, in the types of
 * its first group. */
static uint64_t make_base(const struct store_manifest *m, struct model_entry *entries)
{
    uint64_t end = 0;
    for (uint32_t i = 0; i < m->layers * m->experts; i++) {
        struct model_entry *e = &entries[i];
        *e = (struct model_entry){.kind = ENTRY_EXPERT,
                                  .precision = PRECISION_NATIVE,
                                  .layer = (uint16_t)(i / m->experts),
                                  .expert = (uint16_t)(i % m->experts),
                                  .extents = EXPERT__COUNT,
                                  .checksum_first = ENTRY_NONE,
                                  .in_parts = 1};
        memcpy(e->matrix, m->groups[0].matrix, sizeof e->matrix);
        for (int k = 0; k < EXPERT__COUNT; k++) {
            struct model_extent *x = &e->extent[k];
            uint64_t bytes = e->matrix[k].row_bytes * e->matrix[k].n;
            *x = (struct model_extent){.file_offset = end / PAGE_BYTES * PAGE_BYTES,
                                       .slot_offset = e->slot_bytes,
                                       .head_bytes = end % PAGE_BYTES,
                                       .tensor = ENTRY_NONE,
                                       .payload_bytes = bytes,
                                       .part = m->stripe_count};
            x->read_bytes = align_up(x->head_bytes + bytes, PAGE_BYTES);
            e->matrix[k].slot_offset = e->slot_bytes + x->head_bytes;
            e->slot_bytes += x->read_bytes;
            e->payload_bytes += bytes;
            end += bytes;
        }
    }
    return end;
}

/* True: a byte was changed. */
static bool damage(const uint8_t *data, size_t size, struct model_entry *entries, uint32_t count)
{
    if (size < 4 || !(data[0] & 2) || data[size - 1] == 0)
        return false;
    const uint8_t *at = data + size - 4;
    size_t offset = at[0] | (size_t)at[1] << 8 | (size_t)at[2] << 16;
    ((uint8_t *)entries)[offset % (count * sizeof *entries)] ^= at[3];
    return true;
}

static void check_files(const struct store_manifest *m, const struct model_index *index,
                        uint64_t base_bytes)
{
    struct model_stripe *stripes = (void *)((char *)index + index->stripes_offset);
    for (uint32_t i = 0; i < m->stripe_count + index->part_count; i++) {
        stripes[i].path[0] = '/';
        stripes[i].file.bytes = i < m->stripe_count ? m->stripe[i].bytes : base_bytes;
    }
}

/* An index that has only these experts. */
static void check_in_index(const struct store_manifest *m, const void *table, const uint8_t *data,
                           size_t size)
{
    bool delta = m->base_path[0] != 0;
    uint32_t grid = m->layers * m->experts, count = m->precision_count * grid,
             base = delta ? grid : 0;
    uint64_t bytes = sizeof(struct model_index) + (base + count) * sizeof(struct model_entry) +
                     MODEL_STRIPES_MAX * sizeof(struct model_stripe) +
                     (uint64_t)count * m->stripe_count * sizeof(uint64_t);
    struct model_index *index = calloc(1, bytes);
    sl_assert(index);
    index->hparams.layers = m->layers;
    index->hparams.experts = m->experts;
    index->hparams.hidden = m->groups[0].matrix[EXPERT_GATE].k;
    index->hparams.expert_inner = m->groups[0].matrix[EXPERT_GATE].n;
    index->entry_count = base + count;
    index->precision_mask = m->precision_mask | (delta ? 1u << PRECISION_NATIVE : 0);
    index->stripe_count = m->stripe_count;
    index->part_count = delta;
    index->checksum_count = (uint64_t)count * m->stripe_count;
    index->stripes_offset = sizeof *index;
    index->entries_offset = index->stripes_offset + MODEL_STRIPES_MAX * sizeof(struct model_stripe);
    index->checksums_offset = index->entries_offset + (base + count) * sizeof(struct model_entry);
    struct model_entry *entries = (void *)((char *)index + index->entries_offset);
    store_entries_make(m, table, entries + base, (void *)((char *)index + index->checksums_offset));
    /* A model whose layers have experts where the store has them. */
    memset(index->hparams.layer_ffn, FFN_DENSE, sizeof index->hparams.layer_ffn);
    for (uint32_t i = base; i < base + count; i++)
        if (delta || entries[i].extents != 0)
            index->hparams.layer_ffn[entries[i].layer] = FFN_EXPERTS;
    check_files(m, index, delta ? make_base(m, entries) : 0);
    index_totals(index, entries);
    bool damaged = delta && damage(data, size, entries, base);
    struct error error = {0};
    int right = index_experts_check(index, &error);
    bool shaped = one_shape(m, index->hparams.hidden, index->hparams.expert_inner);
    sl_assert(right == 0 || error.text[0]);
    if (!shaped && !damaged)
        sl_assert(right == -1);
    if (shaped && !delta) /* a delta's file may be larger than a file can be */
        sl_assert(right == 0);
    free(index);
}

static void try_table(struct store_manifest *m, const uint8_t *data, size_t size,
                      const uint8_t *input, size_t input_bytes)
{
    bool made = input[0] & 1;
    uint64_t bytes = made ? store_entries_bytes(m) : size;
    if (bytes > TABLE_MAX || (made && size == 0))
        return;
    uint64_t *table = malloc(bytes + 8);
    sl_assert(table);
    for (uint64_t at = 0; at < bytes; at += size)
        memcpy((char *)table + at, data, size < bytes - at ? size : bytes - at);
    if (made)
        make_head(m, table);
    m->entries_xxh3 = XXH3_64bits(table, bytes);
    struct error error = {0};
    if (store_entries_check(m, table, bytes, &error))
        sl_assert(error.code != ERR_NONE && error.text[0] && !strchr(error.text, '\n'));
    else
        check_in_index(m, table, input, input_bytes);
    free(table);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct store_manifest m;
    struct error error = {0};
    if (size < 4)
        return 0;
    size_t text = data[1] | (size_t)data[2] << 8 | (size_t)data[3] << 16;
    if (text > size - 4)
        text = size - 4;
    if (store_manifest_parse((const char *)data + 4, text, &m, &error)) {
        sl_assert(error.code != ERR_NONE && error.text[0] && !strchr(error.text, '\n'));
        return 0;
    }
    try_table(&m, data + 4 + text, size - 4 - text, data, size);
    store_manifest_free(&m);
    return 0;
}
