/* SPDX-License-Identifier: Apache-2.0 */
/* Lists the tensors of a synthetic model, and generates their bytes piece by piece. */
#include "procs/tools/synth/weights.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/bytes.h"
#include "lib/synthetic/token_stream.h"
#include "lib/tensor/tensor_type.h"
#include "procs/tools/synth/types/blocks.h"

#define CONSTANT        0.25f /* share of an embedding's variance common to all tokens */
#define SWIGLU_RMS      0.6f  /* RMS of silu(g) * u for normal g and u */
#define RELU_RMS        1.2f  /* and of the square of relu(g) */
#define ROWS_OF_TENSORS (ARCH_ROWS(DENSE) | ARCH_ROWS(EXPERT))
#define BIAS            0.1f   /* deviation of a bias vector */
#define CHOICE_BIAS     0.01f  /* of sigmoids, whose largest differ by few hundredths */
#define FP4_DEVIATION   256.0f /* its blocks' scales are then in the middle of their range */

/* Numbers of the random streams; pieces start at STREAM_PIECES. */
enum { STREAM_CONSTANT = 1, STREAM_GROUPS, STREAM_TOKENS, STREAM_ROUTERS, STREAM_PIECES };

/* ---- tensor list ---- */

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

/* Keeps the variance of the residual stream bounded: 1/sqrt(k) for every matrix; matrices that add
 * to the stream are scaled to the update of one layer, half of it from attention, half from the K
 * weighted experts. */
static float deviation_of(const struct shape *s, const char *name, uint64_t k)
{
    float even = 1.0f / sqrtf((float)k), inner = s->h.two_matrices ? RELU_RMS : SWIGLU_RMS;
    float share = sqrtf((float)s->update / (2.0f * (float)s->h.layers));
    if (s->h.residual_scale != 0)
        share /= s->h.residual_scale;
    if (ends_with(name, "exp_probs_b.bias"))
        return CHOICE_BIAS;
    if (ends_with(name, ".bias"))
        return BIAS;
    if (strstr(name, "attn_output_a")) /* attn_output_b follows */
        return even;
    if (strstr(name, "attn_output") || strstr(name, "ssm_out") || strstr(name, "out_proj"))
        return even * share;
    if (strstr(name, "ffn_latent_up") || strstr(name, "ffn_routed_up"))
        return even * share;
    if (strstr(name, "ffn_down_exps"))
        return even * (s->h.expert_width > 0 ? 1 : share) / inner * sqrtf((float)s->h.experts_used);
    if (strstr(name, "ffn_down"))
        return even * share / inner;
    return even;
}

static void add(struct weights *w, struct gguf_writer *out, const struct tensor *given)
{
    struct tensor *t = &w->tensors[w->count++];
    *t = *given;
    while (t->dims > 1 && t->dims < 3 && t->ne[t->dims - 1] == 1)
        t->dims--;
    t->rows = t->ne[1] * t->ne[2];
    bool whole = tensor_type_row_bytes(t->type, t->ne[0], &t->row_bytes);
    sl_assert(whole);
    t->piece_rows = t->row_bytes < WEIGHTS_PIECE_BYTES ? WEIGHTS_PIECE_BYTES / t->row_bytes : 1;
    t->deviation = deviation_of(w->shape, t->name, t->ne[0]);
    gguf_put_tensor(out, t->name, t->filling == FILL_IDS ? GGUF_TYPE_I32 : t->type, t->dims, t->ne);
}

static void scale_name(const char *matrix, char name[MODEL_NAME_BYTES])
{
    snprintf(name, MODEL_NAME_BYTES, "%.*s.scale", (int)(strlen(matrix) - strlen(".weight")),
             matrix);
}

/* Models of some architectures have no scales of some matrices. */
static bool may_have_scale(const struct shape *s, const char *matrix, uint32_t layer)
{
    char wanted[MODEL_NAME_BYTES], name[MODEL_NAME_BYTES];
    scale_name(matrix, wanted);
    const struct arch_row *row;
    ARCH_EACH (row, s->arch, ARCH_ROWS(DENSE)) {
        struct arch_location location = {.role = row->role, .layer = layer};
        if (strcmp(arch_tensor_name(s->arch, &location, name), wanted) == 0)
            return true;
    }
    return false;
}

/* Its type, or Q8_0 in place of one that needs a scale. */
static uint32_t scaled_type(const struct shape *s, const struct tensor *t)
{
    bool without = t->type == TENSOR_NVFP4 && !may_have_scale(s, t->name, t->layer);
    return without ? TENSOR_Q8_0 : t->type;
}

