/* SPDX-License-Identifier: Apache-2.0 */
/* Checks of the experts of a store in a model index, which are input, not derived from tensors.
 * Each entry is checked separately: its position in the grid, its matrices against the model's
 * shapes, its range against every stripe. Overlaps are not checked here, but when the store's table
 * is read (store.h); an overlap could only cause wrong output text. */
#include <inttypes.h>
#include <string.h>

#include "lib/model/gguf/gguf.h"
#include "lib/model/index/derive.h"
#include "lib/model/limits.h"
#include "lib/tensor/precision.h"
#include "lib/tensor/tensor_type.h"

static int bad(struct error *error, uint32_t entry, const char *what)
{
    return error_set(error, ERR_BAD_INPUT, "expert entry %" PRIu32 ": %s", entry, what);
}

static int check_stripes(const struct model_index *m, uint64_t *min_bytes, struct error *error)
{
    if (m->stripe_count == 0 || m->stripe_count > MODEL_STRIPES_MAX)
        return error_set(error, ERR_BAD_INPUT, "%" PRIu32 " stripes: 1 to %d are possible",
                         m->stripe_count, MODEL_STRIPES_MAX);
    *min_bytes = UINT64_MAX;
    for (uint32_t i = 0; i < m->stripe_count; i++) {
        const struct model_stripe *s = &model_index_stripes(m)[i];
        if (!memchr(s->path, 0, sizeof s->path) || s->path[0] != '/')
            return error_set(error, ERR_BAD_INPUT, "stripe %" PRIu32 " has no absolute path", i);
        if (!memchr(s->mirror, 0, sizeof s->mirror) || (s->mirror[0] && s->mirror[0] != '/'))
            return error_set(error, ERR_BAD_INPUT,
                             "the mirror of stripe %" PRIu32 " has no absolute path", i);
        if (s->file.bytes < PAGE_BYTES || s->file.bytes > GGUF_FILE_MAX)
            return error_set(error, ERR_BAD_INPUT, "stripe %" PRIu32 " has an impossible size", i);
        if (s->file.bytes < *min_bytes)
            *min_bytes = s->file.bytes;
    }
    return 0;
}

/* Gate and up map the input to inner elements, down maps these back. */
static bool shape_right(const struct model_hparams *h, enum expert_matrix which,
                        const struct model_matrix *x)
{
    uint32_t width = hparams_expert_width(h);
    uint32_t k = which == EXPERT_DOWN ? h->expert_inner : width;
    uint32_t n = which == EXPERT_DOWN ? width : h->expert_inner;
    uint64_t row_bytes;
    if (!hparams_expert_has(h, which))
        return memcmp(x, &(const struct model_matrix){.n = 0}, sizeof *x) == 0;
    return x->k == k && x->n == n && x->reserved == 0 && tensor_type_computed(x->type) &&
           tensor_type_row_bytes(x->type, k, &row_bytes) && x->row_bytes == row_bytes;
}

/* Matrices must be in order, without overlap, in a slot of minimum size. Absent entries also have
 * matrices, which describe their precision. */
static int check_matrices(const struct model_index *m, uint32_t i, const struct model_entry *e,
                          struct error *error)
{
    uint64_t end = 0, payload = 0;
    for (int which = 0; which < EXPERT__COUNT; which++) {
        const struct model_matrix *x = &e->matrix[which];
        if (!shape_right(&m->hparams, (enum expert_matrix)which, x))
            return bad(error, i, "a matrix of a shape or type that is not the model's");
        if (!hparams_expert_has(&m->hparams, (enum expert_matrix)which))
            continue;
        if (x->slot_offset % MATRIX_ALIGN != 0 || x->slot_offset < end ||
            x->slot_offset > STORE_SLOT_MAX)
            return bad(error, i, "a matrix at a wrong place");
        uint64_t bytes = x->row_bytes * x->n; /* below 2^63 by the limits on shapes */
        if (bytes > STORE_SLOT_MAX)
            return bad(error, i, "a matrix that is too large");
        end = x->slot_offset + bytes;
        payload += bytes;
    }
    if (e->slot_bytes != align_up(end, PAGE_BYTES) || e->slot_bytes > STORE_SLOT_MAX)
        return bad(error, i, "a slot that does not match its matrices");
    if (e->payload_bytes != (e->extents ? payload : 0))
        return bad(error, i, "wrong number of bytes");
    return 0;
}

