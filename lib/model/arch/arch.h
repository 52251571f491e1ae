/* SPDX-License-Identifier: Apache-2.0 */
/* Architectures described as data: the GGUF keys of the hyper-parameters, and the tensors with
 * their shapes. A new architecture is an array of rows in families (docs/extending.md). */
#ifndef SLUICE_MODEL_ARCH_ARCH_H
#define SLUICE_MODEL_ARCH_ARCH_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/model/arch/hparams.h"
#include "lib/model/arch/roles.h"
#include "lib/model/expert_layers.h"
#include "lib/model/limits.h"
#include "lib/model/router.h"
#include "lib/tensor/kv_type.h"
#include "lib/tensor/tensor_type.h"

/* Limits of a gated network, activation(gate) * up: up is limited to +-value, and gate to at most
 * value, before its activation or afterwards. The caps are those of ACTIVATION_SITU. */
struct ffn_limit {
    float value; /* 0: no limits */
    bool result; /* afterwards */
    float cap_gate, cap_up;
};

static inline struct ffn_limit model_expert_limit(const struct model_hparams *h, uint32_t layer)
{
    return (struct ffn_limit){h->expert_limits[layer], h->limit_result != 0, h->cap_gate,
                              h->cap_up};
}

static inline struct ffn_limit model_dense_limit(const struct model_hparams *h, uint32_t layer)
{
    return (struct ffn_limit){h->dense_limits[layer], h->limit_result != 0, h->cap_gate, h->cap_up};
}

/* Elements of the input and of the output of an expert that a router chooses. */
static inline uint32_t hparams_expert_width(const struct model_hparams *h)
{
    return h->expert_width ? h->expert_width : h->hidden;
}

/* Of sequences of up to so many tokens, an indexer chooses all positions; 0: there is none. */
static inline uint32_t model_chosen_tokens(const struct model_hparams *h)
{
    uint64_t block = h->index_block ? h->index_block : 1;
    uint64_t tokens = h->index_top_k ? h->index_top_k * block + h->index_tail : 0;
    return tokens > UINT32_MAX ? UINT32_MAX : (uint32_t)tokens;
}

/* Positions that a key of the indexer stands for. */
static inline uint32_t model_index_unit(const struct model_hparams *h)
{
    return h->index_heads > 0 && h->index_tail > 0 ? h->index_block : 1;
}

/* Whether an indexer is computed in an engine whose sequences have up to so many positions: in
 * shorter ones than it chooses, it would choose all of them. */
static inline bool model_chooses(const struct model_hparams *h, uint64_t positions)
{
    return h->index_heads > 0 && positions > model_chosen_tokens(h);
}

/* Lists of positions that it chooses for a row, each with scores of its own. */
static inline uint32_t model_index_lists(const struct model_hparams *h)
{
    return h->index_local > 0 && h->index_heads > 0 ? h->index_heads : 1;
}

/* Where the engine does not compute an indexer (index_heads), it is exact in sequences of up to so
 * many tokens, of which the indexer chooses all positions. UINT32_MAX: of any number. */
static inline uint32_t model_exact_tokens(const struct model_hparams *h)
{
    return h->index_heads > 0 || h->index_top_k == 0 ? UINT32_MAX : model_chosen_tokens(h);
}

/* The tokens of the longest sequence that the engine computes. */
static inline uint32_t model_context(const struct model_hparams *h)
{
    uint32_t exact = model_exact_tokens(h);
    return exact < h->context ? exact : h->context;
}

/* Whether a query attends to chosen positions only, and which layer's indexer chooses them. */
enum layer_index {
    INDEX_NONE,  /* it attends to all */
    INDEX_OWN,   /* its own; the layer has the indexer's keys */
    INDEX_BEFORE /* that of the last layer before it with one of its own */
};

static inline enum layer_index model_index_of(const struct model_hparams *h, uint32_t layer)
{
    if (h->index_heads == 0 || !layer_has_keys((enum layer_kind)h->layer_kind[layer]))
        return INDEX_NONE;
    if (h->layer_flags[layer] & LAYER_INDEXED)
        return INDEX_OWN;
    /* Without MLA, no layer shares a choice; layers with a window have none. */
    return h->kv_rank > 0 && h->layer_kind[layer] == LAYER_FULL ? INDEX_BEFORE : INDEX_NONE;
}

