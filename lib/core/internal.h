/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of lib/core. */
#ifndef SLUICE_CORE_INTERNAL_H
#define SLUICE_CORE_INTERNAL_H

#include "lib/base/assert.h"
#include "lib/core/core.h"
#include "lib/core/entries/entries.h"
#include "lib/device/device.h"
#include "lib/model/limits.h"
#include "lib/tensor/tensor_type.h"

#define CORE_MAGIC 0x434f5245u

static inline uint32_t form_bit(const struct device_matrix *w)
{
    return 1u << kernel_form_of(w->type);
}

#define CORE_PROJECTIONS 6
#define CORE_FACTORED    2

/* Where weights are, on the device. A matrix without data, a vector without address: the layer has
 * none. x is a row after the norm at the beginning of the part; s(v) y is y with a factor per
 * output. */

/* MIXER_ATTENTION. q = s(q_scale) W_q x + q_bias, k and v alike; without v: v = k. Each head of q
 * and k is normed with q_norm and k_norm and rotated. */
struct core_attention_weights {
    struct device_heads heads;
    struct device_matrix k, v;
    struct device_at q_norm, k_norm;
    struct device_at q_bias, k_bias, v_bias;
    struct device_at k_scale, v_scale;
};

/* MIXER_MLA. q = W_q x, or W_q norm(W_q_a x); the latent and the rotated key are W_kv_a x. Each
 * head has its matrix in k_b and v_b: its key is k_b latent, its value v_b latent. */
struct core_mla_weights {
    struct device_latent shape;
    struct device_matrix q_a, kv_a, k_b, v_b;
    struct device_at q_a_norm, kv_a_norm, k_norm; /* k_norm: of the rotated key, or none */
    uint32_t query_forms;                         /* of norm(W_q_a x) */
};

/* Mixers with a recurrent state. The projections s(project_scale) project x stand next to each
 * other in a row; a convolution over time reads them, and a recurrence its rates and gates. Some,
 * at most CORE_FACTORED, are matrices in two factors: second (project x). */
struct core_recurrent_weights {
    struct device_matrix project[CORE_PROJECTIONS], second[CORE_PROJECTIONS];
    struct device_at project_scale[CORE_PROJECTIONS];
    uint32_t second_forms; /* of project x */
    uint32_t projected;    /* outputs of all projections */
    uint64_t state_at;     /* floats: its place in the state of a sequence */
    bool beta_alpha;       /* the last projection has both */
    /* Of MIXER_MAMBA1, by which v selects: W_select v is the first factor of the steps, then k and
     * q; W_step of the former are the steps. Each has a norm. */
    struct device_matrix select, step;
    struct device_at step_norm, k_norm, q_norm;
    struct device_at rates;           /* [v heads][key_size][value_size] */
    uint32_t select_forms;            /* of v; second_forms: of the first factor of the steps */
    struct device_at conv;            /* [taps][channels] */
    struct device_at conv_bias, skip; /* [channels], [v heads]; or none */
    /* [v heads], with a decay per row [v heads][key_size]; [v heads]; by the rule. With decays of
     * elements, delta_dt and skip are [channels]. */
    struct device_at delta_dt, delta_a, delta_norm;
};

/* An indexer (index); without data: the layer has none, or it is not computed. Some forms have no
 * weights of heads, and some norms of queries. */
struct core_index_weights {
    struct device_matrix q, k, weights, gate;
    struct device_at q_norm, k_norm, k_norm_bias, gate_bias;
    uint64_t state_at; /* floats: the place of an incomplete pool in the state of a sequence */
};

/* Where a part of a layer, or the output, reads the residual and adds to it (residual). */
struct core_site {
    struct device_at norm, norm_bias;
    /* RESIDUAL_GATED. stream_forms: of down and inject; up_forms: of up. */
    struct device_matrix down, up, inject;
    uint32_t stream_forms, up_forms;
    /* RESIDUAL_BANK: of the sources; how many sums of blocks are read, and which stream becomes one
     * before a result is added, 0: none. */
    struct device_at score;
    uint32_t sums, ends;
    /* RESIDUAL_MIXED. mix without data: the mean of the streams is read; stream_forms: of mix. */
    struct device_matrix mix;
    struct device_at mix_scale, mix_base;
};

