/* SPDX-License-Identifier: Apache-2.0 */
/* Keys that nothing reads. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "lib/base/bytes.h"
#include "lib/model/index/model_index.h"
#include "tests/unit/lib/model/gguf_make.h"

static struct model_index *read_model(struct make *m)
{
    struct error error = {0};
    struct model_index *index = make_index(m, &error);
    ck_assert_msg(index, "%s", error.text);
    ck_assert_int_eq(model_index_check(index, index->bytes, &error), 0);
    return index;
}

START_TEST(unread)
{
    struct make m;
    char name[MODEL_UNREAD_BYTES];
    size_t at = 0;
    make_arch(&m, "qwen3moe", 1, false);
    make_f32(&m, "qwen3moe.attention.new_factor", 2);
    make_u32(&m, "qwen3moe.nextn_predict_layers", 0); /* harmless.tbl.h */
    make_text(&m, "general.license", "mit");
    make_u32(&m,
             "other.bl\xc3\xb6"
             "ck\ncount\xff",
             2);
    struct model_index *index = read_model(&m);
    ck_assert_uint_eq(index->unread_count, 2);
    ck_assert(model_index_unread(index, &at, name));
    ck_assert_str_eq(name, "qwen3moe.attention.new_factor");
    ck_assert(model_index_unread(index, &at, name));
    ck_assert_str_eq(name, "other.bl\xc3\xb6"
                           "ck?count\xef\xbf\xbd");
    ck_assert(!model_index_unread(index, &at, name));
    struct error error;
    index->unread[0] = '\t';
    ck_assert_int_eq(model_index_check(index, index->bytes, &error), -1);
    index->unread[0] = 'q';
    index->unread[sizeof index->unread - 1] = 'x';
    ck_assert_int_eq(model_index_check(index, index->bytes, &error), -1);
    free(index);
}
END_TEST

/* More names than there is space for are counted. */
START_TEST(many_unread)
{
    struct make m;
    char name[MODEL_UNREAD_BYTES];
    size_t at = 0, shown = 0;
    make_arch(&m, "qwen3moe", 1, false);
    size_t count = ARRAY_LEN(m.keys) - m.key_count;
    for (size_t i = 0; i < count; i++) {
        snprintf(name, sizeof name, "a.key.of.another.program.with.a.long.name.%02zu", i);
        make_u32(&m, name, 1);
    }
    struct model_index *index = read_model(&m);
    ck_assert_uint_eq(index->unread_count, count);
    while (model_index_unread(index, &at, name))
        shown++;
    ck_assert_uint_gt(shown, 10);
    ck_assert_uint_lt(shown, count);
    free(index);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("unread");
    TCase *tcase = tcase_create("keys");
    tcase_add_test(tcase, unread);
    tcase_add_test(tcase, many_unread);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
