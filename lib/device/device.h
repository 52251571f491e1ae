/* SPDX-License-Identifier: Apache-2.0 */
/* A device: memory, and the operations of ops.tbl.h on it. The core (lib/core) calls nothing else,
 * and has no pointer to a weight or an activation.
 *
 * Order: operations are submitted to one queue and take effect in that order. An operation may
 * return before it has run. Only `read` and `wait` (and device_fetch) wait for what was submitted
 * before. So
 *   - an operation takes what it needs of host memory (OP_HOST and the like) before it returns
 *   - what it reads or writes on the device stays valid until it has run: experts are given back
 *     with device_give_back, keys after a wait
 *   - an operation has no result for the caller, and cannot fail.
 *
 * Bits: every operation is defined by lib/kernels/ARITHMETIC.md, so all devices make the same ones.
 * Row invariance (docs/architecture.md) holds for each of them. */
#ifndef SLUICE_DEVICE_DEVICE_H
#define SLUICE_DEVICE_DEVICE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/error.h"
#include "lib/device/entry.h"
#include "lib/device/mixing.h"
#include "lib/exact/elementary.h"
#include "lib/kernels/index.h"
#include "lib/kernels/kernels.h"
#include "lib/model/arch/arch.h"
#include "lib/model/router.h"
#include "lib/policy/access/routing.h"

/* The number of rows of a network that are computed together, and of an expert, which a thread of
 * the host gathers. They are large enough to unpack weights seldom, and small enough for a buffer
 * per thread. */
#define DEVICE_BLOCK_ROWS  64
#define DEVICE_GATHER_ROWS 128

struct device;

/* An address in the memory of a device; 0: none. Not a pointer, even where the device is the
 * host. */
struct device_at {
    uint64_t address;
};

/* `bytes` further; none stays none. */
static inline struct device_at device_offset(struct device_at at, uint64_t bytes)
{
    return (struct device_at){at.address ? at.address + bytes : 0};
}

static inline struct device_at device_floats_at(struct device_at at, uint64_t floats)
{
    return device_offset(at, floats * sizeof(float));
}

/* A kernel_matrix on a device. data.address 0: there is no matrix. */
struct device_matrix {
    struct device_at data;
    uint64_t row_bytes; /* there */
    uint32_t k, n;
    enum tensor_type type;
};

/* Rows of k activations in some of the forms (kernel_form), each stride[form] bytes apart. */
struct device_rows {
    uint32_t k;
    size_t stride[FORM__COUNT];
    struct device_at base[FORM__COUNT];
};

/* Sets the length of a row: at most the length that the rows were made for. */
void device_rows_set(struct device_rows *rows, uint32_t k);
/* The rows from number `first` on. */
struct device_rows device_rows_from(const struct device_rows *rows, uint32_t first);
/* Rows of k floats, and no other form. */
struct device_rows device_rows_of_floats(struct device_at at, uint32_t k);

/* A token of a pass. */
struct device_row {
    uint32_t sequence; /* number in the list of sequences */
    uint32_t position, token;
};

/* Number of rows from `row` on, at most `most`, that are consecutive positions of one sequence. */
static inline uint32_t device_run_of(const struct device_row *row, uint32_t most)
{
    uint32_t n = 1;
    while (n < most && row[n].sequence == row->sequence && row[n].position == row->position + n)
        n++;
    return n;
}

#define DEVICE_SEQUENCES_MAX 64 /* of a pass */

/* Where memory of a device that is not the host begins: multiples of it. */
#define DEVICE_ALIGN 256

/* How an operation uses a part of a sequence (ops.tbl.h). */
enum device_access { DEVICE_READS = 1, DEVICE_APPENDS = 2, DEVICE_WRITES = 4 };

/* Positions [first, end) of a sequence that are rows of a pass. Without rows: end 0. */
struct device_span {
    uint32_t first, end;
};