/* A layer that begins with n-grams: products of their rows are keys of all streams, and a value. */
struct core_ngrams {
    struct device_matrix key, value;
    struct device_at key_norm, query_norm, conv_norm, conv; /* conv: [taps][streams * hidden] */
    uint32_t forms;                                         /* of the rows */
};

struct core_layer {
    /* The mixer: x = what it reads at its site; rows += attn_post_norm(s(out_scale) W_out mix +
     * out_bias). */
    struct core_site mixer_site;
    struct device_at attn_post_norm;
    struct layer_attention attention; /* zero if the mixer has no keys */
    uint32_t q_size, k_size, v_size;  /* floats of a row: all heads of q, k and v */
    uint32_t mix_size;                /* and of the mixer's result */
    struct device_matrix q, out;      /* q: of attention and MLA */
    struct device_at q_scale, out_scale, out_bias;
    struct device_matrix gate; /* of heads (struct layer_attention) */
    struct device_at gate_scale;
    union { /* by layer_parts.mixer */
        struct core_attention_weights attn;
        struct core_mla_weights mla;
        struct core_recurrent_weights recurrent;
    };

    struct device_at sinks; /* [heads] a score that belongs to no position */
    struct core_index_weights index;
    struct core_entries_weights entries; /* of MIXER_ENTRIES, which has those of MLA, too */

    /* The feed-forward part: x = what it reads at its site, or, in parallel blocks, that of the
     * mixer; what follows is added to the rows, after ffn_post_norm if there is one. */
    struct core_site ffn_site;
    struct device_at ffn_post_norm;
    struct device_at layer_scale; /* factor of the rows after the layer */
    struct core_ngrams ngrams;

    /* Router: logits = W_router x + logit_bias; x is multiplied with router_scale before, if there
     * is one. */
    struct device_matrix router;
    struct device_matrix table;    /* of the experts that a token uses; without data: none */
    struct device_at router_scale; /* FFN_DENSE_AND_EXPERTS */
    struct device_at router_bias, logit_bias; /* of the choice; of the logits */
    struct model_router routing;              /* its rule, without router_bias */

    /* An expert: s(down) W_down (act(s(gate) W_gate x + bias) * (s(up) W_up x + bias)) + bias;
     * without up, that of gate takes its place. Its matrices come from the source. */
    struct device_at expert_bias[EXPERT__COUNT];   /* [expert][outputs] */
    struct device_at expert_scales[EXPERT__COUNT]; /* [expert] */

    /* The same network of all tokens: of a layer without experts, next to experts (each part with a
     * norm before and after it), or the shared expert, whose result has the factor
     * sigmoid(W_shared_router x). */
    struct device_matrix dense[EXPERT__COUNT];
    struct device_at dense_scale[EXPERT__COUNT];
    struct device_matrix shared_router; /* none: the factor is 1 */

    /* Experts of another width than the layer: their x is s(latent_down_scale) W_latent_down x, and
     * s(latent_up_scale) W_latent_up of their sum is added. */
    struct device_matrix latent_down, latent_up;
    struct device_at latent_down_scale, latent_up_scale;
    struct device_at latent_norm; /* of their sum, before that; or none */

    struct device_at dense_post_norm, experts_norm, experts_post_norm; /* FFN_DENSE_AND_EXPERTS */

    /* Forms of rows that products read, a bit per enum kernel_form. */
    uint32_t in_forms, mix_forms; /* of the mixer's x, of its result */
    uint32_t gate_forms;          /* of router, dense network, and experts if they have one norm */
    uint32_t expert_forms;        /* of the experts' x */
    uint32_t router_forms;        /* of the router's, and of that which predicts the next layer */
    uint32_t inner_forms, dense_forms; /* of what W_down reads: of experts, of the dense network */
};

/* The queue of a layer's experts is a window: [done, pinned) is pinned or being computed, the rest
 * waits for pin capacity. */
struct expert_window {
    uint32_t done, pinned, count, skipped;
    uint64_t bytes, pin_limit, slot;
    bool open; /* by core_experts_open, in this layer */
};

/* Tokens of a device that has all experts (pass/resident_pass.c). */
struct core_resident {
    bool logits_there;                /* the last pass was such a token: they are computed */
    bool counted;                     /* experts */
    enum precision precision;         /* that serves */
    uint32_t experts;                 /* of the model; 0: the device cannot have them */
    uint32_t next, found;             /* the next to check; so many before it are on the device */
    uint64_t lost;                    /* device_ops.lost, when they were checked */
    struct device_result routes;      /* [layers][top_k] */
    struct device_sequence *sequence; /* [layers] */
};

