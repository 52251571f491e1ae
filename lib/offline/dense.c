/* SPDX-License-Identifier: Apache-2.0 */
/* Dense matrices at lower precision, with the types and the rounding of `sluice pack --dense`. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/offline/internal.h"

/* Padding, so that the last wide read of a kernel stays inside. */
#define TAIL_BYTES 64

static void *allocated(size_t bytes)
{
    void *at = aligned_alloc(64, (bytes + TAIL_BYTES + 63) / 64 * 64);
    if (!at)
        log_fatal(1, "out of memory (dense weights at a lower precision)");
    memset(at, 0, bytes + TAIL_BYTES);
    return at;
}

/* Quantises a matrix row by row. */
static uint8_t *quantised(const struct offline_model *m, uint32_t entry,
                          const struct model_tensor *from, const struct model_tensor *to)
{
    uint32_t k = (uint32_t)from->ne[0], n = (uint32_t)from->ne[1];
    struct kernel_matrix w = {.data = offline_dense(m, entry),
                              .row_bytes = from->row_bytes,
                              .k = k,
                              .n = n,
                              .type = (enum tensor_type)from->type};
    uint8_t *made = allocated(to->bytes);
    float *row = allocated(k * sizeof *row);
    for (uint32_t r = 0; r < n; r++) {
        m->ops->row_to_f32(&w, r, row);
        if (quant_rows((enum tensor_type)to->type, row, k, 1, made + r * to->row_bytes,
                       &quant_defaults) != 0)
            log_fatal(2, "cannot quantise %s: weights are not finite or too large", from->name);
    }
    free(row);
    return made;
}

/* Changes the tensor of a dense entry in `index`. Rows that do not fit the type keep theirs. */
static void lower(const struct offline_model *m, struct offline_dense *d, uint32_t entry,
                  enum precision precision)
{
    const struct model_entry *e = &model_index_entries(d->index)[entry];
    struct model_tensor *tensors =
        (struct model_tensor *)(void *)((char *)d->index + d->index->tensors_offset);
    struct model_tensor *t = &tensors[e->extent[0].tensor], to = *t;
    to.type = offline_type(precision, QUANT_CHANNEL);
    if (!model_dense_quantisable(m->index, entry) ||
        !tensor_type_row_bytes(to.type, t->ne[0], &to.row_bytes))
        return;
    to.bytes = to.row_bytes * to.ne[1];
    d->made[entry] = quantised(m, entry, t, &to);
    d->index->dense_bytes -= e->slot_bytes;
    d->index->dense_bytes += align_up(to.bytes, PAGE_BYTES); /* page-aligned in a store */
    *t = to;
}

static void prepare(struct offline_model *m, struct offline_dense *d, enum precision precision)
{
    d->index = malloc(m->index->bytes);
    d->made = calloc(m->index->dense_count, sizeof *d->made);
    if (!d->index || !d->made)
        log_fatal(1, "out of memory (dense weights at a lower precision)");
    memcpy(d->index, m->index, m->index->bytes);
    for (uint32_t i = 0; i < m->index->dense_count; i++)
        lower(m, d, i, precision);
}

const struct model_index *offline_index_at(struct offline_model *m, enum precision dense)
{
    OBJ_CHECK(m, OFFLINE_MAGIC);
    sl_assert(dense < PRECISION__COUNT);
    if (dense == PRECISION_NATIVE)
        return m->index;
    pthread_mutex_lock(&m->dense_lock);
    if (!m->dense[dense].index)
        prepare(m, &m->dense[dense], dense);
    pthread_mutex_unlock(&m->dense_lock);
    return m->dense[dense].index;
}

const void *offline_dense_at(struct offline_model *m, uint32_t entry, enum precision dense)
{
    const struct model_index *index = offline_index_at(m, dense);
    sl_assert(entry < index->dense_count);
    const uint8_t *made = dense == PRECISION_NATIVE ? NULL : m->dense[dense].made[entry];
    return made ? made : offline_dense(m, entry);
}

void offline_dense_free(struct offline_model *m)
{
    for (int p = 0; p < PRECISION__COUNT; p++) {
        for (uint32_t i = 0; m->dense[p].made && i < m->index->dense_count; i++)
            free(m->dense[p].made[i]);
        free(m->dense[p].made);
        free(m->dense[p].index);
    }
}
