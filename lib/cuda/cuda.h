/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels for NVIDIA GPUs: the operations of lib/kernels on rows in the memory of a device, with
 * the same bits (lib/kernels/ARITHMETIC.md). The module libsluice_cuda.so has them, and exports one
 * function, gpu_kernels, so that a program needs neither a driver nor the CUDA runtime until it
 * opens the module with dlopen.
 *
 * Unless stated: pointers are to memory of the device; arguments that are structs are read before
 * the call returns; strides are in elements of the array. Every function submits to `stream` (a
 * cudaStream_t; NULL: the default stream), returns before it has run, allocates nothing, and
 * returns 0 or a cudaError of the submission; arguments that it does not support give
 * GPU_UNSUPPORTED, without a submission: a type without kernels, sizes beyond the limits, an
 * address that is not aligned. The kernels write nothing but their results. Row invariance holds as
 * in kernels.h. Of rows that contain NaN, the results are those of the generic kernels (which NaN a
 * NaN is: not defined). */
#ifndef SLUICE_CUDA_CUDA_H
#define SLUICE_CUDA_CUDA_H

#include <stddef.h>
#include <stdint.h>

#include "lib/kernels/kernels.h"
#include "lib/model/router.h"

#define GPU_UNSUPPORTED (-1)
/* Rows of a call, heads (blocks along y and z of a grid); elements of a row, outputs, positions. */
#define GPU_ROWS_MAX  65535u
#define GPU_COUNT_MAX 0x7fffffffu

/* Products of up to FEW rows, up to SOME, and of more have kernels of their own. */
#define GPU_FEW_ROWS  8
#define GPU_SOME_ROWS 32

/* A matrix of a launch of several, and its rows. */
struct gpu_job {
    const void *w;
    float *y;
    uint32_t first, rows; /* of x; with an index: of it */
};

/* Products of the outputs [n_begin, n_end) of w, as kernel_ops.matmul has them: of `rows` rows; or
 * of `count` jobs, in memory of the device, whose matrices have the type and sizes of w and start
 * at multiples of alignment(type). Then w.data and y are not read, and rows is the maximum of the
 * jobs. index: the row of x of each row; NULL: they are in their order. */
struct gpu_products {
    struct kernel_matrix w;
    const void *x;
    float *y;
    const uint32_t *index;
    const struct gpu_job *jobs;
    size_t x_stride, y_stride; /* x: in bytes */
    uint32_t n_begin, n_end, rows, count;
};

/* A term that is added to a row: factor times row `row` of y. */
struct gpu_term {
    float factor;
    uint32_t row; /* GPU_NO_ROW: nothing */
};
#define GPU_NO_ROW UINT32_MAX

/* into[r] = fma(factor, y[row], into[r]) for the terms of each row in their order; rows of n. */
struct gpu_terms {
    const struct gpu_term *term; /* [rows][terms] */
    const float *y;
    float *into;
    uint32_t rows, terms, n;
};

/* Operations on single elements, as in struct kernel_ops and ARITHMETIC.md. */
enum gpu_pointwise {
    GPU_SILU_MUL,       /* silu(a) * b */
    GPU_SWIGLU_CLAMPED, /* gate a, up b */
    GPU_GELU_MUL,       /* gelu(a) * b */
    GPU_RELU_MUL,       /* max(a, 0) * b */
    GPU_LIMITED_SILU,   /* silu(a limited to at most value) * (b limited to +-value) */
    GPU_SILU_LIMITED,   /* (silu(a) limited to at most value) * (b limited to +-value) */
    GPU_SITU_MUL,       /* cap(a) * sigmoid(a) * cap(b): GPU_SOFT_CAP with value, and with second
                         * (0: b as it is) */
    GPU_SIGMOID_MUL,    /* b * sigmoid(a) */
    GPU_SOFTPLUS_MUL,   /* softplus(a), in double, * b */
    GPU_MUL,            /* a * b */
    GPU_SILU,           /* silu(a) */
    GPU_SOFT_CAP,       /* value * tanh(a / value) */
    GPU_CLAMP,          /* a limited to +-value */
    GPU_AXPY,           /* fma(value, a, b); with factors: fma(factor * value, a, b) */
    GPU_COPY,           /* a */
    GPU_SCALE,          /* a * value */
    GPU_DIVIDE,         /* a / value */
    GPU_LOGISTIC,       /* 1 / (1 + exp(-a)) in double */
    GPU_POINTWISE__COUNT
};

/* y[r][i] = op(a[r][i], b[r][i]) for i < n. A stride of 0 repeats the first row (a bias). y may be
 * a or b. b is not read by operations with one operand. */
