/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels: they compute every number that compute produces. Several instruction sets, one contract:
 * ARITHMETIC.md defines every result as a sequence of IEEE operations, so all of them return the
 * same bits (except which NaN a NaN is).
 *
 * Row invariance (docs/architecture.md): the bits of an output row depend only on the weights, that
 * row's inputs and the KV rows before it, not on how many rows, threads or chunks are computed
 * together with it. Therefore every kernel reduces over k in one fixed order, for one row and for
 * many; no kernel splits k over threads; attention processes tiles of KERNEL_KEY_TILE keys in
 * ascending order from position 0.
 *
 * No kernel allocates memory, takes locks or makes system calls. All float rows are contiguous.
 * Inputs may have any alignment (weights start at any byte of an arena page). */
#ifndef SLUICE_KERNELS_KERNELS_H
#define SLUICE_KERNELS_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/kernels/isa.h"
#include "lib/tensor/kv_type.h"
#include "lib/tensor/tensor_type.h"

/* Version of ARITHMETIC.md: counted up when any bit of a result changes. Whatever keeps results
 * across runs (KV rows, logits) stores it and ignores those of another version. */
#define KERNEL_ARITHMETIC 1

#define KERNEL_KEY_TILE       KV_TILE /* keys per attention tile; changing it changes results */
#define KERNEL_KEY_SEGMENT    512 /* keys per running softmax, a multiple of the tile; the same */
#define KERNEL_HEAD_SIZE_MAX  576 /* of queries and keys */
#define KERNEL_VALUE_SIZE_MAX 512
#define KERNEL_K_MAX          65536        /* longest reduction */
#define KERNEL_STACK_BYTES    (256u << 10) /* of a kernel's frame at most: the compiler checks it */

/* Forms of a prepared activation row. One prepared row serves every weight type of its form. */
enum kernel_form {
    FORM_F32,    /* F32, F16, BF16: F32, unchanged */
    FORM_Q8,     /* GGUF's types with blocks up to 128: int8 per block of 32 with an F32 scale */
    FORM_Q4,     /* Q4_0: like Q8, with another correction term */
    FORM_HALVES, /* NVFP4: like Q8, with a correction term for each 16 elements */
    FORM_SUPER,  /* GGUF's super-blocks: int8 per 256 with an F32 scale, sums of 16 elements */
    FORM_GROUP, /* C8, C4, C2, G4, G2: int8 per group of 64 with an F32 scale and the group's sum */
    FORM__COUNT
};

static inline enum kernel_form kernel_form_of(enum tensor_type type)
{
    switch (type) {
    case TENSOR_F32:
    case TENSOR_F16:
    case TENSOR_BF16: return FORM_F32;
#define UNPACK(name, unit, sub, minimums, code_max, scale_max, min_max, function)                  \
    case TENSOR_##name:                                                                            \
        return (unit) == 256                  ? FORM_SUPER                                         \
               : (unit) == 16                 ? FORM_HALVES                                        \
               : TENSOR_##name == TENSOR_Q4_0 ? FORM_Q4                                            \
                                              : FORM_Q8;
#include "lib/tensor/unpack/unpack.tbl.h"
    case TENSOR_C8:
    case TENSOR_C4:
    case TENSOR_C2:
    case TENSOR_G4:
    case TENSOR_G2: return FORM_GROUP;
    }
    return FORM__COUNT;
}

/* One tensor type of the form, to pass to `activation`. */
static inline enum tensor_type kernel_form_type(enum kernel_form form)
{
    switch (form) {
    case FORM_Q8: return TENSOR_Q8_0;
    case FORM_Q4: return TENSOR_Q4_0;
    case FORM_HALVES: return TENSOR_NVFP4;
    case FORM_SUPER: return TENSOR_Q4_K;
    case FORM_GROUP: return TENSOR_C8;
    case FORM_F32:
    case FORM__COUNT: break;
    }
    return TENSOR_F32;
}

/* A row-major weight matrix, as stored in the model file or the expert store: n rows of k elements,
 * row_bytes apart. */
struct kernel_matrix {
    const void *data;
    uint64_t row_bytes;
    uint32_t k; /* input size, a multiple of the type's block */
    uint32_t n; /* output size */
    enum tensor_type type;
};

/* Lists of positions that rows attend to, instead of all: row r has count[r * step] of them from
 * at[r
 * * stride] on, ascending, each below the number of its positions. Those before a window are left
 * out. The bits are those of attention to all positions, the others with scores of -inf; a row
 * without positions is +0. count NULL: no lists. */
struct kernel_chosen {
    const uint32_t *at, *count;
    size_t stride, step;
};

/* Arguments of attention for the query heads [head_begin, head_end) of `rows` token rows. K and V
 * are whole tiles of KERNEL_KEY_TILE positions, of kv_heads heads each (kernel_kv_tile). Query row:
 * [head][key_size], F32. Row r attends to the keys 0 .. positions + r - 1 (causal), with a window
 * to the last `window` of them; other keys and values are not used, and tiles without any key in
 * use are not read. v NULL: the values are the first value_size elements of the keys. */
