/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the types that schemas state for arguments: a text, or JSON. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/model/chat/calls/types.h"

static const struct {
    const char *schema;
    bool json;
} rows[] = {
    {"{}", false},
    {"{\"type\":\"string\"}", false},
    {"{\"type\":\"integer\"}", true},
    {"{\"type\":\"number\"}", true},
    {"{\"type\":\"boolean\"}", true},
    {"{\"type\":\"array\"}", true},
    {"{\"type\":\"object\"}", true},
    {"{\"type\":\"null\"}", true},
    {"{\"type\":[\"integer\",\"null\"]}", true},
    {"{\"type\":[\"integer\",\"string\"]}", false},
    {"{\"anyOf\":[{\"type\":\"integer\"},{\"type\":\"null\"}]}", true},
    {"{\"anyOf\":[{\"type\":\"integer\"},{\"type\":\"string\"}]}", false},
    {"{\"oneOf\":[{\"type\":\"array\"},{\"anyOf\":[{\"type\":\"null\"}]}]}", true},
    {"{\"enum\":[1,2]}", true},
    {"{\"enum\":[1,\"a\"]}", false},
    {"{\"enum\":[]}", false}, /* nothing is said */
    {"{\"anyOf\":[],\"oneOf\":null}", false},
    {"{\"type\":\"string\",\"enum\":[]}", false},
    {"{\"type\":\"string\",\"enum\":null}", false},
    {"{\"type\":[\"integer\",\"string\"],\"enum\":[1,2]}", true},
    {"{\"type\":[\"integer\",\"string\"],\"enum\":[1,\"a\"]}", false},
    {"{\"const\":1}", true},
    {"{\"const\":\"a\"}", false},
    {"{\"$ref\":\"#/$defs/colour\"}", false},
    {"{\"$ref\":\"#/$defs/point\"}", true},
    {"{\"$ref\":\"#/$defs/none\"}", true},
    {"{\"$ref\":\"elsewhere\"}", true},
    {"{\"$ref\":\"#/$defs/circle\"}", false},
    {"{\"$ref\":\"#/$defs/wide\"}", false},
    {"{\"allOf\":[{\"$ref\":\"#/$defs/point\"}]}", true},
    {"{\"allOf\":[{\"$ref\":\"#/$defs/colour\"}]}", false},
    {"true", false},
    {"7", false},
};

#define DEFS                                                                                       \
    "\"$defs\":{\"colour\":{\"type\":\"string\",\"enum\":[\"red\"]},\"point\":{\"type\":"          \
    "\"object\"},\"circle\":{\"$ref\":\"#/$defs/circle\"},\"wide\":{\"anyOf\":[{\"$ref\":"         \
    "\"#/$defs/wide\"},{\"$ref\":\"#/$defs/wide\"},{\"$ref\":\"#/$defs/wide\"}]}}"

static struct chat_types *types_of(const char *text, size_t *bytes)
{
    json_t *tools = json_loads(text, 0, NULL);
    ck_assert_msg(tools != NULL, "%s", text);
    struct chat_types *t = chat_types_new(tools, bytes);
    json_decref(tools);
    ck_assert_uint_le(*bytes, strlen(text));
    return t;
}

START_TEST(schemas)
{
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        char text[1000];
        size_t bytes;
        snprintf(text, sizeof text,
                 "[{\"function\":{\"name\":\"f\",\"parameters\":{" DEFS
                 ",\"properties\":{\"other\":{\"type\":\"integer\"},\"a\":%s}}}}]",
                 rows[i].schema);
        struct chat_types *t = types_of(text, &bytes);
        ck_assert_msg(chat_types_json(t, "f", 1, "a", 1) == rows[i].json, "%s", rows[i].schema);
        ck_assert(chat_types_json(t, "f", 1, "other", 5) && !chat_types_json(t, "f", 1, "b", 1));
        ck_assert(!chat_types_json(t, "g", 1, "other", 5) &&
                  !chat_types_json(t, "other", 5, "a", 1));
        chat_types_free(t);
    }
}
END_TEST

/* Of two tools of a name the first one counts; what is no tool states nothing. */
START_TEST(tools)
{
    size_t bytes;
    struct chat_types *t = types_of(
        "[7,{\"function\":{}},{\"function\":{\"name\":\"g\"}},{\"function\":{\"name\":\"f\","
        "\"parameters\":{\"properties\":{\"a\":{\"type\":\"integer\"}}}}},{\"function\":{\"name\":"
        "\"f\",\"parameters\":{\"properties\":{\"b\":{\"type\":\"integer\"}}}}}]",
        &bytes);
    ck_assert(chat_types_json(t, "f", 1, "a", 1) && !chat_types_json(t, "f", 1, "b", 1));
    ck_assert(!chat_types_json(t, "g", 1, "a", 1));
    chat_types_free(t);
    ck_assert(!types_of("[]", &bytes) && bytes == 0);
    ck_assert(!chat_types_json(NULL, "f", 1, "a", 1));
}
END_TEST

/* Types within arguments, which may be references, and circles of them. */
START_TEST(within)
{
    static const struct {
        const char *path[4];
        enum chat_type type;
    } paths[] = {
        {{"a"}, CHAT_OBJECT},
        {{"a", "n"}, CHAT_JSON},
        {{"a", "s"}, CHAT_TEXT},
        {{"a", "more"}, CHAT_ARRAY},
        {{"a", "more", "item"}, CHAT_OBJECT},
        {{"a", "more", "item", "n"}, CHAT_JSON},
        {{"list"}, CHAT_ARRAY},
        {{"list", "item"}, CHAT_TEXT},
        {{"n"}, CHAT_TEXT},
        {{"max"}, CHAT_ARRAY},
        {{"max", "item"}, CHAT_JSON},
        {{"last", "n"}, CHAT_TEXT},
    };
    size_t bytes;
    json_t *all = json_loads(
        "[{\"function\":{\"name\":\"f\",\"parameters\":{\"$defs\":{\"x\":{\"type\":\"object\","
        "\"properties\":{\"n\":{\"type\":\"number\"},\"s\":{\"type\":\"string\"},\"more\":{"
        "\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/x\"}}}}},\"properties\":{\"a\":{"
        "\"$ref\":\"#/$defs/x\"},\"list\":{\"items\":{\"type\":\"string\"},\"type\":\"array\"},"
        "\"max\":{\"anyOf\":[{\"type\":\"null\"},{\"type\":\"array\",\"items\":{\"type\":"
        "\"integer\"}}]},\"last\":{\"type\":\"boolean\"}}}}}]",
        0, NULL);
    struct chat_types *t = chat_types_new(all, &bytes);
    ck_assert_uint_le(bytes, 16384);
    json_decref(all);
    for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
        size_t at = chat_types_find(t, CHAT_TYPES_TOOLS, "f", 1);
        for (size_t k = 0; k < ARRAY_LEN(paths[i].path) && paths[i].path[k]; k++)
            at = chat_types_find(t, at, paths[i].path[k], strlen(paths[i].path[k]));
        ck_assert_msg(chat_types_of(t, at) == paths[i].type, "path %zu", i);
    }
    ck_assert(chat_types_find(NULL, CHAT_TYPES_TOOLS, "f", 1) == CHAT_TYPES_NONE);
    chat_types_free(t);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("types");
    TCase *cases = tcase_create("types");
    tcase_add_test(cases, schemas);
    tcase_add_test(cases, tools);
    tcase_add_test(cases, within);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
