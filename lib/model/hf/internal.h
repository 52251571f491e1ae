/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of lib/model/hf. */
#ifndef SLUICE_MODEL_HF_INTERNAL_H
#define SLUICE_MODEL_HF_INTERNAL_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/json/reader.h"
#include "lib/model/hf/hf.h"
#include "lib/model/limits.h"
#include "lib/model/rows.h"

#define HF_CONFIG_MAX    (4 * MIB)
#define HF_TOKENIZER_MAX (64 * MIB)
#define HF_TIKTOKEN_MAX  (16 * MIB)

/* ---- models as rows ---- */

/* The forms of rows.tbl.h. */
enum hf_form_name {
#define HF_FORM(name, storage, value, turned, planes, rows, columns) HF_FORM_##name,
#include "lib/model/hf/rows.tbl.h"
    HF_FORM__COUNT
};

enum hf_presence {
    HF_PRESENCE_REQUIRED,
    HF_PRESENCE_OPTIONAL,
    HF_PRESENCE_DENSE,
    HF_PRESENCE_EXPERTS,
    HF_PRESENCE_SHARED,
    HF_PRESENCE_FULL,
    HF_PRESENCE_OTHER
};

/* What a row says: families/rows.h has a macro for each kind, and its description. */
enum hf_row_kind {
    HF_END = ROW_END,
    HF_GROUP = ROW_GROUP,
    HF_UINT,
    HF_FLOAT,
    HF_BOOL,
    HF_LISTED,
    HF_TYPED,
    HF_TENTH,
    HF_ROTATED,
    HF_ALPHA,
    HF_LEADING,
    HF_SUM,
    HF_PRODUCT,
    HF_EQUAL,
    HF_UNLESS,
    HF_WITH,
    HF_KEY,
    HF_SET,
    HF_NUMBER,
    HF_CHOICE,
    HF_MUST,
    HF_QUANTISED,
    HF_ROPE,
    HF_OTHER,
    HF_KINDS_LISTED,
    HF_ROTATES,
    HF_FIXED,
    HF_INTERVAL,
    HF_FULL_LISTED,
    HF_FULL_PERIOD,
    HF_EXPERT_PERIOD,
    HF_LAYER_FLAGS,
    HF_LAYER_ROTATED,
    HF_LAYER_UINTS,
    HF_LAYER_ONES,
    HF_BY_KIND,
    HF_KINDS,
    HF_LIMITS,
    HF_INDEXERS,
    HF_PATTERN,
    HF_NETWORK_UINTS,
    HF_LAYOUT,
    HF_FULL,
    HF_EACH,
    HF_DENSE,
    HF_EXPERT,
    HF_EXPERTS,
    HF_REJECTED,
    HF_NUMBERS,
    HF_UNROTATED,
    HF_LLAMA3,
    HF_NGRAMS
};

struct hf_row {
    enum hf_row_kind kind;
    enum hf_presence presence;
    const char *field; /* of config.json; or name of a tensor */
    const char *with;  /* another field */
    const char
        *key; /* of GGUF, after the name of the architecture and a dot; or name of a tensor */
    const char *text;
    union { /* by kind */
        const struct hf_row *group;
        enum hf_form_name form;
        float number;
        uint32_t value;
        struct {
            uint32_t yes, no;
        };
        struct {
            const char *scaling, *needs;
        };
        struct {
            const char *size;
            uint32_t period, at;
        };
        const char *gate, *part;
        struct {
            float full, other;
        };
        float rotated;
    };
};

#define HF_TYPES_MAX 2
struct hf_arch {
    const char *type[HF_TYPES_MAX]; /* model_type of config.json; NULL: no second one */
    const char *arch;               /* general.architecture of GGUF */
    const struct hf_row *rows;      /* the last one is of kind HF_END */
};

#define HF_ARCH(id) extern const struct hf_arch hf_##id;
#include "lib/model/hf/hf.tbl.h"

/* A loop over its rows of some kinds, and the first of them; kinds: HF_ROWS(UINT) | ... */
ROW_WALK(hf)
#define HF_ROWS(kind)              ROW_BIT(HF_##kind)
#define HF_EACH(row, arch_, kinds) ROW_EACH (hf, row, (arch_)->rows, kinds)

/* ---- what the files share ---- */

/* The axes of rows.tbl.h, and the sizes that they use. */
enum hf_axis_name {
#define HF_AXIS(name, total) HF_AXIS_##name,
#include "lib/model/hf/rows.tbl.h"
    HF_AXIS__COUNT
};
enum hf_size {
#define HF_SIZE(name, field) HF_SIZE_##name,
#include "lib/model/hf/rows.tbl.h"
    HF_SIZE__COUNT
};