/* The scale of the matrix that was added last. */
static void add_scale(struct weights *w, struct gguf_writer *out, uint64_t count)
{
    struct tensor *matrix = &w->tensors[w->count - 1];
    struct tensor t = {.type = TENSOR_F32,
                       .dims = 1,
                       .layer = matrix->layer,
                       .ne = {count, 1, 1},
                       .filling = FILL_SCALE};
    scale_name(matrix->name, t.name);
    float mean = matrix->deviation / FP4_DEVIATION;
    matrix->deviation = FP4_DEVIATION;
    add(w, out, &t);
    w->tensors[w->count - 1].deviation = mean;
}

/* Of the norm before the output: logits of variance 1. */
static float output_level(const struct model_hparams *h)
{
    float level = h->logit_divisor != 0 ? h->logit_divisor : 1;
    if (h->logit_scale != 0)
        level = 1 / h->logit_scale;
    if (h->tied_output)
        level *= (h->embedding_scale != 0 ? h->embedding_scale : 1) / sqrtf((float)h->hidden);
    return level;
}

static void set_sizes(struct tensor *t, const struct model_hparams *h, const struct arch_row *row)
{
    for (int i = 0; i < 3; i++)
        t->ne[i] = arch_dim_size(h, t->layer, (enum arch_dim)row->ne[i]);
}

static void add_dense(struct weights *w, struct gguf_writer *out, const struct arch_row *row,
                      uint32_t layer)
{
    const struct shape *s = w->shape;
    struct tensor t = {
        .type = TENSOR_F32,
        .dims = 2,
        .layer = layer,
        .filling = FILL_RANDOM,
        .level = 1,
    };
    set_sizes(&t, &s->h, row);
    if (t.ne[2] > 1)
        t.dims = 3;
    struct arch_location location = {.role = row->role, .layer = layer};
    struct mix_tensor matrix = {.role = row->role, .layer = layer, .k = t.ne[0]};
    arch_tensor_name(s->arch, &location, t.name);
    if (row->presence == ARCH_PRESENCE_ACCEPTED)
        return;
    if (ends_with(t.name, ".scale") &&
        row->presence == ARCH_PRESENCE_OPTIONAL) /* with its matrix */
        return;
    if (row->role == DENSE_OUTPUT && s->h.tied_output)
        return;
    if (row->presence == ARCH_PRESENCE_WINDOW) {
        if (s->full_v == 0 && s->h.layer_kind[layer] != LAYER_WINDOW)
            return;
        for (uint32_t l = 0; l < s->h.layers && s->full_v == 0; l++) {
            matrix.count += s->h.layer_kind[l] == LAYER_WINDOW;
            matrix.number += l < layer && s->h.layer_kind[l] == LAYER_WINDOW;
        }
    }
    if (arch_role_is_global((enum dense_role)row->role))
        layer = 0;                                       /* the first mix of the list */
    if (row->storage == ARCH_STORAGE_ANY && t.ne[1] > 1) /* vectors stay F32 */
        t.type = mix_type(mix_of_layer(&s->mixes, layer), s->pure, &s->h, &matrix);
    t.type = scaled_type(s, &t);
    if (row->storage == ARCH_STORAGE_IDS)
        t.filling = FILL_IDS;
    else if (row->role == DENSE_TOKEN_EMBD)
        t.filling = FILL_EMBEDDING;
    else if (row->role == DENSE_ROUTER)
        t.filling = FILL_ROUTER;
    else if (ends_with(t.name, ".ssm_a"))
        t.filling = FILL_DECAYS;
    else if (ends_with(t.name, "norm.weight") || strstr(t.name, "_ffw_norm") ||
             strstr(t.name, "ple_norm") || row->role == DENSE_ROPE_FREQS ||
             row->role == DENSE_ROUTER_SCALE || row->role == DENSE_LAYER_SCALE ||
             row->role == DENSE_MIXER_MIX_SCALE || row->role == DENSE_FFN_MIX_SCALE ||
             row->role == DENSE_OUTPUT_MIX_SCALE)
        t.filling = FILL_ONES;
    if (row->role == DENSE_OUTPUT_NORM || row->role == DENSE_OUTPUT_STREAM_NORM)
        t.level = output_level(&s->h);
    add(w, out, &t);
    if (t.type == TENSOR_NVFP4)
        add_scale(w, out, 1);
}

