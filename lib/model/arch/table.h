/* SPDX-License-Identifier: Apache-2.0 */
/* Architectures as rows, and functions over them: reading and checking hyper-parameters, and
 * finding the role of a tensor. For lib/model, for the packer and for the generator of test models
 * (procs/tools/pack, procs/tools/synth); other code uses model_index.h. */
#ifndef SLUICE_MODEL_ARCH_TABLE_H
#define SLUICE_MODEL_ARCH_TABLE_H

#include "lib/model/arch/arch.h"
#include "lib/model/gguf/gguf.h"
#include "lib/model/limits.h"
#include "lib/model/rows.h"

/* Sizes of tensors in terms of hyper-parameters. */
enum arch_dim {
    ARCH_DIM_ONE,
    ARCH_DIM_HIDDEN,
    ARCH_DIM_VOCAB,
    ARCH_DIM_Q,      /* heads * key_size, twice with GATE_IN_Q */
    ARCH_DIM_KV,     /* kv_heads * key_size */
    ARCH_DIM_VALUES, /* kv_heads * value_size */
    ARCH_DIM_MIX,    /* heads * value_size */
    ARCH_DIM_QKV,    /* of q, k and v together */
    ARCH_DIM_HEAD,   /* key_size */
    ARCH_DIM_HEADS,
    ARCH_DIM_GATES, /* of a row, with a matrix of their own */
    /* Q, KV, VALUES where these have a matrix each, QKV where they have one together; else 0. */
    ARCH_DIM_Q_APART,
    ARCH_DIM_KV_APART,
    ARCH_DIM_VALUES_APART,
    ARCH_DIM_QKV_JOINED,
    ARCH_DIM_HALF,      /* rope_dims / 2, of layers without a window */
    ARCH_DIM_HALF_MOST, /* the same of the layers with the most */
    ARCH_DIM_Q_RANK,    /* of MLA; 0: queries of one matrix */
    ARCH_DIM_MLA_Q,     /* heads * mla_key_size */
    ARCH_DIM_MLA_Q_ONE, /* heads * mla_key_size where queries have one matrix, else 0 */
    ARCH_DIM_KV_RANK,
    ARCH_DIM_MLA_NOPE, /* mla_key_size - rope_dims */
    ARCH_DIM_MLA_VALUE,
    ARCH_DIM_ROPE,    /* rope_dims, of layers without a window */
    ARCH_DIM_MLA_MIX, /* heads * mla_value_size */
    ARCH_DIM_EXPERTS,
    ARCH_DIM_INNER,
    ARCH_DIM_INNER_TWICE,
    ARCH_DIM_SHARED_TWICE,
    ARCH_DIM_WIDTH,  /* of an expert's input */
    ARCH_DIM_LATENT, /* the same where it is not that of the layer, else 0 */
    ARCH_DIM_SHARED, /* inner size of the shared expert */
    ARCH_DIM_TAPS,   /* this and the next: struct layer_recurrent */
    ARCH_DIM_CHANNELS,
    ARCH_DIM_PROJECTED,
    ARCH_DIM_MIXED,
    ARCH_DIM_MIXED_TWICE,
    ARCH_DIM_STATE_HEADS,
    ARCH_DIM_STATE_HEADS_TWICE,
    ARCH_DIM_STATE_DECAYS, /* key channels of all heads */
    ARCH_DIM_STATE_FIRST,  /* outputs of a matrix, or of the first of two factors */
    ARCH_DIM_STATE_RANK,   /* of two factors; 0: one matrix */
    ARCH_DIM_STATE_KEY,    /* key_size */
    ARCH_DIM_STATE_VALUE,  /* value_size */
    ARCH_DIM_STEP_RANK,    /* step_rank */
    ARCH_DIM_SELECTED,     /* step_rank, k and q */
    ARCH_DIM_STATE_NORM,   /* elements of a norm of several heads */
    ARCH_DIM_STATE_NORMS,
    ARCH_DIM_DENSE,    /* inner size of a layer without experts */
    ARCH_DIM_RESIDUAL, /* of all streams */
    ARCH_DIM_STREAMS,
    ARCH_DIM_STREAM_RANK,
    ARCH_DIM_STREAM_WEIGHTS, /* model_stream_weights */
    ARCH_DIM_STREAM_SCALES,  /* kinds of these */
    ARCH_DIM_STREAM_HEAD,    /* of the output; 0: it reads the mean of the streams */
    ARCH_DIM_STREAM_HEAD_ONE,
    ARCH_DIM_NGRAM_WIDTH, /* this and the next: struct model_ngrams */
    ARCH_DIM_NGRAM_ROWS,
    ARCH_DIM_NGRAM_INPUTS,
    ARCH_DIM_NGRAM_TAPS,
    ARCH_DIM_INDEX_Q, /* index_heads * index_size */
    ARCH_DIM_INDEX_KEY,
    ARCH_DIM_INDEX_HEADS,
    ARCH_DIM_INDEX_UNIT,  /* positions of a pool */
    ARCH_DIM_GROUP,       /* elements of the results of a group of heads */
    ARCH_DIM_GROUP_RANKS, /* output_groups * output_rank */
    ARCH_DIM_ENTRY,       /* elements of an entry, of the layers that have entries */
    ARCH_DIM_ENTRY_PARTS, /* what a position adds to entries: twice as many, if these reach back */
    ARCH_DIM_ENTRY_UNIT,
    ARCH_DIM_INDEX_PARTS, /* the same of the indexer's keys */
    ARCH_DIM_TABLE_USED,  /* experts_used in layers with a table of experts, else 0 */
    ARCH_DIM_SCORED       /* experts in the other ones */
};

