/* SPDX-License-Identifier: Apache-2.0 */
/* model_index_check: the blob is untrusted. Header fields are compared with values that follow from
 * the counts; tensors get the same checks as in the GGUF reader; everything else is derived again
 * and compared. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "lib/model/chat/format.h"
#include "lib/model/index/derive.h"
#include "lib/model/index/model_index.h"
#include "lib/model/limits.h"
#include "lib/model/tokenizer/blob.h"
#include "lib/tensor/precision.h"
#include "lib/tensor/quant_method.h"
#include "lib/tensor/tensor_type.h"
#include "lib/text/printable.h"

static int bad(struct error *error, const char *what)
{
    return error_set(error, ERR_BAD_INPUT, "model index: %s", what);
}

static bool terminated(const char *text, size_t cap)
{
    return memchr(text, 0, cap) != NULL;
}

/* True for lines that printable() made, each with its end, and zeros after them. */
static bool lines_are_printable(const char *text, size_t cap)
{
    size_t n = strnlen(text, cap);
    for (size_t at = 0, bytes; at < n; at += bytes + 1) {
        const char *end = memchr(text + at, '\n', n - at);
        bytes = end ? (size_t)(end - (text + at)) : 0;
        struct printable line = printable(text + at, bytes);
        if (!end || strlen(line.text) != bytes || memcmp(line.text, text + at, bytes) != 0)
            return false;
    }
    for (size_t i = n; i < cap; i++)
        if (text[i] != 0)
            return false;
    return n < cap;
}

/* True if the part [offset, offset + count * each) starts where the previous one ends (aligned),
 * and is inside the blob. */
static bool part_follows(uint64_t *end, uint64_t offset, uint64_t count, uint64_t each,
                         uint64_t bytes)
{
    uint64_t size;
    if (offset != align_up(*end, 64) || mul_overflows(count, each, &size) ||
        add_overflows(offset, size, end))
        return false;
    return *end <= bytes;
}

static int check_header(const struct model_index *m, uint64_t bytes, struct error *error)
{
    if (bytes < sizeof *m || (uintptr_t)m % _Alignof(struct model_index) != 0)
        return bad(error, "too short, or not aligned");
    if (m->magic != MODEL_INDEX_MAGIC)
        return bad(error, "wrong magic");
    if (m->version != MODEL_INDEX_VERSION || m->layout_hash != index_layout_hash())
        return bad(error, "made by another version of sluice");
    if (m->bytes > bytes)
        return bad(error, "it is truncated");
    if (!terminated(m->arch, sizeof m->arch) || !terminated(m->name, sizeof m->name) ||
        !terminated(m->chat.bos, sizeof m->chat.bos) ||
        !terminated(m->chat.eos, sizeof m->chat.eos) ||
        !terminated(m->chat.gap[0], CHAT_TOKEN_BYTES) ||
        !terminated(m->chat.gap[1], CHAT_TOKEN_BYTES) ||
        !terminated(m->chat.gap[2], CHAT_TOKEN_BYTES) || m->chat.family >= CHAT__COUNT ||
        m->chat.bos_first > 1 || m->chat.bos_added > 1)
        return bad(error, "an unterminated name");
    if (!lines_are_printable(m->unread, sizeof m->unread))
        return bad(error, "a name of a key that is no text");
    if (m->file.bytes > GGUF_FILE_MAX)
        return bad(error, "an impossible file size");
    if ((m->part_count == 1 && m->stripe_count == 0) || m->part_count > MODEL_PARTS_MAX ||
        (m->part_count > 0 && m->stripe_count > 1))
        return bad(error, "an impossible number of parts");
    uint64_t end = sizeof *m;
    if (!part_follows(&end, m->tensors_offset, m->tensor_count, sizeof(struct model_tensor),
                      m->bytes) ||
        !part_follows(&end, m->entries_offset, m->entry_count, sizeof(struct model_entry),
                      m->bytes) ||
        !part_follows(&end, m->checksums_offset, m->checksum_count, sizeof(uint64_t), m->bytes) ||
        !part_follows(&end, m->stripes_offset, (uint64_t)m->stripe_count + m->part_count,
                      sizeof(struct model_stripe), m->bytes) ||
        !part_follows(&end, m->tokenizer_offset, m->tokenizer_bytes, 1, m->bytes) ||
        !part_follows(&end, m->template_offset, m->template_bytes, 1, m->bytes) ||
        !part_follows(&end, m->tools_template_offset, m->tools_template_bytes, 1, m->bytes) ||
        m->template_bytes > CHAT_TEMPLATE_BYTES_MAX ||
        m->tools_template_bytes > CHAT_TEMPLATE_BYTES_MAX - m->template_bytes ||
        align_up(end, 64) != m->bytes)
        return bad(error, "parts do not fit its size");
    return 0;
}

