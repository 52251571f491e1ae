/* SPDX-License-Identifier: Apache-2.0 */
/* Decisions about storage: what is read from it, and when a prefix is written. */
#include <check.h>

#include "lib/policy/reuse/reuse.h"

#define MS 1000000ull

/* A gigabyte per second: 100 MB take 100 ms, and a file has to be opened. */
START_TEST(what_is_faster_than_computing_is_read)
{
    ck_assert(reuse_reads(1000 * MS, 100000000, 1.0));
    ck_assert(!reuse_reads(100 * MS, 100000000, 1.0));
    ck_assert(!reuse_reads(99 * MS, 100000000, 1.0));
    ck_assert(!reuse_reads(150 * MS, 100000000, 0.5));
    ck_assert(!reuse_reads(1 * MS, 1000, 1.0)); /* a title */
    ck_assert(!reuse_reads(0, 0, 1.0));
}
END_TEST

/* Longer, the more bytes there are, and the fewer rows of them are new. */
START_TEST(a_conversation_is_not_written_with_each_turn)
{
    uint64_t first = reuse_store_delay_ns(1 << 20, 1000, 0);
    ck_assert_uint_gt(reuse_store_delay_ns(1 << 30, 1000, 0), first);
    ck_assert_uint_gt(reuse_store_delay_ns(1 << 20, 1000, 950), 4 * first);
    ck_assert_uint_eq(reuse_store_delay_ns(1 << 20, 1000, 500), first);
    ck_assert_uint_gt(first, 0);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("storage");
    TCase *c = tcase_create("storage");
    tcase_add_test(c, what_is_faster_than_computing_is_read);
    tcase_add_test(c, a_conversation_is_not_written_with_each_turn);
    suite_add_tcase(s, c);
    SRunner *runner = srunner_create(s);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
