/* SPDX-License-Identifier: Apache-2.0 */
/* The page of a set that gives its slot: an empty one, the one used longest ago, the first of
 * several; never one that is read or copied; and one that was requested ahead after all others. */
#include <check.h>

#include "lib/policy/access/pages.h"

#define NOW 1000u

static struct page_slot slot[MODEL_PAGE_WAYS];

static void setup(void)
{
    for (uint32_t i = 0; i < MODEL_PAGE_WAYS; i++)
        slot[i] = (struct page_slot){.reserved_at = 1, .used_at = NOW - 10 - i};
}

START_TEST(an_empty_one_first)
{
    slot[3].empty = slot[6].empty = true;
    ck_assert_uint_eq(page_slot_choose(slot, NOW), 3);
}
END_TEST

START_TEST(then_the_one_used_longest_ago)
{
    ck_assert_uint_eq(page_slot_choose(slot, NOW), 7);
    slot[7].fixed = true;
    slot[2].used_at = slot[6].used_at;
    ck_assert_uint_eq(page_slot_choose(slot, NOW), 2);
    slot[2].reserved_at = NOW - 3; /* it has another page since then, which was never read */
    ck_assert_uint_eq(page_slot_choose(slot, NOW), 6);
}
END_TEST

START_TEST(what_was_requested_ahead_last)
{
    for (uint32_t i = 0; i < MODEL_PAGE_WAYS; i++)
        slot[i].used_at = NOW;
    slot[4] = (struct page_slot){.reserved_at = NOW - 1, .used_at = 5};
    ck_assert_uint_eq(page_slot_choose(slot, NOW), 0);
    slot[4].reserved_at = NOW - 2; /* its pass has ended */
    ck_assert_uint_eq(page_slot_choose(slot, NOW), 4);
    for (uint32_t i = 0; i < MODEL_PAGE_WAYS; i++)
        slot[i] = (struct page_slot){.fixed = true};
    ck_assert_uint_eq(page_slot_choose(slot, NOW), PAGE_SLOT_NONE);
    slot[5] = (struct page_slot){.reserved_at = NOW, .used_at = 5};
    ck_assert_uint_eq(page_slot_choose(slot, NOW), 5);
}
END_TEST

/* Its former page was used in the read in which it got the slot. */
START_TEST(a_slot_given_away_in_the_read_that_used_it)
{
    for (uint32_t i = 0; i < MODEL_PAGE_WAYS; i++)
        slot[i].used_at = NOW;
    slot[0] = (struct page_slot){.reserved_at = NOW, .used_at = page_slot_unused(NOW)};
    ck_assert_uint_eq(page_slot_choose(slot, NOW), 1);
    for (uint32_t i = 1; i < MODEL_PAGE_WAYS; i++)
        slot[i].used_at = NOW + 1;
    ck_assert_uint_eq(page_slot_choose(slot, NOW + 1), 1);
    ck_assert_uint_eq(page_slot_choose(slot, NOW + 2), 0); /* its pass has ended */
    for (uint32_t i = 0; i < MODEL_PAGE_WAYS; i++)         /* where counts begin again at 0 */
        slot[i] = (struct page_slot){.reserved_at = UINT32_MAX, .used_at = i > 0};
    slot[0] = (struct page_slot){.reserved_at = 0, .used_at = page_slot_unused(0)};
    ck_assert_uint_eq(page_slot_choose(slot, 1), 1);
}
END_TEST

/* Counts begin again at 0; one of a read that began meanwhile has age 0. */
START_TEST(times_wrap)
{
    const uint32_t now = 3;
    for (uint32_t i = 0; i < MODEL_PAGE_WAYS; i++)
        slot[i] = (struct page_slot){.reserved_at = UINT32_MAX - 50, .used_at = UINT32_MAX - i};
    slot[0].used_at = now + 1;
    ck_assert_uint_eq(page_slot_choose(slot, now), 7);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("policy_pages");
    TCase *t = tcase_create("policy_pages");
    tcase_add_checked_fixture(t, setup, NULL);
    tcase_add_test(t, an_empty_one_first);
    tcase_add_test(t, then_the_one_used_longest_ago);
    tcase_add_test(t, what_was_requested_ahead_last);
    tcase_add_test(t, a_slot_given_away_in_the_read_that_used_it);
    tcase_add_test(t, times_wrap);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}
