/* SPDX-License-Identifier: Apache-2.0 */
/* The model in memory, and its experts at other precisions. */
#include "lib/offline/offline.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/assert.h"
#include "lib/model/limits.h"
#include "lib/offline/internal.h"
#include "lib/tensor/precision.h"
#include "lib/tensor/tensor_type.h"

/* Padding, so that the last wide read of a kernel stays inside. */
#define TAIL_BYTES 64

static int map_file(struct offline_model *m, int fd, const char *path, struct error *error)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return error_set_errno(error, ERR_IO, errno, "cannot stat %.200s", path);
    void *at = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (at == MAP_FAILED)
        return error_set_errno(error, ERR_NO_MEMORY, errno, "cannot map %.200s", path);
    m->bytes[m->files] = at;
    m->size[m->files++] = (size_t)st.st_size;
    return 0;
}

/* Opens the other parts of a split model; fds[0] is open. */
static int open_parts(const struct model_index *index, int fds[MODEL_PARTS_MAX],
                      struct error *error)
{
    for (uint32_t i = 1; i < index->part_count; i++) {
        const struct model_stripe *part = model_loader_file(index, i);
        fds[i] = open(part->path, O_RDONLY | O_CLOEXEC);
        if (fds[i] < 0)
            return error_set_errno(error, ERR_BAD_INPUT, errno, "cannot open %.200s", part->path);
        if (model_file_unchanged(fds[i], &part->file, error) != 0)
            return -1;
    }
    return 0;
}

