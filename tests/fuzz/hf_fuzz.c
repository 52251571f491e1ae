/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: config.json and tokenizer.json of a Hugging Face model. The input is one JSON object
 * {"config": {}, "tokenizer": {}, "settings": {}}, or with "tiktoken": [row of HF_TIKTOKEN, lines]
 * for "tokenizer". Any input gives a result or an error, and the GGUF reader accepts the resulting
 * keys. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/json/json_file.h"
#include "lib/model/hf/internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_keys(struct gguf_writer *w)
{
    struct error error = {0};
    uint64_t bytes;
    struct gguf g;
    sl_assert(gguf_writer_layout(w, &error) == 0);
    gguf_writer_header(w, &bytes);
    struct gguf_source source = {.read = gguf_writer_read, .arg = w, .bytes = bytes};
    /* The only accepted error: the configuration has a key twice. */
    if (gguf_open(&g, &source, &error) == 0)
        gguf_close(&g);
    else
        sl_assert(error.code == ERR_BAD_INPUT);
}

static int take_tiktoken(const json_t *root, uint32_t vocab, struct gguf_writer *w,
                         struct error *error)
{
    const json_t *pair = json_object_get(root, "tiktoken"), *lines = json_array_get(pair, 1);
    const struct hf_tiktoken *row =
        hf_tiktoken_row((size_t)json_integer_value(json_array_get(pair, 0)) % 2);
    /* In memory of its size: what is read after its end is found. */
    size_t bytes = json_string_length(lines);
    char *text = malloc(bytes + 1);
    sl_assert(text);
    if (bytes > 0)
        memcpy(text, json_string_value(lines), bytes);
    char *exact = realloc(text, bytes > 0 ? bytes : 1);
    int status =
        hf_tiktoken_keys(row, exact ? exact : text, bytes, json_object_get(root, "settings"),
                         json_object_get(root, "config"), vocab, w, error);
    free(exact ? exact : text);
    return status;
}

static int take_tokenizer(const json_t *root, uint32_t vocab, struct gguf_writer *w,
                          struct error *error)
{
    const struct json_limits limits = JSON_LIMITS_DEFAULT;
    char *text = json_dumps(json_object_get(root, "tokenizer"), JSON_ENCODE_ANY);
    const char *document = text ? text : "";
    struct json_reader *r = json_reader_text_of(document, strlen(document), &limits, error);
    sl_assert(r);
    int status = hf_tokenizer_keys(r, json_object_get(root, "settings"),
                                   json_object_get(root, "config"), vocab, w, error);
    json_reader_close(r);
    free(text);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct error error = {0};
    struct hf_shape shape;
    json_t *root = json_text((const char *)data, size, &error);
    if (!root)
        return 0;
    const json_t *config = json_object_get(root, "config");
    struct gguf_writer *w = gguf_writer_new(32);
    sl_assert(w);
    int status = hf_config_keys(config, "fuzz", w, &shape, &error);
    if (status == 0 && shape.vocab <= 4096)
        status = json_object_get(root, "tiktoken") ? take_tiktoken(root, shape.vocab, w, &error)
                                                   : take_tokenizer(root, shape.vocab, w, &error);
    if (status == 0)
        check_keys(w);
    else
        sl_assert(error.code != ERR_NONE && error.text[0] && !strchr(error.text, '\n'));
    gguf_writer_free(w);
    json_decref(root);
    return 0;
}