/* What a pass is, while it runs. */
struct core_pass_now {
    const struct core_sequence *sequences;
    uint32_t sequence_count;
    struct expert_step step; /* step.layer: the current layer */
    const float *resumed;    /* [rows][residual] where the pass begins; NULL: embeddings */

    bool chooses; /* an indexer does, for some row */

    /* Of the last layer with an indexer (core_chosen). */
    struct device_chosen chosen;

    /* Of the current layer. */
    struct device_sequence at[DEVICE_SEQUENCES_MAX]; /* what it has of each sequence */
    struct device_at into; /* what the feed-forward networks add to: the residual stream or a sum */
    struct route *route;   /* [rows][top_k], fetched; core_predicts_next */
    struct expert_window window;
    uint32_t job_count;
};

/* Memory that passes use, for `chunk` rows; sizes in scratch.c. */
struct core_scratch {
    struct device_at device; /* all of it */
    void *host;
    size_t bytes;      /* of both */
    uint32_t rows_max; /* the chunk */

    /* On the device. A mixer reads `in`, writes `mix`, and y = W_out mix is added to x. */
    struct device_at x;         /* [chunk] the residual: model_residual_floats of each row */
    struct device_rows in;      /* [chunk] normed rows: the mixer's, then of router and experts */
    struct device_rows mix;     /* [chunk] the result of the mixer */
    struct device_rows early;   /* [chunk] FFN_DENSE_THEN_EXPERTS: normed, of router and experts */
    struct device_at q, k, v;   /* [chunk][heads]; of MLA: k only, latents and rotated keys */
    struct device_at gates;     /* [chunk] of heads, with q where their matrix has both */
    struct device_rows groups;  /* [chunk][groups] results of heads, of MIXER_ENTRIES */
    struct device_at projected; /* [chunk][projected_max] of a mixer with a recurrent state */
    struct device_rows factored[CORE_FACTORED]; /* [chunk] between the factors of a projection */
    struct device_at zeros;        /* [channels] inputs of the convolution before the sequence */
    struct device_rows query;      /* [chunk] of q_rank elements, of MLA */
    struct device_at y;            /* [chunk][hidden] result of attention, of the dense network */
    struct device_at rope;         /* [table][chunk][rope_size] cos and sin */
    struct device_at ones;         /* [core_ones] weights of a norm without weights */
    struct device_at roots;        /* [hidden] all 1/sqrt(hidden) */
    struct device_at normed_scale; /* [hidden] all that of model_hparams; none: it is 0 */

    struct device_result router_logits; /* [chunk + 1][experts]; host: [chunk] */
    struct device_result routes;        /* [chunk + 1][top_k]; host: [chunk] */
    struct device_result predicted;     /* [chunk][top_k] experts of the next layer */
    struct device_result importance;    /* [experts] masked routing: of the unmasked choice */
    float *choice_bias;                 /* [layers][experts]; NULL: the device is the host */
    bool has_bias[MODEL_LAYERS_MAX];    /* fetched once: it does not change */

    struct device_at gate, up; /* [inner_rows][inner] of experts; up: if they have one */
    uint32_t inner_rows;
    struct device_at pair_out;      /* pair -> [hidden] */
    struct device_rows dense;       /* [<= DEVICE_BLOCK_ROWS] inner rows of the dense network */
    struct device_at dense_up;      /* the same rows of its up matrix */
    struct device_at shared_weight; /* [<= DEVICE_BLOCK_ROWS] sigmoid of the shared expert's gate */
    /* [chunk][hidden]: the sum of networks with a norm after it; of FFN_DENSE_AND_EXPERTS, those of
     * the dense network and of the experts, where the gate input is before. */
    struct device_at sum, experts_sum;
    struct device_rows expert_in; /* [chunk] with core_expert_inputs: these */
    struct device_rows
        latent_sum; /* [chunk] of expert_width, if the model has it: sums of experts */