struct device_span device_span_of(const struct device_row *row, uint32_t rows, uint32_t sequence);

/* The part of a sequence that belongs to one layer. */
struct device_sequence {
    struct device_at keys, values; /* whole tiles (kernels.h) */
    struct device_at index;        /* keys of an indexer: [units][size], device_index_bytes */
    enum kv_type index_type;       /* KV_TYPE_F16 or KV_TYPE_F32 */
    struct device_at state;        /* recurrent, before the pass; none: the sequence begins */
    struct device_at next_state;   /* after it; may be the same */
    enum kv_type kv_type;
    uint32_t ring;    /* positions that keys and values have space for; 0: all */
    uint32_t layer;   /* whose parts these are */
    uint64_t content; /* device_ops.begin; 0: copies are of one operation */
};

/* Bytes of keys or values up to position `end`, or of a whole ring: `heads` rows of `size` elements
 * each. */
static inline size_t device_cache_bytes(const struct device_sequence *s, uint32_t end,
                                        uint32_t heads, uint32_t size)
{
    uint64_t tiles = ((s->ring ? s->ring : (uint64_t)end) + KV_TILE - 1) / KV_TILE;
    return (size_t)(tiles * heads * kv_tile_bytes(s->kv_type, size));
}

/* One of the matrices that are multiplied with the same rows: y[r * y_stride + j], in floats. */
struct device_product {
    struct device_matrix w;
    struct device_at scale; /* one float: a factor of the result */
    struct device_at y;
    size_t y_stride;
};

/* An expert, and the rows of a pass that use it. */
struct device_job {
    struct device_matrix matrix[EXPERT__COUNT]; /* up: n 0 in networks of two matrices */
    struct device_at scale[EXPERT__COUNT];      /* one float */
    struct device_at bias[EXPERT__COUNT];       /* one float per output */
    uint32_t rows;
    uint32_t pair_base;  /* its first (row, rank) pair: list of rows and outputs */
    uint32_t inner_base; /* its first row of gate and up */
};

#define DEVICE_NO_PAIR UINT32_MAX

/* factor * output of a pair, added to a row. DEVICE_NO_PAIR: nothing is added. */
struct device_term {
    float factor;
    uint32_t pair;
};

/* The scale of scores: that of position p is base, or, with a growth, base * (1 + growth * ln(1 +
 * floor((p + first) / context))). A query times a factor is its scores times that factor. */
struct device_scale {
    float base, growth; /* growth 0: none */
    uint32_t context, first;
};

/* The number of rows from `row` on, at most `most`, that are consecutive positions of one sequence
 * with one scale of the scores; *scale: that. */
static inline uint32_t device_scaled_run(const struct device_scale *s, const struct device_row *row,
                                         uint32_t most, float *scale)
{
    uint32_t n = device_run_of(row, most);
    *scale = s->base;
    if (s->growth == 0)
        return n;
    uint64_t at = (uint64_t)row->position + s->first, left = s->context - at % s->context;
    double factor = 1 + (double)s->growth * exact_log(1.0 + (double)(at / s->context));
    *scale = (float)((double)s->base * factor);
    return n < left ? n : (uint32_t)left;
}

/* Where the positions begin that attention of a row counts, and in a ring the keys: 0, or the chunk
 * of the row, which a ring has in one piece. */
static inline uint32_t device_chunk_begin(const struct layer_attention *a, uint32_t position)
{
    return a->chunks ? position - position % a->window : 0;
}

/* Of `rows` consecutive positions from `position` on, those of its chunk. */
static inline uint32_t device_chunk_rows(const struct layer_attention *a, uint32_t position,
                                         uint32_t rows)
{
    uint32_t left = a->chunks ? a->window - position % a->window : rows;
    return rows < left ? rows : left;
}

/* Details of attention of a layer. */
struct device_heads {
    enum qk_norm qk_norm;
    enum rope_kind rope_kind;
    bool v_norm;      /* an RMSNorm without weights of each value head */
    float eps, clamp; /* clamp 0: none */
    struct device_scale scale;
    float cap; /* of scores; 0: none */
};

