/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of lib/core. */
#ifndef SLUICE_CORE_INTERNAL_H
#define SLUICE_CORE_INTERNAL_H

#include "lib/base/assert.h"
#include "lib/core/core.h"
#include "lib/core/pool.h"
#include "lib/model/limits.h"
#include "lib/tensor/tensor_type.h"

#define CORE_MAGIC 0x434f5245u

/* Rows of an expert that a thread gathers at a time: enough to reuse a weight row in the nearest
 * cache, few enough for a buffer per thread. */
#define GATHER_ROWS 64
/* Outputs are divided at multiples of this, so that threads do not write the same cache line. */
#define COLUMN_UNIT 16
/* Multiplications below which a product runs on one thread. */
#define SERIAL_WORK (1u << 16)

static inline uint32_t form_bit(const struct kernel_matrix *w)
{
    return 1u << kernel_form_of(w->type);
}

/* Rows of activations in every form that the model needs. */
struct form_rows {
    uint32_t k;
    size_t stride[FORM__COUNT]; /* bytes */
    uint8_t *base[FORM__COUNT];
};

/* Sets the length of a row: for another matrix of at most the length that the rows were made for. */
static inline void form_rows_set(struct form_rows *f, uint32_t k)
{
    f->k = k;
    for (int i = 0; i < FORM__COUNT; i++)
        f->stride[i] = i == FORM_F32
                           ? (size_t)k * sizeof(float)
                           : kernel_activation_bytes(kernel_form_type((enum kernel_form)i), k);
}

static inline float *form_floats(const struct form_rows *f, uint32_t row)
{
    return (float *)(void *)(f->base[FORM_F32] + row * f->stride[FORM_F32]);
}

static inline const void *form_row(const struct form_rows *f, enum tensor_type type, uint32_t row)
{
    enum kernel_form form = kernel_form_of(type);
    return f->base[form] + row * f->stride[form];
}

static inline size_t form_stride(const struct form_rows *f, enum tensor_type type)
{
    return f->stride[kernel_form_of(type)];
}

#define CORE_PROJECTIONS 4
#define CORE_TAPS_MAX    8

struct core_layer {
    struct layer_attention attention;
    uint32_t q_size, k_size, v_size,
        mix_size;                             /* floats of a row: all q, k, v heads, their output */
    uint32_t group;                           /* query heads of a key head */
    float scale;                              /* of scores */
    struct kernel_matrix q_a, kv_a, k_b, v_b; /* of MLA; the last two: a matrix per head. Its q is
                                               * W_q, or with q_a W_q_b */
    const float *q_a_norm, *kv_a_norm;
    uint32_t query_forms;                      /* of MLA: of what q_a makes */
    struct kernel_matrix q, k, v, out, router; /* v.data NULL: the values are the keys' products */
    struct kernel_matrix dense[EXPERT__COUNT]; /* of a layer without experts, or shared expert */
    struct kernel_matrix shared_router;        /* data NULL: the shared expert has no gate */
    /* NULL: the model has none */
    const float *attn_norm_bias, *ffn_norm_bias;
    const float *attn_norm, *ffn_norm, *q_norm, *k_norm, *q_bias, *k_bias, *v_bias, *out_bias;
    const float *router_bias, *logit_bias, *sinks; /* of the choice; of the logits */
    const float *expert_bias[EXPERT__COUNT];       /* [expert][outputs] */
    const float *attn_post_norm;                   /* of attention's result, before it is added */
    const float *q_scale, *k_scale, *v_scale, *out_scale, *dense_scale[EXPERT__COUNT];
    const float *expert_scales[EXPERT__COUNT]; /* [expert] */
    const float *ffn_post_norm;                /* the same of the feed-forward part */
    const float *dense_post_norm, *experts_norm, *experts_post_norm; /* FFN_DENSE_AND_EXPERTS */
    const float *router_scale; /* FFN_DENSE_AND_EXPERTS: of the router's input; else NULL */
    const float *layer_scale;  /* factor of the residual stream behind the layer */
    /* mixers with a recurrent state */
    struct kernel_matrix project[CORE_PROJECTIONS]; /* of the input; data NULL: none */
    const float *project_scale[CORE_PROJECTIONS];
    uint32_t projected;                             /* outputs of all */
    uint32_t state_number;                          /* of the layer, among those with a state */
    bool beta_alpha;                                /* the last matrix has both */
    const float *conv;                              /* [taps][channels] */
    const float *delta_dt, *delta_a, *delta_norm;   /* [v heads], [v heads], [size] */
    struct model_router routing;                    /* rule of the router */
    uint32_t in_forms, mix_forms;                   /* bit per enum kernel_form */
    uint32_t gate_forms, expert_forms, inner_forms; /* router and experts; experts; down */
    uint32_t dense_forms;                           /* down of `dense` */
};

