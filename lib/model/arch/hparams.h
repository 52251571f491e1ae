/* SPDX-License-Identifier: Apache-2.0 */
/* The hyper-parameters of a model, and what its layers may differ in. */
#ifndef SLUICE_MODEL_ARCH_HPARAMS_H
#define SLUICE_MODEL_ARCH_HPARAMS_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/model/limits.h"

/* What the layers of a model may differ in. The sizes of a layer follow from its kind. */
enum layer_kind {
    LAYER_FULL,      /* attends to all positions before it */
    LAYER_WINDOW,    /* position p attends to p - window + 1 .. p, or to p - p % window .. p */
    LAYER_RECURRENT, /* has a recurrent state instead of keys and values */
    LAYER_PLAIN,     /* has neither: no mixer */
    LAYER_KIND__COUNT
};

/* What a layer does without, or has in addition, as bits. */
enum layer_flag {
    LAYER_UNROTATED = 1, /* attention does not rotate */
    LAYER_UNROUTED = 2,  /* no experts, in another layer than the first dense_layers */
    LAYER_NGRAMS = 4,    /* begins with rows of a table by n-grams (struct model_ngrams) */
    LAYER_INDEXED = 8,   /* its indexer chooses positions, for it and, with MLA, for layers that
                          * follow without this flag (model_hparams.index_heads) */
    LAYER_ENTRIES = 16   /* attention is over entries, too, which stand for several positions each
                          * (model_entry_unit) */
};

/* Whether layers of the kind have keys and values. */
static inline bool layer_has_keys(enum layer_kind kind)
{
    return kind == LAYER_FULL || kind == LAYER_WINDOW;
}

/* How the angles of the rotary embedding are scaled for contexts longer than the trained one. */
enum rope_scaling {
    ROPE_UNSCALED,
    ROPE_LINEAR, /* divided by the factor */
    ROPE_YARN,   /* YaRN, Peng et al. 2023 */
    ROPE_SHORT   /* LongRoPE, Ding et al. 2024, in the original context: by divisors of the file */
};

/* Rows of a table that a layer reads by the last tokens: of each n-gram up to `size` tokens,
 * `heads` rows, whose numbers are hashes (ngrams.h). A convolution over time of what they add has
 * `taps` inputs, `size` positions apart. */
#define NGRAM_SIZE_MAX 8
#define NGRAM_ROWS_MAX 64 /* of a token */
struct model_ngrams {
    uint64_t multiplier[NGRAM_SIZE_MAX];                    /* of a token, the newest first */
    uint32_t offset[NGRAM_ROWS_MAX], count[NGRAM_ROWS_MAX]; /* of the part of each row */
};

/* Hyper-parameters after validation; every field is in the range that its row gives. Sizes with
 * `_window` are those of layers of kind LAYER_WINDOW, 0: as in the others. */