/* The size in a layer. For a tensor outside the layers, layer is hparams->layers. */
uint64_t arch_dim_size(const struct model_hparams *h, uint32_t layer, enum arch_dim dim);

/* The number of elements of the first matrix of a row's tensor; 0: the model has no such tensor. */
struct arch_row;
uint64_t arch_row_elements(const struct arch_row *row, const struct model_hparams *h,
                           uint32_t layer);

/* Tensors of experts: one per matrix, and one for gate and up together. */
#define EXPERT_GATE_UP EXPERT__COUNT
#define EXPERT_TENSORS (EXPERT__COUNT + 1)

enum arch_storage { ARCH_STORAGE_FLOAT, ARCH_STORAGE_KEPT, ARCH_STORAGE_ANY, ARCH_STORAGE_IDS };
enum arch_presence {
    ARCH_PRESENCE_REQUIRED,
    ARCH_PRESENCE_OPTIONAL,
    ARCH_PRESENCE_ACCEPTED,
    ARCH_PRESENCE_WINDOW
};
enum arch_which {
    ARCH_WHICH_UNROUTED_RECURRENT,
    ARCH_WHICH_UNROUTED,
    ARCH_WHICH_LEADING_RECURRENT,
    ARCH_WHICH_LEADING,
    ARCH_WHICH_RECURRENT,
    ARCH_WHICH_PLAIN,
    ARCH_WHICH_ALL
};

enum arch_unrotated { ARCH_UNROTATED_ALL, ARCH_UNROTATED_FULL, ARCH_UNROTATED_FULL_ROUTED };

