/* SPDX-License-Identifier: Apache-2.0 */
/* Derives locations, entries and totals of an index, and hashes its layout. */
#include "lib/model/index/derive.h"

#include <inttypes.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/model/limits.h"
#include "lib/tensor/precision.h"

uint32_t index_layout_hash(void)
{
    static const uint32_t layout[] = {
#define AT(type, field) (uint32_t) offsetof(struct type, field)
        sizeof(struct model_hparams),
        AT(model_hparams, rms_eps),
        AT(model_hparams, tied_output),
        AT(model_hparams, shared_inner),
        AT(model_hparams, dense_inner),
        AT(model_hparams, expert_scale),
        AT(model_hparams, skipped_layers),
        AT(model_hparams, window),
        AT(model_hparams, rope_scaling),
        AT(model_hparams, stream_rank),
        AT(model_hparams, expert_step),
        AT(model_hparams, layer_kind),
        sizeof(struct model_tensor),
        AT(model_tensor, type),
        AT(model_tensor, ne),
        AT(model_tensor, file_offset),
        AT(model_tensor, part),
        sizeof(struct model_extent),
        AT(model_extent, head_bytes),
        AT(model_extent, payload_bytes),
        AT(model_extent, part),
        sizeof(struct model_entry),
        AT(model_entry, extents),
        AT(model_entry, in_store),
        AT(model_entry, checksum_first),
        AT(model_entry, only_stripe),
        AT(model_entry, slot_bytes),
        AT(model_entry, extent),
        AT(model_entry, matrix),
        sizeof(struct model_matrix),
        sizeof(struct model_index),
        AT(model_index, file),
        AT(model_index, hparams),
        AT(model_index, tensor_count),
        AT(model_index, precision_mask),
        AT(model_index, precision_method),
        AT(model_index, stripe_count),
        AT(model_index, part_count),
        AT(model_index, page_count),
        AT(model_index, checksums_offset),
        AT(model_index, tokenizer_offset),
        AT(model_index, template_offset),
        AT(model_index, tools_template_offset),
        AT(model_index, unread_count),
        sizeof(struct model_stripe),
        AT(model_stripe, path),
        AT(model_stripe, mirror),
        AT(model_index, dense_bytes),
        AT(model_index, dense_entry),
        AT(model_index, layer),
        sizeof(struct layer_parts),
#undef AT
        DENSE__COUNT,
        EXPERT__COUNT,
        PRECISION__COUNT,
        PAGE_BYTES,
        MODEL_PAGE_SLOTS,
        MODEL_PAGE_WAYS,
    };
    uint32_t hash = 2166136261u; /* FNV-1a, a 32-bit word at a time */
    for (size_t i = 0; i < ARRAY_LEN(layout); i++)
        hash = (hash ^ layout[i]) * 16777619u;
    return hash;
}

static int locate_tensors(const struct arch *arch, const struct model_hparams *h,
                          const struct model_tensor *tensors, uint32_t count, enum index_kind kind,
                          struct index_derived *d, struct error *error)
{
    for (uint32_t i = 0; i < count; i++) {
        struct arch_location location;
        if (arch_locate_tensor(arch, h, &tensors[i], &location, error))
            return -1;
        if (location.unused)
            continue;
        uint32_t *cell = location.is_expert ? &d->expert_tensor[location.layer][location.role]
                                            : &d->dense_entry[location.layer][location.role];
        if (*cell != ENTRY_NONE)
            return error_set(error, ERR_BAD_INPUT, "tensor %s occurs twice", tensors[i].name);
        if (location.is_expert && kind == INDEX_STORE)
            return error_set(error, ERR_BAD_INPUT,
                             "tensor %s holds experts: those of a store are in its stripes",
                             tensors[i].name);
        if (location.is_expert) {
            *cell = i;
            continue;
        }
        *cell = d->dense_count;
        sl_assert(d->dense_count < DENSE_MAX); /* each cell is set once, and there are DENSE_MAX */
        d->dense_tensor[d->dense_count] = i;
        d->dense_location[d->dense_count] = location;
        d->dense_count++;
    }
    return 0;
}