struct kernel_attention {
    const float *q;
    const void *k, *v;
    enum kv_type kv_type;
    float *out;                  /* [row][head][value_size] */
    size_t q_stride, out_stride; /* elements from row to row */
    uint32_t rows;
    uint32_t heads, kv_heads;
    uint32_t key_size, value_size; /* up to KERNEL_HEAD_SIZE_MAX, KERNEL_VALUE_SIZE_MAX */
    uint32_t head_begin, head_end;
    uint32_t positions; /* of row 0, >= 1 */
    uint32_t window;    /* 0: none */
    uint32_t ring; /* position p is at p % ring: whole tiles, window + rows - 1 or more; 0: at p */
    float scale;   /* usually 1/sqrt(key_size) */
    float cap;     /* scores become cap * tanh(score / cap); 0: none */
    const float *sinks; /* [heads] a score of each head that has no value; NULL: none */
    struct kernel_chosen chosen;
};

/* Offset in bytes of the tile with a position of a key head. Its layout: F16 and F32 are rows of
 * head_size elements, the others are in kv_layout.h. */
static inline size_t kernel_kv_tile(enum kv_type type, uint32_t kv_heads, uint32_t head_size,
                                    uint32_t position, uint32_t kv_head)
{
    size_t tile = (size_t)(position / KERNEL_KEY_TILE) * kv_heads + kv_head;
    return tile * kv_tile_bytes(type, head_size);
}

/* Where a position is in a ring of so many positions; 0: no ring. */
static inline uint32_t kernel_ring_position(uint32_t ring, uint32_t position)
{
    return ring == 0 ? position : position % ring;
}

/* The first of `positions` keys that a row attends to. */
static inline uint32_t kernel_attention_begin(uint32_t window, uint32_t positions)
{
    return window != 0 && positions > window ? positions - window : 0;
}

/* Arguments of one step of a recurrence, one head: S = decay * S; S = S + k u^T; out = q^T S. With
 * u = rate * (v - k^T S) it is the gated delta rule (Yang, Kautz, Hatamizadeh 2024), with u = rate
 * * v Mamba-2 (Dao & Gu 2024), with a decay for each row of S Kimi delta attention (2025). */
struct kernel_delta {
    const float *k, *q, *v; /* [keys], [keys], [values] */
    const float *decay;     /* row i of S has decay[i * decay_step] */
    uint32_t decay_step;    /* 1, or 0: all have the same */
    float rate;
    uint32_t keys, values;
    const float *state; /* S before the step: [keys][values] */
    float *next;        /* S after it; may be `state` */
    float *out;         /* [values] */
    bool without;       /* the delta term: u = rate * v */
};

/* Arguments of one step of a recurrence whose decays are of the elements of S (Mamba, Gu & Dao
 * 2023), one head: t = softplus(step + bias); S_ij = S_ij exp(t_j rate_ij) + k_i t_j v_j; out =
 * q^T S + skip v. */
struct kernel_scan {
    const float *k, *q;                  /* [keys] */
    const float *v, *step, *bias, *skip; /* [values]; skip may be NULL: none */
    const float *rate;                   /* [keys][values] */
    uint32_t keys, values;
    const float *state; /* S before the step: [keys][values] */
    float *next;        /* S after it; may be `state` */
    float *out;         /* [values] */
};

struct kernel_ops {
    enum kernel_isa isa;
    const char *name; /* kernel_isa_name(isa) */

    /* Prepares one F32 row of k elements for matmul with weights of `type`. dst has
     * kernel_activation_bytes(type, k) bytes, 64-byte aligned. The result depends on
     * kernel_form_of(type) only. Integers are rounded to nearest even, each row separately. */
    void (*activation)(enum tensor_type type, const float *x, uint32_t k, void *dst);

    /* y[r][j] = sum_k w[j][k] * x[r][k] for rows r in 0..rows-1 and outputs j in n_begin..n_end-1.
     * x: prepared activations, x_stride bytes apart. y: y[r * y_stride + j] (F32 elements).
     * Callers may split the work over threads by j (at any boundary) or by r: same bits. */
    void (*matmul)(const struct kernel_matrix *w, uint32_t n_begin, uint32_t n_end, const void *x,
                   size_t x_stride, uint32_t rows, float *y, size_t y_stride);

    /* y = x / sqrt(mean(x^2) + eps) * weight (RMSNorm, Zhang & Sennrich 2019). y may be x. */
    void (*rms_norm)(const float *x, const float *weight, uint32_t n, float eps, float *y);

    /* Rotary embedding, half-rotation (NeoX order), of one head row in place: pairs (i, i + n/2).
     * cos_sin: n/2 pairs (cos, sin) for this position, from kernel_rope_table. */
    void (*rope)(float *x, uint32_t n, const float *cos_sin);

    /* y = silu(gate) * up, silu(x) = x / (1 + exp(-x)). y may be gate. */
    void (*silu_mul)(const float *gate, const float *up, uint32_t n, float *y);

