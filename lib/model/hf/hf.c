/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/model/hf/hf.h"

#include <inttypes.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/assert.h"
#include "lib/json/json_file.h"
#include "lib/model/arch/arch.h"
#include "lib/model/hf/internal.h"
#include "lib/model/limits.h"
#include "lib/tensor/tensor_type.h"

#define ALIGNMENT 32u

enum dense_form { FORM_MATRIX, FORM_F32, FORM_Q_ROWS, FORM_K_ROWS };
enum presence { PRESENCE_REQUIRED, PRESENCE_OPTIONAL, PRESENCE_DENSE, PRESENCE_EXPERTS };

static const struct dense_row {
    enum hf_arch arch;
    const char *name, *gguf;
    enum dense_form form;
    enum presence presence;
} dense_rows[] = {
#define HF_DENSE(id, name, gguf, form, presence)                                                   \
    {HF_##id, (name), (gguf), FORM_##form, PRESENCE_##presence},
#include "lib/model/hf/hf.tbl.h"
};

static const struct expert_row {
    enum hf_arch arch;
    const char *name, *gguf;
} expert_rows[] = {
#define HF_EXPERT(id, name, gguf) {HF_##id, (name), (gguf)},
#include "lib/model/hf/hf.tbl.h"
};

static const struct rejected_row {
    enum hf_arch arch;
    const char *name, *why;
} rejected_rows[] = {
#define HF_REJECTED(id, name, why) {HF_##id, (name), (why)},
#include "lib/model/hf/hf.tbl.h"
};

/* Adds a tensor, still without sources. */
static struct hf_tensor *add_tensor(struct hf_model *hf, struct error *error)
{
    if (hf->tensor_count == hf->tensor_capacity) {
        uint32_t capacity = hf->tensor_capacity ? hf->tensor_capacity * 2 : 256;
        struct hf_tensor *bigger = reallocarray(hf->tensors, capacity, sizeof *bigger);
        if (!bigger) {
            error_set(error, ERR_NO_MEMORY, "out of memory (%" PRIu32 " tensors)", capacity);
            return NULL;
        }
        hf->tensors = bigger;
        hf->tensor_capacity = capacity;
    }
    struct hf_tensor *t = &hf->tensors[hf->tensor_count++];
    *t = (struct hf_tensor){.source = hf->source_count};
    return t;
}

static int add_source(struct hf_model *hf, const struct safetensor *s, struct error *error)
{
    if (hf->source_count == hf->source_capacity) {
        uint32_t capacity = hf->source_capacity ? hf->source_capacity * 2 : 1024;
        uint32_t *bigger = reallocarray(hf->sources, capacity, sizeof *bigger);
        if (!bigger)
            return error_set(error, ERR_NO_MEMORY, "out of memory (%" PRIu32 " tensors)", capacity);
        hf->sources = bigger;
        hf->source_capacity = capacity;
    }
    hf->sources[hf->source_count++] = (uint32_t)(s - hf->files.tensors);
    return 0;
}

const struct safetensor *hf_source(const struct hf_model *hf, uint32_t t, uint32_t e)
{
    sl_assert(t < hf->tensor_count);
    sl_assert(e < (hf->tensors[t].experts ? hf->tensors[t].experts : 1));
    return &hf->files.tensors[hf->sources[hf->tensors[t].source + e]];
}

/* Checks that the tensor has a supported type and one or two dimensions. Fills ne in GGUF's
 * order. */
static int check_source(const struct safetensor *s, uint64_t ne[3], struct error *error)
{
    if (s->type == SAFETENSORS_OTHER)
        return error_set(error, ERR_BAD_INPUT, "tensor %s has another type than F32, F16 and BF16",
                         s->name);
    if (s->dims < 1 || s->dims > 2 || s->bytes == 0)
        return error_set(error, ERR_BAD_INPUT,
                         "tensor %s has %" PRIu32 " dimensions and %" PRIu64 " bytes", s->name,
                         s->dims, s->bytes);
    ne[0] = s->shape[s->dims - 1];
    ne[1] = s->dims == 2 ? s->shape[0] : 1;
    ne[2] = 1;
    return 0;
}

/* ---- dense tensors ---- */

static int heads_of(struct hf_tensor *t, const struct safetensor *s, uint32_t heads,
                    struct error *error)
{
    uint64_t rows = s->shape[0];
    if (s->dims != 2 || rows % heads != 0 || rows / heads % 2 != 0)
        return error_set(error, ERR_BAD_INPUT,
                         "tensor %s: its %" PRIu64 " rows are not %" PRIu32
                         " heads with an even number of rows",
                         s->name, rows, heads);
    t->form = HF_HEAD_PAIRS;
    t->head_bytes = rows / heads * t->row_bytes;
    return 0;
}

static int put_dense(struct hf_model *hf, const struct hf_shape *shape, const struct dense_row *row,
                     uint32_t layer, bool tied, struct error *error)
{
    char name[128], gguf[MODEL_NAME_BYTES];
    uint64_t ne[3];
    snprintf(name, sizeof name, row->name, layer);
    snprintf(gguf, sizeof gguf, row->gguf, layer);
    const struct safetensor *s = safetensors_find(&hf->files, name);
    if (row->presence == PRESENCE_OPTIONAL && (!s || tied))
        return 0;
    if (!s)
        return error_set(error, ERR_BAD_INPUT, "tensor %s is missing", name);
    struct hf_tensor *t = add_tensor(hf, error);
    if (!t || check_source(s, ne, error) || add_source(hf, s, error))
        return -1;
    uint32_t type = s->type;
    t->type = s->type;
    t->row_bytes = s->bytes / ne[1];
    switch (row->form) {
    case FORM_MATRIX: break;
    case FORM_F32:
        t->form = s->type == TENSOR_F32 ? HF_AS_IS : HF_TO_F32;
        type = TENSOR_F32;
        break;
    case FORM_Q_ROWS:
        if (heads_of(t, s, shape->heads, error))
            return -1;
        break;
    case FORM_K_ROWS:
        if (heads_of(t, s, shape->kv_heads, error))
            return -1;
        break;
    }
    uint64_t bytes;
    if (mul_overflows(s->bytes, 4, &bytes) || bytes >= GGUF_FILE_MAX)
        return error_set(error, ERR_BAD_INPUT, "tensor %s is too large", name);
    gguf_put_tensor(hf->gguf, gguf, type, ne[1] > 1 ? 2 : 1, ne);
    return 0;
}

void hf_head_pairs(const struct hf_tensor *t, const void *src, void *dst)
{
    sl_assert(t->form == HF_HEAD_PAIRS && t->head_bytes % (2 * t->row_bytes) == 0);
    uint64_t half = t->head_bytes / t->row_bytes / 2;
    for (uint64_t i = 0; i < half; i++)
        for (uint64_t j = 0; j < 2; j++)
            memcpy((char *)dst + (2 * i + j) * t->row_bytes,
                   (const char *)src + (i + j * half) * t->row_bytes, t->row_bytes);
}

/* ---- experts ---- */

static int put_experts(struct hf_model *hf, const struct hf_shape *shape,
                       const struct expert_row *row, uint32_t layer, struct error *error)
{
    char name[128], gguf[MODEL_NAME_BYTES];
    uint64_t ne[3], first[3] = {0};
    struct hf_tensor *t = add_tensor(hf, error);
    if (!t)
        return -1;
    t->experts = shape->experts;
    for (uint32_t e = 0; e < shape->experts; e++) {
        snprintf(name, sizeof name, row->name, layer, e);
        const struct safetensor *s = safetensors_find(&hf->files, name);
        if (!s)
            return error_set(error, ERR_BAD_INPUT, "tensor %s is missing", name);
        if (check_source(s, ne, error) || add_source(hf, s, error))
            return -1;
        if (e == 0) {
            t->type = s->type;
            t->row_bytes = s->bytes / ne[1];
            memcpy(first, ne, sizeof first);
        }
        if (s->type != t->type || memcmp(first, ne, sizeof first) != 0)
            return error_set(error, ERR_BAD_INPUT,
                             "tensor %s differs in type or shape from expert 0 of its layer", name);
    }
    uint64_t bytes;
    if (mul_overflows(t->row_bytes * first[1], shape->experts, &bytes) || bytes >= GGUF_FILE_MAX)
        return error_set(error, ERR_BAD_INPUT, "the experts of layer %" PRIu32 " are too large",
                         layer);
    first[2] = shape->experts;
    snprintf(gguf, sizeof gguf, row->gguf, layer);
    gguf_put_tensor(hf->gguf, gguf, t->type, 3, first);
    return 0;
}

static int put_layer(struct hf_model *hf, const struct hf_shape *shape, uint32_t layer,
                     struct error *error)
{
    bool experts = layer >= shape->dense_layers;
    for (size_t i = 0; i < ARRAY_LEN(dense_rows); i++)
        if (dense_rows[i].arch == shape->arch && strchr(dense_rows[i].name, '%') &&
            dense_rows[i].presence != (experts ? PRESENCE_DENSE : PRESENCE_EXPERTS) &&
            put_dense(hf, shape, &dense_rows[i], layer, false, error))
            return -1;
    for (size_t i = 0; i < ARRAY_LEN(expert_rows); i++)
        if (expert_rows[i].arch == shape->arch && experts &&
            put_experts(hf, shape, &expert_rows[i], layer, error))
            return -1;
    return 0;
}

static int put_tensors(struct hf_model *hf, const struct hf_shape *shape, bool tied,
                       struct error *error)
{
    for (size_t i = 0; i < ARRAY_LEN(rejected_rows); i++)
        if (rejected_rows[i].arch == shape->arch &&
            safetensors_find(&hf->files, rejected_rows[i].name))
            return error_set(error, ERR_BAD_INPUT, "tensor %s: %s is not supported",
                             rejected_rows[i].name, rejected_rows[i].why);
    for (size_t i = 0; i < ARRAY_LEN(dense_rows); i++)
        if (dense_rows[i].arch == shape->arch && !strchr(dense_rows[i].name, '%') &&
            put_dense(hf, shape, &dense_rows[i], 0, tied, error))
            return -1;
    for (uint32_t layer = 0; layer < shape->layers; layer++)
        if (put_layer(hf, shape, layer, error))
            return -1;
    return 0;
}

/* ---- the directory ---- */

struct hf_json {
    json_t *config, *settings; /* settings may be NULL */
    struct json_reader *tokenizer;
};

/* Of its values, only those that prepare text are kept: a few hundred. */
static const struct json_limits tokenizer_limits = {
    .bytes = HF_TOKENIZER_MAX, .string = MIB, .values = MIB, .depth = 32};

static json_t *read_json(const char *dir, const char *name, uint64_t max, struct error *error)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return json_foreign_file(path, max, error);
}