    /* Of several streams, [<= DEVICE_BLOCK_ROWS] but for the last two,
     * [chunk][model_stream_weights]: the norms, what is between the factors of their gates, the
     * gates; logits and weights of what is added. Of RESIDUAL_BANK only weights,
     * [<= DEVICE_BLOCK_ROWS][streams], of what is read. */
    struct device_rows streams, stream_rank;
    struct device_at stream_gates, stream_logits, stream_weights;
    struct device_at stream_share; /* 1 / streams */
    /* Of n-grams, [<= DEVICE_BLOCK_ROWS]: rows of the table, and the products with their matrix of
     * values. On the host: numbers of rows, [chunk][rows of a token]; and [<= DEVICE_BLOCK_ROWS]
     * [rows of a token] what is embedded, and rows of a table on storage, as they are there. */
    struct device_rows ngrams;
    struct device_at ngram_values;
    uint32_t *ngram_number;
    struct device_row *ngram_row;
    uint8_t *ngram_bytes;

    /* Of an indexer (index): [chunk] keys, their gates, weights of heads, lists of positions and
     * how many they have; [core_index_rows] queries of all heads, scores of all positions for each
     * list. */
    struct device_at index_k, index_gate, index_w, index_at, index_count, index_q, index_scores;

    struct device_rows last;     /* [output_rows] normed rows before the output matrix */
    struct device_result logits; /* [output_rows][vocab] */
    struct device_result scores; /* [output_rows] */

    /* On the host. */
    float *fetched; /* [chunk] rows of the residual for a hook; NULL: the device is the host */
    struct device_row *row;        /* [chunk] */
    struct expert_row *source_row; /* [chunk] the same rows, for the source */
    uint32_t *pair_of, *item_of;   /* [chunk][top_k] -> pair, item */
    uint32_t *pair_row;            /* pair -> row */
    struct device_term *terms;     /* [chunk][top_k] */
    struct expert_item *items;     /* [items: experts * forms] by expert, then form */
    struct expert_item **queue;    /* [items] in order of work */
    struct prefill_item *order;    /* [items] their numbers, as experts */
    uint32_t *pair_base;           /* [items + 1] */
    struct device_job *jobs;       /* [items] */
    uint32_t *job_item;            /* [items] whose jobs these are */
    float *next_counts;            /* [2][experts]: tokens, weight before; of the next layer */
    uint32_t *known;               /* [experts]: tokens, of a layer with a table */
    bool *allowed;                 /* [experts] masked routing */
};

struct core {
    uint32_t magic;
    const struct model_index *model;
    struct model_hparams hp;
    struct weights_source source;
    prefill_order_fn prefill_order;
    uint32_t forms; /* core_config.forms; 1: experts have none */
    struct device *device;
    bool owns_device;
    bool finds_layer;    /* core_find_layer */
    uint32_t first, end; /* its layers are [first, end) */
    uint32_t chunk, output_rows;
    uint32_t positions;  /* of a sequence, at most */
    size_t output_bytes; /* of core_config */

    /* Weights, and what follows from their shapes (bind.c). */
    struct core_layer *layer; /* [layers] */
    struct device_at vectors; /* all vectors of the model */
    struct device_matrix embedding, output, ngram_table;
    struct core_site output_site;
    struct device_at output_scale, output_bias;
    uint32_t output_forms;
    struct device_at rope_factors;                   /* usually none */
    struct device_at delta_q_weight, delta_k_weight; /* of the L2 norm of a head */
    struct device_at fixed_ones; /* fixed decays: [channels] the only tap, [heads] rates */
    struct device_latent latent; /* the largest sizes of MLA; key 0: no layer has it */
    struct device_index index;   /* heads 0: no layer computes one */
    float residual;              /* factor of what a part adds */
    bool ffn_sums;               /* some layer has a norm of their sum */
    bool entries;                /* some layer is MIXER_ENTRIES */
    bool wrong_rows;             /* of some table of experts */
    bool two_ffn_parts;          /* some layer is FFN_DENSE_AND_EXPERTS */
    bool early_experts;          /* or FFN_DENSE_THEN_EXPERTS */
    uint32_t q_size, k_size, v_size, mix_size, gate_size; /* of the largest layer */
    uint32_t rope_size;                          /* floats of the angles of one row and table */
    struct kernel_rope ropes[LAYER_KIND__COUNT]; /* dims 0: no layer uses it */
    bool rope_has_factors[LAYER_KIND__COUNT]; /* those of the file: full layers, if they rotate */
    uint32_t states;                          /* layers with a recurrent state */
    uint32_t projected_max;                   /* floats of a row of scratch.projected */
    uint32_t factored_max;                    /* of a row of scratch.factored */
    uint64_t expert_slot_bytes[MODEL_LAYERS_MAX]; /* the largest of each layer */

