/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of lib/device/host. */
#ifndef SLUICE_DEVICE_HOST_INTERNAL_H
#define SLUICE_DEVICE_HOST_INTERNAL_H

#include "lib/base/assert.h"
#include "lib/base/bytes.h"
#include "lib/device/host/host.h"
#include "lib/device/host/pool.h"
#include "lib/device/pointers.h"
#include "lib/model/limits.h"

#define HOST_MAGIC 0x484f5354u

/* Outputs are divided at multiples of this, so that threads do not write the same cache line. */
#define COLUMN_UNIT 16
/* Multiplications below which a product runs on one thread. */
#define SERIAL_WORK (1u << 16)
/* Queries that a thread of MLA computes at a time. */
#define MLA_QUERIES 64
/* The caller may have to wait for a part of another thread, and reports nothing meanwhile. */
#define STEPS_PER_PART 4

/* A block of queries, [MLA_QUERIES] rows of each. */
struct latent_scratch {
    float *q;                  /* of the published form */
    float *key_q;              /* for latents and rotated keys */
    struct device_rows nope;   /* the first part of q, without F32 */
    struct device_rows latent; /* the result */
};

struct host_thread { /* scratch of a thread; sizes in workspace.c */
    struct device_rows gather, inner;
    struct latent_scratch latent;
    float *router; /* of routing */
    float *keys;   /* that a row attends to, with its entries */
};

struct host {
    struct device device; /* first: operations get its address */
    uint32_t magic;
    const struct kernel_ops *kernels;
    struct pool *pool;
    uint32_t threads;
    struct host_thread *thread; /* [threads] */
    uint64_t step_work;         /* multiplications between two reports of progress */
    uint32_t
        step_outputs; /* of a product that are computed at once, if rows can be divided instead */
};

/* An operation that runs: the argument of its functions on the pool. */
struct host_run {
    struct host *h;
    const void *a; /* struct op_NAME */
};

#define OP(name) void host_op_##name(struct device *d, const struct op_##name *a);
#include "lib/device/ops.tbl.h"

/* workspace.c */
size_t host_workspace(const struct device *d, const struct device_limits *limits);
void host_use_workspace(struct device *d, const struct device_limits *limits, struct device_at at);

/* Whether its kernels are those for any CPU, which are slow. */
static inline bool host_portable(const struct host *h)
{
    return h->kernels->isa == ISA_GENERIC;
}

static inline struct host *host_of(struct device *d)
{
    struct host *h = (struct host *)(void *)d;
    OBJ_CHECK(h, HOST_MAGIC);
    return h;
}

static inline float *rows_floats(const struct device_rows *rows, uint32_t row)
{
    return (float *)(void *)((uint8_t *)device_pointer(rows->base[FORM_F32]) +
                             row * rows->stride[FORM_F32]);
}

/* A row in the form that products with a type read. */
static inline const void *rows_row(const struct device_rows *rows, enum tensor_type type,
                                   uint32_t row)
{
    enum kernel_form form = kernel_form_of(type);
    return (const uint8_t *)device_pointer(rows->base[form]) + row * rows->stride[form];
}

static inline size_t rows_stride(const struct device_rows *rows, enum tensor_type type)
{
    return rows->stride[kernel_form_of(type)];
}

static inline uint32_t host_form_bit(enum tensor_type type)
{
    return 1u << kernel_form_of(type);
}

/* Notes values that are not finite (device.not_finite). Row invariance is not affected: it changes
 * no value. */
static inline void host_note(struct host *h, const float *x, size_t n)
{
    if (!host_finite(x, n))
        atomic_store_explicit(&h->device.not_finite, 1, memory_order_relaxed);
}

/* host_activate that first notes infinite values in gate or up, which some activations hide. */
void host_activate_noted(struct host *h, enum ffn_activation activation, struct ffn_limit limit,
                         const float *gate, const float *up, uint32_t n, float *y);

static inline uint32_t smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* Rows of `each` multiplications between two reports of progress. */
static inline uint32_t host_step_rows(const struct host *h, uint64_t each)
{
    uint64_t rows = h->step_work / (each > 0 ? each : 1);
    return rows < 1 ? 1 : rows < UINT32_MAX ? (uint32_t)rows : UINT32_MAX;
}