/* The router of a layer with that bias (NULL: none). */
static inline struct model_router model_router_of(const struct model_hparams *h, const float *bias)
{
    return (struct model_router){.experts = h->experts,
                                 .top_k = h->experts_used,
                                 .gating = h->gating,
                                 .normalise = h->norm_top_k != 0,
                                 .scale = h->expert_scale,
                                 .groups = h->groups,
                                 .groups_used = h->groups_used,
                                 .bias = bias};
}

/* Attention of one layer. */
struct layer_attention {
    uint32_t heads, kv_heads; /* query heads, key and value heads */
    uint32_t key_size;        /* of a query and key head */
    uint32_t value_size;      /* of a value head */
    uint32_t window;          /* positions attended to; 0: all */
    uint32_t chunks;          /* 1: the window is the chunk of the position */
    uint32_t rope_dims;       /* leading elements of a head that are rotated; 0: none */
    uint32_t rope_table;      /* enum layer_kind whose angles it has (model_rope_of) */
    float scale;              /* of the scores; 0: 1 / sqrt(key_size) */
    uint32_t scaled_queries;  /* 1: by their positions (model_hparams.query_scale) */
    uint32_t values_in_keys;  /* 1: values are the first elements of the keys, not stored again */
    uint32_t gate, gate_form; /* enum head_gate, enum gate_form */
};

/* What the result of a head is multiplied by, before the output matrix: a function of its gate. */
enum head_gate { HEAD_GATE_NONE, HEAD_GATE_SIGMOID, HEAD_GATE_SOFTPLUS, HEAD_GATE__COUNT };

/* Which gates there are, and where. */
enum gate_form {
    GATE_IN_Q,       /* one per element: the product with q has rows of a head, then of its gate */
    GATE_OF_HEAD,    /* one per head, the product with a matrix of its own */
    GATE_OF_ELEMENT, /* one per element, likewise */
    GATE_FORM__COUNT
};

/* The gates of a row: how many floats have them, where that of the first head begins, and how far
 * apart those of heads are. */
struct gate_layout {
    uint32_t floats, first, step;
    bool one; /* of all elements of a head */
};

/* result: elements of the result of a head. All 0 without gates. */
static inline struct gate_layout model_gates_of(const struct layer_attention *a, uint32_t result)
{
    if (a->gate == HEAD_GATE_NONE)
        return (struct gate_layout){0};
    if (a->gate_form == GATE_IN_Q)
        return (struct gate_layout){2 * a->heads * a->key_size, a->key_size, 2 * a->key_size,
                                    false};
    bool one = a->gate_form == GATE_OF_HEAD;
    uint32_t step = one ? 1 : result;
    return (struct gate_layout){a->heads * step, 0, step, one};
}

static inline struct layer_attention model_attention_of(const struct model_hparams *h,
                                                        uint32_t layer)
{
    bool w = h->layer_kind[layer] == LAYER_WINDOW;
    bool unrotated = (h->layer_flags[layer] & LAYER_UNROTATED) != 0;
    if (!layer_has_keys((enum layer_kind)h->layer_kind[layer]))
        return (struct layer_attention){0};
    struct layer_attention a = {
        .heads = w && h->heads_window ? h->heads_window : h->heads,
        .kv_heads = w && h->kv_heads_window ? h->kv_heads_window : h->kv_heads,
        .key_size = w && h->head_size_window ? h->head_size_window : h->head_size,
        .window = w ? h->window : 0,
        .chunks = w && h->window_chunks,
        .rope_dims = unrotated                  ? 0
                     : w && h->rope_dims_window ? h->rope_dims_window
                                                : h->rope_dims,
        .rope_table = w && !(h->layer_flags[layer] & LAYER_ENTRIES) ? LAYER_WINDOW : LAYER_FULL,
        .scale = h->score_scale,
        .scaled_queries = h->query_scale != 0 && (unrotated || h->kv_rank > 0),
        .values_in_keys = h->kv_rank > 0 || h->output_groups > 0,
        .gate = h->head_gate,
        .gate_form = h->gate_form,
    };
    a.value_size = w && h->value_size_window ? h->value_size_window
                   : h->value_size           ? h->value_size
                                             : a.key_size;
    return a;
}

/* True if some layer that attends to all positions does not rotate: divisors of the angles in the
 * file are then those of layers with a window, too. */
static inline bool model_full_unrotated(const struct model_hparams *h)
{
    for (uint32_t layer = 0; layer < h->layers; layer++)
        if (h->layer_kind[layer] == LAYER_FULL && h->layer_flags[layer] & LAYER_UNROTATED)
            return true;
    return false;
}