/* Sizes of MLA: of a head of the published form (parts of a key, values), of a latent, of a latent
 * with the rotated key, of the queries' first factor (0: none); positions attended to (0: all). */
struct device_latent {
    uint32_t heads, nope, rope, value, rank, key, q_rank, window;
    float eps;
    struct device_scale scale;
};

/* An indexer: keys of `size` elements, one for each `unit` positions, and so many queries of a row.
 * A row at position p sees the keys of units that end at p or before. */
struct device_index {
    enum index_form form;
    uint32_t heads, size, unit;
};

#define DEVICE_UNIT_MAX       8
#define DEVICE_INDEX_SIZE_MAX 256 /* of units above 1 */

/* State of units above 1 (index_pool). */
static inline size_t device_pool_floats(const struct device_index *a, bool gates)
{
    return (size_t)(a->unit - 1) * a->size * (gates ? 2 : 1);
}

/* Bytes of the keys up to position `end`: of whole tiles of positions. */
static inline size_t device_index_bytes(const struct device_index *a, enum kv_type type,
                                        uint32_t end)
{
    return (end + KV_TILE - 1) / KV_TILE * (size_t)(kv_tile_bytes(type, a->size) / a->unit);
}

static inline uint32_t device_index_seen(const struct device_index *a, uint32_t position)
{
    return (position + 1) / a->unit;
}

/* Lines of scores, and lists of positions, of a row. */
static inline uint32_t device_index_lists(const struct device_index *a)
{
    return index_form_info(a->form).own ? a->heads : 1;
}

/* Which positions are chosen by scores: `block` adjacent scores count as one, their largest (the
 * last block may have fewer); of the blocks k are chosen, the last `local` ones always; and the
 * positions after the last complete unit. */
struct device_choice {
    uint32_t k, block, local;
};

/* The longest list of positions that it makes. */
static inline uint32_t device_choice_most(const struct device_index *a,
                                          const struct device_choice *c)
{
    return (c->k * c->block + 1) * a->unit - 1;
}

/* Positions that attention is over, instead of all: list l of row r has count[r * lists + l] of
 * them from at[(r * lists + l) * stride] on, ascending, none above the row's. All are uint32_t. No
 * count: all positions. */
struct device_chosen {
    struct device_at at, count;
    uint32_t stride; /* at most as many in a list */
    uint32_t lists;  /* of a row: one (0 or 1), or one for each key head */
};

/* What is rotated of each head of an indexer: `dims` elements from `first` on; 0: nothing. */
struct device_turn {
    enum rope_kind kind;
    uint32_t first, dims;
};

/* A recurrence, and the convolution before it. */
struct device_recurrence {
    struct layer_recurrent layer;
    enum delta_order order;
    bool joined; /* the logits b and a of rates are of one matrix, in groups of a k head */
    float eps;
};

/* v heads of a k head. */
static inline uint32_t device_recurrent_share(const struct layer_recurrent *r)
{
    return r->heads / r->groups;
}

/* Numbers a, of which each has a bias and makes a decay. */
static inline uint32_t device_recurrent_decays(const struct layer_recurrent *r)
{
    return r->rule.channels ? r->heads * r->key_size : r->heads;
}

/* Elements of the weights of the norms: of a head, or of all heads. */
static inline uint32_t device_recurrent_norm(const struct layer_recurrent *r)
{
    return r->norms > 0 ? r->mixed : r->value_size;
}

/* Limits of the memory that an operation needs in addition to its arguments: the largest values of
 * all layers. */
