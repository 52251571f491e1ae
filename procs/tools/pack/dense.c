/* SPDX-License-Identifier: Apache-2.0 */
/* Dense matrices (attention, embeddings, shared experts) at lower precision: round to nearest on a
 * linear grid per output row. EdgeMoE (Yi et al. 2023, §3.2) quantises dense weights to uniform bit
 * widths with GPTQ; without its calibration data this uses plain rounding. Norms, biases and
 * routers are not changed. */
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/model/limits.h"
#include "lib/tensor/precision.h"
#include "lib/tensor/tensor_type.h"
#include "procs/tools/pack/pack.h"

#define RUN_BYTES (1 * MIB) /* of source rows */

static uint32_t entry_of(const struct source *s, uint32_t tensor)
{
    const struct model_entry *e = model_index_entries(s->index);
    for (uint32_t i = 0; i < s->index->dense_count; i++)
        if (e[i].extent[0].tensor == tensor)
            return i;
    sl_panic("tensor %u is not dense", tensor);
}

uint32_t dense_type(const struct pack *p, uint32_t tensor)
{
    const struct source *s = &p->source;
    const struct model_tensor *t = &s->gguf.tensors[tensor];
    uint32_t type;
    enum quant_method method;
    if (p->options.dense == PRECISION_NATIVE ||
        !model_dense_quantisable(s->index, entry_of(s, tensor)) ||
        quantise_type(p->options.dense, QUANT_CHANNEL, t->type, (uint32_t)t->ne[0], &type, &method,
                      NULL))
        return t->type;
    return type;
}

struct dense_rows {
    source_sink *sink;
    void *arg;
    const struct model_tensor *from;
    uint32_t type;
    uint64_t to_row_bytes;
    uint32_t capacity, filled; /* rows; source bytes buffered */
    char *in;
    float *rows;
    void *made;
};

/* Quantises the rows in `in` and passes them to the sink. */
static int pass_rows(struct dense_rows *d, uint32_t rows, struct error *error)
{
    uint32_t k = (uint32_t)d->from->ne[0];
    quantise_load(d->from->type, d->in, d->from->row_bytes, k, rows, d->rows);
    struct error why;
    if (quantise_rows(d->type, d->rows, k, rows, d->made, &why))
        return error_set(error, why.code, "tensor %s: %s", d->from->name, why.text);
    return d->sink(d->arg, d->made, rows * d->to_row_bytes, error);
}

/* Source chunks may end within a row. */
static int take(void *arg, const void *data, uint64_t bytes, struct error *error)
{
    struct dense_rows *d = arg;
    uint64_t all = d->capacity * d->from->row_bytes;
    for (uint64_t at = 0; at < bytes;) {
        uint64_t n = all - d->filled < bytes - at ? all - d->filled : bytes - at;
        memcpy(d->in + d->filled, (const char *)data + at, n);
        at += n;
        d->filled += (uint32_t)n;
        if (d->filled == all) {
            if (pass_rows(d, d->capacity, error))
                return -1;
            d->filled = 0;
        }
    }
    return 0;
}

static int stream(struct dense_rows *d, const struct source *s, uint32_t tensor,
                  struct error *error)
{
    if (source_dense(s, tensor, take, d, error))
        return -1;
    sl_assert(d->filled % d->from->row_bytes == 0);
    uint32_t rows = (uint32_t)(d->filled / d->from->row_bytes);
    return rows > 0 ? pass_rows(d, rows, error) : 0;
}

int dense_write(const struct pack *p, uint32_t tensor, source_sink *sink, void *arg,
                struct error *error)
{
    const struct model_tensor *t = &p->source.gguf.tensors[tensor];
    struct dense_rows d = {.sink = sink, .arg = arg, .from = t, .type = dense_type(p, tensor)};
    if (d.type == t->type)
        return source_dense(&p->source, tensor, sink, arg, error);
    bool whole = tensor_type_row_bytes(d.type, t->ne[0], &d.to_row_bytes);
    sl_assert(whole);
    d.capacity = t->row_bytes < RUN_BYTES ? (uint32_t)(RUN_BYTES / t->row_bytes) : 1;
    d.in = malloc(d.capacity * t->row_bytes);
    d.rows = malloc(d.capacity * t->ne[0] * sizeof *d.rows);
    d.made = malloc(d.capacity * d.to_row_bytes);
    int status = d.in && d.rows && d.made
                     ? stream(&d, &p->source, tensor, error)
                     : error_set(error, ERR_NO_MEMORY, "out of memory (tensor %s)", t->name);
    free(d.in);
    free(d.rows);
    free(d.made);
    return status;
}