/* The largest number of rotated elements of a head over all layers. */
static inline uint32_t model_rope_dims_max(const struct model_hparams *h)
{
    return h->rope_dims_window > h->rope_dims ? h->rope_dims_window : h->rope_dims;
}

/* A layer may have a third kind of rows beside keys and values (enum kv_side): the keys of its
 * indexer, or its entries, each tile of positions with the keys behind them (device_entry_at). */
enum { KV_SIDE_INDEX = KV_SIDE_VALUES + 1, KV_SIDE__COUNT };

/* Their type, where keys and values have `type`. It is not quantised: a score decides whether a
 * position is read at all, so an error of a score is not averaged with others, and at 128 elements
 * a key is small beside a latent of 576. */
static inline enum kv_type kv_index_type(enum kv_type type)
{
    return type == KV_TYPE_F32 ? KV_TYPE_F32 : KV_TYPE_F16;
}

/* That of the keys and values of a layer, where those of the model have `type`: what a query reads
 * of a window of latents, or beside entries, is little. */
static inline enum kv_type model_kv_type(const struct model_hparams *h, uint32_t layer,
                                         enum kv_type type)
{
    bool latents = h->kv_rank > 0 && h->layer_kind[layer] == LAYER_WINDOW;
    return latents || h->output_groups > 0 ? kv_index_type(type) : type;
}

/* The bytes of such rows of one layer, in whole tiles that hold `positions`. type: of keys and
 * values. What is before a window is not read any more, so an engine may have fewer positions there
 * (shm/kv/kv.h). */
static inline uint64_t model_kv_bytes(const struct model_hparams *h, uint32_t layer, uint32_t side,
                                      enum kv_type type, uint64_t positions)
{
    struct layer_attention a = model_attention_of(h, layer);
    uint32_t unit = model_entry_unit(h, layer);
    type = model_kv_type(h, layer, type);
    if (unit > 0 && side == KV_SIDE_INDEX)
        return (positions + KV_TILE - 1) / KV_TILE *
               (kv_tile_bytes(type, model_entry_size(h, layer)) / unit);
    if (side == KV_SIDE_INDEX)
        return model_index_of(h, layer) == INDEX_OWN
                   ? (positions + KV_TILE - 1) / KV_TILE *
                         (kv_tile_bytes(kv_index_type(type), h->index_size) / model_index_unit(h))
                   : 0;
    uint32_t size = side == KV_SIDE_KEYS ? a.key_size : a.values_in_keys ? 0 : a.value_size;
    return (positions + KV_TILE - 1) / KV_TILE * a.kv_heads * kv_tile_bytes(type, size);
}

/* The fewest positions of a ring of layers with a window that a pass of `rows` rows cannot spoil. A
 * chunk of positions is in one piece. */
static inline uint64_t model_ring_positions(const struct model_hparams *h, uint32_t rows)
{
    uint64_t least = (uint64_t)h->window + rows - 1, unit = h->window_chunks ? h->window : KV_TILE;
    return (least + unit - 1) / unit * unit;
}

/* All of these that a layer has. */
static inline uint64_t model_layer_kv_bytes(const struct model_hparams *h, uint32_t layer,
                                            enum kv_type type, uint64_t positions)
{
    uint64_t bytes = 0;
    for (uint32_t side = 0; side < KV_SIDE__COUNT; side++)
        bytes += model_kv_bytes(h, layer, side, type, positions);
    return bytes;
}

/* Of so many positions, those whose keys and values a token reads in a layer: all, those of a
 * window, or those that an indexer chooses; entries are counted by themselves. */
static inline uint64_t model_attended(const struct model_hparams *h, uint32_t layer,
                                      uint64_t positions)
{
    bool chosen = model_index_of(h, layer) != INDEX_NONE && h->output_groups == 0;
    uint64_t most = chosen ? model_chosen_tokens(h) : model_attention_of(h, layer).window;
    return most > 0 && most < positions ? most : positions;
}

/* Of the entries of so many positions, those that a token reads. */
static inline uint64_t model_entries_read(const struct model_hparams *h, uint32_t layer,
                                          uint64_t positions)
{
    uint32_t unit = model_entry_unit(h, layer);
    uint64_t all = unit > 0 ? positions / unit : 0;
    return unit == MODEL_ENTRY_FEW && h->index_top_k < all ? h->index_top_k : all;
}

