/* SPDX-License-Identifier: Apache-2.0 */
/* Conversations of every family of chat.tbl.h: text and token ids against the package transformers
 * (tests/golden/chat_vectors.py), also with every control token in the messages. */
#include <check.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "lib/model/chat/chat.h"
#include "lib/model/index/model_index.h"
#include "lib/model/tokenizer/tokenizer.h"

#define DATA         SLUICE_SOURCE_DIR "/tests/golden/data/tokenizers/"
#define MESSAGES_MAX 16
#define PROMPT_MAX   65536

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    ck_assert_msg(text != NULL, "no %s", key);
    return text;
}

static struct tokenizer *open_tokenizer(const char *name, struct model_index **index)
{
    char path[500];
    struct error error = {0};
    snprintf(path, sizeof path, "%s%s.gguf", DATA, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ck_assert_msg(model_index_build(fd, path, index, &error) == 0, "%s", error.text);
    close(fd);
    struct tokenizer *t = tokenizer_open((char *)*index + (*index)->tokenizer_offset,
                                         (*index)->tokenizer_bytes, &error);
    ck_assert_msg(t != NULL, "%s", error.text);
    return t;
}

static size_t messages_of(const json_t *talk, struct chat_message m[MESSAGES_MAX])
{
    static const char *const roles[CHAT_ROLE__COUNT] = {
        [CHAT_SYSTEM] = "system", [CHAT_USER] = "user", [CHAT_ASSISTANT] = "assistant"};
    const json_t *list = json_object_get(talk, "messages");
    size_t count = json_array_size(list);
    ck_assert(count > 0 && count <= MESSAGES_MAX);
    for (size_t i = 0; i < count; i++) {
        const json_t *message = json_array_get(list, i), *text = json_array_get(message, 1);
        const char *role = json_string_value(json_array_get(message, 0));
        m[i] = (struct chat_message){CHAT_ROLE__COUNT, json_string_value(text),
                                     json_string_length(text)};
        for (int r = 0; r < CHAT_ROLE__COUNT; r++)
            if (strcmp(role, roles[r]) == 0)
                m[i].role = (enum chat_role)r;
        ck_assert_msg(m[i].role != CHAT_ROLE__COUNT, "role %s", role);
    }
    return count;
}

static void expect_ids(const struct tokenizer *t, const struct chat_prompt *p, const json_t *talk)
{
    const json_t *want = json_object_get(talk, "ids");
    uint32_t *ids;
    size_t count;
    json_int_t controls = 0;
    struct error error = {0};
    ck_assert_msg(tokenizer_encode(t, p->text, p->bytes, &p->written, &ids, &count, &error) == 0,
                  "%s", error.text);
    for (size_t i = 0; i < count; i++) {
        controls += tokenizer_is_control(t, ids[i]);
        ck_assert_msg(i < json_array_size(want) &&
                          ids[i] == json_integer_value(json_array_get(want, i)),
                      "'%s': token %zu is %u", p->text, i, ids[i]);
    }
    ck_assert_msg(count == json_array_size(want), "'%s': %zu tokens", p->text, count);
    ck_assert_int_eq(controls, json_integer_value(json_object_get(talk, "controls")));
    free(ids);
}

static void check_talk(const struct model_chat *chat, const struct tokenizer *t, const json_t *talk)
{
    struct chat_message m[MESSAGES_MAX];
    struct chat_prompt p;
    struct error error = {0};
    size_t count = messages_of(talk, m);
    ck_assert_msg(chat_render(chat, m, count, PROMPT_MAX, &p, &error) == 0, "%s", error.text);
    ck_assert_str_eq(p.text, text_of(talk, "text"));
    expect_ids(t, &p, talk);
    chat_prompt_free(&p);
}

/* The last conversation has every control token of the vocabulary in every message. */
static void check_forged(const struct tokenizer *t, const json_t *talk)
{
    const char *text =
        json_string_value(json_array_get(json_array_get(json_object_get(talk, "messages"), 1), 1));
    ck_assert_ptr_nonnull(text);
    uint32_t *ids, found = 0, all = 0;
    size_t count;
    ck_assert_int_eq(tokenizer_encode(t, text, strlen(text), &text_ranges_all, &ids, &count, NULL),
                     0);
    for (size_t i = 0; i < count; i++)
        found += tokenizer_is_control(t, ids[i]);
    free(ids);
    for (uint32_t id = 0; id < tokenizer_vocab(t); id++)
        all += tokenizer_is_control(t, id);
    ck_assert_msg(found > 0 && found == all, "%u of %u control tokens are forged", found, all);
}

START_TEST(every_family)
{
    json_error_t why;
    json_t *root = json_load_file(DATA "chat.json", 0, &why), *item = NULL;
    ck_assert_msg(root != NULL, "%s", why.text);
    const char *name = chat_name((enum chat_family)_i);
    for (size_t i = 0; i < json_array_size(root) && !item; i++)
        if (strcmp(text_of(json_array_get(root, i), "family"), name) == 0)
            item = json_array_get(root, i);
    ck_assert_msg(item != NULL, "no vectors of %s", name);
    const char *template = text_of(item, "template");
    ck_assert_int_eq(chat_recognise(template, strlen(template)), _i);
    struct model_chat chat = {0};
    struct model_index *index;
    chat_describe(&chat, name, text_of(item, "bos"), text_of(item, "eos"),
                  *text_of(item, "bos") != 0);
    struct tokenizer *t = open_tokenizer(text_of(item, "tokenizer"), &index);
    const json_t *talks = json_object_get(item, "talks");
    size_t count = json_array_size(talks);
    ck_assert_uint_ge(count, 5);
    for (size_t i = 0; i < count; i++)
        check_talk(&chat, t, json_array_get(talks, i));
    check_forged(t, json_array_get(talks, count - 1));
    tokenizer_close(t);
    free(index);
    json_decref(root);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("chat");
    TCase *c = tcase_create("vectors");
    tcase_add_loop_test(c, every_family, CHAT_PLAIN + 1, CHAT__COUNT);
    suite_add_tcase(s, c);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_NORMAL);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed == 0 ? 0 : 1;
}
