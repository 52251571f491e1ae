/* SPDX-License-Identifier: Apache-2.0 */
/* Places of sequences, against a list in the order of their last use. */
#include <check.h>
#include <string.h>

#include "lib/policy/sequences.h"

static struct sequences s;
static uint64_t seed;

static uint32_t below(uint32_t n)
{
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)((seed >> 33) % n);
}

/* ---- the oracle: running numbers, the one used last at the end ---- */

static uint32_t number[2 * SEQUENCES_MAX], place[2 * SEQUENCES_MAX], count;

static uint32_t where(uint32_t of)
{
    for (uint32_t i = 0; i < count; i++)
        if (number[i] == of)
            return i;
    return SEQUENCE_NONE;
}

static void drop(uint32_t at)
{
    count--;
    memmove(number + at, number + at + 1, (count - at) * sizeof *number);
    memmove(place + at, place + at + 1, (count - at) * sizeof *place);
}

static void append(uint32_t of, uint32_t at)
{
    number[count] = of;
    place[count++] = at;
}

static void start(uint32_t of)
{
    bool displaced;
    uint32_t at = sequences_start(&s, of, &displaced);
    ck_assert_uint_lt(at, SEQUENCES_MAX);
    ck_assert_int_eq(displaced, count == SEQUENCES_MAX);
    if (displaced) {
        ck_assert_uint_eq(at, place[0]); /* of the one that was used longest ago */
        drop(0);
    }
    for (uint32_t i = 0; i < count; i++)
        ck_assert_uint_ne(place[i], at);
    append(of, at);
}

START_TEST(places_agree_with_a_list)
{
    memset(&s, 0, sizeof s);
    seed = (uint64_t)_i;
    count = 0;
    uint32_t range = _i % 2 ? 40 : 100;
    for (uint32_t i = 0; i < 20000; i++) {
        uint32_t of = below(range) * 3, at = where(of), known = sequences_find(&s, of);
        ck_assert_uint_eq(known, at == SEQUENCE_NONE ? SEQUENCE_NONE : place[at]);
        if (at != SEQUENCE_NONE)
            drop(at);
        if (known != SEQUENCE_NONE && below(3) == 0) {
            ck_assert_uint_eq(sequences_end(&s, of), known);
            ck_assert_uint_eq(sequences_end(&s, of), SEQUENCE_NONE);
            ck_assert(sequences_ended(&s, of));
        } else if (known != SEQUENCE_NONE) {
            append(of, known);
        } else {
            start(of);
        }
    }
}
END_TEST

/* One after another: two places, and the end of the last one stays known. */
START_TEST(one_after_another)
{
    bool displaced;
    uint64_t seen = 0;
    memset(&s, 0, sizeof s);
    for (uint32_t i = 1; i < 1000; i++) {
        seen |= 1ull << sequences_start(&s, i, &displaced);
        ck_assert(!displaced && (i == 1 || sequences_ended(&s, i - 1)));
        ck_assert(!sequences_ended(&s, i));
        sequences_end(&s, i);
    }
    ck_assert_int_eq(__builtin_popcountll(seen), 2);
}
END_TEST

/* An end is logged twice if compute is killed in between: it runs again meanwhile. */
START_TEST(one_that_ended_is_started_again)
{
    bool displaced;
    memset(&s, 0, sizeof s);
    sequences_start(&s, 7, &displaced);
    sequences_end(&s, 7);
    ck_assert(sequences_ended(&s, 7));
    sequences_start(&s, 7, &displaced);
    ck_assert(!sequences_ended(&s, 7));
    sequences_end(&s, 7);
    ck_assert(sequences_ended(&s, 7));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sequences");
    TCase *c = tcase_create("sequences");
    tcase_add_loop_test(c, places_agree_with_a_list, 0, 4);
    tcase_add_test(c, one_after_another);
    tcase_add_test(c, one_that_ended_is_started_again);
    suite_add_tcase(suite, c);
    SRunner *sr = srunner_create(suite);
    srunner_run_all(sr, CK_NORMAL);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed == 0 ? 0 : 1;
}