/* What a row says: families/rows.h has a macro for each kind, and its description. */
enum arch_row_kind {
    ARCH_END = ROW_END,
    ARCH_GROUP = ROW_GROUP,
    ARCH_UINT,
    ARCH_FLAG,
    ARCH_FLOAT,
    ARCH_FLOAT_OLD,
    ARCH_TEXT,
    ARCH_ELSE,
    ARCH_LACKS,
    ARCH_WHERE,
    ARCH_TENSOR,
    ARCH_DEFAULT,
    ARCH_SHARE,
    ARCH_WIDTH,
    ARCH_UNREAD,
    ARCH_MISSING,
    ARCH_CONST,
    ARCH_CONST_FLOAT,
    ARCH_ROOT,
    ARCH_ARRAY,
    ARCH_LIMITS,
    ARCH_FULL_EVERY,
    ARCH_WINDOW_KEY,
    ARCH_RECURRENT_FLAGS,
    ARCH_RECURRENT_HEADS,
    ARCH_NETWORK_KEY,
    ARCH_SAME,
    ARCH_LAYERS,
    ARCH_UNROTATED,
    ARCH_ROTATED_KEY,
    ARCH_ROUTER_NAME,
    ARCH_NGRAMS,
    ARCH_CHOICE,
    ARCH_INDEXED,
    ARCH_INDEXED_ROUTED,
    ARCH_ENTRIES,
    ARCH_SKIPPED_NAME,
    ARCH_ONLY,
    ARCH_ONLY_FLOAT,
    ARCH_ONLY_WHY,
    ARCH_BELOW,
    ARCH_WIDE,
    ARCH_ALSO,
    ARCH_ALSO_FIELD,
    ARCH_SECTIONS,
    ARCH_DENSE,
    ARCH_NAME,
    ARCH_ALIAS,
    ARCH_EXPERT,
    ARCH_REJECTED,
    ARCH_UNUSED
};

struct arch_row {
    enum arch_row_kind kind;
    uint16_t offset;   /* of the field in struct model_hparams */
    uint16_t other;    /* of another field */
    const char *field; /* its name */
    /* The key of GGUF, after the name of the architecture and a dot; or the name of a tensor. */
    const char *key;
    double value;
    union { /* by kind */
        struct {
            double min, max;
            bool required;
        };
        const char *text;
        const struct arch_row *group;
        bool divided;
        uint32_t is;
        struct {
            uint32_t layers, vocab; /* 0: of all models */
        };
        struct {
            uint32_t period, at;
        };
        struct {
            /* enum arch_which (of ARCH_UNROTATED: enum arch_unrotated), layer_mixer, layer_ffn */
            uint8_t which, mixer, ffn;
        };
        uint32_t divisor;
        uint8_t dim; /* enum arch_dim */
        struct {
            /* enum dense_role; of ARCH_EXPERT: enum expert_matrix, or EXPERT_GATE_UP. */
            uint8_t role;
            uint8_t storage, presence; /* enum arch_storage, arch_presence */
            uint8_t ne[3];             /* enum arch_dim */
        };
    };
};

struct arch {
    const char *name;            /* general.architecture */
    const struct arch_row *rows; /* the last one is of kind ARCH_END */
};

#define ARCH(id) extern const struct arch arch_##id;
#include "lib/model/arch/arch.tbl.h"
enum {
#define ARCH(id) +1
    ARCH_COUNT = 0
#include "lib/model/arch/arch.tbl.h"
};
extern const struct arch *const arch_list[ARCH_COUNT];

/* A loop over its rows of some kinds, and the first of them; kinds: ARCH_ROWS(UINT) | ... */
ROW_WALK(arch)
#define ARCH_ROWS(kind)              ROW_BIT(ARCH_##kind)
#define ARCH_EACH(row, arch_, kinds) ROW_EACH (arch, row, (arch_)->rows, kinds)

/* The architecture of that name; NULL if it is not supported. */
const struct arch *arch_find(const char *name, size_t bytes);

/* Returns -1 and sets *error to the reason why a file is rejected whose architecture arch_find does
 * not find. */
int arch_reject(const struct gguf *g, const char *name, size_t bytes, struct error *error);

/* Reads and checks the hyper-parameters of a file whose vocabulary has `tokens` tokens. tied_output
 * is 0 afterwards: it follows from the tensors. 0, or -1 with ERR_BAD_INPUT. */
int arch_read_hparams(const struct arch *arch, const struct gguf *g, uint32_t tokens,
                      struct model_hparams *hparams, struct error *error);

/* Sets the sizes of the cache of MLA where the keys of grouped-query attention are missing. */
void arch_derive_mla(struct model_hparams *hparams);

/* Sets the number of streams, where it follows from the layers (RESIDUAL_BANK). */
void arch_derive_streams(struct model_hparams *hparams);

/* Sets the floats without a key (ARCH_ROOT, ARCH_CONST_FLOAT). */
void arch_set_reals(const struct arch *arch, struct model_hparams *hparams);