struct gpu_rows {
    const float *a, *b;
    float *y;
    const float *factor; /* [rows] of GPU_AXPY; NULL: none */
    size_t a_stride, b_stride, y_stride;
    size_t a_step; /* from element to element of a row of a; 0: 1 */
    uint32_t n, rows;
    float value, second;
    bool a_is_one, b_is_one; /* a or b is one element of each row */
};

/* The end of products of an expert, in place: first a's rows times its factor plus its bias, then
 * the same of b, then a = op(a, b) with rows of n. Factors (one float) and biases (n) may be NULL.
 * b NULL: only a, without an operation. */
struct gpu_finish_job {
    float *a, *b;
    const float *a_factor, *b_factor, *a_bias, *b_bias;
    uint32_t rows;
};

struct gpu_finish {
    const struct gpu_finish_job *jobs; /* [count] in memory of the device */
    enum gpu_pointwise op;             /* of two operands, GPU_SILU_MUL to GPU_SITU_MUL */
    float value;                       /* of op */
    uint32_t count, rows, n;           /* rows: the maximum of the jobs */
    float second;                      /* of op */
};

/* OP(bank_read) of lib/device: weights and sums of rows of `streams` times n floats, of which the
 * first `sources` are read. */
struct gpu_bank {
    const float *x, *score;
    float *weights, *y; /* [rows][streams], [rows][n] */
    uint32_t rows, streams, sources, n;
    float eps;
};

/* Rotary embedding in place of heads next to each other: x[r * x_stride + h * head_stride ...], the
 * first n elements of each. cos_sin[r * table_stride ...]: n / 2 pairs for the position of row r,
 * from kernel_rope_table. pairs: elements (2i, 2i + 1), else (i, i + n / 2). */
struct gpu_rope {
    float *x;
    const float *cos_sin;
    size_t x_stride, head_stride, table_stride;
    uint32_t n, heads, rows;
    bool pairs;
};

/* Rows of keys or values of all heads, appended to their tiles (kernel_kv_store). Row r is
 * x[r * x_stride + h * head_size ...], at position + r, in a ring if there is one. */
struct gpu_kv_store {
    const float *x;
    void *tiles; /* of the layer, from position 0 on */
    enum kv_type type;
    enum kv_side side;
    size_t x_stride;
    uint32_t head_size, kv_heads, position, ring, rows;
    const uint32_t
        *at;     /* on the device, of one row: its position, instead of `position`; NULL: that */
    float *copy; /* x of one row again; NULL: not copied */
};

/* Routers: logits of `rows` rows, experts and weights of each, best first (routing_exact). */
struct gpu_route {
    struct model_router router; /* its bias in memory of the device */
    const float *logits;
    uint32_t *expert;    /* [row][top_k][step] */
    float *weight;       /* the same */
    const bool *allowed; /* [experts] at least top_k of them, the others do not count; NULL: all */
    size_t stride;       /* of logits */
    uint32_t step;       /* 0: 1 */
    uint32_t rows;
};

/* A convolution over time: row r reads the rows r - taps + 1 .. r; the taps - 1 rows before row 0
 * are past[t * past_stride ...], oldest first, NULL: zeros. w[t * w_stride + i]. */
struct gpu_conv {
    const float *x, *past, *w;
    float *y;    /* no input */
    float *next; /* the past of the next pass, may be `past`; NULL: not kept */
    size_t x_stride, past_stride, w_stride, y_stride;
    uint32_t taps, n, rows;
    bool silu;         /* of the result */
    const float *bias; /* [n] added to it before; NULL: none */
};

/* A recurrence (kernel_delta) of `heads` heads, `rows` steps one after the other. Head h
 * has the k and q of head h / share, or h mod k_heads if `interleaved`; k_heads = heads / share.
 * Its state is [keys][values], h * keys * values elements on; `before` NULL: +0. `after` may be
 * `before`. */
struct gpu_delta {
    const float *k, *q, *v;    /* [row][head][keys or values] */
    const float *rate, *decay; /* [row][head]; with `channels` decays are [row][head][keys] */
    const float *skip;         /* [head] D: out = q^T S + D v; NULL: none */
    const float *before;
    float *after, *out; /* out: [row][head][values] */
    size_t k_stride, q_stride, v_stride, rate_stride, decay_stride, out_stride;
    uint32_t key_step, value_step; /* from a head of k and of q, or of v, to the next one */
    uint32_t keys, values, heads, share, rows;
    bool interleaved;
    bool without;  /* the delta term */
    bool channels; /* a decay for each row of the state */
};

