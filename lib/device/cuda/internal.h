/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of lib/device/cuda. */
#ifndef SLUICE_DEVICE_CUDA_INTERNAL_H
#define SLUICE_DEVICE_CUDA_INTERNAL_H

#include "lib/base/assert.h"
#include "lib/base/bytes.h"
#include "lib/device/cuda/cuda.h"
#include "lib/device/pointers.h"
#include "lib/model/limits.h"
#include "lib/policy/gpu/places.h"

#define CUDA_MAGIC 0x43554441u

/* A copy of host memory on the device. */
struct mirror {
    const void *host;
    size_t bytes;
    void *memory;
};

struct mirrors {
    struct mirror *all;
    size_t count, space;
};

/* A part of the layout: one allocation that is used from its start. */
struct area {
    uint8_t *memory;
    size_t bytes, used;
};

/* Pinned memory that experts go through (streams.c). */
struct ring_piece {
    void *copied; /* event */
    bool busy;
};

struct ring {
    uint8_t *memory;
    struct ring_piece *piece;
    uint32_t pieces, next;
};

/* Experts of a pass of one row that the host computes (cooperate.c). */
struct cooperate {
    struct device *host; /* NULL: none */
    bool on;             /* the policy in effect */
    void *workspace;     /* of it */
    void *fetched;       /* event: the operation's input is in `memory` */
    uint8_t *memory;     /* pinned */
    size_t bytes, used;
    struct op_expert_gate_up op;
    struct device_job job[MODEL_TOP_K_MAX];
    uint32_t pair[MODEL_TOP_K_MAX]; /* of each job */
    uint32_t jobs;
};

/* A product of an expert that is not submitted; w without data. */
struct expert_product {
    struct kernel_matrix w;
    struct gpu_job job;
};

/* Products and outputs of experts for the next launches (ops/batches.c). */
struct expert_batch {
    struct expert_product *product;
    struct gpu_job *job;
    struct gpu_finish_job *finish;
    uint32_t products, finishes, space; /* space: jobs */
};

/* Slots for experts (slots.c), in experts_area. */
struct slots {
    struct places *places; /* which expert is where */
    struct slot *slot;     /* by place */
    uint32_t count;
    uint64_t changes; /* of what is where */
};

/* Memory that the core allocated. */
struct block {
    void *memory;
    size_t bytes;
};

/* Parts of a sequence that a layer has, by the fields of struct device_sequence. */
enum sequence_part {
    PART_keys,
    PART_values,
    PART_state,
    PART__COUNT,
    PART_next_state = PART_state
};

/* A part of the current sequence in a layer whose parts stay on the device. */
struct kept_part {
    uint8_t *memory;
    uint64_t host;   /* address of keys or values */
    uint32_t window; /* of the layer; 0: none */
    /* Keys, values: the rows before it are as on the host, with a window those that a row there
     * reads. State: that after so many rows. */
    uint32_t valid;
};

struct kept {
    uint64_t content; /* device_ops.begin */
    struct kept_part part[PART__COUNT];
};

/* A part of a sequence that is being copied to the host. rows.rows > 0: as floats, which are stored
 * after the wait. */
struct note {
    struct device_at host;
    struct gpu_kv_store rows;
};

/* The values that change from token to token, on the device. */
struct token_block {
    uint32_t token, position;
    float one; /* 1 */
};

/* A part of the sequence that the operations of a token use: arguments of cuda_take_*. */
struct token_use {
    enum sequence_part part;
    unsigned access;
    uint32_t layer, heads, size, window;
    size_t floats; /* of a state; else 0 */
};

/* Rows of keys or values of a token: how they are stored on the host. */
struct token_row {
    enum sequence_part part;
    uint32_t layer;
    struct gpu_kv_store rows;
    size_t at; /* floats, in token.rows and in landing */
};

enum token_mode {
    TOKEN_NONE,
    TOKEN_DIRECT,  /* operations run when they are submitted; what they use is noted */
    TOKEN_RECORDED /* they become the graph */
};