/* Sets the integers without a key (ARCH_CONST), whatever their default is. */
void arch_set_constants(const struct arch *arch, struct model_hparams *hparams);

/* Sets the fields that follow from the value of another one (ARCH_WHERE). */
void arch_set_where(const struct arch *arch, struct model_hparams *hparams);

/* Sets the fields that are still 0 and are a share of another one (ARCH_SHARE). */
void arch_set_shares(const struct arch *arch, struct model_hparams *hparams);

/* Sets flags, mixers and feed-forward parts by the kinds of the layers, which are known, and by the
 * flags that arch_given_flags says, which are known, too. */
void arch_set_parts(const struct arch *arch, struct model_hparams *hparams);

/* The flags of layers that files of the architecture state, and not its rule. */
uint32_t arch_given_flags(const struct arch *arch);

/* Where blocks of an indexer have a tail (ARCH_CHOICE): index_top_k, so far positions, becomes
 * blocks of index_block, and index_tail follows from these. Without blocks it does nothing. */
void arch_set_pools(const struct arch *arch, struct model_hparams *hparams);

/* Sets LAYER_INDEXED by the rule for files that do not state it. */
void arch_set_indexed(const struct arch *arch, struct model_hparams *hparams);

/* The key of the array that states which layers rotate; NULL: the architecture has none. */
const char *arch_rotated_key(const struct arch *arch);

/* Sets the kinds of the layers by the architecture's rule. */
void arch_set_kinds(const struct arch *arch, struct model_hparams *hparams);

/* The key of the array with the kinds of layers; NULL: the architecture has none. */
const char *arch_window_key(const struct arch *arch);

/* Fills in what the keys of scaled rotations and queries leave to defaults. */
void arch_derive_scaling(struct model_hparams *hparams);

/* The key of the array that states which layers are recurrent; NULL: there is none. *heads: the
 * array has the number of key heads of each layer, which is 0 in recurrent ones; otherwise it has
 * bools, which are true in recurrent ones. */
const char *arch_recurrent_key(const struct arch *arch, bool *heads);

/* The key of the array that states which layers are of kind LAYER_PLAIN; NULL: there is none. */
const char *arch_network_key(const struct arch *arch);

/* Makes the checks of arch_read_hparams, of ranges and relations, and nothing else. 0, or -1 with
 * ERR_BAD_INPUT. */
int arch_check_hparams(const struct arch *arch, const struct model_hparams *hparams,
                       struct error *error);

/* Where a tensor belongs. layer is hparams->layers for tensors outside the layers. */
struct arch_location {
    bool is_expert;
    bool unused;   /* a tensor that the engine does not need; the other fields are 0 */
    uint32_t role; /* enum dense_role, or enum expert_matrix, or EXPERT_GATE_UP */
    uint32_t layer;
};

/* Finds the role and layer of a tensor by its name, and checks its type and shape. 0, or -1 with
 * ERR_BAD_INPUT. */
int arch_locate_tensor(const struct arch *arch, const struct model_hparams *hparams,
                       const struct model_tensor *tensor, struct arch_location *location,
                       struct error *error);

/* What a layer consists of. */
struct layer_parts arch_layer_parts(const struct model_hparams *hparams, uint32_t layer);

/* True if a layer of these parts may have a tensor of that role. */
bool arch_layer_has(struct layer_parts parts, enum dense_role role);

/* True for the roles of global tensors, of which a model has one, and not one per layer. */
bool arch_role_is_global(enum dense_role role);
/* True if the model must have the tensor, of a role in layers in this layer, which has the part. */
bool arch_role_required(const struct arch *arch, const struct model_hparams *hparams,
                        uint32_t layer, enum dense_role role);
/* True if the tensor may be stored in any type; false if it must have that of the file. */
bool arch_role_any_type(const struct arch *arch, enum dense_role role);

/* The name of the tensor with that role and layer, for messages; returns buf, which has
 * MODEL_NAME_BYTES bytes. */
const char *arch_tensor_name(const struct arch *arch, const struct arch_location *location,
                             char *buf);

#endif