/* rate = sigmoid(b), or softplus(a + bias) where b is NULL, and decay = exp(a_log * softplus(a +
 * bias)) of each row and head, as ARITHMETIC.md has them. a_log, bias: [heads]. */
struct gpu_delta_gates {
    const float *b, *a, *bias, *a_log;
    float *rate, *decay; /* [row][head] */
    size_t b_stride, a_stride;
    uint32_t heads, rows;
    /* Not 0: a, bias and decay are of each head and so many key channels, a_log stays [heads], and
     * the decay is exp(-|a_log| * softplus), or exp(bound * sigmoid(|a_log| * (a + bias))) with a
     * bound below 0; b is not NULL, share is 0. */
    uint32_t keys;
    float bound;
    /* 0: of row r, b[h] and a[h] are those of head h. Else those of the `share` heads of a k head
     * are next to each other, 2 * share elements from those of the next; `interleaved` as in
     * gpu_delta. */
    uint32_t share;
    bool interleaved;
};

/* A recurrence with decays of elements (kernel_scan) of `heads` heads, which have the same k and q,
 * `rows` steps one after the other. Its state and rates are those of all heads, [keys][values]
 * each; `before` NULL: +0. `after` may be `before`, out may be v. */
struct gpu_scan {
    const float *k, *q, *v, *step; /* [row], v and step of all heads */
    const float *bias, *skip;      /* of all heads; skip NULL: none */
    const float *rates, *before;
    float *after, *out; /* out: [row] of all heads */
    size_t stride;      /* of k, q and step */
    size_t v_stride, out_stride;
    uint32_t keys, values, heads, rows;
};

/* Jobs of the experts that a router on the device chose for one row: rank r has expert number[r *
 * step], whose matrices are at table[number * GPU_MATRICES + m], m: gate, up, down. Factors:
 * [number]; biases: [number][inner or outputs]; NULL: none. */
#define GPU_MATRICES 3

struct gpu_routed {
    const void *const *table;
    const uint32_t *number;
    const float *weight; /* [r * step] */
    const float *scale[GPU_MATRICES], *bias[GPU_MATRICES];
    float *gate, *up, *y; /* [rank][inner], [rank][inner], [rank][outputs] */
    float factor;         /* of all weights */
    uint32_t step, ranks, inner, outputs;
    struct gpu_job *jobs;          /* [GPU_MATRICES][rank]; down has row r of its input */
    struct gpu_finish_job *finish; /* [2][rank]: gate and up; down */
    struct gpu_term *terms;        /* [rank] */
};

/* Counted up when struct gpu_kernels or an argument changes: the style test compares
 * interface.txt. */
#define GPU_INTERFACE 10

struct gpu_kernels {
    uint32_t interface;  /* GPU_INTERFACE of the module, first in every version */
    uint32_t arithmetic; /* KERNEL_ARITHMETIC of the module */

    /* kernel_ops.activation of `rows` rows of k elements. The rows of dst are dst_stride bytes
     * apart, 64-byte aligned, kernel_activation_bytes(type, k) long, and have the same bytes as on
     * the CPU. */
    int (*activation)(enum tensor_type type, const float *x, size_t x_stride, uint32_t k,
                      uint32_t rows, void *dst, size_t dst_stride, void *stream);

    /* kernel_ops.matmul. w->data and w->row_bytes are multiples of alignment(type); x_stride in
     * bytes. x and x_stride are multiples of 64, with types of FORM_F32 of 4. */
    int (*matmul)(const struct kernel_matrix *w, uint32_t n_begin, uint32_t n_end, const void *x,
                  size_t x_stride, uint32_t rows, float *y, size_t y_stride, void *stream);
    /* Products of several matrices in one launch, of rows by number. */
    int (*products)(const struct gpu_products *p, void *stream);
    int (*finish)(const struct gpu_finish *f, void *stream);
    int (*add_terms)(const struct gpu_terms *t, void *stream);
    /* The bytes that divide row_bytes of a matrix; 0: no kernels for this type. */
    uint32_t (*alignment)(enum tensor_type type);

    /* Rows of weights, as all functions here read them, are not those of a file, whose blocks have
     * odd sizes (weights/planes.cuh). The bytes of a row of k elements; 0: none, or k is no
     * multiple of the type's unit. At most 15 more than in a file. */
    uint64_t (*row_bytes)(enum tensor_type type, uint32_t k);
    /* Rows are rearranged; else they have the bytes of the file. */
    bool (*rearranged)(enum tensor_type type);
    /* Rearranges rows of such a type, which are in memory of the device as in a file, to rows that
     * are to_row_bytes apart. w says how far apart they are there. `to` and to_row_bytes are
     * multiples of alignment(type), and `to` is not within w. */
    int (*rearrange)(const struct kernel_matrix *w, void *to, size_t to_row_bytes, void *stream);

