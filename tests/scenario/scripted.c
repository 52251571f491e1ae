/* SPDX-License-Identifier: Apache-2.0 */
/* The hidden state of a position is a unit vector of its token, plus 8/n in a component for each of
 * the two tokens that occurred among the n positions so far: queries and keys are zero, so that
 * attention is the mean of the values. The output matrix adds up what an edge needs. All else is
 * zero: experts and the second layer change nothing. */
#include "tests/scenario/scripted.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/model/gguf/write.h"
#include "lib/model/tokenizer/blob.h"
#include "lib/tensor/tensor_type.h"
#include "tests/harness/harness.h"

#define HIDDEN  128u
#define EXPERTS 6u
#define OTHER   124u /* component of tokens from which nothing follows */
#define FIRST   125u
#define SECOND  126u
#define TOKENS  (256u + 128u)
#define CONTEXT 4096u

struct making {
    const struct script *s;
    const char *name[TOKENS]; /* as in the script; NULL: a byte */
    char *text[TOKENS];       /* as in the file */
    int32_t type[TOKENS];
    struct script_edge edges[TOKENS];
    uint32_t edge_count;
    uint32_t count, used;
    uint8_t component[TOKENS];
    uint16_t alphabet[256];
};

static void add_token(struct making *m, const char *name, const char *bytes, size_t n, int32_t type)
{
    CHECK(m->count < TOKENS, "too many tokens");
    m->name[m->count] = name;
    char *text = malloc(2 * n + 1), *at = text;
    CHECK(text, "out of memory");
    for (size_t i = 0; i < n; i++) {
        uint16_t code = m->alphabet[(unsigned char)bytes[i]];
        if (type != TOKEN_NORMAL || code < 0x80) {
            *at++ = bytes[i];
        } else {
            *at++ = (char)(0xc0 | code >> 6);
            *at++ = (char)(0x80 | (code & 0x3f));
        }
    }
    *at = 0;
    m->text[m->count] = text;
    m->type[m->count] = type;
    m->component[m->count++] = OTHER;
}

static uint32_t find_or_none(const struct making *m, const char *text)
{
    if (!text[1])
        return (unsigned char)text[0];
    for (uint32_t i = 256; i < m->count; i++)
        if (strcmp(m->name[i], text) == 0)
            return i;
    return TOKENS;
}

static uint32_t find(const struct making *m, const char *text)
{
    uint32_t id = find_or_none(m, text);
    CHECK(id < TOKENS, "no token '%s'", text);
    return id;
}

static void add_edge(struct making *m, const struct script_edge *e)
{
    CHECK(m->edge_count < TOKENS, "too many edges");
    m->edges[m->edge_count++] = *e;
}

/* An answer as tokens and edges. */
static void add_answer(struct making *m, const struct script_answer *a)
{
    const char *from = a->start;
    for (const char *const *piece = a->pieces; from != m->s->eos; piece++) {
        const char *to = *piece ? *piece : m->s->eos;
        if (find_or_none(m, to) == TOKENS)
            add_token(m, to, to, strlen(to), TOKEN_NORMAL);
        for (uint32_t i = 0; i < m->edge_count; i++)
            CHECK(strcmp(m->edges[i].from, from) != 0, "two tokens follow '%s'", from);
        add_edge(m, &(struct script_edge){from, to, SCRIPT_ALWAYS});
        from = to;
    }
}

static void own_component(struct making *m, const char *text)
{
    uint32_t id = find(m, text);
    CHECK(m->used < OTHER, "too many tokens have an edge");
    if (m->component[id] == OTHER)
        m->component[id] = (uint8_t)m->used++;
}

