/* SPDX-License-Identifier: Apache-2.0 */
/* Makes small GGUF files in memory, valid or with one chosen error: for tests and fuzzing seeds. */
#ifndef SLUICE_TESTS_UNIT_LIB_MODEL_GGUF_MAKE_H
#define SLUICE_TESTS_UNIT_LIB_MODEL_GGUF_MAKE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct bytes {
    unsigned char *data;
    size_t size, capacity;
};

void bytes_add(struct bytes *b, const void *data, size_t n);
void bytes_u32(struct bytes *b, uint32_t v);
void bytes_u64(struct bytes *b, uint64_t v);
void bytes_text(struct bytes *b, const char *text, size_t n); /* length, then text */
void bytes_free(struct bytes *b);

struct make_key {
    char name[80];
    bool no_name;        /* written with a length of 0 */
    uint64_t name_bytes; /* 0: the true length */
    uint32_t type;
    struct bytes value; /* as in the file, after the type */
};

struct make_tensor {
    char name[80];
    uint32_t dims, type;
    uint64_t ne[5];
    uint64_t bytes;      /* of data to write */
    int64_t offset_slip; /* added to the correct offset */
};

struct make {
    char magic[4];
    uint32_t version;
    uint64_t claim_keys, claim_tensors; /* 0: the true number */
    uint32_t alignment;                 /* used for padding */
    struct make_key keys[64];
    size_t key_count;
    struct make_tensor tensors[160];
    size_t tensor_count;
    size_t header_bytes; /* set by make_write: start of the data, without padding */
};

/* A valid qwen3moe file: vocabulary of 262 tokens, 3 merges, 3 experts, top-2. `mixed`: hidden size
 * 32 and mixed tensor types; otherwise hidden size 4 and all F32 (a file of about 11 KB). */
void make_tiny(struct make *m, unsigned layers, bool mixed);
/* The same of another architecture: with its keys and its additional or different tensors. */
void make_arch(struct make *m, const char *arch, unsigned layers, bool mixed);

/* Parts of make_arch. Multi-head latent attention: latents of h elements, 2 heads with h + 2
 * elements of keys, 2 of which are rotated, and h of values. */
void make_mla(struct make *m, const char *arch, unsigned layers, unsigned h, uint32_t type);
void make_llama4(struct make *m, unsigned layers, unsigned h, uint32_t type);
void make_deepseek4(struct make *m, unsigned layers, unsigned h, uint32_t type);
void make_glm5_next(struct make *m, unsigned layers, unsigned h, uint32_t type);
void make_dots3note(struct make *m, unsigned layers, unsigned h, uint32_t type);
void make_hy_v4(struct make *m, unsigned layers, unsigned h, uint32_t type);
void make_glm5next(struct make *m, unsigned layers, unsigned h, uint32_t type);
void make_kimi_linear(struct make *m, unsigned layers, unsigned h, uint32_t type);
void make_kimi_k3(struct make *m, unsigned layers, unsigned h, uint32_t type);
void make_bailingmoe3(struct make *m, unsigned layers, unsigned h, uint32_t type);
void make_minimax_01(struct make *m, unsigned layers, unsigned h, uint32_t type);
/* What makes a qwen3moe model one with recurrent layers, if arch is one. */
void make_recurrent(struct make *m, const char *arch, unsigned layers, unsigned h, uint32_t type);
/* The rest of a model with an indexer, if arch is one; and the tensors of its indexer in a
 * layer. */
void make_indexed(struct make *m, const char *arch, unsigned layers, unsigned h, uint32_t type);
void make_indexer(struct make *m, const char *arch, unsigned layer, unsigned h);
/* Its keys and tensors, in every layer. */
void make_indexers(struct make *m, const char *arch, unsigned layers, unsigned h);
void make_gated_pools(struct make *m, const char *arch, unsigned layers, unsigned h);
void make_free(struct make *m);

/* The file. Each byte of tensor data is a function of its position. */
struct bytes make_write(struct make *m);
/* Writes the file, reads it and frees m. NULL with *error; else freed by the caller. */
struct error;
struct model_index *make_index(struct make *m, struct error *error);

/* struct gguf_source.read with arg a struct bytes. */
ssize_t make_read(void *arg, void *buf, size_t n, uint64_t offset);

/* Another size of a tensor, as F32. */
void make_resize(struct make *m, const char *name, uint64_t ne0, uint64_t ne1);

struct make_key *make_key(struct make *m, const char *name); /* NULL: no such key */
struct make_tensor *make_tensor(struct make *m, const char *name);
void make_drop_key(struct make *m, const char *name);
void make_drop_tensor(struct make *m, const char *name);

/* Adds the key, or replaces its type and value. */
void make_u32(struct make *m, const char *name, uint32_t v);
void make_u64(struct make *m, const char *name, uint64_t v);
void make_f32(struct make *m, const char *name, float v);
void make_bool(struct make *m, const char *name, unsigned char v);
void make_text(struct make *m, const char *name, const char *text);
/* An array of `count` strings; an array of I32. */
void make_texts(struct make *m, const char *name, const char *const *texts, size_t count);
void make_i32s(struct make *m, const char *name, const int32_t *v, size_t count);
/* Only an array header, with any element type and count, and `n` bytes of content. */
void make_array_raw(struct make *m, const char *name, uint32_t elem, uint64_t count, size_t n);

struct make_tensor *make_add_tensor(struct make *m, const char *name, uint32_t type, uint64_t ne0,
                                    uint64_t ne1, uint64_t ne2);

#define TINY_VOCAB   262
#define TINY_HE      256 /* "he", from merge 0 */
#define TINY_LL      257 /* "ll", merge 1 */
#define TINY_HELL    258 /* "hell", merge 2 */
#define TINY_EOS     259 /* control "<|end|>" */
#define TINY_CONTROL 260 /* control "<|end|>>": a longer match than the previous one */
#define TINY_USER    261 /* user-defined "<tag>" */

/* Token texts of the tiny vocabulary, as encoded in the file. */
extern const char *const tiny_merges[3];
void tiny_tokens(const char *texts[TINY_VOCAB], int32_t types[TINY_VOCAB]);

/* A SentencePiece vocabulary of the same size: bytes, then these tokens. */
struct spm_tokens {
    const char *texts[TINY_VOCAB];
    int32_t types[TINY_VOCAB];
    float scores[TINY_VOCAB];
};
#define SPM_SPACE_ID   256 /* U+2581 */
#define SPM_A          257
#define SPM_B          258
#define SPM_SPACE_A    259
#define SPM_AB         260
#define SPM_CONTROL    261 /* "<s>" */
#define SPM_SPACE_TEXT "\xe2\x96\x81"

void spm_tokens(struct spm_tokens *v);
void make_scores(struct make *m, const float *scores, size_t count);
/* Replaces the tokenizer of a file made by the functions above. */
void make_spm(struct make *m, const struct spm_tokens *v);

#endif
