/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the files of a Hugging Face directory, and makes the header of the GGUF file that it stands
 * for. */
#include "lib/model/hf/hf.h"

#include <errno.h>
#include <inttypes.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/assert.h"
#include "lib/base/bytes.h"
#include "lib/json/json_file.h"
#include "lib/model/arch/arch.h"
#include "lib/model/hf/internal.h"
#include "lib/model/limits.h"
#include "lib/model/tokenizer/blob.h"
#include "lib/tensor/tensor_type.h"
#include "lib/text/utf8.h"

#define ALIGNMENT  32u
#define SETTINGS   "tokenizer_config.json"
#define SUPPRESSED "suppress_tokens" /* in generation_config.json */

/* ---- optional files ---- */

/* The path of a file, and whether the directory has it: also a link that leads nowhere, which is an
 * error of who opens it. */
static bool find_file(const char *dir, const char *file, char path[4096])
{
    struct stat st;
    snprintf(path, 4096, "%s/%s", dir, file);
    return lstat(path, &st) == 0 || (errno != ENOENT && errno != ENOTDIR);
}

/* ---- chat templates ---- */

/* The chat templates of a directory, selected as transformers does: files of templates replace
 * those of tokenizer_config.json. chat_template.json, which there only processors of images read,
 * counts where there is no other. Of templates with names, two become keys: `default`, and
 * `tool_use` for conversations with tools. */
enum { TEMPLATE_DEFAULT, TEMPLATE_TOOLS, TEMPLATES };
struct templates {
    char *text[TEMPLATES]; /* malloc'ed; NULL: none */
};

static const struct {
    const char *name, *key, *file, *named_file;
} template_rows[] = {
    {"default", "tokenizer.chat_template", "chat_template.jinja",
     HF_NAMED_TEMPLATES "/default.jinja"},
    {"tool_use", "tokenizer.chat_template.tool_use", NULL, HF_NAMED_TEMPLATES "/tool_use.jinja"},
};

_Static_assert(ARRAY_LEN(template_rows) == TEMPLATES, "a row of each template");

static void free_templates(struct templates *t)
{
    for (size_t i = 0; i < TEMPLATES; i++)
        free(t->text[i]);
    *t = (struct templates){0};
}

/* A file of a template, if it exists. */
static int read_template(const char *dir, const char *file, char **text, struct error *error)
{
    char path[4096];
    size_t bytes;
    if (!find_file(dir, file, path))
        return 0;
    free(*text);
    *text = json_file_bytes(path, HF_CONFIG_MAX, &bytes, error);
    if (!*text)
        return -1;
    (*text)[bytes] = 0;
    const char *why = strlen(*text) != bytes      ? "with a NUL byte"
                      : !utf8_valid(*text, bytes) ? "that is not UTF-8"
                                                  : NULL;
    return why ? error_set(error, ERR_BAD_INPUT, "%.300s: a chat template %s", path, why) : 0;
}

/* The template of a row: the value itself, or that of [{"name": ..., "template": ...}, ...] or
 * {name: text, ...}. NULL: none; null: its name without a text. */
static const json_t *template_of(const json_t *value, size_t row)
{
    if (!json_is_array(value) && !json_is_object(value))
        return row == TEMPLATE_DEFAULT ? value : NULL;
    const json_t *found = json_object_get(value, template_rows[row].name);
    for (size_t i = 0; i < json_array_size(value); i++) {
        const json_t *named = json_array_get(value, i), *text = json_object_get(named, "template");
        if (hf_is_string(json_object_get(named, "name"), template_rows[row].name))
            found = text ? text : json_null();
    }
    return found;
}

static int take_value(struct templates *t, const char *path, const json_t *value,
                      struct error *error)
{
    if (json_is_null(value))
        return 0;
    for (size_t i = 0; i < TEMPLATES; i++) {
        const json_t *found = template_of(value, i);
        if (found && !json_is_string(found))
            return error_set(error, ERR_BAD_INPUT, "%.300s: the chat template '%s' is not a text",
                             path, template_rows[i].name);
        if (found && !(t->text[i] = strdup(json_string_value(found))))
            return error_set(error, ERR_NO_MEMORY, "out of memory (chat template)");
    }
    return 0;
}