static int missing(const struct arch *arch, const struct arch_location *location,
                   struct error *error)
{
    char name[MODEL_NAME_BYTES];
    return error_set(error, ERR_BAD_INPUT, "tensor %s is missing",
                     arch_tensor_name(arch, location, name));
}

/* Every matrix must be present once: gate and up separately or together. */
static int check_experts(const struct arch *arch, const struct model_hparams *h, uint32_t layer,
                         const struct index_derived *d, struct error *error)
{
    const uint32_t *tensor = d->expert_tensor[layer];
    for (uint32_t m = 0; m < EXPERT__COUNT; m++) {
        struct arch_location location = {.is_expert = true, .role = m, .layer = layer};
        bool joined = m != EXPERT_DOWN && tensor[EXPERT_GATE_UP] != ENTRY_NONE;
        char name[MODEL_NAME_BYTES];
        if (!hparams_expert_has(h, (enum expert_matrix)m))
            continue;
        if (joined && tensor[m] != ENTRY_NONE)
            return error_set(error, ERR_BAD_INPUT,
                             "tensor %s occurs twice: alone, and in the tensor of gate and up",
                             arch_tensor_name(arch, &location, name));
        if (!joined && tensor[m] == ENTRY_NONE)
            return missing(arch, &location, error);
    }
    return 0;
}

/* A scale belongs to a matrix of its own: not to an embedding that is also the output, and not to
 * half of a tensor. */
static int check_scales(const struct arch *arch, const struct model_hparams *h,
                        const struct index_derived *d, struct error *error)
{
    struct arch_location lonely = {.role = DENSE__COUNT};
    if (d->dense_entry[h->layers][DENSE_OUTPUT] == ENTRY_NONE &&
        d->dense_entry[h->layers][DENSE_OUTPUT_SCALE] != ENTRY_NONE)
        lonely = (struct arch_location){.role = DENSE_OUTPUT_SCALE};
    for (uint32_t layer = 0; layer < h->layers; layer++)
        for (uint32_t m = 0; m < EXPERT_DOWN; m++)
            if (d->expert_tensor[layer][EXPERT_GATE_UP] != ENTRY_NONE &&
                d->dense_entry[layer][DENSE_EXPERT_GATE_SCALES + m] != ENTRY_NONE)
                lonely =
                    (struct arch_location){.role = DENSE_EXPERT_GATE_SCALES + m, .layer = layer};
    for (uint32_t layer = 0; layer < h->layers; layer++)
        for (uint32_t m = 0; m < EXPERT__COUNT; m++)
            if (d->dense_entry[layer][DENSE_SHARED_GATE + m] == ENTRY_NONE &&
                d->dense_entry[layer][DENSE_SHARED_GATE_SCALE + m] != ENTRY_NONE)
                lonely =
                    (struct arch_location){.role = DENSE_SHARED_GATE_SCALE + m, .layer = layer};
    char name[MODEL_NAME_BYTES];
    return lonely.role == DENSE__COUNT ? 0
                                       : error_set(error, ERR_BAD_INPUT, "tensor %s has no matrix",
                                                   arch_tensor_name(arch, &lonely, name));
}

static int check_complete(const struct arch *arch, const struct model_hparams *h,
                          enum index_kind kind, const struct index_derived *d, struct error *error)
{
    for (uint32_t layer = 0; layer <= h->layers; layer++) {
        for (uint32_t role = 0; role < DENSE__COUNT; role++) {
            struct arch_location location = {.role = role, .layer = layer};
            bool global = arch_role_is_global((enum dense_role)role);
            if (global == (layer == h->layers) &&
                (global || arch_layer_has(d->layer[layer], (enum dense_role)role)) &&
                arch_role_required(arch, h, layer, (enum dense_role)role) &&
                d->dense_entry[layer][role] == ENTRY_NONE)
                return missing(arch, &location, error);
        }
        if (layer < h->layers && kind != INDEX_STORE &&
            ffn_has_experts((enum layer_ffn)d->layer[layer].ffn) &&
            check_experts(arch, h, layer, d, error))
            return -1;
    }
    return 0;
}