static int map_model(struct offline_model *m, int fd, const char *path,
                     offline_index_maker *make_index, struct error *error)
{
    int fds[MODEL_PARTS_MAX] = {fd};
    if (make_index(fd, path, &m->index, error) != 0)
        return -1;
    if (m->index->stripe_count > 0)
        return error_set(error, ERR_BAD_INPUT,
                         "%.200s is a store; without an engine only GGUF files can be computed",
                         path);
    for (uint32_t i = 1; i < MODEL_PARTS_MAX; i++)
        fds[i] = -1;
    int status = open_parts(m->index, fds, error);
    if (status == 0)
        status = plan_model_hash(m->index, fds, m->hash, error);
    for (uint32_t i = 0; status == 0 && (i == 0 || i < m->index->part_count); i++)
        status = map_file(m, fds[i], i ? model_loader_file(m->index, i)->path : path, error);
    for (uint32_t i = 1; i < MODEL_PARTS_MAX; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    return status;
}

struct offline_model *offline_open(const char *path, offline_index_maker *make_index,
                                   struct error *error)
{
    int fd = model_open(path, 0, error);
    if (fd < 0)
        return NULL;
    struct offline_model *m = calloc(1, sizeof *m);
    int status = m ? 0 : error_set(error, ERR_NO_MEMORY, "out of memory (model)");
    if (m) {
        m->magic = OFFLINE_MAGIC;
        pthread_mutex_init(&m->dense_lock, NULL);
        status = map_model(m, fd, path, make_index, error);
    }
    close(fd);
    if (status == 0) {
        size_t experts = (size_t)m->index->hparams.layers * m->index->hparams.experts;
        m->made = calloc(experts * OFFLINE_FORMS, sizeof *m->made);
        m->ops = kernel_ops_select(NULL);
        if (!m->made)
            status = error_set(error, ERR_NO_MEMORY, "out of memory (model)");
    }
    if (status == 0)
        return m;
    if (m)
        offline_close(m);
    return NULL;
}

void offline_close(struct offline_model *m)
{
    OBJ_CHECK(m, OFFLINE_MAGIC);
    size_t experts = m->index ? (size_t)m->index->hparams.layers * m->index->hparams.experts : 0;
    for (size_t i = 0; m->made && i < experts * OFFLINE_FORMS; i++)
        free(m->made[i]);
    free(m->made);
    offline_dense_free(m);
    pthread_mutex_destroy(&m->dense_lock);
    for (uint32_t i = 0; i < m->files; i++)
        munmap((void *)(uintptr_t)m->bytes[i], m->size[i]);
    free(m->index);
    m->magic = 0;
    free(m);
}

const struct model_index *offline_index(const struct offline_model *m)
{
    return m->index;
}

const uint8_t *offline_hash(const struct offline_model *m)
{
    return m->hash;
}

/* ---- weights in the file ---- */

static const uint8_t *payload(const struct offline_model *m, uint32_t entry, uint32_t extent)
{
    const struct model_extent *x = &model_index_entries(m->index)[entry].extent[extent];
    return m->bytes[x->part] + x->file_offset + x->head_bytes;
}

const void *offline_dense(const struct offline_model *m, uint32_t entry)
{
    OBJ_CHECK(m, OFFLINE_MAGIC);
    return payload(m, entry, 0);
}

/* Offsets of extents refer to the file here, not to a slot. */
static void native_matrices(const struct offline_model *m, uint32_t layer, uint32_t expert,
                            struct kernel_matrix out[EXPERT__COUNT])
{
    uint32_t entry = model_entry_expert(m->index, layer, expert);
    expert_matrices(&model_index_entries(m->index)[entry], NULL, out);
    for (uint32_t part = 0; part < EXPERT__COUNT; part++)
        out[part].data = payload(m, entry, part);
}

void offline_dense_row(const struct offline_model *m, uint32_t layer, enum dense_role role,
                       uint32_t row, float *out)
{
    uint32_t entry = model_entry_dense(m->index, layer, role);
    sl_assert(entry != ENTRY_NONE);
    const struct model_entry *e = &model_index_entries(m->index)[entry];
    const struct model_tensor *t = &model_index_tensors(m->index)[e->extent[0].tensor];
    struct kernel_matrix w = {.data = payload(m, entry, 0),
                              .row_bytes = t->row_bytes,
                              .k = (uint32_t)t->ne[0],
                              .n = (uint32_t)t->ne[1],
                              .type = (enum tensor_type)t->type};
    m->ops->row_to_f32(&w, row, out);
}

void offline_router_row(const struct offline_model *m, uint32_t layer, uint32_t expert, float *out)
{
    uint32_t n = m->index->hparams.hidden;
    offline_dense_row(m, layer, DENSE_ROUTER, expert, out);
    if (model_entry_dense(m->index, layer, DENSE_ROUTER_SCALE) == ENTRY_NONE)
        return;
    float *scale = malloc(n * sizeof *scale);
    if (!scale)
        log_fatal(1, "out of memory (scale of a router)");
    offline_dense_row(m, layer, DENSE_ROUTER_SCALE, 0, scale);
    model_router_input(out, scale, n, out);
    free(scale);
}

/* A vector of a layer; zeros: the layer has none. */
static void vector_or_zeros(const struct offline_model *m, uint32_t layer, enum dense_role role,
                            uint32_t n, float *out)
{
    if (model_entry_dense(m->index, layer, role) != ENTRY_NONE)
        offline_dense_row(m, layer, role, 0, out);
    else
        memset(out, 0, n * sizeof *out);
}

void offline_logit_bias(const struct offline_model *m, uint32_t layer, float *out)
{
    vector_or_zeros(m, layer, DENSE_ROUTER_LOGIT_BIAS, m->index->hparams.experts, out);
}

void offline_gate_norm(const struct offline_model *m, uint32_t layer, float *norm)
{
    uint32_t n = m->index->hparams.hidden;
    bool scaled = model_entry_dense(m->index, layer, DENSE_ROUTER_SCALE) != ENTRY_NONE;
    vector_or_zeros(m, layer, DENSE_FFN_NORM, n, norm);
    vector_or_zeros(m, layer, DENSE_FFN_NORM_BIAS, n, norm + n);
    for (uint32_t i = 0; scaled && i < n; i++)
        norm[i] = 1.0f / sqrtf((float)n);
}

void offline_gate_input(const struct offline_model *m, const float *norm, const float *x,
                        float *out)
{
    const struct model_hparams *h = &m->index->hparams;
    if (h->router_first) {
        memcpy(out, x, h->hidden * sizeof *out);
        return;
    }
    core_apply_norm(m->ops, h, x, norm, norm + h->hidden, h->hidden, out);
}

double offline_expert_norm(const struct offline_model *m, uint32_t layer, uint32_t expert)
{
    struct kernel_matrix w[EXPERT__COUNT];
    native_matrices(m, layer, expert, w);
    double sum = 0;
    for (int part = 0; part < EXPERT__COUNT; part++) {
        float *row = malloc(w[part].k * sizeof *row);
        sl_assert(row);
        for (uint32_t r = 0; r < w[part].n; r++) {
            m->ops->row_to_f32(&w[part], r, row);
            for (uint32_t i = 0; i < w[part].k; i++)
                sum += (double)row[i] * (double)row[i];
        }
        free(row);
    }
    return sqrt(sum);
}

/* ---- other precisions ---- */

enum tensor_type offline_type(enum precision precision, enum quant_method method)
{
    sl_assert(precision > PRECISION_NATIVE && precision < PRECISION__COUNT);
    return quant_type_for(precision == PRECISION_INT8   ? 8
                          : precision == PRECISION_INT4 ? 4
                                                        : 2,
                          method);
}

/* Layout of a quantised expert: matrices with `data` as offset. Returns the bytes of all three. */
static uint64_t made_layout(const struct kernel_matrix native[EXPERT__COUNT], enum tensor_type type,
                            struct kernel_matrix out[EXPERT__COUNT])
{
    uint64_t at = 0;
    for (int part = 0; part < EXPERT__COUNT; part++) {
        uint64_t row_bytes = 0;
        bool known = tensor_type_row_bytes(type, native[part].k, &row_bytes);
        sl_assert(known);
        out[part] = native[part];
        out[part].type = type;
        out[part].row_bytes = row_bytes;
        out[part].data = (const uint8_t *)(uintptr_t)at;
        at += (row_bytes * native[part].n + 63) / 64 * 64;
    }
    return at;
}

uint64_t offline_expert_bytes(const struct offline_model *m, uint32_t layer, uint32_t expert,
                              enum precision precision, enum quant_method method)
{
    struct kernel_matrix w[EXPERT__COUNT];
    uint64_t bytes = 0;
    if (!model_layer_has_experts(m->index, layer))
        return 0;
    native_matrices(m, layer, expert, w);
    for (int part = 0; part < EXPERT__COUNT; part++) {
        uint64_t row_bytes = w[part].row_bytes;
        if (precision != PRECISION_NATIVE)
            tensor_type_row_bytes(offline_type(precision, method), w[part].k, &row_bytes);
        bytes += row_bytes * w[part].n;
    }
    return bytes;
}

static uint8_t *make(const struct offline_model *m,
                     const struct kernel_matrix native[EXPERT__COUNT],
                     const struct kernel_matrix made[EXPERT__COUNT], uint64_t bytes)
{
    uint8_t *all = aligned_alloc(64, bytes + TAIL_BYTES);
    if (!all)
        log_fatal(1, "out of memory (quantised expert of %" PRIu64 " bytes)", bytes);
    memset(all, 0, bytes + TAIL_BYTES);
    for (int part = 0; part < EXPERT__COUNT; part++) {
        const struct kernel_matrix *w = &native[part];
        float *rows = malloc((size_t)w->k * w->n * sizeof *rows);
        if (!rows)
            log_fatal(1, "out of memory (quantisation of an expert)");
        for (uint32_t r = 0; r < w->n; r++)
            m->ops->row_to_f32(w, r, rows + (size_t)r * w->k);
        if (quant_rows(made[part].type, rows, w->k, w->n, all + (uintptr_t)made[part].data,
                       &quant_defaults) != 0)
            log_fatal(2, "cannot quantise an expert: weights are not finite or too large");
        free(rows);
    }
    return all;
}

void offline_matrices(struct offline_model *m, uint32_t layer, uint32_t expert,
                      enum precision precision, enum quant_method method,
                      struct kernel_matrix out[EXPERT__COUNT])
{
    struct kernel_matrix native[EXPERT__COUNT];
    native_matrices(m, layer, expert, native);
    if (precision == PRECISION_NATIVE) {
        memcpy(out, native, sizeof native);
        return;
    }
    uint64_t bytes = made_layout(native, offline_type(precision, method), out);
    size_t slot = ((size_t)layer * m->index->hparams.experts + expert) * OFFLINE_FORMS +
                  (size_t)method * (PRECISION__COUNT - 1) + precision - 1;
    uint8_t *all = __atomic_load_n(&m->made[slot], __ATOMIC_ACQUIRE);
    if (!all) {
        uint8_t *own = make(m, native, out, bytes);
        /* two threads may quantise the same expert: the second discards its copy */
        if (__atomic_compare_exchange_n(&m->made[slot], &all, own, false, __ATOMIC_ACQ_REL,
                                        __ATOMIC_ACQUIRE))
            all = own;
        else
            free(own);
    }
    for (int part = 0; part < EXPERT__COUNT; part++)
        out[part].data = all + (uintptr_t)out[part].data;
}
