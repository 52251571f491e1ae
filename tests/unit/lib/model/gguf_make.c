/* SPDX-License-Identifier: Apache-2.0 */
/* Writes small GGUF files into memory, with one chosen error if the test wants it. */
#include "tests/unit/lib/model/gguf_make.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/model/gguf/gguf.h"
#include "lib/tensor/tensor_type.h"

void bytes_add(struct bytes *b, const void *data, size_t n)
{
    if (b->size + n > b->capacity) {
        b->capacity = (b->size + n) * 2;
        b->data = realloc(b->data, b->capacity);
        sl_assert(b->data);
    }
    if (n > 0)
        memcpy(b->data + b->size, data, n);
    b->size += n;
}

void bytes_u32(struct bytes *b, uint32_t v)
{
    bytes_add(b, &v, sizeof v);
}

void bytes_u64(struct bytes *b, uint64_t v)
{
    bytes_add(b, &v, sizeof v);
}

void bytes_text(struct bytes *b, const char *text, size_t n)
{
    bytes_u64(b, n);
    bytes_add(b, text, n);
}

void bytes_free(struct bytes *b)
{
    free(b->data);
    *b = (struct bytes){0};
}

struct make_key *make_key(struct make *m, const char *name)
{
    for (size_t i = 0; i < m->key_count; i++)
        if (strcmp(m->keys[i].name, name) == 0)
            return &m->keys[i];
    return NULL;
}

struct make_tensor *make_tensor(struct make *m, const char *name)
{
    for (size_t i = 0; i < m->tensor_count; i++)
        if (strcmp(m->tensors[i].name, name) == 0)
            return &m->tensors[i];
    return NULL;
}

void make_drop_key(struct make *m, const char *name)
{
    struct make_key *k = make_key(m, name);
    sl_assert(k);
    bytes_free(&k->value);
    memmove(k, k + 1, (size_t)(&m->keys[--m->key_count] - k) * sizeof *k);
}

void make_drop_tensor(struct make *m, const char *name)
{
    struct make_tensor *t = make_tensor(m, name);
    sl_assert(t);
    memmove(t, t + 1, (size_t)(&m->tensors[--m->tensor_count] - t) * sizeof *t);
}

static struct bytes *set_key(struct make *m, const char *name, uint32_t type)
{
    struct make_key *k = make_key(m, name);
    if (!k) {
        sl_assert(m->key_count < ARRAY_LEN(m->keys));
        k = &m->keys[m->key_count++];
        *k = (struct make_key){0};
        snprintf(k->name, sizeof k->name, "%s", name);
    }
    k->type = type;
    k->value.size = 0;
    return &k->value;
}

void make_u32(struct make *m, const char *name, uint32_t v)
{
    bytes_u32(set_key(m, name, GGUF_U32), v);
}

void make_u64(struct make *m, const char *name, uint64_t v)
{
    bytes_u64(set_key(m, name, GGUF_U64), v);
}

void make_f32(struct make *m, const char *name, float v)
{
    bytes_add(set_key(m, name, GGUF_F32), &v, sizeof v);
}

void make_bool(struct make *m, const char *name, unsigned char v)
{
    bytes_add(set_key(m, name, GGUF_BOOL), &v, 1);
}

void make_text(struct make *m, const char *name, const char *text)
{
    bytes_text(set_key(m, name, GGUF_STRING), text, strlen(text));
}

void make_texts(struct make *m, const char *name, const char *const *texts, size_t count)
{
    struct bytes *b = set_key(m, name, GGUF_ARRAY);
    bytes_u32(b, GGUF_STRING);
    bytes_u64(b, count);
    for (size_t i = 0; i < count; i++)
        bytes_text(b, texts[i], strlen(texts[i]));
}

void make_i32s(struct make *m, const char *name, const int32_t *v, size_t count)
{
    struct bytes *b = set_key(m, name, GGUF_ARRAY);
    bytes_u32(b, GGUF_I32);
    bytes_u64(b, count);
    bytes_add(b, v, count * sizeof *v);
}

void make_array_raw(struct make *m, const char *name, uint32_t elem, uint64_t count, size_t n)
{
    struct bytes *b = set_key(m, name, GGUF_ARRAY);
    bytes_u32(b, elem);
    bytes_u64(b, count);
    for (size_t i = 0; i < n; i++)
        bytes_add(b, "", 1);
}

