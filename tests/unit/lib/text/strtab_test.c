/* SPDX-License-Identifier: Apache-2.0 */
/* The table of strings: values, duplicates, and strings chosen to collide without a seed. */
#include <check.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "lib/text/strtab.h"

#define COLLIDING 1000

START_TEST(values_and_duplicates)
{
    struct strtab t;
    ck_assert(strtab_init(&t, 3));
    ck_assert_uint_eq(strtab_put(&t, "one", 3, 1), STRTAB_NONE);
    ck_assert_uint_eq(strtab_put(&t, "two", 3, 2), STRTAB_NONE);
    ck_assert_uint_eq(strtab_put(&t, "one", 3, 7), 1);
    ck_assert_uint_eq(strtab_get(&t, "one", 3), 1);
    ck_assert_uint_eq(strtab_get(&t, "on", 2), STRTAB_NONE);
    strtab_free(&t);
}
END_TEST

/* Occupied slots in a row: what a lookup may have to pass. */
static size_t longest_run(const struct strtab *t)
{
    size_t run = 0, longest = 0;
    for (size_t i = 0; i <= t->mask; i++) {
        run = t->slots[i].text ? run + 1 : 0;
        longest = run > longest ? run : longest;
    }
    return longest;
}

START_TEST(chosen_strings_do_not_collide)
{
    static char text[COLLIDING][16];
    struct strtab t;
    uint32_t found = 0;
    ck_assert(strtab_init(&t, COLLIDING));
    for (uint32_t i = 0; found < COLLIDING; i++) {
        int n = snprintf(text[found], sizeof text[found], "%u", i);
        found += (XXH3_64bits(text[found], (size_t)n) & t.mask) == 5;
    }
    for (uint32_t i = 0; i < COLLIDING; i++)
        ck_assert_uint_eq(strtab_put(&t, text[i], (uint32_t)strlen(text[i]), i), STRTAB_NONE);
    ck_assert_uint_lt(longest_run(&t), 100); /* without a seed: 1000 */
    for (uint32_t i = 0; i < COLLIDING; i++)
        ck_assert_uint_eq(strtab_get(&t, text[i], strlen(text[i])), i);
    strtab_free(&t);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("strtab");
    TCase *c = tcase_create("strtab");
    tcase_add_test(c, values_and_duplicates);
    tcase_add_test(c, chosen_strings_do_not_collide);
    suite_add_tcase(s, c);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_NORMAL);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed == 0 ? 0 : 1;
}