struct model_hparams {
    uint32_t layers;
    uint32_t hidden; /* embedding length */
    uint32_t heads;
    uint32_t kv_heads;
    uint32_t head_size; /* of q and k, and of v where value_size is 0 */
    uint32_t vocab;
    uint32_t context;      /* trained context length */
    uint32_t experts;      /* E */
    uint32_t experts_used; /* K (top-k) */
    uint32_t expert_inner; /* inner size of one expert's network */
    uint32_t expert_width; /* elements of an expert's input and output, its latent; 0: hidden */
    float rms_eps;
    float rope_theta;
    uint32_t rope_dims;    /* leading elements of a head that are rotated; <= head_size */
    uint32_t norm_top_k;   /* 1: the K gate weights are renormalised to sum 1 */
    uint32_t qk_norm;      /* enum qk_norm */
    uint32_t tied_output;  /* 1: output matrix is the token embedding */
    uint32_t rope_kind;    /* enum rope_kind */
    uint32_t shared_inner; /* inner size of the shared expert, which every token uses; 0: none */
    uint32_t dense_layers; /* leading layers without experts */
    uint32_t dense_inner;  /* inner size of the feed-forward part of layers without experts */
    uint32_t gating;       /* enum router_gating */
    uint32_t groups;       /* of experts, of which a token uses groups_used; below 2: none */
    uint32_t groups_used;
    float expert_scale;      /* factor of the gate weights; 0: none */
    uint32_t shared_count;   /* of shared experts, which are one network of their widths' sum */
    uint32_t skipped_layers; /* blocks after the last layer, for drafting: not used */
    float residual_scale;    /* factor of what each part of a layer adds; 0: none */
    float normed_scale;      /* a part adds to its normed input times this; 0: to the rows */
    float logit_divisor;     /* of the logits; 0: none */
    float embedding_scale;   /* factor of the embedding; 0: none */
    float logit_scale;       /* factor of the logits; 0: none */
    uint32_t shared_average; /* 1: with a shared expert, half of the sum of all experts is added */
    float clamp_qkv;         /* q, k and v are limited to +-this; 0: not */
    uint32_t norm;           /* enum norm_kind */
    uint32_t activation;     /* enum ffn_activation */
    uint32_t two_matrices;   /* 1: networks have no up matrix; their gate takes its place */
    uint32_t router_first;   /* 1: the router reads the input of the layer; parallel: normed */
    uint32_t parallel;       /* 1: mixer and feed-forward part read the same normed input */
    uint32_t v_norm;         /* 1: an RMSNorm without weight of each v head */
    float logit_cap;         /* soft cap: cap * tanh(logit / cap); 0: none */
    uint32_t value_size;     /* of a value head */
    uint32_t window;         /* positions that a layer of kind LAYER_WINDOW attends to; 0: none */
    uint32_t heads_window, kv_heads_window, head_size_window, value_size_window, rope_dims_window;
    float rope_theta_window;
    float score_scale; /* factor of attention scores; 0: 1 / sqrt(head size) */
    float score_cap;   /* scores become cap * tanh(score / cap); 0: not capped */
    /* Scaling of rotations; those of window layers are scaled only if rope_scale_window is 1. */
    uint32_t rope_scaling; /* enum rope_scaling */
    float rope_factor;
    uint32_t rope_context;                /* YaRN: context length before the scaling */
    float rope_beta_fast, rope_beta_slow; /* YaRN: rotations that bound the correction range */
    float rope_magnitude;                 /* YaRN: factor of cos and sin; 0: 1 + 0.1 ln factor */
    float rope_attention;   /* a further factor of cos and sin, scaled or not; 0: none */
    uint32_t rope_truncate; /* YaRN: the correction range is rounded to integers */
    uint32_t rope_scale_window;
    float value_scale; /* factor of attention's result; 0: none */
    /* Of MLA; head_size and value_size are those of its cache: kv_rank + rope_dims, kv_rank. */
    uint32_t q_rank;  /* of the queries' matrix in two factors; 0: one matrix */
    uint32_t kv_rank; /* elements of a latent */
    uint32_t mla_key_size, mla_value_size; /* of a head of the published form: rope_dims included */
    uint32_t kv_rank_window, mla_key_size_window, mla_value_size_window;
    float rope_log_multiplier; /* YaRN: scores times (1 + this * ln factor)^2 */
    /* of layers of kind LAYER_RECURRENT */
    uint32_t attention_step; /* each layer of that number is of kind LAYER_FULL; 0: see the table */
    uint32_t conv_taps;      /* inputs of the convolution over time, the newest included */
    /* MIXER_DELTANET, MIXER_MAMBA2, MIXER_MAMBA1: elements of a key head. Mamba's B and C are k and
     * q, and a group of its heads has the same. */
    uint32_t delta_size;
    uint32_t delta_k_heads, delta_v_heads;
    uint32_t delta_inner;   /* elements of all v heads */
    uint32_t delta_order;   /* enum delta_order */
    uint32_t delta_sigmoid; /* MIXER_DELTANET: sigmoid of struct recurrent_rule */
    /* MIXER_KDA, which has delta_size, too, and the heads of attention. */
    uint32_t low_rank;   /* 1: matrices of decays and gates have two factors, of rank delta_size */
    float decay_bound;   /* L of struct recurrent_rule; 0: none */
    uint32_t head_gate;  /* enum head_gate: of the results of heads */
    uint32_t gate_form;  /* enum gate_form */
    uint32_t joined_qkv; /* 1: q, k and v are one matrix, where the architecture has both forms */
    /* Of MLA, and of layers that do not rotate: queries of position p are multiplied by 1 +
     * query_scale * ln(1 + floor((p + query_first) / query_context)); 0: they are not. */
    float query_scale;
    uint32_t query_context;
    float latent_eps;    /* MLA: of norms of latents and of the queries' first factor; 0: rms_eps */
    float recurrent_eps; /* of the norm of a recurrence's result; 0: rms_eps */
    uint32_t limit_result; /* of the networks of layers (struct ffn_limit) */
    uint32_t residual;     /* enum residual_scheme */
    uint32_t streams;      /* of the residual; 0: one */
    /* An indexer chooses what a query attends to: the best index_top_k blocks of index_block
     * positions (0: of 1), and up to index_tail positions of its own block, which is incomplete.
     * With a tail, a block is a pool: it has one key, which its positions make together
     * (model_index_unit). index_top_k 0: there is none. */
    uint32_t index_top_k, index_block, index_tail;
    uint32_t stream_rank; /* RESIDUAL_GATED: of the gates' matrix in two factors */
    /* Of struct model_ngrams; all 0 without a table. */
    uint32_t ngram_size, ngram_heads, ngram_taps;
    uint32_t ngram_width, ngram_rows; /* elements of a row; rows of the table */
    uint32_t ngram_end;               /* the token that cuts n-grams */
    uint32_t query_first;
    uint32_t window_chunks;  /* 1: a LAYER_WINDOW attends to the chunk of its position */
    uint32_t weighted_input; /* 1: the gate weight multiplies the input of the only expert used */
    uint32_t expert_step;    /* only each layer of that number has experts, if it is not 0 */
    uint32_t step_rank;      /* MIXER_MAMBA1: inputs of the product with the steps */
    /* An indexer that the engine computes: the heads of its queries, 0: there is none; elements of
     * such a head, and of a key, of which the first rope_dims are rotated; how they are, an enum
     * rope_kind; and of their norms, 0: rms_eps. */
    uint32_t index_heads, index_size, index_rope;
    float index_eps;
    uint32_t index_local;   /* so many last blocks are always chosen; not 0: by each key head */
    uint32_t index_last;    /* 1: the last rope_dims elements of its heads are rotated instead */
    uint32_t index_gates;   /* 1: pools are sums by gates, of keys that have their norm already */
    uint32_t bank_block;    /* RESIDUAL_BANK: layers of a block; else 0 */
    float cap_gate, cap_up; /* of ACTIVATION_SITU; cap_up 0: none */
    /* RESIDUAL_MIXED: steps that make a matrix doubly stochastic, 0: streams are not mixed, and the
     * largest weight of a result, which is 2 where they are; what is added in the steps and to
     * weights; 1: the output weighs the streams, else it reads their mean. */
    uint32_t stream_steps;
    float stream_magnitude, stream_eps;
    uint32_t stream_head;
    /* MIXER_ENTRIES: heads are in so many groups, of which each has a matrix of output_rank rows;
     * the output matrix reads these. */
    uint32_t output_groups, output_rank;
    uint32_t table_layers; /* in so many first layers, a table says which experts a token uses */
    uint8_t layer_kind[MODEL_LAYERS_MAX];  /* enum layer_kind */
    uint8_t layer_flags[MODEL_LAYERS_MAX]; /* enum layer_flag */
    uint8_t layer_mixer[MODEL_LAYERS_MAX]; /* enum layer_mixer, by the rows of the architecture */
    uint8_t layer_ffn[MODEL_LAYERS_MAX];   /* enum layer_ffn, likewise by the rows */
    /* Limits of the networks of a layer: of its experts; of its dense network or shared expert. */
    float expert_limits[MODEL_LAYERS_MAX], dense_limits[MODEL_LAYERS_MAX];
    struct model_ngrams ngrams;
};

