/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of lib/model/hf. */
#ifndef SLUICE_MODEL_HF_INTERNAL_H
#define SLUICE_MODEL_HF_INTERNAL_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "lib/base/bytes.h"
#include "lib/json/reader.h"
#include "lib/model/hf/hf.h"

#define HF_CONFIG_MAX    (4 * MIB)
#define HF_TOKENIZER_MAX (64 * MIB)

enum hf_arch {
#define HF_ARCH(id, model_type, arch) HF_##id,
#include "lib/model/hf/hf.tbl.h"
    HF_ARCH__COUNT
};

struct hf_shape { /* the part of the configuration that locates tensors */
    enum hf_arch arch;
    uint32_t layers, dense_layers; /* without experts, the first ones */
    uint32_t experts, heads, kv_heads, vocab;
};

const char *hf_arch_name(enum hf_arch arch); /* general.architecture */

/* Checks config.json and writes its keys. name: general.name. */
int hf_config_keys(const json_t *config, const char *name, struct gguf_writer *w,
                   struct hf_shape *shape, struct error *error);

#define HF_PAD_BYTES 24

struct hf_chunk; /* of texts */

/* A tokenizer.json. */
struct hf_tokens {
    const char **text; /* by id; in a chunk or in pads */
    int32_t *type;     /* enum token_type */
    uint32_t count;    /* the model's vocabulary */
    char (*pads)[HF_PAD_BYTES];
    const char **merges; /* "left right" */
    uint32_t merge_count, merge_capacity;
    json_t *rest; /* of the document: normalizer, pre_tokenizer, post_processor, flags of model */
    struct hf_chunk *chunks;
    bool *in_vocab, has_vocab; /* while it is read */
};

/* Reads a document to its end. vocab: tokens of the model. The error does not name the file; t must
 * be freed in any case. */
int hf_tokens_read(struct hf_tokens *t, struct json_reader *r, uint32_t vocab, struct error *error);
void hf_tokens_free(struct hf_tokens *t);

/* True if `value` is the JSON string `expected`. */
bool hf_is_string(const json_t *value, const char *expected);

/* sentencepiece.c, for the tokenizer.json of a SentencePiece vocabulary (byte_fallback): checks
 * that its rules are those of SentencePiece BPE, sets the types of byte tokens and of the unknown
 * token, and writes the keys that only such tokenizers have. */
int hf_sentencepiece_keys(struct hf_tokens *t, struct gguf_writer *w, struct error *error);

/* Reads tokenizer.json and writes the tokenizer's keys. settings (tokenizer_config.json) may be
 * NULL. */
int hf_tokenizer_keys(struct json_reader *tokenizer, const json_t *settings, const json_t *config,
                      uint32_t vocab, struct gguf_writer *w, struct error *error);

#endif