struct device_limits {
    uint32_t rows; /* of a pass */
    uint32_t experts, top_k;
    uint32_t expert_width, gather_forms; /* inputs of experts: length, forms */
    uint32_t inner, inner_forms;         /* the same of their down matrices */
    struct device_latent latent;         /* key 0: no MLA */
    uint32_t nope_forms, latent_forms;
    uint32_t attention_floats;        /* heads * (values of a head + 2) */
    uint32_t kv_floats;               /* a row of keys and one of values, all heads */
    struct layer_recurrent recurrent; /* channels 0: no convolution over time */
    size_t entry_floats;              /* keys and entries that a row attends to */
};

/* N-grams of a layer: its streams of n floats, the convolution (taps, `step` positions apart), and
 * the token that stands before a sequence. */
struct device_ngrams {
    uint32_t streams, n, taps, step, end;
    float eps;
};

/* Their state: older inputs of the convolution, the oldest first, and step - 1 tokens. */
static inline size_t device_ngram_floats(const struct device_ngrams *a)
{
    return (size_t)(a->taps - 1) * a->step * a->streams * a->n + a->step - 1;
}

/* The gates of the heads whose results are the rows `mix`. */
static inline struct gate_layout device_gates_of(const struct layer_attention *a,
                                                 const struct device_rows *mix)
{
    return a->heads > 0 ? model_gates_of(a, mix->k / a->heads) : (struct gate_layout){0};
}

/* struct op_NAME, the arguments of each operation. */
#define OP(name)                   struct op_##name {
#define OP_READ(name, bytes)       struct device_at name;
#define OP_WRITE(name, bytes)      struct device_at name;
#define OP_MATRIX(name)            struct device_matrix name;
#define OP_READ_ROWS(name, rows)   struct device_rows name;
#define OP_WRITE_ROWS(name, rows)  struct device_rows name;
#define OP_CHOSEN(name, rows)      struct device_chosen name;
#define OP_HOST(type, name, count) const type *name;
#define OP_SEQUENCES(name, count)  const struct device_sequence *name;
#define OP_PRODUCTS(name, count)   const struct device_product *name;
#define OP_JOBS(name, count)       const struct device_job *name;
#define OP_VALUE(type, name)       type name;
#define OP_END(name)                                                                               \
    }                                                                                              \
    ;
#include "lib/device/ops.tbl.h"

/* An expert as it would be lent: its matrices, each with device_ops.matrix's arguments. */
struct device_expert {
    struct kernel_matrix matrix[EXPERT__COUNT];
    uint64_t content[EXPERT__COUNT];
};

/* The chosen experts of a single row, whose matrices a device has: as expert_gate_up, expert_down
 * and the sum of their terms in the order of ranks. */
struct device_routed {
    uint32_t layer, top_k;
    struct device_matrix matrix[EXPERT__COUNT]; /* of each, without data: device_shape */
    struct device_at scale[EXPERT__COUNT], bias[EXPERT__COUNT]; /* of expert 0, the others follow */
    enum ffn_activation activation;
    struct ffn_limit limit;
    struct device_rows x;
    struct device_at routes;      /* struct route [top_k] */
    struct device_at gate, up, y; /* [top_k][inner], [top_k][inner], [top_k][outputs] */
    float factor;                 /* of all weights */
    struct device_at into;
};

/* A token that a device computes alone. */
struct device_token {
    uint32_t token, position;
    const struct device_sequence *sequence; /* [layers] */
    uint64_t content;                       /* of matrix 0 of expert 0 of layer 0 */
};

struct device_ops {
    const char *name;

    void (*destroy)(struct device *d);

    /* The calling thread uses this device from now on. The core calls this before its first call to
     * the device, and after a call to another device. NULL: nothing to do. */
    void (*enter)(struct device *d);

    /* Memory of the device, 64-byte aligned, freed by release. -1 with *error. */
    int (*allocate)(struct device *d, size_t bytes, struct device_at *out, struct error *error);
    void (*release)(struct device *d, struct device_at at);

