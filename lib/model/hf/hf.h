/* Models in Hugging Face form, seen as one GGUF file: a directory with config.json, tokenizer.json,
 * tokenizer_config.json where there is one, and safetensors files (safetensors.h).
 *
 * hf_open makes the header of the GGUF file this model would be, as llama.cpp's converter names and
 * stores things: keys from the configuration, the tokenizer's tables, norms, biases and routers in
 * F32, matrices in their own type, the experts of a layer as one 3-D tensor. Nothing is converted
 * yet: for every tensor stands here where its bytes are and what has to be done with them. What the
 * model may look like is in hf.tbl.h; the header still goes through the reader of GGUF files and
 * the tables of architectures, which check shapes, ranges and completeness.
 *
 * The bytes are foreign: refusals are one line that names the file and the field. */
#ifndef SLUICE_MODEL_HF_HF_H
#define SLUICE_MODEL_HF_HF_H

#include <stdint.h>

#include "lib/base/error.h"
#include "lib/model/gguf/write.h"
#include "lib/model/hf/safetensors.h"

/* What becomes of a tensor's bytes. */
enum hf_form {
    HF_AS_IS,
    HF_TO_F32,
    /* Rows of q and k of the architecture `llama`. Hugging Face's rotary embedding turns element i
     * of a head together with i + n/2, GGUF's of this architecture neighbours 2i and 2i + 1: row
     * i + j * n/2 of each head (j = 0, 1) becomes row 2i + j. */
    HF_HEAD_PAIRS,
};

struct hf_tensor { /* of the GGUF file, in its order */
    enum hf_form form;
    uint32_t type;       /* of the source: enum tensor_type */
    uint32_t source;     /* first of `experts` (or one) in hf_model.sources */
    uint32_t experts;    /* 0: a dense tensor */
    uint64_t head_bytes; /* HF_HEAD_PAIRS: of one head; rows are row_bytes */
    uint64_t row_bytes;  /* of the source */
};

struct hf_model {
    struct safetensors files;
    struct gguf_writer *gguf; /* laid out */
    struct hf_tensor *tensors;
    uint32_t tensor_count, tensor_capacity;
    uint32_t *sources; /* numbers of files.tensors */
    uint32_t source_count, source_capacity;
};

/* 0, or -1 with ERR_BAD_INPUT, ERR_IO or ERR_NO_MEMORY. On success the caller ends with hf_close.
 */
int hf_open(struct hf_model *hf, const char *dir, struct error *error);
void hf_close(struct hf_model *hf);

/* The tensor in the files that holds GGUF tensor t, or expert e of it. */
const struct safetensor *hf_source(const struct hf_model *hf, uint32_t t, uint32_t e);

/* HF_HEAD_PAIRS: puts one head's rows into their new order. dst and src do not overlap. */
void hf_head_pairs(const struct hf_tensor *t, const void *src, void *dst);

#endif