/* The bytes that it reads, of an indexer those of all keys, if fewer positions are chosen. */
static inline uint64_t model_read_bytes(const struct model_hparams *h, uint32_t layer,
                                        uint32_t side, enum kv_type type, uint64_t positions)
{
    if (h->output_groups > 0 && side == KV_SIDE_INDEX) {
        uint64_t tile = kv_tile_bytes(kv_index_type(type), h->head_size);
        uint64_t own = kv_tile_bytes(kv_index_type(type), h->index_size) / MODEL_ENTRY_FEW;
        bool scored = model_index_of(h, layer) == INDEX_OWN && model_chooses(h, positions);
        return (model_entries_read(h, layer, positions) * tile + (scored ? own * positions : 0)) /
               KV_TILE;
    }
    uint64_t n = model_attended(h, layer, positions);
    if (side == KV_SIDE_INDEX)
        n = model_chooses(h, positions) ? positions : 0;
    return model_kv_bytes(h, layer, side, type, KV_TILE) * n / KV_TILE;
}

/* The multiplications of these with its queries, and of its weights with the values. */
static inline uint64_t model_read_products(const struct model_hparams *h, uint32_t layer,
                                           uint64_t positions)
{
    struct layer_attention a = model_attention_of(h, layer);
    bool scored = model_index_of(h, layer) == INDEX_OWN && model_chooses(h, positions);
    uint64_t keys = scored ? positions / model_index_unit(h) : 0;
    uint64_t scores = keys * h->index_heads * h->index_size;
    return (model_attended(h, layer, positions) + model_entries_read(h, layer, positions)) *
               a.heads * (a.key_size + a.value_size) +
           scores;
}

/* Bytes of the keys and values of one position in all layers. */
static inline uint64_t model_kv_position_bytes(const struct model_hparams *h, enum kv_type type)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < h->layers; i++)
        bytes += model_layer_kv_bytes(h, i, type, KV_TILE);
    return bytes / KV_TILE;
}

/* Rows of the table that a token reads, and their elements together. */
static inline uint32_t model_ngram_rows(const struct model_hparams *h)
{
    return h->ngram_size > 1 ? (h->ngram_size - 1) * h->ngram_heads : 0;
}

static inline uint32_t model_ngram_inputs(const struct model_hparams *h)
{
    return model_ngram_rows(h) * h->ngram_width;
}

/* Of the state of a layer with n-grams, behind that of its recurrence: older inputs of the
 * convolution, the oldest first, rows of all streams; then the last size - 1 tokens, the newest
 * first. */
static inline uint32_t model_ngram_past(const struct model_hparams *h)
{
    return h->ngram_size > 1 ? (h->ngram_taps - 1) * h->ngram_size : 0;
}

static inline uint64_t model_ngram_floats(const struct model_hparams *h, uint32_t layer)
{
    if (!(h->layer_flags[layer] & LAYER_NGRAMS))
        return 0;
    return (uint64_t)model_ngram_past(h) * model_residual_floats(h) + h->ngram_size - 1;
}

/* The state of a layer. */
struct layer_recurrent model_recurrent_of(const struct model_hparams *h, uint32_t layer);

/* The largest of each number over all layers. */
struct layer_recurrent model_recurrent_max(const struct model_hparams *h);

/* Of the state of a layer with an indexer over pools: the rows of the last pool, as far as they are
 * there, and their gates. Of one with entries: the rows of those that are not complete. */
static inline uint64_t model_pool_floats(const struct model_hparams *h, uint32_t layer)
{
    uint64_t rows = (model_index_unit(h) - 1) * (h->index_gates ? 2ull : 1ull);
    if (h->output_groups > 0)
        return (uint64_t)model_entry_past(h, layer) * model_entry_row(h, layer);
    return model_index_of(h, layer) == INDEX_OWN ? rows * h->index_size : 0;
}

/* The floats of the state of a layer, n-grams and pools included; of the states of the first
 * `layers` layers of a sequence, in the order of the layers; and the bytes of the states of all
 * layers. 0: no layer has a state. */
uint64_t model_layer_floats(const struct model_hparams *h, uint32_t layer);
uint64_t model_state_floats(const struct model_hparams *h, uint32_t layers);
uint64_t model_state_bytes(const struct model_hparams *h);

static inline uint32_t model_recurrent_layers(const struct model_hparams *h)
{
    uint32_t count = 0;
    for (uint32_t layer = 0; layer < h->layers; layer++)
        count += h->layer_kind[layer] == LAYER_RECURRENT;
    return count;
}