    /* Copies from host memory, in the order of operations; `from` may change after the call. */
    void (*write)(struct device *d, struct device_at to, const void *from, size_t bytes);
    /* Copies to host memory, after a wait. */
    void (*read)(struct device *d, struct device_at from, void *to, size_t bytes);

    /* Makes a matrix of the host usable in operations and returns its address on the device, where
     * its rows may have another layout. `content` identifies the bytes. 0: weights; they never
     * change, so the device may keep its copy, and the same memory may be given again. Else an
     * expert (device_content): it is lent until device_give_back, after which its memory may get
     * another one, and equal content means equal bytes, wherever they lie. m->data NULL: only
     * row_bytes is returned. */
    struct device_matrix (*matrix)(struct device *d, const struct kernel_matrix *m,
                                   uint64_t content);

    /* Makes keys, values or a state in host memory usable in operations, and returns the address
     * that names them there. OP_CACHE and OP_STATE say what operations read and write of it.
     * Written rows are in host memory after a wait. The host may change the memory between passes,
     * and an operation sees what the host wrote before it was submitted. The same memory may be
     * shared again, also with more bytes. */
    struct device_at (*share)(struct device *d, const void *memory, size_t bytes);

    /* A pass of `rows` rows of one sequence begins at `position`. The host memory of the sequence
     * has the rows before that, and the recurrent state after them. `content` (above 0) names the
     * rows: the host gives another number when it changed them, so a device may keep its copy of
     * rows that it had with this one. NULL: the device keeps nothing. */
    void (*begin)(struct device *d, uint64_t content, uint32_t position, uint32_t rows);

    /* True: operations take matrices of this type. */
    bool (*computes)(const struct device *d, enum tensor_type type);

    /* Waits until every submitted operation has run. */
    void (*wait)(struct device *d);

    /* Waits until no submitted operation reads lent memory, which may get other content then. NULL:
     * wait does it. */
    void (*give_back)(struct device *d);

    /* Announces experts of another layer that are probably lent next, by descending probability,
     * before those of this layer are given back. They are copied as far as nothing has to wait, and
     * their memory is free at once. Called only if `prefetches`. */
    void (*prefetch)(struct device *d, const struct device_expert *expert, uint32_t count);

    /* Functions of a device that `keeps` experts follow. NULL: it does not keep any. */

    /* `has`: the device has the matrices of an expert, named by the content of any of them. `lost`:
     * how many experts it has lost so far. */
    bool (*has)(const struct device *d, uint64_t content);
    uint64_t (*lost)(const struct device *d);
    /* Copies an expert that is not in use as `prefetch` does, but only to memory that no other
     * expert has. False: not now. */
    bool (*keep)(struct device *d, const struct device_expert *expert);
    /* Notes that a token which the device computed alone used this expert. */
    void (*used)(struct device *d, uint64_t content);
    /* A token that the device computes alone begins: the row of a pass that has begun, with all
     * experts there. True: the core submits the operations from `embed` on now, with the token and
     * position of `t`, then calls token_ends. False: the device has submitted the operations that
     * it recorded of an earlier token. So operations of tokens may differ only in the contents of
     * `t` and of device memory. */
    bool (*token_begins)(struct device *d, const struct device_token *t);
    void (*token_ends)(struct device *d);
    void (*routed_experts)(struct device *d, const struct device_routed *a);

    /* Memory that operations need in addition to their arguments, within the limits: its size, and
     * where it is. */
    size_t (*workspace)(const struct device *d, const struct device_limits *limits);
    void (*use_workspace)(struct device *d, const struct device_limits *limits,
                          struct device_at at);

#define OP(name) void (*name)(struct device * d, const struct op_##name *a);
#include "lib/device/ops.tbl.h"
};