/* A step computes one part of a layer for the rows of a pass and adds it to the residual stream.
 * -1 with *error: the pass ends. */
typedef int step_fn(struct core *c, struct error *error);

struct core_step {
    step_fn *run;
    uint32_t layer;
};

struct expert_job { /* an expert in the current batch */
    const struct expert_item *item;
    uint32_t rows;
    uint32_t pair_base;  /* its first (token, rank) pair: token list and output rows */
    uint32_t inner_base; /* its first row of the inner buffers */
};

/* Queries that a thread of MLA computes at a time. */
#define MLA_QUERIES 64

/* Sizes of MLA, the same in all layers, and its rows. */
struct core_mla {
    uint32_t nope, rope, value; /* of a head of the published form: keys' parts; values */
    uint32_t rank, key;         /* of a latent; with the rotated key */
    uint32_t q_rank;
    struct form_rows query; /* [chunk] of q_rank elements; 0: not used */
};

/* A block of queries, [MLA_QUERIES] rows of each. */
struct mla_thread {
    float *q;                /* of the published form */
    float *key_q;            /* for latents and rotated keys */
    struct form_rows nope;   /* the first part of q, without F32 */
    struct form_rows latent; /* the result */
};

/* The queue of a layer's experts is a window: [done, pinned) is pinned or being computed, the rest waits
 * for pin capacity. */
struct expert_window {
    uint32_t done, pinned, count, skipped;
    uint64_t bytes, pin_limit, slot;
    bool open; /* by core_experts_open, in this layer */
};

struct core_thread { /* per-thread scratch */
    struct form_rows gather, inner;
    struct mla_thread mla;
    float *router; /* scratch of routing, then a row of logits */
};

struct core {
    uint32_t magic;
    const struct model_index *model;
    struct model_hparams hp;
    const struct kernel_ops *ops;
    struct weights_source source;
    prefill_order_fn prefill_order;
    struct pool *pool;
    uint32_t threads, chunk, output_rows;
    uint32_t q_size, k_size, v_size, mix_size;    /* of the largest layer */
    uint32_t rope_size;                           /* floats of the angles of one row and table */
    struct kernel_rope ropes[LAYER_KIND__COUNT];  /* dims 0: no layer uses it */
    uint64_t expert_slot_bytes[MODEL_LAYERS_MAX]; /* the largest of each layer */

    struct core_layer *layer;
    float *vectors;          /* all vectors of the model */
    struct core_step *steps; /* of a pass, in order; two per layer */
    uint32_t step_count;
    bool two_ffn_parts; /* some layer is FFN_DENSE_AND_EXPERTS */
    struct kernel_matrix embedding, output;
    const float *output_norm, *rope_factors, *output_scale; /* the last two: usually NULL */
    const float *output_norm_bias, *output_bias;            /* the same */
    float residual;                                         /* factor of what a part adds */
    uint32_t output_forms;

    float *delta_q_weight, *delta_k_weight; /* of the L2 norm of a head */
    uint32_t states;                        /* layers with a recurrent state */
    uint32_t projected_max;                 /* floats of a row of `projected` */

    /* one forward pass */
    const struct core_sequence *sequences;
    uint32_t sequence_count;
    struct core_row *row;    /* [chunk]; scratch */
    struct expert_step step; /* step.layer: the current layer */
    const float *resumed;    /* [rows][hidden] where the pass begins; NULL: embeddings */
    uint32_t output_row, output_count;
    const uint32_t *targets;
    float *scores;