    uint32_t passes; /* that the core numbered */
    struct core_pass_now pass;
    struct core_scratch scratch;
    struct core_resident resident;
};

/* scratch.c: memory that a chunk needs, and where it is. */
struct core_bytes {
    size_t device, host;
};
struct core_memory {
    struct device_at device;
    void *host;
};
/* The most elements of a row, of all its streams or of a head that has a norm without weights. */
uint32_t core_ones(const struct model_hparams *h);
/* Its size; with base != NULL also sets the addresses and pointers. */
struct core_bytes core_scratch_layout(struct core *c, uint32_t chunk,
                                      const struct core_memory *base);

/* Matrices of the sites of a layer, or of the output (the number of layers); their norms are
 * vectors. */
void core_bind_sites(struct core *c, uint32_t layer);

/* residual/mixed.c: steps of RESIDUAL_MIXED; -1 with *error: the device does not compute them. */
struct core_reading;
void core_mixed_read(struct core *c, const struct core_site *site, const struct core_reading *r);
void core_mixed_add(struct core *c, const struct core_site *site, struct device_at y);
void core_bind_mixed(struct core *c, uint32_t layer);
int core_check_mixed(const struct core *c, struct error *error);

/* residual/ngrams.c. Before the layers [first, first + count) of a pass: finds the rows of the
 * table that one of them reads, and asks the source for them. */
void core_ngrams_begin(struct core *c, uint32_t first, uint32_t count);
/* What the current layer adds to the residual before its mixer, if it has n-grams. -1 with *error:
 * rows of the table cannot be read. */
int core_ngrams(struct core *c, struct error *error);
/* Their weights and table; -1 with *error: the device does not compute them. */
int core_check_ngrams(const struct core *c, struct error *error);
void core_bind_ngrams(struct core *c, uint32_t i, uint64_t *vectors);
void core_bind_table(struct core *c);

/* index/index.c: the positions that attention of a layer is over. Whether sequences are so long
 * that an indexer is needed; its weights; -1 with *error: the device does not compute what the
 * layers need. */
bool core_index_needed(const struct core *c);
void core_bind_index(struct core *c, uint32_t i);
int core_check_index(const struct core *c, struct error *error);
/* The rows of a pass are known. -1 with *error: it begins with a layer that needs a choice made
 * before it. */
void core_index_begin(struct core *c);
int core_index_resumes(const struct core *c, uint32_t layer, struct error *error);
/* In a layer with an indexer, when the rows are there that its products read: stores its keys, and
 * sets c->pass.chosen if some row has more positions than are chosen. */
void core_index(struct core *c);
/* Heads of the indexer in place, `heads` of each row from `row` on: their norm (no weight: none)
 * and rotation. */
void core_index_heads(struct core *c, uint32_t row, uint32_t rows, uint32_t heads,
                      struct device_at weight, struct device_at y);
/* The epsilon of its norms; and LayerNorm of the rows c->scratch.index_k. */
float core_index_eps(const struct core *c);
void core_index_norm(struct core *c);
/* index/blocks.c: keys of an indexer that chooses blocks, from the rows W_k x. */
void core_block_keys(struct core *c);
/* index/pools.c: keys of pools. Their part of the weights; the rows of the pass,
 * c->scratch.index_k, become keys, and a part of the state. */
void core_bind_pools(struct core *c, uint32_t i);
void core_store_pools(struct core *c);

/* bind.c: all weights. -1 with *error: the file has values that no model has. */
int core_bind(struct core *c, const struct core_config *config, struct error *error);
/* There is such a tensor, and the layers of the core read it. */
bool core_has(const struct core *c, uint32_t layer, enum dense_role role);
struct device_matrix core_matrix(struct core *c, uint32_t layer, enum dense_role role);
/* Floats of a tensor, 0: it is not there; and their copy in c->vectors, none if it is not. */
size_t core_floats_of(const struct core *c, uint32_t layer, enum dense_role role);
struct device_at core_vector(struct core *c, uint32_t layer, enum dense_role role, uint64_t *at);
/* Takes the next n floats of c->vectors. */
struct device_at core_take(struct core *c, uint64_t *at, size_t n);
void core_bind_recurrent(struct core *c, uint32_t i, uint64_t *vectors); /* recurrent.c */
size_t core_fixed_floats(const struct core *c);  /* what it takes for layers with fixed decays */
size_t core_vector_floats(const struct core *c); /* exactly what core_bind takes */