static int read_template_files(struct templates *t, const char *dir, struct error *error)
{
    char path[4096];
    if (find_file(dir, HF_NAMED_TEMPLATES, path) && access(path, F_OK) != 0)
        return error_set_errno(error, ERR_BAD_INPUT, errno, "cannot open %.250s", path);
    for (size_t i = 0; i < TEMPLATES; i++)
        if ((template_rows[i].file &&
             read_template(dir, template_rows[i].file, &t->text[i], error) != 0) ||
            read_template(dir, template_rows[i].named_file, &t->text[i], error) != 0)
            return -1;
    return 0;
}

static int read_templates(struct templates *t, const char *dir, const json_t *settings,
                          struct error *error)
{
    char path[4096];
    *t = (struct templates){0};
    if (read_template_files(t, dir, error) != 0)
        return -1;
    for (size_t i = 0; i < TEMPLATES; i++)
        if (t->text[i])
            return 0;
    const json_t *value = json_object_get(settings, "chat_template");
    (void)find_file(dir, SETTINGS, path);
    if (value && !json_is_null(value))
        return take_value(t, path, value, error);
    if (!find_file(dir, "chat_template.json", path))
        return 0;
    json_t *file = json_foreign_file(path, HF_CONFIG_MAX, error);
    int status = file ? take_value(t, path, json_object_get(file, "chat_template"), error) : -1;
    json_decref(file);
    return status;
}

static void put_templates(const struct templates *t, struct gguf_writer *w)
{
    for (size_t i = 0; i < TEMPLATES; i++)
        if (t->text[i])
            gguf_put_text(w, template_rows[i].key, t->text[i]);
    if (t->text[TEMPLATE_TOOLS])
        gguf_put_strings(w, "tokenizer.chat_templates", &template_rows[TEMPLATE_TOOLS].name, NULL,
                         1);
}

/* ---- the directory ---- */

struct hf_json {
    json_t *config, *settings;     /* settings may be NULL */
    json_t *ends;                  /* config with what generation_config.json says instead */
    struct json_reader *tokenizer; /* or a vocabulary of tiktoken */
    const struct hf_tiktoken *tiktoken;
    char *ranks;
    size_t rank_bytes;
    struct templates templates;
};

/* Of its values, only those that prepare text are kept: a few hundred. */
static const struct json_limits tokenizer_limits = {
    .bytes = HF_TOKENIZER_MAX, .string = MIB, .values = MIB, .depth = 32};

/* The vocabulary of tiktoken that a directory without a tokenizer.json has. */
static bool find_tiktoken(struct hf_json *d, const char *dir, char path[4096])
{
    if (find_file(dir, "tokenizer.json", path))
        return false;
    for (size_t i = 0; (d->tiktoken = hf_tiktoken_row(i)); i++)
        if (find_file(dir, d->tiktoken->file, path))
            return true;
    return false;
}

static int no_tokenizer(const char *dir, struct error *error)
{
    char path[4096], names[200] = "tokenizer.json";
    for (size_t i = 0; hf_tiktoken_row(i); i++)
        snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s",
                 hf_tiktoken_row(i + 1) ? ", " : " or ", hf_tiktoken_row(i)->file);
    return error_set(error, ERR_BAD_INPUT, "%.180s: no tokenizer: %s%s", dir, names,
                     find_file(dir, "tokenizer.model", path)
                         ? " (a tokenizer.model is not read: transformers writes a tokenizer.json "
                           "of it)"
                         : "");
}