struct make_tensor *make_add_tensor(struct make *m, const char *name, uint32_t type, uint64_t ne0,
                                    uint64_t ne1, uint64_t ne2)
{
    sl_assert(m->tensor_count < ARRAY_LEN(m->tensors));
    struct make_tensor *t = &m->tensors[m->tensor_count++];
    *t = (struct make_tensor){.dims = ne2 > 1   ? 3
                                      : ne1 > 1 ? 2
                                                : 1,
                              .type = type,
                              .ne = {ne0, ne1, ne2, 1, 1}};
    snprintf(t->name, sizeof t->name, "%s", name);
    uint64_t row = 0;
    sl_assert(tensor_type_row_bytes(type, ne0, &row));
    t->bytes = row * ne1 * ne2;
    return t;
}

const char *const tiny_merges[3] = {"h e", "l l", "he ll"};

void tiny_tokens(const char *texts[TINY_VOCAB], int32_t types[TINY_VOCAB])
{
    static char names[256][4];
    unsigned next = 256;
    for (unsigned b = 0; b < 256; b++) {
        bool plain = (b >= '!' && b <= '~') || (b >= 0xa1 && b != 0xad);
        unsigned code = plain ? b : next++;
        if (code < 0x80)
            snprintf(names[b], sizeof names[b], "%c", (char)code);
        else
            snprintf(names[b], sizeof names[b], "%c%c", (char)(0xc0 | code >> 6),
                     (char)(0x80 | (code & 0x3f)));
        texts[b] = names[b];
    }
    static const char *const others[] = {"he", "ll", "hell", "<|end|>", "<|end|>>", "<tag>"};
    for (unsigned i = 0; i < TINY_VOCAB; i++) {
        if (i >= 256)
            texts[i] = others[i - 256];
        types[i] = i == TINY_USER ? 4 : i == TINY_EOS || i == TINY_CONTROL ? 3 : 1;
    }
}

static void tiny_keys(struct make *m, unsigned layers, unsigned hidden)
{
    make_text(m, "general.architecture", "qwen3moe");
    make_text(m, "general.name", "tiny");
    make_u32(m, "qwen3moe.block_count", layers);
    make_u32(m, "qwen3moe.context_length", 128);
    make_u32(m, "qwen3moe.embedding_length", hidden);
    make_u32(m, "qwen3moe.attention.head_count", 2);
    make_u32(m, "qwen3moe.attention.head_count_kv", 1);
    make_u32(m, "qwen3moe.attention.key_length", hidden / 2);
    make_u32(m, "qwen3moe.attention.value_length", hidden / 2);
    make_f32(m, "qwen3moe.attention.layer_norm_rms_epsilon", 1e-6f);
    make_f32(m, "qwen3moe.rope.freq_base", 10000);
    make_u32(m, "qwen3moe.expert_count", 3);
    make_u32(m, "qwen3moe.expert_used_count", 2);
    make_u32(m, "qwen3moe.expert_feed_forward_length", hidden);
    make_u32(m, "qwen3moe.vocab_size", TINY_VOCAB);
    make_text(m, "tokenizer.ggml.model", "gpt2");
    make_text(m, "tokenizer.ggml.pre", "qwen2");
    const char *texts[TINY_VOCAB];
    int32_t types[TINY_VOCAB];
    tiny_tokens(texts, types);
    make_texts(m, "tokenizer.ggml.tokens", texts, TINY_VOCAB);
    make_i32s(m, "tokenizer.ggml.token_type", types, TINY_VOCAB);
    make_texts(m, "tokenizer.ggml.merges", tiny_merges, 3);
    make_u32(m, "tokenizer.ggml.bos_token_id", TINY_CONTROL);
    make_u32(m, "tokenizer.ggml.eos_token_id", TINY_EOS);
    make_bool(m, "tokenizer.ggml.add_bos_token", 1);
}