    /* scratch; sizes in scratch.c */
    void *scratch;
    size_t scratch_bytes;
    float *x;             /* [chunk][hidden] the residual stream */
    struct form_rows in;  /* [chunk] normalised input of attention, then of router and experts */
    struct form_rows mix; /* [chunk] output of attention */
    float *q, *k, *v;     /* [chunk][heads]; of MLA: k only, latents and rotated keys */
    float *gated_q;       /* [chunk][heads][2]: q and gate of each head, of gated attention */
    float *projected;     /* [chunk][projected_max] projections of a mixer with a recurrent state */
    float *zeros;         /* [channels] inputs of the convolution before the sequence */
    struct core_mla mla;  /* key 0: no layer has it */
    float *y;             /* [chunk][hidden] output of attention, of the dense network */
    float *into;          /* [chunk][hidden] what the feed-forward networks add to: x or a sum */
    float *sum;           /* [chunk][hidden] FFN_DENSE_AND_EXPERTS: output of the dense network */
    float *experts_sum;   /* [chunk][hidden] the same of the experts; before them, the gate input */
    float *ones;          /* [hidden] weights of a norm without weights */
    float *roots;         /* [hidden] all 1/sqrt(hidden) */
    uint32_t rows_max;    /* rows that the scratch memory has: the chunk */
    float *rope;          /* [table][chunk][rope_size] cos and sin */
    float *router_logits; /* [chunk][experts] */
    struct route *routes; /* [chunk][top_k] */
    uint32_t *pair_of;    /* [chunk][top_k] -> pair */
    uint32_t *pair_token; /* pair -> row */
    float *pair_out;      /* pair -> [hidden] */
    float *gate, *up;     /* [inner_rows][inner] */
    uint32_t inner_rows;
    struct expert_item *items;  /* [experts] by expert */
    struct expert_item **queue; /* [experts] in order of work */
    struct prefill_item *order; /* [experts] */
    uint32_t *pair_base;        /* [experts + 1] */
    struct expert_job *jobs;    /* [experts] */
    uint32_t job_count;
    struct expert_window window;
    bool sum_in_down;        /* decode: the down phase also sums over ranks */
    float *next_counts;      /* [2][experts]: tokens, weight before; of the next layer */
    float *importance;       /* [experts] masked routing: of the unmasked choice */
    bool *allowed;           /* [experts] masked routing */
    struct route *predicted; /* [chunk][top_k] experts of the next layer */
    float *logits;           /* [output_rows][vocab] */
    struct form_rows last;   /* [output_rows] normalised rows before the output matrix */
    struct form_rows dense;  /* [<= GATHER_ROWS] inner rows of the dense network */
    float *dense_up;         /* [<= GATHER_ROWS][its inner size] */
    float *shared_weight;    /* [<= GATHER_ROWS] sigmoid of the shared expert's gate */
    uint32_t dense_first, dense_rows;
    struct core_thread *thread; /* [threads] */
};

/* scratch.c: size for `chunk` rows; with base != NULL also sets the pointers. */
size_t core_scratch_layout(struct core *c, uint32_t chunk, uint8_t *base);

/* bind.c: all weights; `vectors` has core_vector_floats() and belongs to the core afterwards. */
void core_bind(struct core *c, const struct core_config *config, float *vectors);
size_t core_vector_floats(const struct model_index *model);

/* core.c: computes the integer forms in `forms` of a row from its floats. */
void core_make_forms(const struct core *c, const struct form_rows *f, uint32_t row, uint32_t forms);

/* The norm of a row of n floats; bias NULL: none. y may be x. */
void core_norm(const struct core *c, const float *x, const float *weight, const float *bias,
               uint32_t n, float *y);

/* y = activation(gate) * up. y may be gate. */
void core_activate(const struct core *c, const float *gate, const float *up, uint32_t n, float *y);

/* Runs fn over the rows: on all threads if there are enough rows, else on the caller. fn divides
 * [0, core->step.rows) among the threads. */
void core_run_rows(struct core *c, uint32_t rows, pool_fn *fn);

/* Runs fn over the n outputs of a matrix, for `rows` rows. */
static inline void core_run_columns(struct core *c, uint32_t n, uint32_t k, uint32_t rows,
                                    pool_fn *fn)
{
    pool_run_parts(c->pool, pool_parts(c->pool, (uint64_t)n * k * rows), fn, c);
}

/* A product, times *scale: the same arguments as kernel_ops.matmul. scale NULL: the matrix has none. */
void core_product(const struct core *c, const struct kernel_matrix *w, const float *scale,
                  uint32_t n_begin, uint32_t n_end, const void *x, size_t x_stride, uint32_t rows,
                  float *y, size_t y_stride);
