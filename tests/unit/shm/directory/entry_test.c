/* SPDX-License-Identifier: Apache-2.0 */
/* Every transition of the entry word: the resulting word where it is legal; no change where it is
 * not. */
#include <stdio.h>
#include <unistd.h>

#include "shm/directory/entry.h"
#include "tests/unit/shm/shm_test.h"

static uint64_t make(enum entry_state state, uint32_t pins, uint32_t pending, uint64_t generation)
{
    return (uint64_t)state | (uint64_t)pins << ENTRY_STATE_BITS |
           (uint64_t)pending << (ENTRY_STATE_BITS + ENTRY_PIN_BITS) |
           generation << (64 - ENTRY_GENERATION_BITS);
}

#define GENERATION_MAX ((UINT64_C(1) << ENTRY_GENERATION_BITS) - 1)

static const enum entry_state states[] = {ENTRY_ABSENT, ENTRY_LOADING, ENTRY_READY, ENTRY_DOOMED};

START_TEST(fields)
{
    uint64_t word = make(ENTRY_DOOMED, 0x2a, 0x8001, 0x123456789a);
    ck_assert_int_eq(entry_state_of(word), ENTRY_DOOMED);
    ck_assert_uint_eq(entry_pins_of(word), 0x2a);
    ck_assert_uint_eq(entry_pending_of(word), 0x8001);
    ck_assert_uint_eq(entry_generation_of(word), 0x123456789a);
}
END_TEST

START_TEST(reserve)
{
    for (int i = 0; i < 4; i++) {
        uint64_t generation = 99, before = make(states[i], 5, 0, 7);
        entry_word word = before;
        bool legal = states[i] == ENTRY_ABSENT;
        ck_assert_int_eq(entry_reserve(&word, 0x8003, &generation), legal);
        ck_assert_uint_eq(word, legal ? make(ENTRY_LOADING, 5, 0x8003, 7) : before);
        ck_assert_uint_eq(generation, legal ? 7 : 99);
    }
}
END_TEST

START_TEST(shard_done)
{
    for (int i = 0; i < 4; i++)
        for (uint32_t pending = 0; pending < 4; pending++)
            for (uint64_t generation = 6; generation < 9; generation++) {
                uint64_t before = make(states[i], 1, pending, 7);
                entry_word word = before;
                enum shard_result result = entry_shard_done(&word, generation, 1);
                bool expected = (states[i] == ENTRY_LOADING || states[i] == ENTRY_DOOMED) &&
                                generation == 7 && (pending & 2);
                if (!expected) {
                    ck_assert_int_eq(result, SHARD_STALE);
                    ck_assert_uint_eq(word, before);
                } else if (states[i] == ENTRY_DOOMED) {
                    ck_assert_int_eq(result, SHARD_DOOMED); /* never revived */
                    ck_assert_uint_eq(word, make(ENTRY_DOOMED, 1, pending & 1, 7));
                } else if (pending & 1) {
                    ck_assert_int_eq(result, SHARD_CLEARED);
                    ck_assert_uint_eq(word, make(ENTRY_LOADING, 1, 1, 7));
                } else {
                    ck_assert_int_eq(result, SHARD_READY);
                    ck_assert_uint_eq(word, make(ENTRY_READY, 1, 0, 7));
                }
            }
}
END_TEST

START_TEST(shard_fail)
{
    for (int i = 0; i < 4; i++)
        for (uint32_t pending = 0; pending < 4; pending++)
            for (uint64_t generation = 6; generation < 9; generation++) {
                uint64_t before = make(states[i], 3, pending, 7);
                entry_word word = before;
                enum shard_result result = entry_shard_fail(&word, generation, 0);
                bool expected = (states[i] == ENTRY_LOADING || states[i] == ENTRY_DOOMED) &&
                                generation == 7 && (pending & 1);
                ck_assert_int_eq(result, expected ? SHARD_DOOMED : SHARD_STALE);
                ck_assert_uint_eq(word, expected ? make(ENTRY_DOOMED, 3, pending & 2, 7) : before);
            }
}
END_TEST

START_TEST(wanted_and_pending_shards)
{
    for (int i = 0; i < 4; i++)
        for (uint32_t pending = 0; pending < 4; pending++)
            for (uint64_t generation = 6; generation < 9; generation++) {
                uint64_t word = make(states[i], 0, pending, 7);
                bool mine = generation == 7 && (pending & 2);
                ck_assert_int_eq(entry_wants_shard(word, generation, 1),
                                 mine && states[i] == ENTRY_LOADING);
                ck_assert_int_eq(entry_shard_pending(word, generation, 1),
                                 mine && (states[i] == ENTRY_LOADING || states[i] == ENTRY_DOOMED));
            }
}
END_TEST