/* How the parts of a layer read the residual of a row, and how their results are added. */
enum residual_scheme {
    RESIDUAL_SINGLE, /* one stream, whose norm is read and to which a result is added */
    /* Several streams X_s, each with its norm n_s: u = the mean of sigmoid(g_s) n_s is read, with
     * g = W_up silu(W_down n / streams), and X_s += 2 sigmoid(i_s) y, with i = W_inject n /
     * streams, for a result y. */
    RESIDUAL_GATED,
    /* Attention residuals (Kimi K3): the sum h of the results since a block of bank_block layers
     * began, and the sums that the blocks before it ended with, all of them sources s. A part reads
     * the norm of the sum of p_s s, p being the softmax of (score . RMSNorm(s)) over the sources.
     * The embedding is the sum of the block before the first one. Streams: h, then the blocks. */
    RESIDUAL_BANK,
    /* Several streams X_s that are mixed (Xie et al. 2026, manifold-constrained hyper-connections):
     * the RMSNorm of sum_s p_s X_s is read, and X_j = q_j y + sum_i M_ij X_i for a result y. p, q
     * and M are functions of W n * scale + base, n the RMSNorm of all X together, without weights;
     * M is made doubly stochastic, or is 1 without steps. */
    RESIDUAL_MIXED,
    RESIDUAL__COUNT
};

