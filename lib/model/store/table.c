/* SPDX-License-Identifier: Apache-2.0 */
/* The table of a store's entries: checks it against the manifest, and converts it to entries of the
 * index. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "lib/base/assert.h"
#include "lib/model/store/store.h"

static int check_head(const struct store_manifest *m, const void *table, struct error *error)
{
    const struct store_entries_head *h = table;
    uint64_t count = (uint64_t)m->precision_count * m->layers * m->experts;
    if (h->magic != STORE_ENTRIES_MAGIC || h->version != STORE_VERSION)
        return error_set(error, ERR_BAD_INPUT, "not a table of entries of version %u",
                         STORE_VERSION);
    if (memcmp(h->id, m->id, sizeof h->id) != 0)
        return error_set(error, ERR_BAD_INPUT, "belongs to another store than the manifest");
    if (h->stripes != m->stripe_count || h->layers != m->layers || h->experts != m->experts ||
        h->precision_mask != m->precision_mask || h->count != count || h->reserved != 0 ||
        h->unused != 0)
        return error_set(error, ERR_BAD_INPUT, "its counts are not the manifest's");
    return 0;
}

struct range {
    uint64_t offset, end;
    uint32_t stripe; /* 0 in the layout "striped": the same range in all stripes */
};

static int by_stripe_and_offset(const void *a, const void *b)
{
    const struct range *x = a, *y = b;
    if (x->stripe != y->stripe)
        return x->stripe < y->stripe ? -1 : 1;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

/* Checks that shards without pages have checksum 0. So a table is not accepted for the other
 * layout. */
static bool sums_fit(const struct store_manifest *m, uint32_t layer, uint32_t expert,
                     uint64_t pages, const uint64_t *sums)
{
    uint64_t each = store_shard_pages(m, pages);
    uint32_t first_stripe = store_first_stripe(m, layer, expert);
    for (uint32_t s = 0; s < m->stripe_count; s++)
        if ((s < first_stripe || (s - first_stripe) * each >= pages) && sums[s] != 0)
            return false;
    return true;
}

/* Fills the ranges of all present entries; returns their number, or -1. */
static int64_t take_ranges(const struct store_manifest *m, const void *table, struct range *ranges,
                           struct error *error)
{
    int64_t count = 0;
    for (uint32_t t = 0; t < m->precision_count; t++) {
        for (uint32_t i = 0; i < m->layers * m->experts; i++) {
            uint32_t layer = i / m->experts, expert = i % m->experts;
            const uint64_t *record = store_record(m, table, t, layer, expert);
            uint64_t offset = record[0];
            if (offset == STORE_ABSENT)
                continue;
            uint64_t pages = store_group_of(m, t, layer)->slot_pages;
            uint64_t bytes = store_shard_pages(m, pages) * PAGE_BYTES;
            if (offset % PAGE_BYTES != 0 || offset < PAGE_BYTES || offset > m->stripe[0].bytes ||
                bytes > m->stripe[0].bytes - offset)
                return error_set(error, ERR_BAD_INPUT,
                                 "expert %" PRIu32 " of layer %" PRIu32 " (%s) is at %" PRIu64
                                 ": outside its stripe",
                                 expert, layer, precision_name(m->precision[t].precision), offset);
            if (!sums_fit(m, layer, expert, pages, record + 1))
                return error_set(error, ERR_BAD_INPUT,
                                 "expert %" PRIu32 " of layer %" PRIu32 " (%s) has a checksum for "
                                 "a part without pages",
                                 expert, layer, precision_name(m->precision[t].precision));
            ranges[count++] =
                (struct range){offset, offset + bytes, store_first_stripe(m, layer, expert)};
        }
    }
    return count;
}

static int check_ranges(const struct store_manifest *m, const void *table, struct error *error)
{
    uint64_t capacity = (uint64_t)m->precision_count * m->layers * m->experts;
    struct range *ranges = reallocarray(NULL, capacity, sizeof *ranges);
    if (!ranges)
        return error_set(error, ERR_NO_MEMORY, "out of memory (%" PRIu64 " entries)", capacity);
    int64_t count = take_ranges(m, table, ranges, error);
    int status = count < 0 ? -1 : 0;
    if (count > 0)
        qsort(ranges, (size_t)count, sizeof *ranges, by_stripe_and_offset);
    for (int64_t i = 1; i < count && status == 0; i++)
        if (ranges[i].stripe == ranges[i - 1].stripe && ranges[i].offset < ranges[i - 1].end)
            status = error_set(error, ERR_BAD_INPUT, "two experts share the bytes at %" PRIu64,
                               ranges[i].offset);
    free(ranges);
    return status;
}

static bool is_somewhere(const struct store_manifest *m, const void *table, uint32_t layer,
                         uint32_t expert)
{
    for (uint32_t t = 0; t < m->precision_count; t++)
        if (store_record(m, table, t, layer, expert)[0] != STORE_ABSENT)
            return true;
    return false;
}

/* The model determines which layers have experts: index_experts_check compares. */
static int check_somewhere(const struct store_manifest *m, const void *table, struct error *error)
{
    for (uint32_t layer = 0; layer < m->layers; layer++) {
        uint32_t there = 0, missing = 0;
        for (uint32_t expert = 0; expert < m->experts; expert++)
            if (is_somewhere(m, table, layer, expert))
                there++;
            else
                missing = expert;
        if (there > 0 && there < m->experts)
            return error_set(error, ERR_BAD_INPUT,
                             "expert %" PRIu32 " of layer %" PRIu32 " has no precision", missing,
                             layer);
    }
    return 0;
}

int store_entries_check(const struct store_manifest *m, const void *table, uint64_t bytes,
                        struct error *error)
{
    sl_assert((uintptr_t)table % sizeof(uint64_t) == 0);
    if (bytes != store_entries_bytes(m))
        return error_set(error, ERR_BAD_INPUT, "%" PRIu64 " bytes, in the manifest %" PRIu64, bytes,
                         store_entries_bytes(m));
    if (XXH3_64bits(table, bytes) != m->entries_xxh3)
        return error_set(error, ERR_BAD_INPUT, "damaged: its checksum is not the manifest's");
    return check_head(m, table, error) || check_ranges(m, table, error) ||
                   (!m->base_path[0] && check_somewhere(m, table, error))
               ? -1
               : 0;
}

static void make_entry(const struct store_manifest *m, uint32_t precision, uint32_t number,
                       const uint64_t *record, struct model_entry *e)
{
    const struct store_group *g = store_group_of(m, precision, number / m->experts);
    memset(e, 0, sizeof *e);
    e->kind = ENTRY_EXPERT;
    e->precision = (uint16_t)m->precision[precision].precision;
    e->layer = (uint16_t)(number / m->experts);
    e->expert = (uint16_t)(number % m->experts);
    e->in_store = 1;
    e->checksum_first = ENTRY_NONE;
    if (m->layout == STORE_SPREAD)
        e->only_stripe = 1 + store_stripe_of(m, e->layer, e->expert);
    e->slot_bytes = g->slot_pages * PAGE_BYTES;
    memcpy(e->matrix, g->matrix, sizeof e->matrix);
    if (record[0] == STORE_ABSENT)
        return;
    e->extents = 1;
    e->payload_bytes = g->payload_bytes;
    e->extent[0] = (struct model_extent){.file_offset = record[0],
                                         .read_bytes = e->slot_bytes,
                                         .tensor = ENTRY_NONE,
                                         .payload_bytes = g->payload_bytes};
}

void store_entries_make(const struct store_manifest *m, const void *table,
                        struct model_entry *entries, uint64_t *checksums)
{
    uint32_t at = 0;
    for (uint32_t t = 0; t < m->precision_count; t++) {
        for (uint32_t number = 0; number < m->layers * m->experts; number++, at++) {
            const uint64_t *record =
                store_record(m, table, t, number / m->experts, number % m->experts);
            make_entry(m, t, number, record, &entries[at]);
            if (entries[at].extents != 0)
                entries[at].checksum_first = at * m->stripe_count;
            memcpy(&checksums[(uint64_t)at * m->stripe_count], &record[1],
                   m->stripe_count * sizeof *checksums);
        }
    }
}