/* Tokens that the GPU computes alone (token.c). */
struct token {
    enum token_mode mode;
    uint32_t position, limit; /* of the token; below what the operations have space for */
    const struct device_sequence *sequence; /* [layers] */
    struct token_block *sent, *block;       /* pinned; on the device */
    float *rows;                            /* new keys and values, on the device */
    size_t rows_space, rows_used;           /* floats */
    void **table, **sent_table; /* [layers][experts][EXPERT__COUNT] on the device; of the host */
    uint64_t content, changes;  /* what it has: device_token.content, slots.changes */
    struct token_use *use;
    uint32_t uses, use_space;
    struct token_row *row;
    uint32_t row_count, row_space;
    void *graph; /* NULL: none */
    uint64_t graph_launches;
};

#define BLOCKS_MAX 16
#define NOTES_MAX  512

struct cuda {
    struct device device; /* first: operations get its address */
    uint32_t magic;
    const struct gpu_kernels *k;
    struct gpu_layout layout;
    struct cuda_copied copied;
    uint64_t busy_ns,
        busy_from_ns; /* from the first operation after a wait to the next wait; 0: none */
    bool reserved;    /* the driver was called */
    void *stream;     /* of operations */
    void *uploads;    /* stream of experts */
    void *used;       /* event: what the stream had at the end of the last leases */
    void *uploaded;   /* event: what `uploads` had at the end of the last dense weights */
    uint8_t *staging; /* CUDA_STAGING_BYTES that `uploads` writes and reads, in its order */
    struct ring ring;
    struct cooperate cooperate;
    struct expert_batch batch;
    uint32_t pass_rows; /* 0: not known */
    struct mirrors weights;
    struct slots slots; /* of experts */
    /* Scratch: memory of the operation that runs, and of its sequences. The stream uses it in
     * order, so the next operation has the same. Before there is a workspace, scratch is that of
     * experts. */
    struct area weights_area, experts_area, kv_area, scratch;
    uint8_t *attend; /* the workspace of attention: before scratch */
    size_t attend_bytes;
    struct block block[BLOCKS_MAX];
    uint32_t blocks;
    /* The sequences of the operation that runs: on the device, and as they were given. */
    struct device_sequence taken[DEVICE_SEQUENCES_MAX];
    const struct device_sequence *given;
    struct kept *kept; /* [kv_layers] */
    size_t kv_kept;    /* bytes of kv_area that they have */
    struct token token;
    struct note note[NOTES_MAX];
    uint32_t note_count;
    float *landing; /* where rows of keys and values arrive */
    size_t landing_floats, landed;
    const struct kernel_ops *host_kernels;
    void *(*pointer)(const void *shared);
};

/* Before an operation: the scratch is empty. */
struct cuda *cuda_operation(struct device *d);

/* The operations, with the scratch empty and their sequences on the device. */
#define OP(name) void cuda_op_##name(struct cuda *c, const struct op_##name *a);
#include "lib/device/ops.tbl.h"

/* Memory of an area. NULL: it has not so much. */
void *cuda_take(struct area *area, size_t bytes);
/* Memory until the end of the operation, aligned to 64 bytes. */
void *cuda_scratch(struct cuda *c, size_t bytes);
/* A copy of host memory in it. */
void *cuda_upload(struct cuda *c, const void *from, size_t bytes);
static inline float *cuda_scratch_floats(struct cuda *c, size_t floats)
{
    return cuda_scratch(c, floats * sizeof(float));
}

/* The status of a submission: anything but 0 is fatal. */
void cuda_check(const struct cuda *c, int status, const char *what);
void cuda_to_device(struct cuda *c, void *to, const void *from, size_t bytes);
void cuda_to_host(struct cuda *c, void *to, const void *from, size_t bytes);
void cuda_wait(struct cuda *c);

/* slots.c: the matrix with that content, on the device until the leases end. NULL: the host
 * computes with it. */
