/* SPDX-License-Identifier: Apache-2.0 */
/* N-grams of Qwen3.8-Flash-Next: the table, whose rows are in several tensors of the checkpoint,
 * and the numbers with which rows are found, which GGUF has as keys. Source: llama.cpp's converter.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "lib/model/hf/internal.h"
#include "lib/tensor/tensor_type.h"

#define TABLE       "per_layer_token_embd.weight"
#define PARTS_MAX   65536u
#define NUMBERS_MAX 64 /* of a list; the tables of architectures check the values */

struct ngrams {
    struct hf_model *hf;
    const struct hf_row *row;
    const struct hf_shape *shape;
    const char *dir;
    size_t prefix;
    uint32_t layer;
};

/* ---- numbers ---- */

static const struct {
    const char *name, *key;
} constants[] = {{"layer_multipliers", "ple.layer_multipliers"},
                 {"ngram_heads_offsets", "ple.head_offsets"},
                 {"ngram_heads_vocab_sizes", "ple.head_vocab_sizes"}};

static void name_of(const struct ngrams *n, const char *part, char name[HF_NAME_BYTES])
{
    int at = snprintf(name, HF_NAME_BYTES, n->row->text, n->layer);
    snprintf(name + at, HF_NAME_BYTES - (size_t)at, "%s", part);
}

/* The bytes of a small tensor. */
static int read_bytes(const struct ngrams *n, const struct safetensor *s, void *buf,
                      struct error *error)
{
    char path[8192];
    snprintf(path, sizeof path, "%s/%s", n->dir, n->hf->files.files[s->file].name);
    int fd = open(path, O_RDONLY | O_CLOEXEC), why = errno;
    ssize_t got = fd >= 0 ? pread(fd, buf, s->bytes, (off_t)s->offset) : -1;
    if (fd >= 0)
        close(fd);
    return got == (ssize_t)s->bytes ? 0
                                    : error_set_errno(error, ERR_IO, fd < 0 ? why : EIO,
                                                      "cannot read tensor %.150s", s->name);
}

static int put_constants(const struct ngrams *n, size_t which, struct error *error)
{
    char name[HF_NAME_BYTES], key[HF_KEY_BYTES];
    uint64_t values[NUMBERS_MAX];
    name_of(n, constants[which].name, name);
    const struct safetensor *s = hf_find(n->hf, n->prefix, name);
    if (!s)
        return hf_missing(name, error);
    if (s->type != SAFETENSORS_I64 || s->dims != 1 || s->shape[0] < 1 || s->shape[0] > NUMBERS_MAX)
        return error_set(error, ERR_BAD_INPUT, "tensor %s is not a list of 1 to %d numbers of I64",
                         s->name, NUMBERS_MAX);
    if (read_bytes(n, s, values, error))
        return -1;
    for (uint64_t i = 0; i < s->shape[0]; i++)
        if (values[i] > INT64_MAX)
            return error_set(error, ERR_BAD_INPUT, "tensor %s: number %" PRIu64 " is negative",
                             s->name, i);
    hf_full_key(n->shape->arch, constants[which].key, key);
    gguf_put_array(n->hf->gguf, key, GGUF_U64, values, s->shape[0]);
    return hf_add_source(n->hf, s, error); /* of no tensor, but it is used */
}

/* Of several ends in config.json the first, as in the package transformers: those of
 * generation_config.json end answers, and no n-grams. */
static int put_end(const struct ngrams *n, const json_t *whole, struct error *error)
{
    char key[HF_KEY_BYTES];
    const json_t *end = hf_field(hf_text_config(whole), "eos_token_id");
    end = end ? end : hf_field(whole, "eos_token_id");
    end = json_is_array(end) ? json_array_get(end, 0) : end;
    json_int_t id = json_integer_value(end);
    if (!json_is_integer(end) || id < 0 || id >= (json_int_t)n->shape->vocab)
        return error_set(error, ERR_BAD_INPUT, "eos_token_id, which ends n-grams, is no token");
    hf_full_key(n->shape->arch, "ple.eos_token_id", key);
    gguf_put_u32(n->hf->gguf, key, (uint32_t)id);
    return 0;
}

/* ---- the table ---- */