/* MLA of a layer: its heads, and their sizes (model_hparams); elements of a latent. */
struct layer_latent {
    uint32_t heads, key, value, rank;
};

static inline struct layer_latent model_latent_of(const struct model_hparams *h, uint32_t layer)
{
    bool w = h->layer_kind[layer] == LAYER_WINDOW;
    return (struct layer_latent){
        .heads = w && h->heads_window ? h->heads_window : h->heads,
        .key = w && h->mla_key_size_window ? h->mla_key_size_window : h->mla_key_size,
        .value = w && h->mla_value_size_window ? h->mla_value_size_window : h->mla_value_size,
        .rank = w && h->kv_rank_window ? h->kv_rank_window : h->kv_rank,
    };
}

/* Sums of blocks that have ended before the mixer of a layer reads (RESIDUAL_BANK), or before its
 * feed-forward part; of the layer after the last one: before the output reads. */
static inline uint32_t model_bank_sums(const struct model_hparams *h, uint32_t layer, bool ffn)
{
    return ffn ? layer / h->bank_block + 1 : (layer + h->bank_block - 1) / h->bank_block;
}

/* Floats of the residual of a row: its streams, next to each other. */
static inline uint32_t model_residual_floats(const struct model_hparams *h)
{
    return (h->streams > 1 ? h->streams : 1) * h->hidden;
}

/* Positions of an entry, by layers (DeepSeek-V4): few, among whose entries an indexer chooses, and
 * which reach back to the positions of the one before; or many. 0: the layer has none. */
#define MODEL_ENTRY_FEW  4
#define MODEL_ENTRY_MANY 128

static inline uint32_t model_entry_unit(const struct model_hparams *h, uint32_t layer)
{
    if (!(h->layer_flags[layer] & LAYER_ENTRIES))
        return 0;
    return h->layer_flags[layer] & LAYER_INDEXED ? MODEL_ENTRY_FEW : MODEL_ENTRY_MANY;
}

static inline bool model_has_entries(const struct model_hparams *h)
{
    for (uint32_t layer = 0; layer < h->layers; layer++)
        if (h->layer_flags[layer] & LAYER_ENTRIES)
            return true;
    return false;
}

/* Elements of what a layer makes entries of, of one position: values and logits of entries, then of
 * the indexer's keys; twice of few positions, for the own entry and the next one. */
static inline uint32_t model_entry_row(const struct model_hparams *h, uint32_t layer)
{
    switch (model_entry_unit(h, layer)) {
    case MODEL_ENTRY_FEW: return 4 * (h->head_size + h->index_size);
    case MODEL_ENTRY_MANY: return 2 * h->head_size;
    default: return 0;
    }
}

/* Positions whose rows the state of a layer has space for: those of an entry, and of few positions
 * those of the one before it. Position p is at p % this. */
static inline uint32_t model_entry_past(const struct model_hparams *h, uint32_t layer)
{
    uint32_t unit = model_entry_unit(h, layer);
    return unit == MODEL_ENTRY_FEW ? 2 * unit : unit;
}