static int read_tokenizer(struct hf_json *d, const char *dir, struct error *error)
{
    char path[4096];
    if (find_tiktoken(d, dir, path)) {
        d->ranks = json_file_bytes(path, HF_TIKTOKEN_MAX, &d->rank_bytes, error);
        return d->ranks ? 0 : -1;
    }
    if (!find_file(dir, "tokenizer.json", path))
        return no_tokenizer(dir, error);
    d->tokenizer = json_reader_file(path, &tokenizer_limits, error);
    return d->tokenizer ? 0 : -1;
}

/* The tokens that end an answer, and those that are never generated, are those of
 * generation_config.json, if it has them. What the layers compute depends on config.json alone: it
 * stays as it is, and a copy has the others. */
static int read_generation(struct hf_json *d, const char *dir, struct error *error)
{
    static const char *const keys[] = {"eos_token_id", SUPPRESSED};
    int status = 0;
    char path[4096];
    d->ends = json_copy(d->config);
    if (!d->ends)
        return error_set(error, ERR_NO_MEMORY, "out of memory (configuration)");
    if (!find_file(dir, "generation_config.json", path))
        return 0;
    json_t *generation = json_foreign_file(path, HF_CONFIG_MAX, error);
    if (!generation)
        return -1;
    for (size_t i = 0; i < ARRAY_LEN(keys) && status == 0; i++) {
        json_t *ids = json_object_get(generation, keys[i]);
        status = ids && !json_is_null(ids) ? json_object_set(d->ends, keys[i], ids) : 0;
    }
    json_decref(generation);
    return status == 0 ? 0 : error_set(error, ERR_NO_MEMORY, "out of memory (configuration)");
}

static int read_files(struct hf_json *d, const char *dir, struct error *error)
{
    char path[4096];
    (void)find_file(dir, "config.json", path);
    d->config = json_foreign_file(path, HF_CONFIG_MAX, error);
    if (!d->config || read_generation(d, dir, error) || read_tokenizer(d, dir, error))
        return -1;
    if (find_file(dir, SETTINGS, path)) {
        d->settings = json_foreign_file(path, HF_CONFIG_MAX, error);
        if (!d->settings)
            return -1;
    }
    return read_templates(&d->templates, dir, d->settings, error);
}

/* What is no list of numbers, and numbers that are no tokens, say nothing, as in llama.cpp. */
static int put_suppressed(const json_t *config, struct gguf_writer *w, struct error *error)
{
    const json_t *list = json_object_get(config, SUPPRESSED), *one;
    size_t n = json_array_size(list), count = 0, i;
    if (n == 0 || n > MODEL_VOCAB_MAX)
        return 0;
    int32_t *ids = calloc(n, sizeof *ids);
    if (!ids)
        return error_set(error, ERR_NO_MEMORY, "out of memory (suppressed tokens)");
    json_array_foreach((json_t *)(uintptr_t)list, i, one)
    {
        json_int_t id = json_integer_value(one);
        if (json_is_integer(one) && id >= 0 && id < MODEL_VOCAB_MAX)
            ids[count++] = (int32_t)id;
    }
    if (count > 0)
        gguf_put_array(w, TOKENIZER_SUPPRESS_KEY, GGUF_I32, ids, count);
    free(ids);
    return 0;
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
            ? hf_tiktoken_keys(d->tiktoken, d->ranks, d->rank_bytes, d->settings, d->ends,
                               shape.vocab, hf->gguf, &why)
            : hf_tokenizer_keys(d->tokenizer, d->settings, d->ends, shape.vocab, hf->gguf, &why))
        return in_file(dir, d->tiktoken ? d->tiktoken->file : "tokenizer.json", &why, error);
    put_templates(&d->templates, hf->gguf);
    if (put_suppressed(d->ends, hf->gguf, error))
        return -1;
    const json_t *text = hf_text_config(d->config);
    const json_t *tied = json_object_get(text, "tie_word_embeddings");
    if (!tied)
        tied = json_object_get(d->config, "tie_word_embeddings");
    if (hf_put_tensors(hf, &shape, d->config, dir, json_is_true(tied), &why))
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
    json_decref(d.ends);
    json_reader_close(d.tokenizer);
    free(d.ranks);
    free_templates(&d.templates);
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