/* Of a split model, or of the model of a delta. */
static int check_parts(const struct model_index *m, struct error *error)
{
    if (m->stripe_count > 0 && m->part_count + m->stripe_count > MODEL_STRIPES_MAX)
        return bad(error, "too many parts");
    for (uint32_t i = 0; i < m->part_count; i++) {
        const struct model_stripe *s = &model_index_stripes(m)[m->stripe_count + i];
        if (!terminated(s->path, sizeof s->path) || s->path[0] == 0 || s->mirror[0] != 0 ||
            s->file.bytes > GGUF_FILE_MAX)
            return bad(error, "a part without a path, or of impossible size");
        if (m->stripe_count > 0 && s->path[0] != '/')
            return bad(error, "the model file of a delta without an absolute path");
    }
    return m->part_count > 0 && m->stripe_count == 0 &&
                   memcmp(&model_index_stripes(m)->file, &m->file, sizeof m->file) != 0
               ? bad(error, "another first part")
               : 0;
}

/* Tensors are in the order of their parts, and of offsets inside each: *before is the previous
 * one. */
static int check_tensor(const struct model_index *m, const struct model_tensor *t,
                        const struct model_tensor **before, struct error *error)
{
    if (!terminated(t->name, sizeof t->name))
        return bad(error, "an unterminated tensor name");
    if (!tensor_type_computed(t->type) || t->dims == 0 || t->dims > ARRAY_LEN(t->ne))
        return bad(error, "a tensor of unknown type or shape");
    uint64_t rows = 1, row_bytes, bytes;
    for (size_t d = 0; d < ARRAY_LEN(t->ne); d++)
        if (t->ne[d] == 0 || t->ne[d] > INT64_MAX || (d >= t->dims && t->ne[d] != 1) ||
            (d > 0 && mul_overflows(rows, t->ne[d], &rows)))
            return bad(error, "a tensor of impossible shape");
    if (!tensor_type_row_bytes(t->type, t->ne[0], &row_bytes) || row_bytes != t->row_bytes ||
        mul_overflows(row_bytes, rows, &bytes) || bytes != t->bytes)
        return bad(error, "a tensor of wrong size");
    uint32_t parts = m->stripe_count > 0 ? 0 : m->part_count;
    if (t->integers > (t->type == TENSOR_F32) || (t->part > 0 && t->part >= parts))
        return bad(error, "a tensor in no part");
    uint64_t file = parts > 0 ? model_index_stripes(m)[t->part].file.bytes : m->file.bytes;
    const struct model_tensor *b = *before;
    if (b && b->part > t->part)
        return bad(error, "a tensor out of order");
    uint64_t min_offset = b && b->part == t->part ? b->file_offset + b->bytes : 0;
    if (t->file_offset < min_offset || t->file_offset > file || bytes > file - t->file_offset)
        return bad(error, "a tensor outside the file or over another");
    *before = t;
    return 0;
}

/* Computes the counts and sums over entries again, in a copy of the header, and compares them. */
static int check_totals(const struct model_index *m, struct error *error)
{
    struct model_index again;
    memcpy(&again, m, sizeof again);
    index_totals(&again, model_index_entries(m));
    return memcmp(&again, m, sizeof again) != 0 ? bad(error, "wrong totals") : 0;
}