void core_attention(struct core *c); /* attention.c */
void core_deltanet(struct core *c);  /* recurrent.c */
void core_shortconv(struct core *c); /* recurrent.c */

/* attention.c: the norm of the rows, and the size of those of c->mix. */
void core_mixer_input(struct core *c);

/* recurrent.c: the projections of a mixer with a recurrent state. */
void core_mixer_project(struct core *c);

/* The layer's part of the recurrent state of a sequence (model_state_floats): before the pass (NULL: the
 * sequence begins), and after it. */
void core_state_of(const struct core *c, uint32_t sequence, const float **before, float **after);

/* The older inputs of a convolution over time, the oldest first. */
struct core_window {
    const float *past[CORE_TAPS_MAX - 1];
};
struct core_window core_window_open(const struct core *c, const float *state);
/* y of n channels from `channel` on; w: [taps][channels], from that channel on. */
void core_window_conv(const struct core *c, const struct core_window *window, const float *now,
                      const float *w, uint32_t channel, uint32_t n, float *y);
void core_window_push(const struct core *c, struct core_window *window, const float *now);
/* Copies it to the start of a state. */
void core_window_keep(const struct core *c, const struct core_window *window, uint32_t channel,
                      uint32_t n, float *state);

void core_attention_norm(struct core *c);   /* attention.c: input of a layer's first part */
void core_attention_output(struct core *c); /* attention.c: of c->mix, added to the rows */
void core_mla(struct core *c);              /* mla.c */
int core_experts(struct core *c, struct error *error); /* experts.c */
/* Requests the experts of the routes before core_experts, which then computes these. */
void core_experts_open(struct core *c);
void core_experts_gate(struct core *c); /* router.c: norm and routes */
/* Routes from the input of the layer; core_experts_gate then is only the norm. */
void core_route_first(struct core *c);
void core_ffn_norm(struct core *c, uint32_t row); /* router.c: input of the second part */
/* router.c: what the router reads, before router_scale if the layer has one (weights.h). */
const float *core_gate_input(struct core *c, uint32_t row);
/* Masked decode, after a chosen expert was LOST: routes again. */
void core_route_again(struct core *c);
void core_publish_next(struct core *c); /* router.c */
/* dense.c: what a layer computes while its experts are read: the shared expert, or the dense network
 * next to them, or nothing. Afterwards c->in has the input of the experts. */
void core_while_reading(struct core *c);
void core_dense_layer(struct core *c); /* dense.c: norm and network of a layer without experts */
/* dense.c: adds both parts of a FFN_DENSE_AND_EXPERTS layer, normed, to the residual stream. */
void core_join_parts(struct core *c);
void core_compute_jobs(struct core *c); /* ffn.c */
void core_sum_ranks(struct core *c);    /* ffn.c */

/* Progress report in loops over rows or experts of a chunk. */
static inline void core_alive(const struct core *c, uint32_t part)
{
    if (part == 0 && c->step.rows > 1 && c->source.alive)
        c->source.alive(c->source.self);
}

static inline const struct core_sequence *core_sequence_of(const struct core *c, uint32_t row)
{
    return &c->sequences[c->row[row].sequence];
}

/* Number of rows from `row` on, at most `most`, that are consecutive positions of one sequence. */
static inline uint32_t core_run_of(const struct core *c, uint32_t row, uint32_t most)
{
    uint32_t n = 1;
    while (n < most && c->row[row + n].sequence == c->row[row].sequence &&
           c->row[row + n].position == c->row[row].position + n)
        n++;
    return n;
}

static inline struct core_layer *core_layer_now(struct core *c)
{
    return &c->layer[c->step.layer];
}

static inline float *core_into(const struct core *c, uint32_t row)
{
    return c->into + (size_t)row * c->hp.hidden;
}

static inline float *core_mixer_row(const struct core *c, uint32_t row)
{
    return c->projected + (size_t)row * c->projected_max;
}

/* cos and sin of a row. */
static inline float *core_angles(const struct core *c, uint32_t table, uint32_t row)
{
    return c->rope + ((size_t)table * c->rows_max + row) * c->rope_size;
}

static inline float *core_x(const struct core *c, uint32_t row)
{
    return c->x + (size_t)row * c->hp.hidden;
}

#endif