/* pass/parts.c: what both drivers of a pass begin with. */
void core_compute_angles(struct core *c); /* of the rows' positions */
void core_take_sequences(struct core *c); /* what the current layer has of the sequences */
void core_run_mixer(struct core *c);      /* of the current layer */

/* residual/residual.c: the rows begin as embeddings; y = what a part reads at its site. */
struct core_reading {
    uint32_t row, rows; /* [row, row + rows) of the pass */
    uint32_t forms;
    const struct device_rows *y; /* its rows are 0 .. rows - 1 */
};
void core_residual_begin(struct core *c);
/* Every stream begins as the embedding. */
void core_streams_begin(struct core *c, const struct op_embed *embed);
/* residual/bank.c: the same steps of RESIDUAL_BANK. */
void core_bank_read(struct core *c, const struct core_site *site, const struct core_reading *r);
void core_bank_add(struct core *c, const struct core_site *site, struct device_at y);
void core_bind_bank(struct core *c, uint32_t layer); /* as core_bind_sites */
void core_residual_read(struct core *c, const struct core_site *site, const struct core_reading *r);
/* What the results of a part are added to as they are made; none: they are given to
 * core_residual_add, which does nothing otherwise. */
struct device_at core_residual_into(const struct core *c);
void core_residual_add(struct core *c, const struct core_site *site, struct device_at y);

/* Mixers. They read the residual and add to it. */
struct kernel_rope core_rope_of(const struct model_hparams *h, enum layer_kind kind, uint32_t dims);
void core_attention(struct core *c); /* attention.c */
/* The norm of the rows, and the size of c->scratch.mix. In parallel blocks the feed-forward part
 * reads these rows, too: mixers leave c->scratch.in as it is. */
void core_mixer_input(struct core *c);
/* After a norm: the rows become the normed ones, with the factor of model_hparams, if there is
 * one. */
void core_begin_sum(struct core *c);
void core_attention_output(struct core *c); /* of c->scratch.mix, added to the rows */
void core_mla(struct core *c);              /* mla.c */
void core_bind_mla(struct core *c, uint32_t i);
void core_mla_sizes(struct core *c, uint32_t i);
int core_check_mla(const struct core *c, struct error *error);
struct device_scale core_scale_of(const struct core *c, uint32_t i, float base);
void core_recurrence(struct core *c); /* recurrent.c */
void core_selective_scan(struct core *c);
void core_shortconv(struct core *c);

/* router.c */
void core_ffn_norm(struct core *c); /* input of the second part */
/* That, and the input of the router if it has one of its own. */
void core_gate_norm(struct core *c);
/* What the parts read of the layer's input, before any of them adds to it: the normed input of
 * parallel blocks, and that of FFN_DENSE_THEN_EXPERTS. */
void core_early_inputs(struct core *c);
/* What the router reads of all rows, before router_scale if the layer has one (weights.h). */
struct device_at core_gate_input(const struct core *c);
void core_run_router(struct core *c, struct device_at routes); /* of the current layer */
/* The routes of the layer, c->pass.route: the source gets what it wants to know, and masks them. */
void core_route_layer(struct core *c);
/* Masked decode, after a chosen expert was LOST: routes again. */
void core_route_again(struct core *c);
void core_publish_next(struct core *c); /* predicted counts of the next layer */
/* In c->pass.route, those of the only row are followed by those predicted for the next layer. */
bool core_predicts_next(const struct core *c);

/* experts.c: the experts of c->pass.route. */
int core_experts(struct core *c, struct error *error);
/* Requests them before core_experts, which then computes these. */
void core_experts_open(struct core *c);
/* An item that is READY, of a layer. */
struct device_expert core_expert_of(const struct core *c, uint32_t layer,
                                    const struct expert_item *item);

/* ffn.c: the jobs; sums: also adds their outputs, those of all experts of a single row. */
void core_compute_jobs(struct core *c, bool sums);
void core_sum_ranks(struct core *c);