static void put_keys(struct making *m, struct gguf_writer *w)
{
    static const struct {
        const char *key;
        uint32_t value;
    } numbers[] = {{"block_count", 2},
                   {"embedding_length", HIDDEN},
                   {"feed_forward_length", 32},
                   {"attention.head_count", 4},
                   {"attention.head_count_kv", 2},
                   {"attention.key_length", 32},
                   {"attention.value_length", 32},
                   {"expert_count", EXPERTS},
                   {"expert_used_count", 3},
                   {"expert_feed_forward_length", 32}};
    char key[80];
    gguf_put_text(w, "general.architecture", "qwen3moe");
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
        snprintf(key, sizeof key, "qwen3moe.%s", numbers[i].key);
        gguf_put_u32(w, key, numbers[i].value);
    }
    gguf_put_u32(w, "qwen3moe.context_length", m->s->context ? m->s->context : CONTEXT);
    gguf_put_f32(w, "qwen3moe.rope.freq_base", 10000);
    gguf_put_f32(w, "qwen3moe.attention.layer_norm_rms_epsilon", 1e-6f);
    gguf_put_text(w, "tokenizer.ggml.model", "gpt2");
    gguf_put_text(w, "tokenizer.ggml.pre", "qwen2");
    gguf_put_strings(w, "tokenizer.ggml.tokens", (const char *const *)m->text, NULL, m->count);
    gguf_put_strings(w, "tokenizer.ggml.merges", NULL, NULL, 0); /* each text is one token */
    gguf_put_array(w, "tokenizer.ggml.token_type", GGUF_I32, m->type, m->count);
    if (m->s->eos)
        gguf_put_u32(w, "tokenizer.ggml.eos_token_id", find(m, m->s->eos));
    if (m->s->eot)
        gguf_put_u32(w, "tokenizer.ggml.eot_token_id", find(m, m->s->eot));
    gguf_put_bool(w, "tokenizer.ggml.add_bos_token", false);
    gguf_put_text(w, "tokenizer.chat_template", m->s->chat_template);
    if (m->s->tools_template)
        gguf_put_text(w, "tokenizer.chat_template.tool_use", m->s->tools_template);
}

/* ---- tensors ---- */

static void fill_embedding(const struct making *m, float *rows)
{
    for (uint32_t i = 0; i < m->count; i++)
        rows[i * HIDDEN + m->component[i]] = 1;
}

/* What holds with fewer tokens seen has the larger constant, and loses once they are: 8/n is from
 * 0.06 to 0.4. */
static void fill_output(const struct making *m, float *rows)
{
    static const float constant[] = {1010, 980, 978};
    for (const struct script_edge *e = m->edges; e < m->edges + m->edge_count; e++) {
        float *row = rows + find(m, e->to) * HIDDEN;
        row[m->component[find(m, e->from)]] = constant[e->seen];
        row[FIRST] = e->seen >= SCRIPT_FIRST ? 1000 : row[FIRST];
        row[SECOND] = e->seen == SCRIPT_BOTH ? 60 : row[SECOND];
    }
}

static void fill_ones(const struct making *m, float *rows)
{
    (void)m;
    for (uint32_t i = 0; i < HIDDEN; i++)
        rows[i] = 1;
}

static void fill_values(const struct making *m, float *rows)
{
    const char *const texts[] = {m->s->first, m->s->second};
    for (uint32_t i = 0; i < 2; i++)
        if (texts[i])
            rows[i * HIDDEN + m->component[find(m, texts[i])]] =
                8 / sqrtf(HIDDEN); /* of the norm */
}

static void fill_mixed(const struct making *m, float *rows)
{
    (void)m;
    rows[FIRST * 128] = 1; /* 128: four heads */
    rows[SECOND * 128 + 1] = 1;
}