/* Which k head serves v head h of a recurrence; `share` v heads have the same. */
enum delta_order {
    DELTA_GROUPED,     /* h / share */
    DELTA_INTERLEAVED, /* h % k heads */
};

/* What the RMSNorm of q and k covers. */
enum qk_norm {
    QK_NORM_NONE,
    QK_NORM_HEAD,       /* every head separately, one weight for all */
    QK_NORM_ROW,        /* all heads of a token together, before they are split */
    QK_NORM_HEAD_AFTER, /* every head separately, after its rotation */
    QK_NORM_ROTATED,    /* the same without weights, in layers that rotate */
};

enum norm_kind {
    NORM_RMS,   /* x / sqrt(mean(x^2) + eps) * weight */
    NORM_LAYER, /* NORM_RMS of x - mean(x), plus the bias if there is one */
};

/* The function of the gate of a feed-forward network, before it is multiplied by up. */
enum ffn_activation {
    ACTIVATION_SILU,
    ACTIVATION_RELU,
    ACTIVATION_SWIGLU_CLAMPED, /* of gpt-oss, with limits of gate and up (kernels.h) */
    ACTIVATION_GELU,           /* the form with tanh */
    ACTIVATION_SITU, /* sigmoid(gate) * cap(gate) * cap(up), cap(x) = c tanh(x / c) (Kimi K3) */
    ACTIVATION__COUNT
};

/* Which elements of a head are rotated together. */
enum rope_kind {
    ROPE_HALVES, /* i and i + head_size / 2 */
    ROPE_PAIRS,  /* 2i and 2i + 1 */
};

/* A layer is a mixer, which combines positions, and then a feed-forward part; one of them may be
 * missing. Which layer has which: LAYERS in families/rows.h. */
enum layer_mixer {
    MIXER_ATTENTION,
    MIXER_MLA,       /* multi-head latent attention: keys and values of all heads from one latent */
    MIXER_DELTANET,  /* gated DeltaNet: convolution over time, then the gated delta rule */
    MIXER_SHORTCONV, /* gated convolution over time */
    MIXER_MAMBA2,    /* Mamba-2: convolution over time, then a recurrence without a delta term */
    MIXER_KDA,       /* Kimi delta attention: as DeltaNet, with a decay per key channel */
    MIXER_LIGHTNING, /* lightning attention: a recurrence whose decays are fixed */
    MIXER_MAMBA1,    /* Mamba: a decay per element of the state, which depends on the input */
    MIXER_ENTRIES,   /* attention to a window and to entries that stand for several positions */
    MIXER_NONE,      /* there is none */
    MIXER__COUNT
};
enum layer_ffn {
    FFN_EXPERTS, /* router and experts, with a shared expert if the layer has its tensors */
    FFN_DENSE,   /* one network for all tokens */
    FFN_DENSE_AND_EXPERTS,  /* both on the same residual, each with its norms; their sum is added */
    FFN_DENSE_THEN_EXPERTS, /* router and experts read the layer's input, with a norm of their own
                             */
    FFN_NONE,
    FFN__COUNT
};

static inline bool ffn_has_dense(enum layer_ffn ffn)
{
    return ffn == FFN_DENSE || ffn == FFN_DENSE_AND_EXPERTS || ffn == FFN_DENSE_THEN_EXPERTS;
}

static inline bool ffn_has_experts(enum layer_ffn ffn)
{
    return ffn == FFN_EXPERTS || ffn == FFN_DENSE_AND_EXPERTS || ffn == FFN_DENSE_THEN_EXPERTS;
}

/* True if the layer has a router and experts. */
static inline bool hparams_layer_has_experts(const struct model_hparams *h, uint32_t layer)
{
    return ffn_has_experts((enum layer_ffn)h->layer_ffn[layer]);
}

/* How many layers have experts; every model has one. */
static inline uint32_t hparams_expert_layers(const struct model_hparams *h)
{
    uint32_t count = 0;
    for (uint32_t layer = 0; layer < h->layers; layer++)
        count += hparams_layer_has_experts(h, layer);
    return count;
}

/* The first layer with experts from `layer` on; h->layers if there is none. */
static inline uint32_t hparams_next_experts(const struct model_hparams *h, uint32_t layer)
{
    while (layer < h->layers && !hparams_layer_has_experts(h, layer))
        layer++;
    return layer;
}

/* The last layer with experts before `layer`; h->layers if there is none. */
static inline uint32_t hparams_experts_before(const struct model_hparams *h, uint32_t layer)
{
    while (layer > 0)
        if (hparams_layer_has_experts(h, --layer))
            return layer;
    return h->layers;
}