static int check_range(const struct model_index *m, uint32_t i, const struct model_entry *e,
                       uint64_t stripe_bytes, struct error *error)
{
    static const struct model_extent none[ENTRY_EXTENTS_MAX];
    if (e->extents == 0)
        return memcmp(e->extent, none, sizeof none) != 0 || e->checksum_first != ENTRY_NONE
                   ? bad(error, i, "absent, but with an offset")
                   : 0;
    const struct model_extent *x = &e->extent[0];
    if (e->extents != 1 || memcmp(x + 1, none, sizeof none - sizeof *x) != 0)
        return bad(error, i, "not in one piece");
    if (x->read_bytes != e->slot_bytes || x->payload_bytes != e->payload_bytes ||
        x->slot_offset != 0 || x->head_bytes != 0 || x->tensor != ENTRY_NONE)
        return bad(error, i, "an extent that is not its slot");
    uint32_t over = e->only_stripe ? 1 : m->stripe_count;
    uint64_t bytes = model_stripe_pages(e->slot_bytes / PAGE_BYTES, over) * PAGE_BYTES;
    if (x->file_offset % PAGE_BYTES != 0 || x->file_offset < PAGE_BYTES ||
        x->file_offset > stripe_bytes || bytes > stripe_bytes - x->file_offset)
        return bad(error, i, "outside its stripes");
    if (e->checksum_first != ENTRY_NONE &&
        (e->checksum_first > m->checksum_count ||
         m->stripe_count > m->checksum_count - e->checksum_first))
        return bad(error, i, "checksums that are not there");
    return 0;
}

/* The expected only_stripe of expert `number`. All experts have the layout of the first one. */
static uint32_t only_stripe(const struct model_index *m, uint32_t number)
{
    uint32_t layer = number / m->hparams.experts, expert = number % m->hparams.experts;
    bool spread = m->part_count > 0 || model_index_entries(m)[m->dense_count].only_stripe != 0;
    return spread ? 1 + (layer + expert) % m->stripe_count : 0;
}

/* Checks the grid of one precision, from entry `first` on. */
static int check_precision(const struct model_index *m, enum precision precision, uint32_t first,
                           uint64_t stripe_bytes, struct error *error)
{
    uint32_t grid = m->hparams.layers * m->hparams.experts;
    for (uint32_t number = 0; number < grid; number++) {
        uint32_t i = first + number;
        const struct model_entry *e = &model_index_entries(m)[i];
        if (e->kind != ENTRY_EXPERT || e->precision != precision || e->in_store != 1 ||
            e->role != 0 || e->layer != number / m->hparams.experts ||
            e->expert != number % m->hparams.experts || e->only_stripe != only_stripe(m, number) ||
            (e->extents != 0 && !model_layer_has_experts(m, e->layer)) || e->in_parts != 0 ||
            e->extent[0].part != 0 || e->extent[0].reserved != 0)
            return bad(error, i, "not the one that belongs here");
        if (check_matrices(m, i, e, error) || check_range(m, i, e, stripe_bytes, error))
            return -1;
    }
    return 0;
}

/* ---- native experts of a delta, in its model file ---- */

