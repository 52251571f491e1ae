/* SPDX-License-Identifier: Apache-2.0 */
/* Hugging Face models, presented as one GGUF file: a directory with config.json, tokenizer.json,
 * optionally tokenizer_config.json, and safetensors files (safetensors.h).
 *
 * hf_open makes the header of the equivalent GGUF file, with the names and types that llama.cpp's
 * converter uses: keys from the configuration, the tokenizer's tables, norms, biases and routers in
 * F32, matrices in their own type, the experts of a layer as one 3-D tensor. It converts no data:
 * for every tensor it records where the bytes are and how to convert them. hf.tbl.h lists the
 * supported models. The caller still passes the header to the GGUF reader and the tables of
 * architectures, which check shapes, ranges and completeness.
 *
 * The input is untrusted: an error is one line that names the file and the field. */
#ifndef SLUICE_MODEL_HF_HF_H
#define SLUICE_MODEL_HF_HF_H

#include <stdint.h>

#include "lib/base/error.h"
#include "lib/model/gguf/write.h"
#include "lib/model/hf/safetensors.h"

/* How a tensor's bytes are converted. */
enum hf_form {
    HF_AS_IS,
    HF_TO_F32,
    /* Rows of q and k of the architecture `llama`. The rotary embedding pairs element i of a head
     * with i + n/2 in Hugging Face, and 2i with 2i + 1 in GGUF for this architecture: row
     * i + j * n/2 of each head (j = 0, 1) becomes row 2i + j. */
    HF_HEAD_PAIRS,
    /* E4M3 with a scale per block of rows and columns, in a tensor of its own. */
    HF_FP8,
};

struct hf_tensor { /* a tensor of the GGUF file, in file order */
    enum hf_form form;
    uint32_t type;       /* of the source: enum tensor_type */
    uint32_t source;     /* first of `experts` (or one) in hf_model.sources */
    uint32_t experts;    /* 0: a dense tensor */
    uint64_t head_bytes; /* HF_HEAD_PAIRS: bytes of one head */
    uint64_t row_bytes;  /* of the source */
    /* HF_FP8 */
    uint32_t scales; /* the first of its scales in hf_model.sources */
    uint32_t made_type;
    uint64_t made_row_bytes, rows, columns, block_rows, block_columns;
};

struct hf_model {
    uint32_t fp8_type; /* that HF_FP8 becomes: TENSOR_BF16 or TENSOR_Q8_0 */
    struct safetensors files;
    struct gguf_writer *gguf; /* after gguf_writer_layout */
    struct hf_tensor *tensors;
    uint32_t tensor_count, tensor_capacity;
    uint32_t *sources; /* indices into files.tensors */
    uint32_t source_count, source_capacity;
};

/* Reads the model in directory `dir`. 0, or -1 with ERR_BAD_INPUT, ERR_IO or ERR_NO_MEMORY. On
 * success the caller calls hf_close. */
int hf_open(struct hf_model *hf, const char *dir, struct error *error);
/* The same; fp8_type: what FP8 weights become, TENSOR_BF16 (as hf_open) or TENSOR_Q8_0 (rows that it
 * cannot hold: BF16). */
int hf_open_as(struct hf_model *hf, const char *dir, uint32_t fp8_type, struct error *error);
void hf_close(struct hf_model *hf);

/* The source of GGUF tensor t, or of its expert e (e is 0 for dense tensors). */
const struct safetensor *hf_source(const struct hf_model *hf, uint32_t t, uint32_t e);

/* HF_FP8: its scales, a matrix of F32 with a row per block of rows. */
const struct safetensor *hf_scales(const struct hf_model *hf, uint32_t t, uint32_t e);

/* HF_FP8: converts `rows` rows from row `first` on. src: these rows, a byte per weight; scales: all of
 * them; dst: made_row_bytes per row. ERR_BAD_INPUT: a weight is not finite. */
int hf_fp8_rows(const struct hf_tensor *t, const void *src, const float *scales, uint64_t first,
                uint64_t rows, void *dst, struct error *error);

/* HF_HEAD_PAIRS: copies the rows of one head in their new order. dst and src do not overlap. */
void hf_head_pairs(const struct hf_tensor *t, const void *src, void *dst);

#endif
