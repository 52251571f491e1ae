/* SPDX-License-Identifier: Apache-2.0 */
/* The model: opened, and its dense weights. */
#include "lib/offline/offline.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <malloc.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/assert.h"
#include "lib/base/bytes.h"
#include "lib/model/limits.h"
#include "lib/offline/internal.h"
#include "lib/tensor/precision.h"
#include "lib/tensor/tensor_type.h"

static int map_file(struct offline_model *m, int fd, const char *path, struct error *error)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return error_set_errno(error, ERR_IO, errno, "cannot stat %.200s", path);
    void *at = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (at == MAP_FAILED)
        return error_set_errno(error, ERR_NO_MEMORY, errno, "cannot map %.200s", path);
    m->bytes[m->mapped] = at;
    m->size[m->mapped++] = (size_t)st.st_size;
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

static int map_model(struct offline_model *m, int fd, const char *path, struct error *error)
{
    int fds[MODEL_PARTS_MAX] = {fd};
    if (m->index->stripe_count > 0)
        return error_set(
            error, ERR_BAD_INPUT,
            "%.200s is a store; without a bound of memory only GGUF files can be computed", path);
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

/* ---- within a budget ---- */

#define READERS 4

/* A table on storage is mapped: of the pages that are read of it, the system keeps what it can. */
static int map_table(struct offline_model *m, uint32_t entry, struct error *error)
{
    const struct model_entry *e = &model_index_entries(m->index)[entry];
    const struct bulk *file = e->in_parts ? &m->files.loader[e->extent[0].part] : &m->files.model;
    void *at = mmap(NULL, (size_t)e->slot_bytes, PROT_READ, MAP_PRIVATE, file->fd,
                    (off_t)e->extent[0].file_offset);
    if (at == MAP_FAILED)
        return error_set_errno(error, ERR_NO_MEMORY, errno, "cannot map the table of n-grams");
    (void)madvise(at, (size_t)e->slot_bytes, MADV_RANDOM);
    m->bytes[m->mapped] = at;
    m->size[m->mapped++] = (size_t)e->slot_bytes;
    m->dense_slot[entry] = at;
    return 0;
}

/* Reads the dense weights, each into its slot. */
static int read_dense(struct offline_model *m, struct error *error)
{
    const struct model_index *index = m->index;
    uint64_t bytes = index->dense_bytes - (uint64_t)index->page_count * PAGE_BYTES;
    m->dense_slot = calloc(index->dense_count + 1, sizeof *m->dense_slot);
    uint8_t *at = aligned_alloc(PAGE_BYTES, bytes + PAGE_BYTES);
    if (!m->dense_slot || !at) {
        free(at);
        return error_set(error, ERR_NO_MEMORY, "out of memory (dense weights)");
    }
    m->dense_region = at;
    memset(at + bytes, 0, PAGE_BYTES);
    for (uint32_t i = 0; i < index->dense_count; i++) {
        if (i == model_table_entry(index)) {
            if (map_table(m, i, error) != 0)
                return -1;
            continue;
        }
        if (files_read(&m->files, i, at, error) != 0)
            return -1;
        m->dense_slot[i] = at;
        at += model_index_entries(index)[i].slot_bytes;
    }
    sl_assert(at == m->dense_region + bytes);
    return 0;
}

/* Direct reads are aligned; those of the hash are small and are not. */
static void set_direct(const struct bulk *b, bool on)
{
    int flags = b->fd >= 0 && b->direct ? fcntl(b->fd, F_GETFL) : -1;
    if (flags >= 0)
        (void)fcntl(b->fd, F_SETFL, on ? flags | O_DIRECT : flags & ~O_DIRECT);
}

static int hash_files(struct offline_model *m, struct error *error)
{
    const struct bulk *file[MODEL_PARTS_MAX];
    int fds[MODEL_PARTS_MAX];
    for (uint32_t i = 0; i < MODEL_PARTS_MAX; i++) { /* a store has its dense weights in one file */
        bool split = m->index->part_count > 0 && m->index->stripe_count == 0;
        file[i] = split ? &m->files.loader[i] : &m->files.model;
        fds[i] = file[i]->fd;
        set_direct(file[i], false);
    }
    int status = plan_model_hash(m->index, fds, m->hash, error);
    for (uint32_t i = 0; i < MODEL_PARTS_MAX; i++) {
        if (fds[i] >= 0)
            (void)posix_fadvise(fds[i], 0, 0, POSIX_FADV_DONTNEED);
        set_direct(file[i], true);
    }
    return status;
}

static int open_within(struct offline_model *m, const char *path, uint64_t budget,
                       struct error *error)
{
    const struct model_hparams *hp = &m->index->hparams;
    m->budget = budget;
    /* large blocks go back to the system when they are freed: they are not in the heap of the next
     * stage */
    (void)mallopt(M_MMAP_THRESHOLD, 256 * 1024);
    uint64_t parts = m->index->dense_bytes + m->index->bytes + 2 * m->index->expert_slot_bytes_max;
    uint64_t minimum = offline_with_fixed(parts);
    if (budget < minimum)
        return offline_too_small(m, minimum, "the dense weights and two experts", error);
    if (files_open(&m->files, m->index, path, error) != 0 || hash_files(m, error) != 0)
        return -1;
    uint64_t most = budget - m->index->dense_bytes;
    m->slots = slots_create(&m->files, hp->experts, hp->layers, 1 + OFFLINE_FORMS,
                            align_down(most, PAGE_BYTES), READERS, error);
    if (!m->slots || read_dense(m, error) != 0)
        return -1;
    /* until an evaluation divides the budget; a part is left for what the tool allocates before */
    uint64_t first = offline_free_bytes(m) / 4 * 3, one = m->index->expert_slot_bytes_max;
    offline_slots_resize(m, first > one ? first : one);
    return 0;
}

static int open_any(struct offline_model *m, int fd, const char *path,
                    offline_index_maker *make_index, uint64_t budget, struct error *error)
{
    if (make_index(fd, path, &m->index, error) != 0)
        return -1;
    m->ops = kernel_ops_select(NULL);
    size_t experts = (size_t)m->index->hparams.layers * m->index->hparams.experts;
    if (budget == OFFLINE_MEMORY_DEFAULT)
        budget = offline_choose_memory(m);
    if (budget > 0)
        return open_within(m, path, budget, error);
    m->made = calloc(experts * OFFLINE_FORMS, sizeof *m->made);
    if (!m->made)
        return error_set(error, ERR_NO_MEMORY, "out of memory (model)");
    return map_model(m, fd, path, error);
}

struct offline_model *offline_open_within(const char *path, offline_index_maker *make_index,
                                          uint64_t budget, struct error *error)
{
    int fd = model_open(path, 0, error);
    if (fd < 0)
        return NULL;
    struct offline_model *m = calloc(1, sizeof *m);
    int status = m ? 0 : error_set(error, ERR_NO_MEMORY, "out of memory (model)");
    if (m) {
        m->magic = OFFLINE_MAGIC;
        pthread_mutex_init(&m->dense_lock, NULL);
        files_init(&m->files);
        status = open_any(m, fd, path, make_index, budget, error);
    }
    close(fd);
    if (status == 0)
        return m;
    if (m)
        offline_close(m);
    return NULL;
}

struct offline_model *offline_open(const char *path, offline_index_maker *make_index,
                                   struct error *error)
{
    return offline_open_within(path, make_index, 0, error);
}

void offline_close(struct offline_model *m)
{
    OBJ_CHECK(m, OFFLINE_MAGIC);
    size_t experts = m->index ? (size_t)m->index->hparams.layers * m->index->hparams.experts : 0;
    for (size_t i = 0; m->made && i < experts * OFFLINE_FORMS; i++)
        free(m->made[i]);
    free(m->made);
    offline_dense_free(m);
    if (m->slots)
        slots_destroy(m->slots);
    files_close(&m->files);
    free(m->dense_slot);
    free(m->dense_region);
    pthread_mutex_destroy(&m->dense_lock);
    for (uint32_t i = 0; i < m->mapped; i++)
        munmap((void *)(uintptr_t)m->bytes[i], m->size[i]);
    free(m->index);
    m->magic = 0;
    free(m);
}

uint64_t offline_read_bytes(const struct offline_model *m)
{
    return m->slots ? atomic_load(&m->files.read_bytes) : 0;
}

double offline_read_rate(const struct offline_model *m)
{
    uint64_t ns = m->slots ? atomic_load(&m->files.read_ns) : 0;
    return ns ? (double)atomic_load(&m->files.read_bytes) * 1e9 / (double)ns : 0;
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

const uint8_t *offline_payload(const struct offline_model *m, uint32_t entry, uint32_t extent)
{
    const struct model_extent *x = &model_index_entries(m->index)[entry].extent[extent];
    if (m->slots)
        return m->dense_slot[entry] + x->slot_offset + x->head_bytes;
    return m->bytes[x->part] + x->file_offset + x->head_bytes;
}

const void *offline_dense(const struct offline_model *m, uint32_t entry)
{
    OBJ_CHECK(m, OFFLINE_MAGIC);
    return offline_payload(m, entry, 0);
}

/* router_dense. */
static const void *dense_of(void *self, uint32_t entry)
{
    return offline_dense(self, entry);
}

struct router_row *offline_router(struct offline_model *m, const struct kernel_ops *ops)
{
    return router_row_create(m->index, ops, dense_of, m);
}

/* A vector of a layer as floats; zeros: the layer has none. */
static void vector_or_zeros(const struct offline_model *m, uint32_t layer, enum dense_role role,
                            uint32_t n, float *out)
{
    uint32_t entry = model_entry_dense(m->index, layer, role);
    memset(out, 0, n * sizeof *out);
    if (entry == ENTRY_NONE)
        return;
    const struct model_entry *e = &model_index_entries(m->index)[entry];
    const struct model_tensor *t = &model_index_tensors(m->index)[e->extent[0].tensor];
    struct kernel_matrix w = {.data = offline_payload(m, entry, 0),
                              .row_bytes = t->row_bytes,
                              .k = (uint32_t)t->ne[0],
                              .n = (uint32_t)t->ne[1],
                              .type = (enum tensor_type)t->type};
    m->ops->row_to_f32(&w, 0, out);
}

void offline_gate_norm(const struct offline_model *m, uint32_t layer, float *norm)
{
    uint32_t n = m->index->hparams.hidden;
    bool scaled = model_entry_dense(m->index, layer, DENSE_ROUTER_SCALE) != ENTRY_NONE;
    enum dense_role role = hparams_router_norm(&m->index->hparams, layer);
    memset(norm, 0, 2 * n * sizeof *norm);
    if (role != DENSE__COUNT)
        vector_or_zeros(m, layer, role, n, norm);
    if (role == DENSE_FFN_NORM || role == DENSE_ATTN_NORM)
        vector_or_zeros(m, layer,
                        role == DENSE_FFN_NORM ? DENSE_FFN_NORM_BIAS : DENSE_ATTN_NORM_BIAS, n,
                        norm + n);
    for (uint32_t i = 0; scaled && i < n; i++)
        norm[i] = 1.0f / sqrtf((float)n);
}

void offline_gate_input(const struct offline_model *m, const float *norm, const float *x,
                        float *out)
{
    const struct model_hparams *h = &m->index->hparams;
    if (hparams_router_norm(h, hparams_next_experts(h, 0)) == DENSE__COUNT) {
        memcpy(out, x, h->hidden * sizeof *out);
        return;
    }
    core_apply_norm(m->ops, h, x, norm, norm + h->hidden, h->hidden, out);
}