/* dense.c: what a layer computes while its experts are read: the shared expert, or the dense
 * network next to them, or nothing. Afterwards core_expert_rows has the input of the experts. */
void core_while_reading(struct core *c);
void core_dense_layer(struct core *c); /* norm and network of a layer without experts */
/* What the networks of a layer add to begins; and the end, which adds to the residual stream what
 * they did not add to it: their sum if it has a norm, that of a layer or those of
 * FFN_DENSE_AND_EXPERTS, and the sum of experts of another width. */
void core_ffn_begin(struct core *c);
void core_ffn_end(struct core *c);

/* pass/resident_pass.c: a pass of one token whose experts are all on the device. */
bool core_pass_is_resident(struct core *c);
void core_run_resident(struct core *c);
/* Gives the device experts that it does not have, as far as nothing waits. */
void core_fill_device(struct core *c);

/* finite/finite.c: the noted values are those of this pass from here on; -1: those of the tokens'
 * rows, or of the layer that ends. */
void core_finite_begin(struct core *c);
int core_finite_embeddings(struct core *c, struct error *error);
int core_finite_layer(struct core *c, struct error *error);

/* output.c: logits of rows [row, row + rows), on the device. */
void core_compute_logits(struct core *c, uint32_t row, uint32_t rows);

static inline const struct core_sequence *core_sequence_of(const struct core *c, uint32_t row)
{
    return &c->pass.sequences[c->scratch.row[row].sequence];
}

static inline const struct layer_parts *core_parts_now(const struct core *c)
{
    return &c->model->layer[c->pass.step.layer];
}

/* Factors of what the parts of the current layer add. One of all values is one of attention's
 * result, where no norm follows it. */
static inline float core_mixer_factor(const struct core *c)
{
    bool scaled = c->hp.value_scale != 0 && core_parts_now(c)->mixer == MIXER_ATTENTION;
    return c->residual * (scaled ? c->hp.value_scale : 1.0f);
}

static inline float core_ffn_factor(const struct core *c)
{
    bool mean = c->hp.shared_average && c->hp.shared_inner > 0 &&
                ffn_has_experts((enum layer_ffn)core_parts_now(c)->ffn);
    return c->residual * (mean ? 0.5f : 1.0f);
}

/* The next layer with experts, which are predicted; c->hp.layers if there is none. */
static inline uint32_t core_next_layer(const struct core *c)
{
    return hparams_next_experts(&c->hp, c->pass.step.layer + 1);
}

static inline struct core_layer *core_layer_now(struct core *c)
{
    return &c->layer[c->pass.step.layer];
}

/* Rows of n floats, at most those of the residual, in host memory. */
static inline const float *core_fetch_rows(struct core *c, struct device_at at, uint32_t n)
{
    return device_fetch(c->device, &(struct device_result){at, c->scratch.fetched},
                        (size_t)c->pass.step.rows * n * sizeof(float));
}

/* Router and experts read the layer's input, which is before the mixer. */
static inline bool core_reads_early(const struct core *c)
{
    return core_parts_now(c)->ffn == FFN_DENSE_THEN_EXPERTS;
}

/* True if experts have an input of their own: latents, or the rows times their gate weights. */
static inline bool core_expert_inputs(const struct core *c)
{
    return c->hp.expert_width > 0 || c->hp.weighted_input != 0;
}

/* The input of the experts. */
static inline const struct device_rows *core_expert_rows(const struct core *c)
{
    if (core_reads_early(c))
        return &c->scratch.early;
    return core_expert_inputs(c) ? &c->scratch.expert_in : &c->scratch.in;
}

/* What an indexer chooses of its scores. */
static inline struct device_choice core_index_choice(const struct core *c)
{
    const struct model_hparams *h = &c->hp;
    return (struct device_choice){.k = h->index_top_k,
                                  .block = h->index_local > 0 ? h->index_block : 1,
                                  .local = h->index_local};
}

/* The positions that attention of the current layer is over. */
static inline struct device_chosen core_chosen(const struct core *c)
{
    return core_parts_now(c)->index == INDEX_NONE ? (struct device_chosen){.stride = 0}
                                                  : c->pass.chosen;
}

/* cos and sin of row 0. */
static inline struct device_at core_angles(const struct core *c, uint32_t table)
{
    return device_floats_at(c->scratch.rope, (uint64_t)table * c->scratch.rows_max * c->rope_size);
}

#endif