static void add_experts(struct weights *w, struct gguf_writer *out, const struct arch_row *row,
                        uint32_t layer)
{
    const struct shape *s = w->shape;
    bool half = row->role == EXPERT_GATE || row->role == EXPERT_UP;
    if (s->joined == 1 && s->h.two_matrices == 0 ? half : row->role == EXPERT_GATE_UP)
        return;
    struct tensor t = {.dims = 3, .layer = layer, .filling = FILL_RANDOM};
    set_sizes(&t, &s->h, row);
    struct arch_location location = {.is_expert = true, .role = row->role, .layer = layer};
    struct mix_tensor matrix = {.is_expert = true,
                                .role = row->role == EXPERT_GATE_UP ? EXPERT_UP : row->role,
                                .layer = layer,
                                .k = t.ne[0]};
    t.type = mix_type(mix_of_layer(&s->mixes, layer), s->pure, &s->h, &matrix);
    arch_tensor_name(s->arch, &location, t.name);
    t.type = scaled_type(s, &t);
    add(w, out, &t);
    if (t.type == TENSOR_NVFP4)
        add_scale(w, out, s->h.experts);
}

static void add_layer(struct weights *w, struct gguf_writer *out, uint32_t layer)
{
    const struct shape *s = w->shape;
    struct layer_parts parts = arch_layer_parts(&s->h, layer);
    const struct arch_row *row;
    ARCH_EACH (row, s->arch, ARCH_ROWS(DENSE)) {
        enum dense_role role = (enum dense_role)row->role;
        if (!arch_role_is_global(role) && arch_layer_has(parts, role) &&
            arch_row_elements(row, &s->h, layer) > 0)
            add_dense(w, out, row, layer);
    }
    if (!ffn_has_experts((enum layer_ffn)parts.ffn))
        return;
    ARCH_EACH (row, s->arch, ARCH_ROWS(EXPERT))
        add_experts(w, out, row, layer);
}

static void make_constant(struct weights *w)
{
    struct random random;
    random_seed(&random, w->shape->seed, STREAM_CONSTANT);
    for (uint32_t i = 0; i < w->shape->h.hidden; i++)
        w->constant[i] = random_u64(&random) >> 63 ? 1.0f : -1.0f;
}

/* The embedding has given rows, which not every type can be made from. */
static int open_embedding(struct weights *w, struct error *error)
{
    const struct shape *s = w->shape;
    struct mix_tensor t = {.role = DENSE_TOKEN_EMBD, .k = s->h.hidden};
    enum tensor_type type = mix_type(s->mixes.mix[0], s->pure, &s->h, &t);
    if (!encoder_has(type))
        return error_set(error, ERR_BAD_INPUT, "--pure: no embedding of type %s can be made",
                         tensor_type_info(type)->name);
    w->embedding = encoder_new(type);
    return w->embedding ? 0 : error_set(error, ERR_NO_MEMORY, "out of memory (embedding)");
}

int weights_open(struct weights *w, const struct shape *shape, struct gguf_writer *out,
                 struct error *error)
{
    const struct arch_row *row;
    size_t max = 0; /* of a layer */
    ARCH_EACH (row, shape->arch, ROWS_OF_TENSORS)
        max++;
    *w = (struct weights){.shape = shape};
    w->tensors = calloc(max * (shape->h.layers + 1ull), sizeof *w->tensors);
    w->constant = malloc(shape->h.hidden * sizeof *w->constant);
    if (!w->tensors || !w->constant)
        return error_set(error, ERR_NO_MEMORY, "out of memory (list of tensors)");
    make_constant(w);
    if (open_embedding(w, error) != 0)
        return -1;
    ARCH_EACH (row, shape->arch, ARCH_ROWS(DENSE))
        if (arch_role_is_global((enum dense_role)row->role) &&
            arch_row_elements(row, &shape->h, shape->h.layers) > 0)
            add_dense(w, out, row, shape->h.layers);
    for (uint32_t l = 0; l < shape->h.layers; l++)
        add_layer(w, out, l);
    return 0;
}

void weights_close(struct weights *w)
{
    encoder_free(w->embedding);
    free(w->tensors);
    free(w->constant);
    *w = (struct weights){0};
}

/* ---- bytes ---- */

uint64_t weights_scratch(const struct weights *w)
{
    return 2ull * w->shape->h.hidden;
}

static void normals(struct random *random, float *x, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        x[i] = random_normal(random);
}