static bool extent_right(const struct model_index *m, const struct model_extent *x,
                         const struct model_matrix *matrix, uint64_t slot_offset)
{
    uint64_t bytes = matrix->row_bytes * matrix->n;
    if (x->part < m->stripe_count || x->part >= m->stripe_count + m->part_count ||
        x->head_bytes >= PAGE_BYTES || x->file_offset % PAGE_BYTES != 0 || bytes > STORE_SLOT_MAX)
        return false;
    uint64_t file = model_index_stripes(m)[x->part].file.bytes, end = x->head_bytes + bytes;
    return x->slot_offset == slot_offset && x->payload_bytes == bytes &&
           x->read_bytes == align_up(end, PAGE_BYTES) && x->tensor == ENTRY_NONE &&
           x->reserved == 0 && x->file_offset <= file && end <= file - x->file_offset &&
           matrix->slot_offset == slot_offset + x->head_bytes;
}

static int check_base_entry(const struct model_index *m, uint32_t i, const struct model_entry *e,
                            struct error *error)
{
    struct model_entry right = {.kind = ENTRY_EXPERT,
                                .precision = PRECISION_NATIVE,
                                .layer = e->layer,
                                .expert = e->expert,
                                .checksum_first = ENTRY_NONE,
                                .in_parts = 1};
    bool there = model_layer_has_experts(m, e->layer);
    if (there)
        memcpy(right.matrix, e->matrix, sizeof right.matrix);
    for (int which = 0; there && which < EXPERT__COUNT; which++) {
        const struct model_extent *x = &e->extent[right.extents];
        const struct model_matrix *matrix = &e->matrix[which];
        bool absent = !hparams_expert_has(&m->hparams, (enum expert_matrix)which);
        if (!shape_right(&m->hparams, (enum expert_matrix)which, matrix) ||
            (!absent && !extent_right(m, x, matrix, right.slot_bytes)))
            return bad(error, i, "not where its model file can have it");
        if (absent)
            continue;
        right.extent[right.extents++] = *x;
        right.slot_bytes += x->read_bytes;
        right.payload_bytes += x->payload_bytes;
    }
    return memcmp(&right, e, sizeof right) != 0 ? bad(error, i, "not one of the model file") : 0;
}

static int check_base(const struct model_index *m, uint32_t first, struct error *error)
{
    uint32_t grid = m->hparams.layers * m->hparams.experts;
    for (uint32_t number = 0; number < grid; number++) {
        const struct model_entry *e = &model_index_entries(m)[first + number];
        if (e->layer != number / m->hparams.experts || e->expert != number % m->hparams.experts)
            return bad(error, first + number, "not the one that belongs here");
        if (check_base_entry(m, first + number, e, error))
            return -1;
    }
    return 0;
}

static int check_somewhere(const struct model_index *m, struct error *error)
{
    uint32_t grid = m->hparams.layers * m->hparams.experts;
    for (uint32_t number = 0; number < grid; number++) {
        bool there = !model_layer_has_experts(m, number / m->hparams.experts);
        for (uint32_t i = m->dense_count + number; i < model_experts_end(m) && !there; i += grid)
            there = model_index_entries(m)[i].extents != 0;
        if (!there)
            return error_set(error, ERR_BAD_INPUT,
                             "expert %" PRIu32 " of layer %" PRIu32 " has no precision",
                             number % m->hparams.experts, number / m->hparams.experts);
    }
    return 0;
}

int index_experts_check(const struct model_index *m, struct error *error)
{
    uint64_t stripe_bytes = 0;
    uint32_t first = m->dense_count, grid = m->hparams.layers * m->hparams.experts;
    if (check_stripes(m, &stripe_bytes, error))
        return -1;
    if (m->part_count > 0 && !(m->precision_mask & 1u << PRECISION_NATIVE))
        return error_set(error, ERR_BAD_INPUT, "a model file without experts");
    for (int precision = 0; precision < PRECISION__COUNT; precision++) {
        if (!(m->precision_mask & 1u << precision))
            continue;
        bool base = m->part_count > 0 && precision == PRECISION_NATIVE;
        if (base ? check_base(m, first, error)
                 : check_precision(m, (enum precision)precision, first, stripe_bytes, error))
            return -1;
        first += grid;
    }
    return check_somewhere(m, error);
}