/* All parts have the sizes of the first: a plane of the tensor each. */
static int add_part(const struct ngrams *n, struct hf_tensor *t, uint32_t part, struct error *error)
{
    char name[HF_NAME_BYTES], end[64];
    snprintf(end, sizeof end, "ngram_embedding.shard_%" PRIu32 ".weight", part);
    name_of(n, end, name);
    const struct safetensor *s = hf_find(n->hf, n->prefix, name);
    if (!s)
        return hf_missing(name, error);
    if (s->type >= SAFETENSORS_FIRST)
        return error_set(error, ERR_BAD_INPUT, "tensor %s has another type than F32, F16 and BF16",
                         s->name);
    if (s->dims != 2 || s->bytes == 0)
        return error_set(error, ERR_BAD_INPUT, "tensor %s is not a matrix", s->name);
    if (part == 0) {
        t->type = t->made_type = s->type;
        t->rows = t->source_rows = s->shape[0];
        t->columns = t->source_columns = s->shape[1];
        t->row_bytes = t->made_row_bytes = s->bytes / s->shape[0];
        t->row_axis.count = t->rows;
        t->column_axis.count = t->columns;
        t->same = true;
    }
    if (s->type != t->type || s->shape[0] != t->rows || s->shape[1] != t->columns)
        return error_set(error, ERR_BAD_INPUT,
                         "tensor %s differs in type or shape from part 0 of the table", s->name);
    return hf_add_source(n->hf, s, error);
}

static int put_table(const struct ngrams *n, const json_t *config, struct error *error)
{
    const json_t *field = hf_field(config, n->row->with);
    json_int_t parts = json_integer_value(field);
    char key[HF_KEY_BYTES];
    uint64_t bytes;
    if (!json_is_integer(field) || parts < 1 || parts > PARTS_MAX)
        return error_set(error, ERR_BAD_INPUT, "%s is not a number of 1 to %u parts", n->row->with,
                         PARTS_MAX);
    struct hf_tensor *t = hf_add_tensor(n->hf, error);
    if (!t)
        return -1;
    t->form = HF_FLOATS;
    t->planes = (uint32_t)parts;
    for (uint32_t part = 0; part < t->planes; part++)
        if (add_part(n, t, part, error))
            return -1;
    if (t->columns > UINT32_MAX || mul_overflows(t->rows, t->planes, &bytes) ||
        mul_overflows(bytes, t->row_bytes, &bytes) || bytes >= GGUF_FILE_MAX)
        return error_set(error, ERR_BAD_INPUT, "the table of n-grams is too large");
    uint64_t ne[2] = {t->columns, t->rows * t->planes};
    gguf_put_tensor(n->hf->gguf, TABLE, t->made_type, 2, ne);
    hf_full_key(n->shape->arch, "embedding_length_per_layer_input", key);
    gguf_put_u32(n->hf->gguf, key, (uint32_t)t->columns);
    return 0;
}

int hf_put_ngrams(struct hf_model *hf, const struct hf_shape *shape, size_t prefix,
                  const json_t *whole, const char *dir, struct error *error)
{
    struct ngrams n = {
        .hf = hf, .row = hf_first(shape->arch->rows, HF_ROWS(NGRAMS)), .shape = shape};
    const json_t *config = hf_text_config(whole);
    const json_t *layers = n.row ? hf_field(config, n.row->field) : NULL;
    const json_t *layer = json_array_get(layers, 0);
    char key[HF_KEY_BYTES];
    if (!layers || (json_is_array(layers) && !layer))
        return 0;
    n.dir = dir;
    n.prefix = prefix;
    if (json_array_size(layers) != 1 || json_integer_value(layer) < 1 ||
        json_integer_value(layer) > (json_int_t)shape->layers)
        return error_set(error, ERR_BAD_INPUT,
                         "%s is not a list of one layer of 1 to %" PRIu32
                         "; others are not supported",
                         n.row->field, shape->layers);
    n.layer = (uint32_t)json_integer_value(layer) - 1;
    hf_full_key(shape->arch, "ple.layers", key);
    gguf_put_array(hf->gguf, key, GGUF_U32, &n.layer, 1);
    for (size_t i = 0; i < ARRAY_LEN(constants); i++)
        if (put_constants(&n, i, error))
            return -1;
    return put_end(&n, whole, error) || put_table(&n, config, error) ? -1 : 0;
}