    /* kernel_ops.row_to_f32 of rows token[0 .. rows) of w. */
    int (*rows_to_f32)(const struct kernel_matrix *w, const uint32_t *token, uint32_t rows,
                       float *y, size_t y_stride, void *stream);

    /* RMSNorm of `rows` rows; y may be x. */
    int (*rms_norm)(const float *x, size_t x_stride, const float *weight, uint32_t n, float eps,
                    uint32_t rows, float *y, size_t y_stride, void *stream);
    /* kernel_center; y may be x. */
    int (*center)(const float *x, size_t x_stride, uint32_t n, uint32_t rows, float *y,
                  size_t y_stride, void *stream);

    int (*bank)(const struct gpu_bank *b, void *stream);
    int (*pointwise)(enum gpu_pointwise op, const struct gpu_rows *rows, void *stream);
    int (*rope)(const struct gpu_rope *r, void *stream);
    int (*kv_store)(const struct gpu_kv_store *s, void *stream);
    int (*route)(const struct gpu_route *r, void *stream);

    /* Bytes of memory that an attention needs in addition to its arguments. */
    size_t (*attention_workspace)(const struct kernel_attention *a); /* 0: unsupported */
    /* kernel_ops.attention; workspace: so many bytes, 16-byte aligned. */
    int (*attention)(const struct kernel_attention *a, void *workspace, void *stream);
    /* Attention of one row whose position is on the device. It is below a->positions, which only
     * sets the size of the launch. */
    int (*attention_at)(const struct kernel_attention *a, const uint32_t *position, void *workspace,
                        void *stream);

    int (*jobs_of_routes)(const struct gpu_routed *r, void *stream);

    int (*conv)(const struct gpu_conv *c, void *stream);
    int (*delta_gates)(const struct gpu_delta_gates *g, void *stream);
    int (*delta)(const struct gpu_delta *d, void *stream);
    int (*scan)(const struct gpu_scan *s, void *stream);

    /* The GPU with this number, in the order of the driver, is the current one of the calling
     * thread; makes its context. */
    int (*select)(int number);
    /* Bytes of memory that are free, and all. */
    int (*memory)(size_t *unused, size_t *total);
    const char *(*text)(int status); /* what a status means */
    /* Memory of the current device, aligned to 256 bytes. release waits for everything. */
    int (*allocate)(size_t bytes, void **out);
    int (*release)(void *memory);
    /* Copies. `from` of upload may change after the call, if it is not pinned: else when the copy
     * has run. `to` of download has the bytes after a wait. */
    int (*upload)(void *to, const void *from, size_t bytes, void *stream);
    int (*download)(void *to, const void *from, size_t bytes, void *stream);
    int (*clear)(void *to, size_t bytes, void *stream); /* zeros */
    int (*wait)(void *stream); /* until everything has run; also the error of what has not */

    /* Pinned memory of the host: copies run while the calling thread continues. */
    int (*host_allocate)(size_t bytes, void **out);
    int (*host_release)(void *memory);
    /* Streams that neither wait for each other nor for the default stream. */
    int (*stream_create)(void **stream);
    int (*stream_destroy)(void *stream);
    /* An event has happened when everything has run that its stream had when it was recorded last;
     * before that, too. */
    int (*event_create)(void **event);
    int (*event_destroy)(void *event);
    int (*event_record)(void *event, void *stream);
    int (*event_wait)(void *event);                /* the calling thread */
    bool (*event_happened)(void *event);           /* false also if that is not known */
    int (*stream_wait)(void *stream, void *event); /* what is submitted to the stream later */

    /* Between them, what is submitted to the stream is recorded with its arguments, and does not
     * run: kernels, clears, and copies between the device and pinned memory. The calling thread
     * must do nothing else: wait, allocate, use events, copy other memory. */
    int (*capture_begin)(void *stream);
    int (*capture_end)(void *stream, void **graph);
    /* Runs what was recorded, in the order of the stream. A copy reads pinned memory when it
     * runs. */
    int (*graph_launch)(void *graph, void *stream);
    int (*graph_destroy)(void *graph);
};

/* The only symbol of the module. */
const struct gpu_kernels *gpu_kernels(void);
typedef const struct gpu_kernels *gpu_kernels_fn(void);

#endif