int cuda_slots_open(struct cuda *c, struct error *error);
void cuda_slots_close(struct cuda *c);
void *cuda_slot(struct cuda *c, uint64_t content, const struct kernel_matrix *from);
void cuda_end_leases(struct cuda *c); /* when no operation is submitted with them any more */
void cuda_prefetch_experts(struct cuda *c, const struct device_expert *expert, uint32_t count);
bool cuda_has(const struct device *d, uint64_t content);
uint64_t cuda_lost(const struct device *d);
bool cuda_keep(struct device *d, const struct device_expert *expert);
void cuda_use(struct device *d, uint64_t content);
/* Where the matrices of an expert are; NULL: it has no slot. They have arrived for what is
 * submitted next. */
uint8_t *const *cuda_matrices(struct cuda *c, uint64_t content);
/* For a matrix in a slot. cuda_arrives: it may be in flight. cuda_await: the operations submitted
 * next read it. */
bool cuda_arrives(const struct cuda *c, const void *matrix);
void cuda_await(struct cuda *c, const void *matrix);

/* It is in a slot; else in memory of the host. */
static inline bool cuda_in_slot(const struct cuda *c, const void *matrix)
{
    const uint8_t *from = c->experts_area.memory;
    return (const uint8_t *)matrix >= from &&
           (const uint8_t *)matrix < from + c->experts_area.bytes;
}

/* cooperate.c: of an operation on experts, those that are not in a slot: their input is fetched;
 * then the host computes them, and y gets the results. */
void cuda_cooperate_open(struct cuda *c, const struct device_limits *limits);
void cuda_cooperate_close(struct cuda *c);
void cuda_cooperate_begin(struct cuda *c, const struct op_expert_gate_up *a);
void cuda_cooperate_end(struct cuda *c, const struct op_expert_down *a);

/* ops/batches.c. Products and outputs of experts are collected, then submitted. index:
 * gpu_products.index. */
uint32_t cuda_batch_jobs(const struct device_limits *limits); /* at most */
void cuda_batch_open(struct cuda *c, const struct device_limits *limits);
void cuda_batch_close(struct cuda *c);
void cuda_batch_product(struct cuda *c, const struct device_matrix *m, struct gpu_job job);
void cuda_batch_finish(struct cuda *c, struct gpu_finish_job job);
void cuda_batch_products(struct cuda *c, const struct device_rows *x, const uint32_t *index);
/* value: of op. */
void cuda_batch_end(struct cuda *c, enum gpu_pointwise op, struct ffn_limit limit, uint32_t n);

/* streams.c */
int cuda_streams_open(struct cuda *c, struct error *error);
void cuda_streams_close(struct cuda *c);
/* Uploads after cuda_uploads_after_use are written after the operations that were submitted before
 * the last cuda_used. */
void cuda_used(struct cuda *c);
void cuda_uploads_after_use(struct cuda *c);
/* Whether so many pieces of the ring can be used without waiting. */
bool cuda_ring_has(struct cuda *c, uint32_t pieces);
/* A matrix of the host, with the device's layout. Its memory may change after the call. */
void cuda_upload_matrix(struct cuda *c, uint8_t *to, const struct kernel_matrix *from);
/* Operations that are submitted from now on have what was uploaded. */
void cuda_use_uploads(struct cuda *c);

/* layout.c */
/* The bytes of a matrix on the device. */
size_t cuda_matrix_bytes(const struct gpu_kernels *k, const struct kernel_matrix *m);
size_t cuda_workspace(const struct device *d, const struct device_limits *limits);
/* The bytes at its start that attention takes. */
size_t cuda_attend_bytes(const struct cuda *c, const struct device_limits *limits);
void cuda_use_workspace(struct device *d, const struct device_limits *limits, struct device_at at);

/* sequences.c. Parts of a sequence on the device: _take copies to it what an operation reads and it
 * does not have, _keep what the operation appended or wrote back. Appended rows are kept by who
 * stores them. */
void cuda_begin(struct device *d, uint64_t content, uint32_t position, uint32_t rows);
struct device_at cuda_take_cache(struct cuda *c, enum sequence_part part, struct device_at host,
                                 const struct device_sequence *s, struct device_span span,
                                 unsigned access, uint32_t heads, uint32_t size, uint32_t window);
void cuda_keep_cache(struct cuda *c, enum sequence_part part, const struct device_sequence *s,
                     struct device_span span, unsigned access);