struct hf_shape { /* the part of the configuration that locates tensors */
    const struct hf_arch *arch;
    uint32_t layers, dense_layers; /* without experts, the first ones */
    uint32_t experts, heads, kv_heads, vocab;
    uint32_t block_rows, block_columns; /* of FP8 weights; 0: none */
    uint32_t packed_bits;               /* of packed whole numbers, 4 or 8; 0: there are none */
    uint32_t packed_group;              /* their elements with a scale; 0: the whole row */
    uint32_t size[HF_SIZE__COUNT];      /* enum hf_size */
    bool other[MODEL_LAYERS_MAX];       /* layers of the architecture's other kind */
    bool network[MODEL_LAYERS_MAX];     /* layers that are experts and nothing else (PATTERN) */
    bool unrouted[MODEL_LAYERS_MAX];    /* layers without experts after the first ones */
    bool unshared;                      /* layers of experts have no shared one */
};

#define HF_KEY_BYTES 128
/* Writes "<name of the architecture>.<key>" to buf. */
void hf_full_key(const struct hf_arch *arch, const char *key, char buf[HF_KEY_BYTES]);

/* Checks config.json, writes its keys, and fills *shape. name: the value of general.name. 0, or -1
 * with *error. */
int hf_config_keys(const json_t *config, const char *name, struct gguf_writer *w,
                   struct hf_shape *shape, struct error *error);

/* The configuration of the text model inside a configuration of several models; config itself if
 * there is none. */
const json_t *hf_text_config(const json_t *config);

/* The field of the configuration at a path; NULL: it is absent or null. */
const json_t *hf_field(const json_t *config, const char *field);

/* The field that becomes a key of GGUF; NULL: the architecture has none. */
const char *hf_field_for(const struct hf_arch *arch, const char *key);

/* True if the value is one of those in `accepted`: JSON in compact form, separated by spaces; "*":
 * any. value NULL: it is absent, which is an error if it is required. The error names the field. */
int hf_check_value(const json_t *value, const char *field, const char *accepted, bool required,
                   struct error *error);

/* A whole number; of an array, a number for each layer, all elements must be the same. 0, or -1
 * with an error that names the field. */
int hf_uint(const json_t *value, const char *field, uint32_t *n, struct error *error);

/* layers.c: the first layers that are of another kind than the rest (LEADING): a number, or a list
 * of the kinds. */
int hf_leading(const struct hf_arch *arch, const struct hf_row *row, const json_t *config,
               uint32_t *n, struct error *error);

/* layers.c: reads which layers are of the architecture's other kind, and writes the keys that say
 * so. */
int hf_layer_kinds(const json_t *config, struct gguf_writer *w, struct hf_shape *shape,
                   struct error *error);

/* layers.c: a number of the layers that attend to all positions (FULL). */
int hf_full_number(const json_t *config, const struct hf_shape *shape, const char *field,
                   const char *global, const char *gate, uint32_t *n, struct error *error);

/* layers.c: a number that may be a list with one per layer. *x: that of the layers of a kind; 0:
 * there is no such layer. */
int hf_number_of_kind(const json_t *config, const struct hf_shape *shape, const char *field,
                      bool other, double *x, struct error *error);

/* The axis of that name over `all` indices of the source; false: the sizes do not fit. */
bool hf_axis_of(struct hf_axis *axis, enum hf_axis_name name, const struct hf_shape *shape,
                uint64_t all);

/* tensors.c: adds the tensors to the header. whole: config.json; dir: the directory, of which small
 * tensors that become keys are read; tied: the output matrix is the embedding. */
int hf_put_tensors(struct hf_model *hf, const struct hf_shape *shape, const json_t *whole,
                   const char *dir, bool tied, struct error *error);
/* tensors.c: adds a tensor, still without sources. NULL with ERR_NO_MEMORY. */
struct hf_tensor *hf_add_tensor(struct hf_model *hf, struct error *error);
/* tensors.c: the tensor of the text model with that name, NULL: there is none. prefix: where names
 * begin in this checkpoint. */
const struct safetensor *hf_find(const struct hf_model *hf, size_t prefix, const char *name);

/* sources/ngrams.c: the keys and the table of n-grams, if the model has them. 0, or -1 with
 * ERR_BAD_INPUT, ERR_IO or ERR_NO_MEMORY. */
int hf_put_ngrams(struct hf_model *hf, const struct hf_shape *shape, size_t prefix,
                  const json_t *whole, const char *dir, struct error *error);

/* Converts `rows` rows of an HF_FP8 tensor whose rows are in the source's order, from row `first`
 * of the source on. src: these rows, a byte per weight; scales: those of the whole plane; dst:
 * made_row_bytes per row. 0, or -1 with ERR_BAD_INPUT if a weight is not finite. */
int hf_fp8_rows(const struct hf_tensor *t, const void *src, const void *scales, uint64_t first,
                uint64_t rows, void *dst, struct error *error);

