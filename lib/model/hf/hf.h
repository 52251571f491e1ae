/* SPDX-License-Identifier: Apache-2.0 */
/* Hugging Face models, presented as one GGUF file: a directory with config.json, tokenizer.json,
 * optionally tokenizer_config.json, and safetensors files (safetensors.h).
 *
 * hf_open makes the header of the equivalent GGUF file, with the names and types that llama.cpp's
 * converter uses: keys from the configuration, the tokenizer's tables, norms, biases and routers in
 * F32, matrices in their own type, the experts of a layer as one 3-D tensor. It converts no data:
 * for every tensor it records where the bytes are and how to convert them, row by row (hf_part_of,
 * hf_make_rows). hf.tbl.h lists the supported models, rows.tbl.h the conversions. The caller still
 * passes the header to the GGUF reader and the tables of architectures, which check shapes, ranges
 * and completeness.
 *
 * The input is untrusted: an error is one line that names the file and the field. */
#ifndef SLUICE_MODEL_HF_HF_H
#define SLUICE_MODEL_HF_HF_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/error.h"
#include "lib/model/gguf/write.h"
#include "lib/model/hf/safetensors.h"

/* What the elements of the source are. */
enum hf_form {
    HF_FLOATS, /* F32, F16 or BF16 */
    HF_FP8,    /* E4M3 with a scale per block of rows and columns, in a tensor of its own */
    HF_MXFP4,  /* E2M1 and, in a tensor of its own, an exponent per 32 elements of a row */
    HF_INTS,   /* whole numbers of `bits` bits, packed in I32, with a scale per group of a row */
    HF_TIMES,  /* HF_FLOATS, times those of another tensor, which is kept as its scales */
    HF_IDS,    /* I32 or I64, which become I32 */
    HF_MADE    /* no source: numbers of config.json (hf_model.made) */
};

enum hf_value {
    HF_VALUE_SAME,
    HF_VALUE_PLUS_1,
    HF_VALUE_EXP,
    HF_VALUE_MINUS_EXP,
    HF_VALUE_OF_LATENT
};

#define HF_SEGMENTS_MAX 3
#define HF_DIGITS       3

/* Indices of the source for the indices of an axis: rows.tbl.h, HF_SEGMENT. */
struct hf_axis {
    uint32_t segments; /* 0: index i is index i */
    uint64_t count;    /* of indices */
    struct hf_segment {
        uint64_t first, count, n[HF_DIGITS], step[HF_DIGITS];
    } segment[HF_SEGMENTS_MAX];
};

struct hf_tensor { /* a tensor of the GGUF file, in file order: planes of rows of columns */
    enum hf_form form;
    enum hf_value value;
    bool same;                            /* the source's bytes are those of the tensor */
    bool turned;                          /* rows are columns of the source */
    bool stacked;                         /* all planes are in the first source */
    uint32_t type;                        /* of the source: enum tensor_type, or SAFETENSORS_... */
    uint32_t source;                      /* first of `planes` (or one) in hf_model.sources */
    uint32_t planes;                      /* the last dimension of a 3-D tensor, else 1 */
    uint32_t experts;                     /* 0: a dense tensor */
    uint64_t rows, columns;               /* of a plane */
    uint64_t row_bytes;                   /* of the source */
    uint64_t source_rows, source_columns; /* of a plane */
    struct hf_axis row_axis, column_axis;
    uint32_t made_type;
    uint64_t made_row_bytes;
    uint64_t hidden;      /* of the model */
    uint32_t made;        /* HF_MADE: first number in hf_model.made */
    uint32_t factor_type; /* HF_TIMES: type of the other tensor; HF_INTS, HF_FP8: of the scales */
    uint32_t bits;        /* HF_INTS: 4 or 8 */
    /* HF_FP8, HF_MXFP4, HF_INTS, HF_TIMES */
    uint32_t scales; /* the first of its scales in hf_model.sources */
    uint64_t block_rows, block_columns;
};

struct hf_model {
    uint32_t fp8_type; /* the type that HF_FP8 becomes: TENSOR_BF16 or TENSOR_Q8_0 */
    struct safetensors files;
    struct gguf_writer *gguf; /* after gguf_writer_layout */
    struct hf_tensor *tensors;
    uint32_t tensor_count, tensor_capacity;
    uint32_t *sources; /* indices into files.tensors */
    uint32_t source_count, source_capacity;
    float *made;
    uint32_t made_count;
};

/* Reads the model in directory `dir`. 0, or -1 with ERR_BAD_INPUT, ERR_IO or ERR_NO_MEMORY. On
 * success the caller calls hf_close. */
int hf_open(struct hf_model *hf, const char *dir, struct error *error);
/* Reads a model as hf_open does, with a choice of what FP8 weights become: TENSOR_BF16, as with
 * hf_open, or TENSOR_Q8_0. With Q8_0, rows that it cannot hold, and rows that are made of parts of
 * the source's rows, become BF16. */
int hf_open_as(struct hf_model *hf, const char *dir, uint32_t fp8_type, struct error *error);
void hf_close(struct hf_model *hf);

/* The directory in a model's directory whose files are read, too. */
#define HF_NAMED_TEMPLATES "additional_chat_templates"

struct hf_extent {
    uint32_t file; /* index into hf_model.files.files */
    uint64_t offset, bytes;
};

/* Rows of the source without gaps between them. Of turned tensors it is always a whole plane, which
 * has at most 1 GiB. */
struct hf_part {
    struct hf_extent at;
    uint64_t first; /* row of the plane */
};

/* The part of the source from which rows [row, row + rows) of a plane of tensor t are made. The
 * tensor must not be HF_MADE. */
struct hf_part hf_part_of(const struct hf_model *hf, uint32_t t, uint32_t plane, uint64_t row,
                          uint64_t rows);

/* Where the scales of a plane are, which hf_make_rows needs; its bytes are 0 if it has none. */
struct hf_extent hf_scales_of(const struct hf_model *hf, uint32_t t, uint32_t plane);

/* Makes rows [row, row + rows) of a plane. src: the bytes of `part`, which has these rows, and
 * maybe more; scales: aligned for float; dst: made_row_bytes per row. 0, or -1 with ERR_BAD_INPUT
 * if a weight is not finite. */
int hf_make_rows(const struct hf_model *hf, uint32_t t, uint32_t plane, const struct hf_part *part,
                 const void *src, const void *scales, uint64_t row, uint64_t rows, void *dst,
                 struct error *error);

#endif