/* Elements of an entry and of the indexer's key that it has. */
static inline uint32_t model_entry_size(const struct model_hparams *h, uint32_t layer)
{
    return h->head_size + (model_entry_unit(h, layer) == MODEL_ENTRY_FEW ? h->index_size : 0);
}

/* Weights of the streams of a row where a part reads them and adds to them: of RESIDUAL_MIXED p, q
 * and, with steps, M. */
static inline uint32_t model_stream_weights(const struct model_hparams *h)
{
    return h->residual != RESIDUAL_MIXED ? h->streams
                                         : h->streams * (2 + (h->stream_steps ? h->streams : 0));
}

/* What a mixer does that has a matrix S of state per head. One recurrence serves all of them, whose
 * terms are settings:
 *
 *   u = r (v - k^T d S) with the delta term, else r v
 *   S = d S + k u^T
 *   y = q^T S + D v       without D if the layer has no such tensor
 *
 * The decay d = exp(A softplus(a + bias)) is one number per head, or one per key channel, which is
 * that of a row of S, with a and bias of the channel and A of the head. The latter may have a bound
 * L below 0: d = exp(L sigmoid(|A| (a + bias))); without one it is exp(-|A| softplus(a + bias)), as
 * files have both signs of A. It may be fixed, too.
 * The rate r is sigmoid(b), or the step softplus(a + bias) itself, or 1 where d is fixed. q, k and
 * v are a convolution over time and SiLU, with a bias if the layer has one; with one tap it is no
 * convolution. The output is y and the gate z, as RMSNorm(y) silu(z) or RMSNorm(y silu(z)) with a
 * norm per head, per group of heads or of all heads; the gate may be sigmoid(z) instead.
 *
 * Mamba-1 has the decay of each element of S, d_ij = exp(t_j A_ij), with a step t of each element
 * of v, which is its rate, too: t = softplus(a + bias). There v alone is a convolution; k, q and a
 * are projections of v, with norms, that of a in two factors; and the output is y silu(z). The
 * channels are cut into heads of MAMBA_BLOCK, or less, which threads divide. */
#define MAMBA_BLOCK 64
struct recurrent_rule {
    bool delta;      /* the delta term */
    bool unit;       /* q and k of a head have length 1, and q the factor 1 / sqrt(key size) */
    bool step;       /* the rate is the step; else rows have b, too */
    bool gate_first; /* before the norm */
    bool channels;   /* d per key channel; the rate is no step */
    bool sigmoid;    /* of z */
    bool fixed;      /* rates and decays do not depend on the row */
    bool elements;   /* d per element; k, q and steps are projections of v */
    float bound;     /* L; 0: none */
};

/* The recurrent state of one layer, and what a row of it needs; all 0 where the mixer has no
 * state. */
struct layer_recurrent {
    uint32_t taps;     /* inputs of the convolution over time, the newest included */
    uint32_t channels; /* of that convolution */
    uint32_t heads;    /* with a matrix of the state each; 0: older inputs are all of the state */
    uint32_t groups;   /* of heads, which have the same q and k */
    uint32_t key_size, value_size; /* of such a matrix */
    uint32_t norms; /* of a row's result, each with weights of its own; 0: of each head, the same */
    uint32_t projected; /* floats of a row: all projections of its input */
    uint32_t mixed;     /* floats of a row: the result, before the output matrix */
    /* In a row: the inputs of the convolution, the gates z, and a (b a without a step; only b where
     * a is of key channels, which stand at channels_at). Channels of the convolution: q, k and v of
     * all heads. */
    uint32_t conv_at, gate_at, rates_at, channels_at;
    uint32_t q_at, k_at, v_at;
    uint32_t key_step, value_step; /* from a head of q and of k, or of v, to the next one */
    /* With decays of elements, q and k are in a row, after the first factor of the steps, which are
     * at rates_at. */
    uint32_t select_at, step_rank;
    uint32_t reserved;
    struct recurrent_rule rule;
    /* Of the state: [taps - 1][channels], older inputs of the convolution, the oldest first; then
     * [heads][key_size][value_size]. */
    uint64_t floats;
};

#endif