static int check_derived(const struct model_index *m, const struct index_derived *d,
                         struct error *error)
{
    uint64_t grid = (uint64_t)m->hparams.layers * m->hparams.experts;
    uint64_t precisions = (uint64_t)__builtin_popcount(m->precision_mask);
    if (m->precision_mask == 0 || m->precision_mask >> PRECISION__COUNT != 0)
        return bad(error, "unknown precisions");
    for (uint32_t t = 0; t < PRECISION__COUNT; t++)
        if (m->precision_method[t] >= QUANT_METHOD__COUNT ||
            (m->precision_method[t] != QUANT_COPY && !(m->precision_mask & 1u << t)))
            return bad(error, "unknown quantisation method");
    if (m->hparams.tied_output != d->tied_output || m->dense_count != d->dense_count ||
        m->page_count != d->page_count ||
        m->entry_count != m->dense_count + precisions * grid + m->page_count ||
        d->entry_count > m->entry_count - m->page_count)
        return bad(error, "wrong number of entries");
    if (m->dense_bytes != d->dense_bytes)
        return bad(error, "wrong totals");
    if (memcmp(m->dense_entry, d->dense_entry, sizeof m->dense_entry) != 0)
        return bad(error, "wrong table of dense entries");
    if (memcmp(m->layer, d->layer, sizeof m->layer) != 0)
        return bad(error, "wrong parts of a layer");
    const struct model_tensor *tensors = model_index_tensors(m);
    const struct model_entry *entries = model_index_entries(m);
    for (uint32_t i = 0; i < d->entry_count; i++) {
        struct model_entry e;
        index_entry(d, &m->hparams, tensors, i, &e);
        if (memcmp(&e, &entries[i], sizeof e) != 0)
            return error_set(error, ERR_BAD_INPUT, "model index: entry %" PRIu32 " is wrong", i);
    }
    for (uint32_t i = model_experts_end(m); i < m->entry_count; i++) {
        struct model_entry e;
        index_page_entry(d, &m->hparams, tensors, &e);
        if (memcmp(&e, &entries[i], sizeof e) != 0)
            return error_set(error, ERR_BAD_INPUT, "model index: entry %" PRIu32 " is wrong", i);
    }
    if (m->stripe_count > 0)
        return index_experts_check(m, error);
    if (m->precision_mask != 1u << PRECISION_NATIVE || m->checksum_count != 0)
        return bad(error, "precisions or checksums without a store");
    return 0;
}

int model_index_check(const struct model_index *m, uint64_t bytes, struct error *error)
{
    if (check_header(m, bytes, error))
        return -1;
    const struct arch *arch = arch_find(m->arch, strlen(m->arch));
    if (!arch)
        return bad(error, "unknown architecture");
    if (arch_check_hparams(arch, &m->hparams, error))
        return -1;
    if (check_parts(m, error))
        return -1;
    const struct model_tensor *before = NULL;
    for (uint32_t i = 0; i < m->tensor_count; i++)
        if (check_tensor(m, &model_index_tensors(m)[i], &before, error))
            return -1;
    const char *tokenizer = (const char *)m + m->tokenizer_offset;
    if (tokenizer_blob_check(tokenizer, m->tokenizer_bytes, error))
        return -1;
    if (((const struct tokenizer_blob *)(const void *)tokenizer)->vocab != m->hparams.vocab)
        return bad(error, "tokenizer of another vocabulary");
    struct index_derived *d = malloc(sizeof *d);
    if (!d)
        return error_set(error, ERR_NO_MEMORY, "out of memory (check of the model index)");
    int status = index_derive(arch, &m->hparams, model_index_tensors(m), m->tensor_count,
                              m->stripe_count > 0 ? INDEX_STORE
                              : m->part_count > 0 ? INDEX_SPLIT
                                                  : INDEX_GGUF,
                              d, error);
    if (status == 0)
        status = check_derived(m, d, error);
    if (status == 0)
        status = check_totals(m, error);
    free(d);
    return status;
}