START_TEST(doom)
{
    for (int i = 0; i < 4; i++)
        for (uint64_t generation = 6; generation < 9; generation++) {
            uint64_t before = make(states[i], 1, 0x0f, 7);
            entry_word word = before;
            bool legal =
                (states[i] == ENTRY_LOADING || states[i] == ENTRY_DOOMED) && generation == 7;
            ck_assert_int_eq(entry_doom(&word, generation, 0x05), legal);
            ck_assert_uint_eq(word, legal ? make(ENTRY_DOOMED, 1, 0x0a, 7) : before);
        }
}
END_TEST

START_TEST(reset)
{
    for (int i = 0; i < 4; i++)
        for (uint32_t pending = 0; pending < 2; pending++) {
            uint64_t before = make(states[i], 4, pending, 7);
            entry_word word = before;
            bool legal = states[i] == ENTRY_DOOMED && pending == 0;
            ck_assert_int_eq(entry_reset(&word), legal);
            ck_assert_uint_eq(word, legal ? make(ENTRY_ABSENT, 4, 0, 8) : before); /* pins stay */
        }
}
END_TEST

START_TEST(evict)
{
    for (int i = 0; i < 4; i++)
        for (uint32_t pins = 0; pins < 1u << ENTRY_PIN_BITS; pins++) {
            uint64_t before = make(states[i], pins, 0, 7);
            entry_word word = before;
            bool legal = states[i] == ENTRY_READY && pins == 0;
            ck_assert_int_eq(entry_evict(&word), legal);
            ck_assert_uint_eq(word, legal ? make(ENTRY_ABSENT, 0, 0, 8) : before);
        }
}
END_TEST

START_TEST(generation_wraps)
{
    entry_word word = make(ENTRY_READY, 0, 0, GENERATION_MAX);
    ck_assert(entry_evict(&word));
    ck_assert_uint_eq(word, make(ENTRY_ABSENT, 0, 0, 0)); /* no overflow into other fields */
}
END_TEST

START_TEST(pins)
{
    for (int i = 0; i < 4; i++) {
        entry_word word = make(states[i], 0, 3, 7);
        uint64_t seen = entry_pin(&word, PINNER_COMPUTE);
        ck_assert_uint_eq(seen, make(states[i], 1, 3, 7));
        ck_assert_uint_eq(entry_pin(&word, PINNER_COMPUTE), seen); /* idempotent */
        ck_assert_uint_eq(entry_pin(&word, PINNER_KEEP), make(states[i], 5, 3, 7));
        ck_assert_uint_eq(entry_unpin(&word, PINNER_PREDICTOR), make(states[i], 5, 3, 7));
        ck_assert_uint_eq(entry_unpin(&word, PINNER_COMPUTE), make(states[i], 4, 3, 7));
        entry_pin(&word, PINNER_PREDICTOR);
        entry_sweep(&word, PINNER_PREDICTOR);
        entry_sweep(&word, PINNER_PREDICTOR);
        ck_assert_uint_eq(entry_read(&word), make(states[i], 4, 3, 7));
    }
}
END_TEST

START_TEST(keep_is_never_swept)
{
    entry_word word = make(ENTRY_READY, 4, 0, 7);
    entry_sweep(&word, PINNER_KEEP); /* an assertion */
}
END_TEST

START_TEST(loader_out_of_range)
{
    entry_word word = make(ENTRY_LOADING, 0, 1, 7);
    entry_shard_done(&word, 7, ENTRY_PENDING_BITS); /* an assertion */
}
END_TEST

START_TEST(reserve_for_nobody)
{
    uint64_t generation;
    entry_word word = 0;
    entry_reserve(&word, 0, &generation); /* an assertion */
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("entry");
    TCase *t = tcase_create("word");
    tcase_add_test(t, fields);
    tcase_add_test(t, reserve);
    tcase_add_test(t, shard_done);
    tcase_add_test(t, shard_fail);
    tcase_add_test(t, wanted_and_pending_shards);
    tcase_add_test(t, doom);
    tcase_add_test(t, reset);
    tcase_add_test(t, evict);
    tcase_add_test(t, generation_wraps);
    tcase_add_test(t, pins);
    tcase_add_test_raise_signal(t, keep_is_never_swept, 6);
    tcase_add_test_raise_signal(t, loader_out_of_range, 6);
    tcase_add_test_raise_signal(t, reserve_for_nobody, 6);
    suite_add_tcase(suite, t);
    return test_run(suite);
}