/* The layer with experts that has so many of them before it. */
static inline uint32_t hparams_expert_layer_at(const struct model_hparams *h, uint32_t number)
{
    uint32_t layer = hparams_next_experts(h, 0);
    while (number-- > 0)
        layer = hparams_next_experts(h, layer + 1);
    return layer;
}

static inline struct expert_layers hparams_layers_with_experts(const struct model_hparams *h)
{
    struct expert_layers e = {{0}};
    for (uint32_t layer = 0; layer < h->layers; layer++)
        if (!hparams_layer_has_experts(h, layer))
            expert_layers_leave_out(&e, layer);
    return e;
}

/* What a layer consists of. */
struct layer_parts {
    uint8_t mixer;                    /* enum layer_mixer */
    uint8_t ffn;                      /* enum layer_ffn */
    uint8_t ngrams;                   /* 1: it begins with n-grams */
    uint8_t index;                    /* enum layer_index */
    struct layer_attention attention; /* sizes; where the mixer is attention */
    struct layer_recurrent recurrent; /* sizes; where the mixer has a state */
};

/* They are compared byte by byte, so there is nothing between the fields. */
_Static_assert(sizeof(struct recurrent_rule) == 8 * sizeof(bool) + sizeof(float), "a hole");
_Static_assert(sizeof(struct layer_recurrent) ==
                   21 * sizeof(uint32_t) + sizeof(struct recurrent_rule) + sizeof(uint64_t),
               "a hole");
_Static_assert(sizeof(struct layer_parts) == 4 * sizeof(uint8_t) + sizeof(struct layer_attention) +
                                                 sizeof(struct layer_recurrent),
               "a hole");

/* The part of a layer that a dense tensor belongs to; other layers must not have it. MLA is
 * attention, too. MIXING and NETWORK are the two halves of a layer. */
enum layer_part {
    PART_EVERY,
    PART_MIXING,  /* every mixer */
    PART_NETWORK, /* every feed-forward part */
    PART_ATTENTION,
    PART_DENSE,
    PART_EXPERTS,
    PART_NGRAMS,
    PART_INDEXER,    /* of INDEX_OWN */
    PART_RECURRENCE, /* mixers with a matrix of state per head (struct recurrent_rule) */
    PART_MIXER,      /* and that number more: only this mixer */
    PART_DELTANET = PART_MIXER + MIXER_DELTANET,
    PART_SHORTCONV = PART_MIXER + MIXER_SHORTCONV,
    PART_MAMBA2 = PART_MIXER + MIXER_MAMBA2,
    PART_KDA = PART_MIXER + MIXER_KDA,
    PART_MAMBA1 = PART_MIXER + MIXER_MAMBA1,
    PART_ENTRIES = PART_MIXER + MIXER_ENTRIES
};

enum dense_role {
#define GLOBAL(role, name)      DENSE_##role,
#define LAYER(role, part, name) DENSE_##role,
    DENSE_ROLES(GLOBAL, LAYER)
#undef GLOBAL
#undef LAYER
        DENSE__COUNT
};

/* The norm that makes the input of a layer's router; DENSE__COUNT: it reads the layer's input. */
static inline enum dense_role hparams_router_norm(const struct model_hparams *h, uint32_t layer)
{
    if (h->layer_ffn[layer] == FFN_DENSE_THEN_EXPERTS)
        return DENSE_EXPERTS_NORM;
    if (h->parallel)
        return DENSE_ATTN_NORM;
    return h->router_first ? DENSE__COUNT : DENSE_FFN_NORM;
}

/* Whether it is one of the types without blocks. Norms, biases, routers and other small tensors
 * have only these. */
static inline bool dense_type_is_float(uint32_t type)
{
    return type == TENSOR_F32 || type == TENSOR_F16 || type == TENSOR_BF16;
}

/* The matrices of an expert, in the order in which an entry has them: down(act(gate x) * up x). A
 * network of two matrices has no up, whatever files call its gate: down(act(gate x) * gate x), and
 * with ReLU that is the square of ReLU. */
enum expert_matrix { EXPERT_GATE, EXPERT_UP, EXPERT_DOWN, EXPERT__COUNT };

static inline bool hparams_expert_has(const struct model_hparams *h, enum expert_matrix m)
{
    return m != EXPERT_UP || h->two_matrices == 0;
}

#endif
