/* SPDX-License-Identifier: Apache-2.0 */
/* Stored responses are found until a bound is met; then those go that were not used for longest. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "procs/engine/gateway/api/stored.h"

static void put(struct stored *s, const char *id, size_t bytes)
{
    char *body = malloc(bytes - 1); /* with two terminators */
    memset(body, 'b', bytes - 2);
    body[bytes - 2] = 0;
    stored_put(s, id, body, strdup(""));
}

static bool has(const struct stored *s, const char *id)
{
    for (size_t i = 0; i < s->count; i++)
        if (strcmp(s->all[i].id, id) == 0)
            return true;
    return false;
}

START_TEST(by_count)
{
    struct stored s;
    ck_assert(stored_open(&s, 2, 1000));
    put(&s, "a", 10);
    put(&s, "b", 10);
    ck_assert_uint_eq(stored_find(&s, "a")->bytes, 10);
    put(&s, "c", 10);
    ck_assert(has(&s, "a") && !has(&s, "b") && has(&s, "c"));
    ck_assert_ptr_null(stored_find(&s, "b"));
    ck_assert_ptr_null(stored_find(&s, ""));
    ck_assert_uint_eq(s.bytes, 20);
    stored_close(&s);
}
END_TEST

START_TEST(by_bytes)
{
    struct stored s;
    ck_assert(stored_open(&s, 9, 100));
    put(&s, "a", 40);
    put(&s, "b", 40);
    put(&s, "c", 60);
    ck_assert(!has(&s, "a") && has(&s, "b") && has(&s, "c"));
    put(&s, "d", 101);
    ck_assert(!has(&s, "d") && has(&s, "b") && s.bytes == 100);
    put(&s, "b", 20); /* again */
    ck_assert_uint_eq(s.bytes, 80);
    stored_close(&s);
}
END_TEST

START_TEST(deleted_ones)
{
    struct stored s;
    ck_assert(stored_open(&s, 9, 100));
    put(&s, "a", 40);
    stored_put(&s, "no memory", NULL, strdup("x"));
    ck_assert(stored_delete(&s, "a") && !stored_delete(&s, "a") && !stored_delete(&s, ""));
    ck_assert_uint_eq(s.bytes, 0);
    stored_close(&s);
    ck_assert(stored_open(&s, 9, 0));
    put(&s, "a", 2);
    ck_assert(!stored_find(&s, "a"));
    stored_close(&s);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gateway");
    TCase *cases = tcase_create("stored");
    tcase_add_test(cases, by_count);
    tcase_add_test(cases, by_bytes);
    tcase_add_test(cases, deleted_ones);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