void cuda_keep_rows(struct cuda *c, struct device_at host, const struct gpu_kv_store *rows);
struct device_at cuda_take_state(struct cuda *c, struct device_at host,
                                 const struct device_sequence *s, struct device_span span,
                                 unsigned access, size_t floats);
void cuda_keep_state(struct cuda *c, struct device_at host, struct device_at memory,
                     const struct device_sequence *s, struct device_span span, unsigned access,
                     size_t floats);
void cuda_store_noted(struct cuda *c); /* after a wait */
/* Rows that are copied to `x`, of pinned memory: stored after a wait. */
void cuda_note_rows(struct cuda *c, struct device_at host, const struct gpu_kv_store *rows,
                    float *x);

/* token.c */
size_t cuda_token_bytes(const struct cuda *c, const struct device_limits *limits);
void cuda_token_open(struct cuda *c, const struct device_limits *limits, uint8_t *memory);
void cuda_token_close(struct cuda *c);
bool cuda_token_begins(struct device *d, const struct device_token *t);
void cuda_token_ends(struct device *d);
void cuda_routed_experts(struct device *d, const struct device_routed *a);
/* While a token is submitted. What an operation takes of its sequence. */
void cuda_token_uses(struct cuda *c, const struct token_use *use);
/* Keys or values of its row: stored, and copied to the host at its end. */
void cuda_token_store(struct cuda *c, enum sequence_part part, const struct device_sequence *s,
                      const struct gpu_kv_store *row);
void cuda_token_attend(struct cuda *c, const struct kernel_attention *a);

static inline bool cuda_in_token(const struct cuda *c)
{
    return c->token.mode != TOKEN_NONE;
}

static inline struct cuda *cuda_of(struct device *d)
{
    struct cuda *c = (struct cuda *)(void *)d;
    OBJ_CHECK(c, CUDA_MAGIC);
    return c;
}

static inline size_t cuda_stride(const struct device_rows *rows)
{
    return rows->stride[FORM_F32] / sizeof(float);
}

/* ---- steps.c: kernels on any number of rows ---- */

void cuda_point(struct cuda *c, enum gpu_pointwise op, struct gpu_rows rows);
/* y += factor * x, or with x's first row for all; strides in floats. */
void cuda_axpy(struct cuda *c, float factor, const float *x, size_t x_stride, uint32_t n,
               uint32_t rows, float *y, size_t y_stride);
void cuda_copy(struct cuda *c, const float *x, size_t x_stride, uint32_t n, uint32_t rows, float *y,
               size_t y_stride);
void cuda_rms(struct cuda *c, const float *x, size_t x_stride, struct device_at weight, uint32_t n,
              float eps, uint32_t rows, float *y, size_t y_stride);
enum gpu_pointwise cuda_activation(enum ffn_activation activation, struct ffn_limit limit);
float cuda_limit(struct ffn_limit limit); /* the value of that operation */
void cuda_activate(struct cuda *c, enum ffn_activation activation, struct ffn_limit limit,
                   const float *gate, const float *up, uint32_t n, uint32_t rows, float *y);
/* The integer forms in `forms` of rows, from their floats. */
void cuda_forms(struct cuda *c, const struct device_rows *rows, uint32_t count, uint32_t forms);
/* Rows of floats, `stride` apart, in the form that a type reads; y aligned to 64 bytes. The stride
 * of the result, in bytes; *x: where it is, the floats themselves if the form is that. */
size_t cuda_prepare(struct cuda *c, enum tensor_type type, const float *floats, size_t stride,
                    uint32_t k, uint32_t rows, const void **x);
/* y = x w, times *scale (none: without). */
void cuda_product(struct cuda *c, const struct kernel_matrix *w, struct device_at scale,
                  const void *x, size_t x_stride, uint32_t rows, float *y, size_t y_stride);
/* cuda_product with rows in the form that they have. */
void cuda_product_rows(struct cuda *c, const struct device_matrix *w, struct device_at scale,
                       const struct device_rows *x, uint32_t rows, float *y, size_t y_stride);

#endif