static void fill_embedding(const struct weights *w, const struct tensor *t, uint64_t first,
                           uint64_t rows, float *scratch, char *out)
{
    const struct shape *s = w->shape;
    uint32_t hidden = s->h.hidden;
    float *group = scratch, *row = scratch + hidden, rest = sqrtf(1 - CONSTANT);
    float common = rest * sqrtf((float)s->locality), own = rest * sqrtf(1 - (float)s->locality);
    float scale = s->h.embedding_scale != 0 ? 1 / s->h.embedding_scale : 1;
    uint64_t group_number = UINT64_MAX;
    struct random random;
    for (uint64_t token = first; token < first + rows; token++, out += t->row_bytes) {
        if (token / TOKEN_GROUP != group_number) {
            group_number = token / TOKEN_GROUP;
            random_seed(&random, s->seed, STREAM_GROUPS + (group_number << 8));
            normals(&random, group, hidden);
        }
        random_seed(&random, s->seed, STREAM_TOKENS + (token << 8));
        for (uint32_t i = 0; i < hidden; i++)
            row[i] = scale * (sqrtf(CONSTANT) * w->constant[i] + common * group[i] +
                              own * random_normal(&random));
        encoder_row(w->embedding, row, hidden, out);
    }
}

/* See weights.h. The share of c in the residual stream shrinks with every layer; the router rows
 * compensate. */
static void fill_router(const struct weights *w, const struct tensor *t, uint64_t first,
                        uint64_t rows, float *row, char *out)
{
    const struct shape *s = w->shape;
    uint32_t hidden = s->h.hidden;
    float variance = 1 + (float)s->update * ((float)t->layer + 0.5f) / (float)s->h.layers;
    float constant = sqrtf(CONSTANT / variance), skew = (float)s->skew;
    float token_part = (float)s->sharpness / sqrtf(1 + skew * skew);
    float deviation = token_part / sqrtf(1 - constant * constant) / sqrtf((float)hidden);
    bool normed = hparams_router_norm(&s->h, t->layer) != DENSE__COUNT;
    float input = normed ? 1 : 1 / sqrtf(variance);
    struct random random;
    for (uint64_t e = first; e < first + rows; e++, out += t->row_bytes) {
        random_seed(&random, s->seed, STREAM_ROUTERS + ((uint64_t)t->layer << 40) + (e << 8));
        float bias = skew * token_part * random_normal(&random), along = 0;
        normals(&random, row, hidden);
        for (uint32_t i = 0; i < hidden; i++)
            along += row[i] * w->constant[i];
        along /= (float)hidden;
        for (uint32_t i = 0; i < hidden; i++)
            row[i] = input * ((row[i] - along * w->constant[i]) * deviation +
                              w->constant[i] * bias / (constant * (float)hidden));
        memcpy(out, row, t->row_bytes);
    }
}

/* Different experts of each token. */
static void fill_ids(const struct weights *w, const struct tensor *t, uint64_t first, uint64_t rows,
                     uint32_t *out)
{
    struct random random;
    for (uint64_t token = first; token < first + rows; token++, out += t->ne[0]) {
        random_seed(&random, w->shape->seed, STREAM_ROUTERS + ((uint64_t)t->layer << 40) + token);
        for (uint64_t k = 0, seen; k < t->ne[0]; k += seen == k) {
            out[k] = (uint32_t)random_below(&random, w->shape->h.experts);
            for (seen = 0; out[seen] != out[k];)
                seen++;
        }
    }
}

void weights_piece(const struct weights *w, uint32_t number, uint64_t first_row, float *scratch,
                   void *out, uint64_t *bytes)
{
    const struct tensor *t = &w->tensors[number];
    sl_assert(first_row < t->rows && first_row % t->piece_rows == 0);
    uint64_t left = t->rows - first_row, rows = left < t->piece_rows ? left : t->piece_rows;
    struct random random;
    *bytes = rows * t->row_bytes;
    switch (t->filling) {
    case FILL_ONES:
        for (uint64_t i = 0; i < *bytes / sizeof(float); i++)
            ((float *)out)[i] = t->level;
        break;
    case FILL_DECAYS: /* of heads that forget soon, and late */
        for (uint64_t i = 0; i < *bytes / sizeof(float); i++)
            ((float *)out)[i] = -0.01f * (float)(1u << i % 8);
        break;
    case FILL_SCALE:
        random_seed(&random, w->shape->seed, STREAM_PIECES + ((uint64_t)number << 40));
        for (uint64_t i = 0; i < *bytes / sizeof(float); i++)
            ((float *)out)[i] =
                t->deviation * (0.75f + 0.5f * (float)(random_u64(&random) >> 40) * 0x1p-24f);
        break;
    case FILL_EMBEDDING: fill_embedding(w, t, first_row, rows, scratch, out); break;
    case FILL_IDS: fill_ids(w, t, first_row, rows, out); break;
    case FILL_ROUTER: fill_router(w, t, first_row, rows, scratch, out); break;
    case FILL_RANDOM:
        random_seed(&random, w->shape->seed,
                    STREAM_PIECES + ((uint64_t)number << 40) + (first_row << 8));
        blocks_random((enum tensor_type)t->type, t->deviation, &random, out, *bytes);
        break;
    }
}