/* sources/quantised.c: checks quantization_config, and sets what *shape has of it. */
int hf_check_quantisation(const json_t *config, struct hf_shape *shape, struct error *error);

/* sources/sources.c: adds a source of the tensor that was added last. */
int hf_add_source(struct hf_model *hf, const struct safetensor *s, struct error *error);
/* Adds the scales of all sources of the tensor, which were added. */
int hf_add_scales(struct hf_model *hf, struct hf_tensor *t, struct error *error);
/* Adds the factor of the elements of tensor t, whose other source was added. NULL is the tensor
 * `name`, which is missing. */
int hf_add_factor(struct hf_model *hf, struct hf_tensor *t, const struct safetensor *factor,
                  const char *name, struct error *error);
/* ERR_BAD_INPUT: there is no tensor of that name. */
int hf_missing(const char *name, struct error *error);

#define HF_NAME_BYTES (SAFETENSORS_NAME_MAX + 16)

#define HF_MXFP4_ELEMS 32u
#define HF_MXFP4_BYTES 16u

#define HF_PAD_BYTES 24

struct hf_chunk; /* of texts */

/* A tokenizer.json, or a vocabulary of tiktoken. */
struct hf_tokens {
    const char **text; /* by id; in a chunk or in pads */
    int32_t *type;     /* enum token_type */
    uint32_t count;    /* the model's vocabulary */
    char (*pads)[HF_PAD_BYTES];
    const char **merges; /* "left right" */
    uint32_t merge_count, merge_capacity;
    json_t *rest; /* of the document: normalizer, pre_tokenizer, post_processor, flags of model */
    const char *bos; /* its text, where tokenizer_config.json has none; NULL: that of config.json */
    struct hf_chunk *chunks;
    bool *in_vocab, has_vocab; /* while it is read */
};

/* Reads a document to its end. vocab: tokens of the model. The error does not name the file; t must
 * be freed in any case. */
int hf_tokens_read(struct hf_tokens *t, struct json_reader *r, uint32_t vocab, struct error *error);
void hf_tokens_free(struct hf_tokens *t);
/* The steps of hf_tokens_read, for other sources. Prepares *t for `vocab` tokens. */
int hf_tokens_open(struct hf_tokens *t, uint32_t vocab, struct error *error);
/* Memory for a text of `bytes` and a NUL, which stays where it is until hf_tokens_free. NULL when
 * memory is short. */
char *hf_tokens_text(struct hf_tokens *t, size_t bytes);
/* All tokens are there: checks them, and fills in what is missing. */
int hf_tokens_end(struct hf_tokens *t, struct error *error);

/* A vocabulary of tiktoken, read if there is no tokenizer.json. After the ranks are `count` special
 * tokens: those of tokenizer_config.json; else, in this order, `named`, then `numbered` with its id
 * or from 0 on. */
struct hf_tiktoken {
    const char *file, *pre; /* its pre-tokenizer */
    uint32_t count;
    const char *named, *numbered;
    bool by_id;
    const char *bos; /* where tokenizer_config.json names none */
};
/* The row number i of the table of such vocabularies; NULL: it has fewer. */
const struct hf_tiktoken *hf_tiktoken_row(size_t i);

/* tiktoken.c: reads such a file. The error does not name it; t must be freed in any case. */
int hf_tiktoken_read(struct hf_tokens *t, const struct hf_tiktoken *row, const char *text,
                     size_t bytes, const json_t *settings, uint32_t vocab, struct error *error);

/* True if `value` is the JSON string `expected`. */
bool hf_is_string(const json_t *value, const char *expected);

/* sentencepiece.c, for the tokenizer.json of a SentencePiece vocabulary (byte_fallback): checks
 * that its rules are those of SentencePiece BPE, sets the types of byte tokens and of the unknown
 * token, and writes the keys that only such tokenizers have. */
int hf_sentencepiece_keys(struct hf_tokens *t, struct gguf_writer *w, struct error *error);

/* sentencepiece.c, for BPE of characters: whether tokenizer.json prepares texts as such tokenizers
 * do; and the types and keys, as hf_sentencepiece_keys has them. */
bool hf_is_of_characters(const json_t *tokenizer);
int hf_characters_keys(struct hf_tokens *t, struct gguf_writer *w, struct error *error);

/* Reads tokenizer.json and writes the tokenizer's keys. settings (tokenizer_config.json) may be
 * NULL. */
int hf_tokenizer_keys(struct json_reader *tokenizer, const json_t *settings, const json_t *config,
                      uint32_t vocab, struct gguf_writer *w, struct error *error);
/* Writes the tokenizer's keys from a vocabulary of tiktoken. */
int hf_tiktoken_keys(const struct hf_tiktoken *row, const char *text, size_t bytes,
                     const json_t *settings, const json_t *config, uint32_t vocab,
                     struct gguf_writer *w, struct error *error);

#endif