/* Adds payload bytes [offset, offset + bytes) of the file as the entry's next extent. */
static void add_extent(struct model_entry *e, uint32_t tensor, uint32_t part, uint64_t offset,
                       uint64_t bytes)
{
    sl_assert(e->extents < ENTRY_EXTENTS_MAX);
    uint64_t start = align_down(offset, PAGE_BYTES);
    struct model_extent *x = &e->extent[e->extents++];
    *x = (struct model_extent){
        .file_offset = start,
        .read_bytes = align_up(offset + bytes, PAGE_BYTES) - start,
        .slot_offset = e->slot_bytes,
        .head_bytes = (uint32_t)(offset - start),
        .tensor = tensor,
        .payload_bytes = bytes,
        .part = part,
    };
    e->slot_bytes += x->read_bytes;
    e->payload_bytes += bytes;
}

/* Adds a matrix of an expert. It has a separate extent even if two matrices share a tensor. */
static void add_matrix(const struct index_derived *d, const struct model_hparams *h,
                       const struct model_tensor *tensors, uint32_t m, struct model_entry *e)
{
    uint32_t rows = m == EXPERT_DOWN ? hparams_expert_width(h) : h->expert_inner;
    uint32_t tensor = d->expert_tensor[e->layer][m], extent = e->extents;
    bool joined = tensor == ENTRY_NONE;
    if (joined)
        tensor = d->expert_tensor[e->layer][EXPERT_GATE_UP];
    const struct model_tensor *t = &tensors[tensor];
    uint64_t bytes = t->row_bytes * rows;
    uint64_t offset = t->file_offset + e->expert * t->row_bytes * t->ne[1];
    add_extent(e, tensor, t->part, joined && m == EXPERT_UP ? offset + bytes : offset, bytes);
    e->matrix[m] = (struct model_matrix){
        .type = t->type,
        .k = (uint32_t)t->ne[0],
        .n = rows,
        .row_bytes = t->row_bytes,
        .slot_offset = e->extent[extent].slot_offset + e->extent[extent].head_bytes,
    };
}

void index_entry(const struct index_derived *d, const struct model_hparams *h,
                 const struct model_tensor *tensors, uint32_t i, struct model_entry *e)
{
    sl_assert(i < d->entry_count);
    memset(e, 0, sizeof *e); /* entries are compared as bytes */
    e->precision = PRECISION_NATIVE;
    e->checksum_first = ENTRY_NONE;
    e->in_parts = d->in_parts;
    if (i < d->dense_count) {
        const struct arch_location *location = &d->dense_location[i];
        uint32_t tensor = d->dense_tensor[i];
        e->kind = ENTRY_DENSE;
        e->layer = location->layer == h->layers ? UINT16_MAX : (uint16_t)location->layer;
        e->role = location->role;
        add_extent(e, tensor, tensors[tensor].part, tensors[tensor].file_offset,
                   tensors[tensor].bytes);
        return;
    }
    uint32_t layer = (i - d->dense_count) / h->experts;
    uint32_t expert = (i - d->dense_count) % h->experts;
    e->kind = ENTRY_EXPERT;
    e->layer = (uint16_t)layer;
    e->expert = (uint16_t)expert;
    if (!ffn_has_experts((enum layer_ffn)d->layer[layer].ffn))
        return;
    for (uint32_t m = 0; m < EXPERT__COUNT; m++)
        if (hparams_expert_has(h, (enum expert_matrix)m))
            add_matrix(d, h, tensors, m, e);
}

void index_page_entry(const struct index_derived *d, const struct model_hparams *h,
                      const struct model_tensor *tensors, struct model_entry *e)
{
    sl_assert(d->page_count > 0);
    index_entry(d, h, tensors, d->table, e);
    e->kind = ENTRY_PAGE;
    e->role = 0;
    e->slot_bytes = e->payload_bytes = PAGE_BYTES;
    e->extent[0].read_bytes = e->extent[0].payload_bytes = PAGE_BYTES;
    e->extent[0].head_bytes = 0;
}