struct device {
    const struct device_ops *ops;
    bool lacks_ngrams; /* the operation of that name is not there */
    bool lacks_choice; /* those of positions.h are not, and attention takes no lists */
    bool lacks_mixing; /* those of mixed streams are not */
    bool lacks_window; /* MLA has no windows, and no norms of rotated keys */
    bool lacks_tables; /* routing takes no tables, and those of entries.h are not there */
    bool is_host;    /* addresses are those of this process; operations have run when they return */
    bool prefetches; /* the core predicts the experts of the next layer in passes of one row */
    uint32_t lent_max; /* experts that may be lent at once; 0: any number */
    unsigned
        keeps; /* precisions of which it has memory for all experts, if it computes tokens alone: 1
                * << enum precision */
    /* Called in long operations by one thread: operations over several rows, and of one row with
     * many positions. NULL: nothing is called. */
    void (*alive)(void *self);
    void *alive_self;
    /* The host sets it where rows, keys, values or logits of experts have a value that is not
     * finite; the caller clears it. */
    _Atomic uint32_t not_finite;
};

enum device_op {
#define OP(name) DEVICE_OP_##name,
#include "lib/device/ops.tbl.h"
    DEVICE_OP__COUNT
};

const char *device_op_name(enum device_op op);

/* device_ops.share; `bytes` is used only where the device is not the host. */
static inline struct device_at device_share(struct device *d, const void *memory, size_t bytes)
{
    return d->is_host ? (struct device_at){(uintptr_t)memory} : d->ops->share(d, memory, bytes);
}

/* Returns the matrix at another address, with its layout unchanged. */
static inline struct device_matrix device_matrix_at(const struct kernel_matrix *m,
                                                    struct device_at data)
{
    return (struct device_matrix){
        .data = data, .row_bytes = m->row_bytes, .k = m->k, .n = m->n, .type = m->type};
}

/* Returns the number of a matrix of an expert, which is above 0. There are `experts` in each of
 * `layers` layers, in each precision. */
static inline uint64_t device_content(uint64_t precision, uint64_t layers, uint64_t layer,
                                      uint64_t experts, uint64_t expert, uint64_t matrix)
{
    return ((precision * layers + layer) * experts + expert) * EXPERT__COUNT + matrix + 1;
}

/* Lends a matrix of an expert until it is given back; none (n 0) stays none. */
static inline struct device_matrix device_lend(struct device *d, const struct kernel_matrix *m,
                                               uint64_t content)
{
    if (m->n == 0)
        return (struct device_matrix){.k = 0};
    return d->is_host ? device_matrix_at(m, (struct device_at){(uintptr_t)m->data})
                      : d->ops->matrix(d, m, content);
}

/* Makes weights that never change usable in operations. */
static inline struct device_matrix device_weights(struct device *d, const struct kernel_matrix *m)
{
    return device_lend(d, m, 0);
}

/* Returns the layout that all matrices of that shape have. */
static inline struct device_matrix device_shape(struct device *d, struct kernel_matrix m)
{
    m.data = NULL;
    return device_lend(d, &m, 0);
}

static inline void device_enter(struct device *d)
{
    if (d->ops->enter)
        d->ops->enter(d);
}

static inline void device_begin(struct device *d, uint64_t content, uint32_t position,
                                uint32_t rows)
{
    if (d->ops->begin)
        d->ops->begin(d, content, position, rows);
}

static inline void device_wait(struct device *d)
{
    if (!d->is_host)
        d->ops->wait(d);
}

static inline void device_give_back(struct device *d)
{
    if (!d->is_host && d->ops->give_back)
        d->ops->give_back(d);
    else
        device_wait(d);
}

/* Device memory that the host reads. `host`: as many bytes, NULL if the device is the host. */
struct device_result {
    struct device_at at;
    void *host;
};

/* The first `bytes` of it, after a wait; valid until the next operation that writes them, or the
 * next fetch. */
static inline void *device_fetch(struct device *d, const struct device_result *r, size_t bytes)
{
    if (d->is_host)
        return (void *)(uintptr_t)r->at.address;
    d->ops->read(d, r->at, r->host, bytes);
    return r->host;
}

#endif