static int read_files(struct hf_json *d, const char *dir, struct error *error)
{
    char path[4096];
    d->config = read_json(dir, "config.json", HF_CONFIG_MAX, error);
    if (!d->config)
        return -1;
    snprintf(path, sizeof path, "%s/tokenizer.json", dir);
    d->tokenizer = json_reader_file(path, &tokenizer_limits, error);
    if (!d->tokenizer)
        return -1;
    snprintf(path, sizeof path, "%s/tokenizer_config.json", dir);
    if (access(path, F_OK) != 0)
        return 0;
    d->settings = read_json(dir, "tokenizer_config.json", HF_CONFIG_MAX, error);
    return d->settings ? 0 : -1;
}

/* "dir/file: what is wrong" */
static int in_file(const char *dir, const char *file, const struct error *why, struct error *error)
{
    return error_set(error, why->code, "%.180s/%s: %.170s", dir, file, why->text);
}

static int convert(struct hf_model *hf, const struct hf_json *d, const char *dir,
                   struct error *error)
{
    struct hf_shape shape;
    struct error why;
    char name[4096];
    snprintf(name, sizeof name, "%s", dir);
    if (hf_config_keys(d->config, basename(name), hf->gguf, &shape, &why))
        return in_file(dir, "config.json", &why, error);
    if (hf_tokenizer_keys(d->tokenizer, d->settings, d->config, shape.vocab, hf->gguf, &why))
        return in_file(dir, "tokenizer.json", &why, error);
    bool tied = json_is_true(json_object_get(d->config, "tie_word_embeddings"));
    if (put_tensors(hf, &shape, tied, &why))
        return error_set(error, why.code, "%.180s: %.200s", dir, why.text);
    return gguf_writer_layout(hf->gguf, error);
}

int hf_open(struct hf_model *hf, const char *dir, struct error *error)
{
    struct hf_json d = {0};
    memset(hf, 0, sizeof *hf);
    if (strlen(dir) > 3500)
        return error_set(error, ERR_BAD_INPUT, "the path %.60s... is too long", dir);
    int status = read_files(&d, dir, error);
    if (status == 0)
        status = safetensors_open(&hf->files, dir, error);
    if (status == 0) {
        hf->gguf = gguf_writer_new(ALIGNMENT);
        status = hf->gguf ? convert(hf, &d, dir, error)
                          : error_set(error, ERR_NO_MEMORY, "out of memory (model's header)");
    }
    json_decref(d.config);
    json_reader_close(d.tokenizer);
    json_decref(d.settings);
    if (status)
        hf_close(hf);
    return status;
}

void hf_close(struct hf_model *hf)
{
    safetensors_close(&hf->files);
    gguf_writer_free(hf->gguf);
    free(hf->tensors);
    free(hf->sources);
    memset(hf, 0, sizeof *hf);
}