/* Bytes of the arena for dense entries and page slots. -1: the table has more pages than
 * numbers. */
static int count_bytes(const struct model_hparams *h, const struct model_tensor *tensors,
                       struct index_derived *d, struct error *error)
{
    struct model_entry e;
    d->table = d->dense_entry[h->layers][DENSE_NGRAM_TABLE];
    for (uint32_t i = 0; i < d->dense_count; i++) {
        index_entry(d, h, tensors, i, &e);
        if (i != d->table) {
            d->dense_bytes += e.slot_bytes;
            continue;
        }
        uint64_t pages = e.slot_bytes / PAGE_BYTES, slots = align_up(pages, MODEL_PAGE_WAYS);
        if (pages >= UINT32_MAX)
            return error_set(error, ERR_BAD_INPUT, "tensor %s is too large",
                             tensors[d->dense_tensor[i]].name);
        d->page_count = (uint32_t)(slots < MODEL_PAGE_SLOTS ? slots : MODEL_PAGE_SLOTS);
        d->dense_bytes += (uint64_t)d->page_count * PAGE_BYTES;
    }
    return 0;
}

int index_derive(const struct arch *arch, const struct model_hparams *h,
                 const struct model_tensor *tensors, uint32_t tensor_count, enum index_kind kind,
                 struct index_derived *d, struct error *error)
{
    memset(d, 0, offsetof(struct index_derived, dense_tensor));
    memset(d->dense_entry, 0xff, sizeof d->dense_entry); /* ENTRY_NONE */
    memset(d->expert_tensor, 0xff, sizeof d->expert_tensor);
    for (uint32_t layer = 0; layer < h->layers; layer++)
        d->layer[layer] = arch_layer_parts(h, layer);
    if (locate_tensors(arch, h, tensors, tensor_count, kind, d, error) ||
        check_complete(arch, h, kind, d, error) || check_scales(arch, h, d, error))
        return -1;
    d->tied_output = d->dense_entry[h->layers][DENSE_OUTPUT] == ENTRY_NONE;
    d->entry_count = d->dense_count;
    d->in_parts = kind == INDEX_SPLIT;
    if (kind != INDEX_STORE)
        d->entry_count += h->layers * h->experts; /* at most 512 * 4096 */
    return count_bytes(h, tensors, d, error);
}

static void total_of(struct model_index *m, const struct model_entry *e, bool *best)
{
    uint32_t precision = e->precision;
    sl_assert(precision < PRECISION__COUNT);
    if (e->slot_bytes > m->expert_slot_bytes_max)
        m->expert_slot_bytes_max = e->slot_bytes;
    if (e->extents == 0) {
        m->absent_count++;
        return;
    }
    m->precision_entries[precision]++;
    m->precision_bytes[precision] += e->payload_bytes;
    m->precision_slot_bytes[precision] += e->slot_bytes;
    if (*best)
        return;
    *best = true;
    m->expert_bytes += e->payload_bytes;
    m->expert_slot_bytes += e->slot_bytes;
}

void index_totals(struct model_index *m, const struct model_entry *entries)
{
    uint32_t grid = m->hparams.layers * m->hparams.experts;
    m->precision_count = m->absent_count = m->expert_entry_count = 0;
    m->expert_bytes = m->expert_slot_bytes = m->expert_slot_bytes_max = 0;
    for (uint32_t t = 0; t < PRECISION__COUNT; t++) {
        bool here = m->precision_mask & 1u << t;
        m->precision_first[t] = here ? m->dense_count + m->precision_count * grid : ENTRY_NONE;
        m->precision_count += here;
        m->precision_entries[t] = 0;
        m->precision_bytes[t] = m->precision_slot_bytes[t] = 0;
    }
    m->expert_entry_count = m->precision_count * grid;
    for (uint32_t number = 0; number < grid; number++) {
        bool best = false;
        for (uint32_t t = 0; t < PRECISION__COUNT; t++)
            if (m->precision_mask & 1u << t)
                total_of(m, &entries[m->precision_first[t] + number], &best);
    }
}