/* Rows that attend at once, of `each` multiplications. Vector kernels read keys and values once for
 * `together` rows and are fast enough for these. */
static inline uint32_t host_attend_rows(const struct host *h, uint64_t each, uint32_t together)
{
    uint32_t rows = host_step_rows(h, each);
    return host_portable(h) || rows > together ? rows : together;
}

/* The lists of a row and the rows after it. */
static inline struct kernel_chosen host_chosen(const struct device_chosen *c, uint32_t row,
                                               uint32_t list)
{
    size_t lists = c->lists > 1 ? c->lists : 1, first = row * lists + list;
    const uint32_t *at = device_pointer(c->at), *count = device_pointer(c->count);
    return count ? (struct kernel_chosen){at + first * c->stride, count + first, lists * c->stride,
                                          lists}
                 : (struct kernel_chosen){NULL, NULL, 0, 0};
}

/* positions/positions.c: the rotation of a head of an indexer, and key `number` of a sequence. */
void host_turn(const struct host *h, const struct device_turn *turn, float *head,
               const float *cos_sin);
void host_store_index(struct host *h, const struct device_sequence *s, uint32_t size,
                      uint32_t number, const float *k);

/* Whether there are no lists, or only such as name all positions: the results are the same. */
static inline bool host_attends_all(const struct device_chosen *c, const struct device_row *row,
                                    uint32_t rows)
{
    uint32_t lists = c->lists > 1 ? c->lists : 1;
    const uint32_t *count = device_pointer(c->count);
    for (uint32_t i = 0; count && i < rows * lists; i++)
        if (count[i] <= row[i / lists].position)
            return false;
    return true;
}

/* Positions that attention of a row is over, at most. */
static inline uint64_t host_positions(const struct device_chosen *c, const struct device_row *row)
{
    uint64_t positions = row->position + UINT64_C(1);
    return c->count.address && c->stride < positions ? c->stride : positions;
}

/* Progress report. The thread that called the operation makes it: it runs parts to the end of the
 * operation, whichever these are. */
static inline void host_report(const struct host *h)
{
    if (pool_me() == 0 && h->device.alive)
        h->device.alive(h->device.alive_self);
}

/* Reports progress of attention after `work` multiplications. */
static inline void host_attended(const struct host *h, uint32_t rows, uint64_t work)
{
    if (rows > 1 || host_portable(h) || work >= h->step_work)
        host_report(h);
}

/* Reports progress in long operations over several rows. */
static inline void host_alive(const struct host *h, uint32_t rows)
{
    if (rows > 1)
        host_report(h);
}

/* Computes the integer forms in `forms` of a row from its floats. */
void host_make_forms(struct host *h, const struct device_rows *rows, uint32_t row, uint32_t forms);

/* kernel_ops.matmul times *scale; NULL: the matrix has none. Reports progress. */
void host_product(const struct host *h, const struct kernel_matrix *w, const float *scale,
                  uint32_t n_begin, uint32_t n_end, const void *x, size_t x_stride, uint32_t rows,
                  float *y, size_t y_stride);

/* Runs fn over the rows: on all threads if there are enough rows, else on the caller. fn divides
 * [0, rows) among the threads. */
static inline void host_run_rows(struct host *h, uint32_t rows, pool_fn *fn, const void *a)
{
    struct host_run run = {h, a};
    if (h->threads == 1 || rows < 2 * h->threads)
        fn(&run, 0, 1);
    else
        pool_run(h->pool, fn, &run);
}

static inline void host_run_parts(struct host *h, uint32_t parts, pool_fn *fn, const void *a)
{
    struct host_run run = {h, a};
    pool_run_parts(h->pool, parts, fn, &run);
}

/* Runs fn over the n outputs of a matrix, for `rows` rows. */
static inline void host_run_columns(struct host *h, uint32_t n, uint32_t k, uint32_t rows,
                                    pool_fn *fn, const void *a)
{
    host_run_parts(h, pool_parts(h->pool, (uint64_t)n * k * rows), fn, a);
}

#endif
