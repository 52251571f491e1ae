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

/* ---- the directory ---- */

struct hf_json {
    json_t *config, *settings;     /* settings may be NULL */
    struct json_reader *tokenizer; /* or a vocabulary of tiktoken */
    const struct hf_tiktoken *tiktoken;
    char *ranks;
    size_t rank_bytes;
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

/* The vocabulary of tiktoken that a directory without a tokenizer.json has. */
static bool find_tiktoken(struct hf_json *d, const char *dir, char path[4096])
{
    snprintf(path, 4096, "%s/tokenizer.json", dir);
    if (access(path, F_OK) == 0)
        return false;
    for (size_t i = 0; (d->tiktoken = hf_tiktoken_row(i)); i++) {
        snprintf(path, 4096, "%s/%s", dir, d->tiktoken->file);
        if (access(path, F_OK) == 0)
            return true;
    }
    return false;
}

static int read_tokenizer(struct hf_json *d, const char *dir, struct error *error)
{
    char path[4096];
    if (find_tiktoken(d, dir, path)) {
        d->ranks = json_file_bytes(path, HF_TIKTOKEN_MAX, &d->rank_bytes, error);
        return d->ranks ? 0 : -1;
    }
    snprintf(path, sizeof path, "%s/tokenizer.json", dir);
    d->tokenizer = json_reader_file(path, &tokenizer_limits, error);
    return d->tokenizer ? 0 : -1;
}

static int read_files(struct hf_json *d, const char *dir, struct error *error)
{
    char path[4096];
    d->config = read_json(dir, "config.json", HF_CONFIG_MAX, error);
    if (!d->config || read_tokenizer(d, dir, error))
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
    if (d->tiktoken
            ? hf_tiktoken_keys(d->tiktoken, d->ranks, d->rank_bytes, d->settings, d->config,
                               shape.vocab, hf->gguf, &why)
            : hf_tokenizer_keys(d->tokenizer, d->settings, d->config, shape.vocab, hf->gguf, &why))
        return in_file(dir, d->tiktoken ? d->tiktoken->file : "tokenizer.json", &why, error);
    const json_t *text = hf_text_config(d->config);
    const json_t *tied = json_object_get(text, "tie_word_embeddings");
    if (!tied)
        tied = json_object_get(d->config, "tie_word_embeddings");
    if (hf_put_tensors(hf, &shape, text, json_is_true(tied), &why))
        return error_set(error, why.code, "%.180s: %.200s", dir, why.text);
    return gguf_writer_layout(hf->gguf, error);
}

int hf_open(struct hf_model *hf, const char *dir, struct error *error)
{
    return hf_open_as(hf, dir, TENSOR_BF16, error);
}

int hf_open_as(struct hf_model *hf, const char *dir, uint32_t fp8_type, struct error *error)
{
    struct hf_json d = {0};
    memset(hf, 0, sizeof *hf);
    hf->fp8_type = fp8_type;
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
    free(d.ranks);
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
    free(hf->made);
    memset(hf, 0, sizeof *hf);
}