static const struct {
    const char *name;
    uint32_t dims;
    uint64_t ne[3]; /* 0: the vocabulary */
    void (*fill)(const struct making *m, float *rows);
} tensors[] = {
    {"token_embd.weight", 2, {HIDDEN, 0, 1}, fill_embedding},
    {"output_norm.weight", 1, {HIDDEN, 1, 1}, fill_ones},
    {"output.weight", 2, {HIDDEN, 0, 1}, fill_output},
#define LAYER(n, values, mixed)                                                                    \
    {"blk." n ".attn_norm.weight", 1, {HIDDEN, 1, 1}, fill_ones},                                  \
        {"blk." n ".attn_q.weight", 2, {HIDDEN, 128, 1}, NULL},                                    \
        {"blk." n ".attn_k.weight", 2, {HIDDEN, 64, 1}, NULL},                                     \
        {"blk." n ".attn_v.weight", 2, {HIDDEN, 64, 1}, values},                                   \
        {"blk." n ".attn_q_norm.weight", 1, {32, 1, 1}, NULL},                                     \
        {"blk." n ".attn_k_norm.weight", 1, {32, 1, 1}, NULL},                                     \
        {"blk." n ".attn_output.weight", 2, {128, HIDDEN, 1}, mixed},                              \
        {"blk." n ".ffn_norm.weight", 1, {HIDDEN, 1, 1}, fill_ones},                               \
        {"blk." n ".ffn_gate_inp.weight", 2, {HIDDEN, EXPERTS, 1}, NULL},                          \
        {"blk." n ".ffn_gate_exps.weight", 3, {HIDDEN, 32, EXPERTS}, NULL},                        \
        {"blk." n ".ffn_up_exps.weight", 3, {HIDDEN, 32, EXPERTS}, NULL},                          \
    {                                                                                              \
        "blk." n ".ffn_down_exps.weight", 3, {32, HIDDEN, EXPERTS}, NULL                           \
    }
    LAYER("0", fill_values, fill_mixed),
    LAYER("1", NULL, NULL),
};

static uint64_t extent(const struct making *m, uint64_t n)
{
    return n ? n : m->count;
}

static void put_tensors(const struct making *m, struct gguf_writer *w, const char *path)
{
    struct error error;
    for (size_t i = 0; i < ARRAY_LEN(tensors); i++) {
        uint64_t ne[3] = {tensors[i].ne[0], extent(m, tensors[i].ne[1]), tensors[i].ne[2]};
        gguf_put_tensor(w, tensors[i].name, TENSOR_F32, tensors[i].dims, ne);
    }
    CHECK(gguf_writer_layout(w, &error) == 0 && gguf_writer_start(w, path, &error) == 0, "%s",
          error.text);
    for (size_t i = 0; i < ARRAY_LEN(tensors); i++) {
        uint64_t n = tensors[i].ne[0] * extent(m, tensors[i].ne[1]) * tensors[i].ne[2];
        float *rows = calloc(n, sizeof *rows);
        CHECK(rows, "out of memory");
        if (tensors[i].fill)
            tensors[i].fill(m, rows);
        CHECK(gguf_writer_data(w, rows, n * sizeof *rows, &error) == 0, "%s", error.text);
        free(rows);
    }
    CHECK(gguf_writer_end(w, &error) == 0, "%s", error.text);
}

void scripted_model_make(char path[PATH_MAX], const char *name, const struct script *s)
{
    snprintf(path, PATH_MAX, "%s/%s", test_dir(), name);
    scripted_model_write(path, s);
}

void scripted_model_write(const char *path, const struct script *s)
{
    struct making m = {.s = s};
    struct gguf_writer *w = gguf_writer_new(32);
    CHECK(w, "out of memory");
    tokenizer_byte_alphabet(m.alphabet);
    for (unsigned b = 0; b < 256; b++)
        add_token(&m, NULL, (const char[]){(char)b}, 1,
                  b && s->missing && strchr(s->missing, (char)b) ? TOKEN_CONTROL : TOKEN_NORMAL);
    for (const struct script_token *t = s->tokens; t->text; t++)
        add_token(&m, t->text, t->text, strlen(t->text),
                  t->kind == SCRIPT_CONTROL ? TOKEN_CONTROL
                  : t->kind == SCRIPT_USER  ? TOKEN_USER_DEFINED
                                            : TOKEN_NORMAL);
    for (const struct script_edge *e = s->edges; e && e->from; e++)
        add_edge(&m, e);
    for (const struct script_answer *a = s->answers; a && a->start; a++)
        add_answer(&m, a);
    for (uint32_t i = 0; i < m.edge_count; i++)
        own_component(&m, m.edges[i].from);
    if (s->first)
        own_component(&m, s->first);
    if (s->second)
        own_component(&m, s->second);
    put_keys(&m, w);
    put_tensors(&m, w, path);
    gguf_writer_free(w);
    for (uint32_t i = 0; i < m.count; i++)
        free(m.text[i]);
}
