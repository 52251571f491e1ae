/* SPDX-License-Identifier: Apache-2.0 */
/* Token ids of conversations with vocabularies that have the control tokens of model families,
 * against transformers' apply_chat_template (tests/golden/chat_ids.py).
 * usage: unit_chat_ids [FILE]    FILE: templates of real models, of `chat_ids.py real` */
#include <check.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "lib/model/chat/format.h"
#include "lib/model/index/model_index.h"
#include "lib/model/tokenizer/tokenizer.h"

#define DATA       SLUICE_SOURCE_DIR "/tests/golden/data/tokenizers/"
#define PROMPT_MAX 65536
#define NOW        1770127506 /* as in chat_templates.py */

static const char *file = DATA "chat_ids.json";
static bool real; /* templates of real models: not those of the vocabulary files */

struct family {
    struct model_index *index;
    struct tokenizer *tokenizer;
    struct chat_format format;
};

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    ck_assert_msg(text != NULL, "no %s", key);
    return text;
}

/* The chat format comes from the vocabulary's file, as in an engine, unless it has no template. */
static void family_open(struct family *f, const json_t *row)
{
    char path[500];
    struct error error = {0};
    *f = (struct family){0};
    snprintf(path, sizeof path, "%s%s.gguf", DATA, text_of(row, "vocabulary"));
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ck_assert_msg(model_index_build(fd, path, &f->index, &error) == 0, "%s", error.text);
    close(fd);
    f->tokenizer = tokenizer_open((char *)f->index + f->index->tokenizer_offset,
                                  f->index->tokenizer_bytes, &error);
    ck_assert_msg(f->tokenizer != NULL, "%s", error.text);
    struct model_chat model = f->index->chat;
    const char *template = text_of(row, "template");
    if (f->index->template_bytes == 0)
        chat_describe(&model, "plain", text_of(row, "bos"), text_of(row, "eos"), 0);
    else if (!real)
        ck_assert(f->index->template_bytes == strlen(template) &&
                  memcmp(model_index_template(f->index), template, strlen(template)) == 0);
    model.bos_added = tokenizer_bos(f->tokenizer) != TOKEN_NONE;
    ck_assert_msg(chat_format_set(&f->format, &model, template, strlen(template), &error) == 0,
                  "%s", error.text);
}

static void family_close(struct family *f)
{
    chat_format_free(&f->format);
    tokenizer_close(f->tokenizer);
    free(f->index);
}

/* As compute does: the prompt's ids after BOS, if the tokenizer adds one. */
static uint32_t *ids_of(const struct family *f, const json_t *messages, const json_t *c,
                        size_t *count)
{
    struct error error = {0};
    struct chat_prompt prompt;
    struct chat_conversation conversation = {.messages = messages,
                                             .tools = json_object_get(c, "tools"),
                                             .variables = json_object_get(c, "variables"),
                                             .now = NOW};
    uint32_t *ids, bos = tokenizer_bos(f->tokenizer);
    ck_assert_msg(chat_format_render(&f->format, &conversation, PROMPT_MAX, &prompt, &error) == 0,
                  "%s", error.text);
    ck_assert_int_eq(tokenizer_encode(f->tokenizer, prompt.text, prompt.bytes, &prompt.written,
                                      &ids, count, &error),
                     0);
    chat_prompt_free(&prompt);
    if (bos == TOKEN_NONE)
        return ids;
    ids = realloc(ids, (*count + 1) * sizeof *ids);
    memmove(ids + 1, ids, *count * sizeof *ids);
    ids[0] = bos;
    ++*count;
    return ids;
}

static void same_ids(const struct family *f, const json_t *row, const json_t *c)
{
    const json_t *want = json_object_get(c, "ids"), *messages = json_object_get(c, "messages");
    size_t count;
    uint32_t *ids = ids_of(f, messages, c, &count);
    char *text = json_dumps(messages, 0);
    for (size_t i = 0; i < count || i < json_array_size(want); i++)
        ck_assert_msg(i < count && i < json_array_size(want) &&
                          ids[i] == (uint32_t)json_integer_value(json_array_get(want, i)),
                      "%s: %s: token %zu of %zu is %u, not %d", text_of(row, "name"), text, i,
                      json_array_size(want), i < count ? ids[i] : TOKEN_NONE,
                      (int)json_integer_value(json_array_get(want, i)));
    free(text);
    free(ids);
}

START_TEST(ids_of_conversations)
{
    json_error_t why;
    json_t *root = json_load_file(file, 0, &why), *row, *c;
    ck_assert_msg(root != NULL, "%s: %s", file, why.text);
    const json_t *families = json_object_get(root, "families");
    size_t i, k, all = 0;
    ck_assert_uint_ge(json_array_size(families), 12);
    json_array_foreach(families, i, row)
    {
        struct family f;
        family_open(&f, row);
        json_array_foreach(json_object_get(row, "cases"), k, c)
        {
            same_ids(&f, row, c);
            all++;
        }
        family_close(&f);
    }
    ck_assert_uint_ge(all, real ? 80 : 120);
    json_decref(root);
}
END_TEST

static size_t controls(const struct tokenizer *t, const uint32_t *ids, size_t count)
{
    size_t n = 0;
    for (size_t i = 0; i < count; i++)
        n += tokenizer_is_control(t, ids[i]);
    return n;
}

static size_t controls_of(const struct family *f, const char *role, const char *content)
{
    size_t count;
    json_t *messages = json_pack("[{s:s, s:s}, {s:s, s:s}]", "role", "user", "content", "x", "role",
                                 role, "content", content);
    uint32_t *ids = ids_of(f, messages, NULL, &count);
    size_t n = controls(f->tokenizer, ids, count);
    json_decref(messages);
    free(ids);
    return n;
}

/* No control token of a vocabulary, written in a message, adds one to the prompt. */
START_TEST(no_message_adds_a_control_token)
{
    json_error_t why;
    json_t *root = json_load_file(file, 0, &why), *row;
    ck_assert_msg(root != NULL, "%s: %s", file, why.text);
    size_t i, tried = 0;
    json_array_foreach(json_object_get(root, "families"), i, row)
    {
        struct family f;
        family_open(&f, row);
        const json_t *written = json_object_get(row, "controls"), *text;
        size_t k, plain = controls_of(&f, "user", "y"), answer = controls_of(&f, "assistant", "y");
        json_array_foreach(written, k, text)
        {
            char content[200];
            struct error error;
            const char *mark = json_string_value(text);
            if (chat_reject_marks((enum chat_family)f.format.model.family, mark, strlen(mark),
                                  &error) != 0)
                continue; /* no message may have it */
            snprintf(content, sizeof content, "a%sb %s", json_string_value(text),
                     json_string_value(text));
            ck_assert_msg(controls_of(&f, "user", content) == plain &&
                              controls_of(&f, "assistant", content) == answer,
                          "%s: %s", text_of(row, "name"), content);
            tried++;
        }
        family_close(&f);
    }
    ck_assert_uint_ge(tried, 60);
    json_decref(root);
}
END_TEST

int main(int argc, char **argv)
{
    real = argc > 1;
    file = real ? argv[1] : file;
    Suite *suite = suite_create("chat_ids");
    TCase *cases = tcase_create("chat_ids");
    tcase_set_timeout(cases, 60);
    tcase_add_test(cases, ids_of_conversations);
    if (!real)
        tcase_add_test(cases, no_message_adds_a_control_token);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
