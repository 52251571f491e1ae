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

#define HF_CONFIG_MAX    (4 * MIB)
#define HF_TOKENIZER_MAX (64 * MIB)
#define HF_TIKTOKEN_MAX  (16 * MIB)

enum hf_arch {
#define HF_ARCH(id, model_type, arch) HF_##id,
#include "lib/model/hf/hf.tbl.h"
    HF_ARCH__COUNT
};

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
    enum hf_arch arch;
    uint32_t layers, dense_layers; /* without experts, the first ones */
    uint32_t experts, heads, kv_heads, vocab;
    uint32_t block_rows, block_columns; /* of FP8 weights; 0: none */
    uint32_t size[HF_SIZE__COUNT];      /* enum hf_size */
    bool other[MODEL_LAYERS_MAX];       /* layers of the architecture's other kind */
};

const char *hf_arch_name(enum hf_arch arch); /* general.architecture */

/* Checks config.json and writes its keys. name: general.name. */
int hf_config_keys(const json_t *config, const char *name, struct gguf_writer *w,
                   struct hf_shape *shape, struct error *error);

/* The configuration of the text model, in that of one with other models around it. */
const json_t *hf_text_config(const json_t *config);

/* A field of the configuration, by its path; NULL: absent or null. */
const json_t *hf_field(const json_t *config, const char *field);

/* The field that becomes a key of GGUF; NULL: the architecture has none. */
const char *hf_field_for(enum hf_arch arch, const char *key);

/* layers.c: reads which layers are of the architecture's other kind, and writes the keys that say so. */
int hf_layer_kinds(const json_t *config, struct gguf_writer *w, struct hf_shape *shape,
                   struct error *error);

/* layers.c: a number of the layers that attend to all positions (HF_FULL). */
int hf_full_number(const json_t *config, const struct hf_shape *shape, const char *field,
                   const char *global, const char *gate, uint32_t *n, struct error *error);

/* The axis of that name over `all` indices of the source; false: the sizes do not fit. */
bool hf_axis_of(struct hf_axis *axis, enum hf_axis_name name, const struct hf_shape *shape,
                uint64_t all);

/* tensors.c: adds the tensors to the header. tied: the output matrix is the embedding. */
int hf_put_tensors(struct hf_model *hf, const struct hf_shape *shape, const json_t *config,
                   bool tied, struct error *error);

/* HF_FP8, rows in the source's order: converts `rows` rows from row `first` of the source on. src: these
 * rows, a byte per weight; scales: all of them; dst: made_row_bytes per row. ERR_BAD_INPUT: a weight is
 * not finite. */
int hf_fp8_rows(const struct hf_tensor *t, const void *src, const float *scales, uint64_t first,
                uint64_t rows, void *dst, struct error *error);

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
/* Its parts. Opens it for `vocab` tokens; a text of `bytes` and a NUL that stays where it is (NULL: out of memory); what
 * is checked and filled in when all tokens are there. */
int hf_tokens_open(struct hf_tokens *t, uint32_t vocab, struct error *error);
char *hf_tokens_text(struct hf_tokens *t, size_t bytes);
int hf_tokens_end(struct hf_tokens *t, struct error *error);

/* HF_TIKTOKEN. */
struct hf_tiktoken {
    const char *file, *pre;
    uint32_t count;
    const char *named, *numbered;
    bool by_id;
    const char *bos;
};
const struct hf_tiktoken *hf_tiktoken_row(size_t i); /* NULL: there are fewer */

/* tiktoken.c: reads such a file. The error does not name it; t must be freed in any case. */
int hf_tiktoken_read(struct hf_tokens *t, const struct hf_tiktoken *row, const char *text,
                     size_t bytes, const json_t *settings, uint32_t vocab, struct error *error);

/* True if `value` is the JSON string `expected`. */
bool hf_is_string(const json_t *value, const char *expected);

/* sentencepiece.c, for the tokenizer.json of a SentencePiece vocabulary (byte_fallback): checks
 * that its rules are those of SentencePiece BPE, sets the types of byte tokens and of the unknown
 * token, and writes the keys that only such tokenizers have. */
int hf_sentencepiece_keys(struct hf_tokens *t, struct gguf_writer *w, struct error *error);

/* sentencepiece.c, for BPE of characters: true if the text is prepared as there; types and keys as above. */
bool hf_is_of_characters(const json_t *tokenizer);
int hf_characters_keys(struct hf_tokens *t, struct gguf_writer *w, struct error *error);

/* Reads tokenizer.json and writes the tokenizer's keys. settings (tokenizer_config.json) may be
 * NULL. */
int hf_tokenizer_keys(struct json_reader *tokenizer, const json_t *settings, const json_t *config,
                      uint32_t vocab, struct gguf_writer *w, struct error *error);
/* The same from a vocabulary of tiktoken. */
int hf_tiktoken_keys(const struct hf_tiktoken *row, const char *text, size_t bytes,
                     const json_t *settings, const json_t *config, uint32_t vocab,
                     struct gguf_writer *w, struct error *error);

#endif
