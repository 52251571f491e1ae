/* SPDX-License-Identifier: Apache-2.0 */
/* Makes a Hugging Face directory of a GGUF file, for tests: config.json, tokenizer.json and
 * safetensors. Written from the file formats, independently of lib/model/hf*. */
#ifndef SLUICE_TESTS_UNIT_LIB_MODEL_HF_MAKE_H
#define SLUICE_TESTS_UNIT_LIB_MODEL_HF_MAKE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "lib/model/gguf/gguf.h"

struct hf_make {
    const char *gguf; /* F16 and F32 tensors */
    const char
        *names; /* NULL, or a file of tests/golden/hf_vectors.py: configuration, names and shapes */
    const char *dir; /* must exist */
    const char *from,
        *to; /* with `names`: a beginning of names, and what is written for it; NULL: none */
    bool half_norms; /* F32 tensors are written as F16 (their values must be exact in F16) */
    bool two_files;  /* with model.safetensors.index.json */
    /* Edits the JSON before it is written; NULL: none. */
    void (*edit)(json_t *config, json_t *tokenizer);
    /* Name of a tensor to omit, or NULL. */
    const char *without;
};

/* The data of a tensor of the checkpoint, with that name and shape, from the tensors of a GGUF
 * file; *half: F16, else F32. Allocated; exits the program on failure. */
char *hf_make_moved(const struct gguf *g, int fd, const char *arch, const json_t *config,
                    const char *name, const json_t *shape, size_t *bytes, bool *half);

/* Writes the ranks of the 256 bytes, a vocabulary of tiktoken, to `text` of `size` bytes
 * (HF_MAKE_RANKS_BYTES and what the caller appends). Returns their length without the NUL. */
#define HF_MAKE_RANKS_BYTES 3000
size_t hf_make_ranks(char *text, size_t size);

/* Exits the program on failure. */
void hf_make(const struct hf_make *m);

/* Removes what hf_make wrote, and the directory. */
void hf_unmake(const char *dir);

/* Puts the configuration of a text model inside of another one, of that model_type. */
void hf_make_nested(json_t *config, const char *outer);

/* An edit of the published configuration of a small DeepSeek-V4, to what transformers saves: names
 * of the kinds of layers, and rotations of both kinds. */
void hf_make_named_kinds(json_t *config, json_t *tokenizer);

#endif
