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
    d->index->dense_bytes -= e->slot_bytes;
    d->index->dense_bytes += align_up(to.bytes, PAGE_BYTES); /* page-aligned in a store */
    *t = to;
    d->lower[entry] = true;
}

static void prepare_index(struct offline_model *m, struct offline_dense *d,
                          enum precision precision)
{
    d->index = malloc(m->index->bytes);
    d->lower = calloc(m->index->dense_count + 1, sizeof *d->lower);
    if (!d->index || !d->lower)
        log_fatal(1, "out of memory (dense weights at a lower precision)");
    memcpy(d->index, m->index, m->index->bytes);
    for (uint32_t i = 0; i < m->index->dense_count; i++)
        lower(m, d, i, precision);
}

static void make(struct offline_model *m, struct offline_dense *d)
{
    uint8_t **made = calloc(m->index->dense_count + 1, sizeof *made);
    if (!made)
        log_fatal(1, "out of memory (dense weights at a lower precision)");
    for (uint32_t i = 0; i < m->index->dense_count; i++) {
        uint32_t tensor = model_index_entries(m->index)[i].extent[0].tensor;
        if (d->lower[i])
            made[i] = quantised(m, i, &model_index_tensors(m->index)[tensor],
                                &model_index_tensors(d->index)[tensor]);
    }
    d->made = made;
}

const struct model_index *offline_index_at(struct offline_model *m, enum precision dense)
{
    OBJ_CHECK(m, OFFLINE_MAGIC);
    sl_assert(dense < PRECISION__COUNT);
    if (dense == PRECISION_NATIVE)
        return m->index;
    pthread_mutex_lock(&m->dense_lock);
    if (!m->dense[dense].index)
        prepare_index(m, &m->dense[dense], dense);
    pthread_mutex_unlock(&m->dense_lock);
    return m->dense[dense].index;
}

const void *offline_dense_at(struct offline_model *m, uint32_t entry, enum precision dense)
{
    const struct model_index *index = offline_index_at(m, dense);
    sl_assert(entry < index->dense_count);
    if (dense == PRECISION_NATIVE)
        return offline_dense(m, entry);
    pthread_mutex_lock(&m->dense_lock);
    if (!m->dense[dense].made)
        make(m, &m->dense[dense]);
    const uint8_t *made = m->dense[dense].made[entry];
    pthread_mutex_unlock(&m->dense_lock);
    return made ? made : offline_dense(m, entry);
}

static void free_made(struct offline_model *m, struct offline_dense *d)
{
    for (uint32_t i = 0; d->made && i < m->index->dense_count; i++)
        free(d->made[i]);
    free(d->made);
    d->made = NULL;
}

int offline_dense_prepare(struct offline_model *m, enum precision dense, struct error *error)
{
    if (!m->slots) /* made when it is needed, and kept */
        return 0;
    for (enum precision p = PRECISION_NATIVE + 1; p < PRECISION__COUNT; p++)
        if (p != dense)
            free_made(m, &m->dense[p]);
    if (dense == PRECISION_NATIVE || m->dense[dense].made)
        return 0;
    uint64_t bytes = offline_index_at(m, dense)->dense_bytes;
    if (offline_reserve(m, bytes, "dense weights at a lower precision", error) != 0)
        return -1;
    make(m, &m->dense[dense]);
    return 0;
}

void offline_dense_free(struct offline_model *m)
{
    for (int p = 0; p < PRECISION__COUNT; p++) {
        free_made(m, &m->dense[p]);
        free(m->dense[p].lower);
        free(m->dense[p].index);
    }
}