    /* y = (u + 1) * g / (1 + exp(-1.702 g)) with g = min(gate, 7), u = up limited to +-7: the
     * clamped SwiGLU of gpt-oss. y may be gate. */
    void (*swiglu_clamped)(const float *gate, const float *up, uint32_t n, float *y);

    /* y = gelu(gate) * up, gelu(x) = x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))), the
     * tanh form of GELU (Hendrycks & Gimpel 2016). y may be gate. */
    void (*gelu_mul)(const float *gate, const float *up, uint32_t n, float *y);

    /* y = cap * tanh(x / cap), cap > 0 (soft cap of logits, Gemma 2). y may be x. */
    void (*soft_cap)(float cap, const float *x, uint32_t n, float *y);

    /* Attention of one token row or several; online softmax over tiles of KERNEL_KEY_TILE keys,
     * merged ascending. A key is read once for all heads of its group. */
    void (*attention)(const struct kernel_attention *a);

    /* y += a * x */
    void (*axpy)(float a, const float *x, uint32_t n, float *y);

    /* y[i] = sum over taps t of w[t * stride + i] * x[t][i]: one output of a convolution over time,
     * each of the n channels alone. y is none of the inputs. */
    void (*conv)(const float *const *x, const float *w, size_t stride, uint32_t taps, uint32_t n,
                 float *y);

    /* x = silu(x) */
    void (*silu)(float *x, uint32_t n);

    /* y = x * sigmoid(gate). y may be gate or x. */
    void (*sigmoid_mul)(const float *gate, const float *x, uint32_t n, float *y);

    /* y = a * b. y may be a or b. */
    void (*mul)(const float *a, const float *b, uint32_t n, float *y);

    void (*delta)(const struct kernel_delta *d);

    void (*scan)(const struct kernel_scan *s);

    /* A row as F16 (round to nearest even). */
    void (*to_f16)(const float *x, uint32_t n, uint16_t *y);

    /* One row of a matrix as F32 (token embedding). */
    void (*row_to_f32)(const struct kernel_matrix *w, uint32_t row, float *y);
};

/* Appends one row of keys or values of a head to its tile; `position` is that in the tile.
 * Quantised types round here, once; the row never changes. */
void kernel_kv_store(const struct kernel_ops *ops, enum kv_type type, enum kv_side side,
                     const float *x, uint32_t head_size, void *tile, uint32_t position);

/* Bytes of one prepared activation row, a multiple of 64. */
size_t kernel_activation_bytes(enum tensor_type type, uint32_t k);
/* The most that kernel_activation_bytes returns for any type: forms pad short rows to whole
 * blocks. */
size_t kernel_activation_bytes_largest(uint32_t k);

/* The kernels of one instruction set, or NULL when this CPU or this build lacks it. */
const struct kernel_ops *kernel_ops_of(enum kernel_isa isa);

/* The kernels named by `wanted` (a name of isa.tbl.h), or the fastest that this CPU supports (NULL
 * or "auto"). NULL when the name is unknown, or this CPU or build lacks the set. */
const struct kernel_ops *kernel_ops_select(const char *wanted);

/* A rotary embedding: angle i < dims / 2 of a position is position * theta^(-2i/dims) (RoFormer, Su
 * et al. 2021), scaled for a longer context in one of these ways. */
struct kernel_rope {
    uint32_t dims;
    double theta;
    const float *factors; /* dims / 2 divisors of the angles; NULL: none */
    double factor;        /* divides the angles: all (linear), with YaRN the slow ones; 0: none */
    bool yarn;            /* Peng et al. 2023 */
    double context;       /* YaRN: the trained context, in tokens */
    double beta_fast, beta_slow; /* YaRN: angles with more turns in it than beta_fast are kept,
                                  * those with fewer than beta_slow divided */
    bool truncate;               /* YaRN: these bounds are rounded outwards to whole angles */
    double magnitude;            /* of cos and sin; 0: 1, with YaRN 1 + 0.1 log(factor) */
};

/* YaRN's factor of a context `factor` times as long: 1 + multiplier * log(factor). */
double kernel_yarn_magnitude(double multiplier, double factor);

/* cos_sin[2*i], cos_sin[2*i+1] = cos, sin of the angles of a position. Computed in double, so every
 * process and ISA has the same table. */
void kernel_rope_table(const struct kernel_rope *rope, uint32_t position, float *cos_sin);

/* Rotary embedding of one head row in place, adjacent elements: pairs (2i, 2i + 1). Memory-bound
 * and short, so there is one implementation for all instruction sets. */
void kernel_rope_pairs(float *x, uint32_t n, const float *cos_sin);

/* The following, too, have one implementation for all instruction sets. NaN stays NaN. */
/* y = x - mean(x), the mean in double; then rms_norm makes a LayerNorm of it. y may be x. */
void kernel_center(const float *x, uint32_t n, float *y);
/* x limited to -limit .. limit, in place. */
void kernel_clamp(float *x, uint32_t n, float limit);
/* y = max(gate, 0) * up. y may be gate. */
void kernel_relu_mul(const float *gate, const float *up, uint32_t n, float *y);

#endif