void make_tiny(struct make *m, unsigned layers, bool mixed)
{
    *m = (struct make){.magic = {'G', 'G', 'U', 'F'}, .version = 3, .alignment = 32};
    unsigned h = mixed ? 32 : 4;
    tiny_keys(m, layers, h);
    uint32_t a = mixed ? TENSOR_Q8_0 : TENSOR_F32, b = mixed ? TENSOR_F16 : TENSOR_F32;
    uint32_t c = mixed ? TENSOR_Q4_0 : TENSOR_F32, d = mixed ? TENSOR_BF16 : TENSOR_F32;
    make_add_tensor(m, "token_embd.weight", a, h, TINY_VOCAB, 1);
    make_add_tensor(m, "output_norm.weight", TENSOR_F32, h, 1, 1);
    if (mixed)
        make_add_tensor(m, "output.weight", b, h, TINY_VOCAB, 1);
    for (unsigned layer = 0; layer < layers; layer++) {
        const struct {
            const char *name;
            uint32_t type;
            unsigned ne0, ne1, ne2;
        } rows[] = {
            {"attn_norm", TENSOR_F32, h, 1, 1},
            {"attn_q", a, h, h, 1},
            {"attn_k", b, h, h / 2, 1},
            {"attn_v", d, h, h / 2, 1},
            {"attn_output", c, h, h, 1},
            {"attn_q_norm", TENSOR_F32, h / 2, 1, 1},
            {"attn_k_norm", TENSOR_F32, h / 2, 1, 1},
            {"ffn_norm", TENSOR_F32, h, 1, 1},
            {"ffn_gate_inp", TENSOR_F32, h, 3, 1},
            {"ffn_gate_exps", a, h, h, 3},
            {"ffn_up_exps", c, h, h, 3},
            {"ffn_down_exps", b, h, h, 3},
        };
        for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
            char name[64];
            snprintf(name, sizeof name, "blk.%u.%s.weight", layer, rows[i].name);
            make_add_tensor(m, name, rows[i].type, rows[i].ne0, rows[i].ne1, rows[i].ne2);
        }
    }
}

void spm_tokens(struct spm_tokens *v)
{
    static char names[256][8];
    static const char *const rest[] = {SPM_SPACE_TEXT, "a", "b", SPM_SPACE_TEXT "a", "ab", "<s>"};
    for (uint32_t i = 0; i < TINY_VOCAB; i++) {
        if (i < 256)
            snprintf(names[i], sizeof names[i], "<0x%02X>", i);
        v->texts[i] = i < 256 ? names[i] : rest[i - 256];
        v->types[i] = i < 256 ? 6 : i == SPM_CONTROL ? 3 : 1; /* byte, control, normal */
        v->scores[i] = i < 256 ? 0 : -(float)i;
    }
}

void make_scores(struct make *m, const float *scores, size_t count)
{
    make_array_raw(m, "tokenizer.ggml.scores", GGUF_F32, count, 0);
    bytes_add(&make_key(m, "tokenizer.ggml.scores")->value, scores, count * sizeof *scores);
}

void make_spm(struct make *m, const struct spm_tokens *v)
{
    make_text(m, "tokenizer.ggml.model", "llama");
    make_drop_key(m, "tokenizer.ggml.merges");
    make_texts(m, "tokenizer.ggml.tokens", v->texts, TINY_VOCAB);
    make_i32s(m, "tokenizer.ggml.token_type", v->types, TINY_VOCAB);
    make_scores(m, v->scores, TINY_VOCAB);
}

void make_free(struct make *m)
{
    for (size_t i = 0; i < m->key_count; i++)
        bytes_free(&m->keys[i].value);
}

static void write_key(struct bytes *out, const struct make_key *k)
{
    if (k->no_name) {
        bytes_u64(out, 0);
    } else {
        bytes_u64(out, k->name_bytes ? k->name_bytes : strlen(k->name));
        bytes_add(out, k->name, strlen(k->name));
    }
    bytes_u32(out, k->type);
    bytes_add(out, k->value.data, k->value.size);
}

struct bytes make_write(struct make *m)
{
    struct bytes out = {0};
    bytes_add(&out, m->magic, 4);
    bytes_u32(&out, m->version);
    bytes_u64(&out, m->claim_tensors ? m->claim_tensors : m->tensor_count);
    bytes_u64(&out, m->claim_keys ? m->claim_keys : m->key_count);
    for (size_t i = 0; i < m->key_count; i++)
        write_key(&out, &m->keys[i]);
    uint64_t at = 0;
    for (size_t i = 0; i < m->tensor_count; i++) {
        const struct make_tensor *t = &m->tensors[i];
        bytes_text(&out, t->name, strlen(t->name));
        bytes_u32(&out, t->dims);
        for (uint32_t d = 0; d < t->dims && d < ARRAY_LEN(t->ne); d++)
            bytes_u64(&out, t->ne[d]);
        bytes_u32(&out, t->type);
        bytes_u64(&out, at + (uint64_t)t->offset_slip);
        at = align_up(at + t->bytes, m->alignment);
    }
    m->header_bytes = out.size;
    for (size_t i = 0; i < m->tensor_count; i++) {
        while (out.size % m->alignment != 0)
            bytes_add(&out, "", 1);
        for (uint64_t n = 0; n < m->tensors[i].bytes; n++) {
            unsigned char c = (unsigned char)(out.size * 7);
            bytes_add(&out, &c, 1);
        }
    }
    return out;
}
