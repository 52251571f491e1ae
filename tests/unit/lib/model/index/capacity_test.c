/* SPDX-License-Identifier: Apache-2.0 */
/* Capacity in each of its units, compared with filling memory expert by expert. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/model/index/capacity.h"

#define EXPERTS 8u
#define USED    3u
#define ROUNDS  20000

static struct {
    struct model_index index;
    struct model_entry entry[1 + EXPERTS];
} m;

static uint64_t seed;

static uint64_t random_below(uint64_t n)
{
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    return (seed >> 24) % n;
}

/* One dense entry, and experts with these payloads, each in a slot of whole pages. */
static void make_model(const uint64_t payload[EXPERTS])
{
    memset(&m, 0, sizeof m);
    m.index.hparams = (struct model_hparams){.experts_used = USED};
    m.index.dense_count = 1;
    m.index.entry_count = 1 + EXPERTS;
    m.index.expert_entry_count = EXPERTS;
    m.index.entries_offset = (uint64_t)((char *)m.entry - (char *)&m);
    m.index.dense_bytes = 5 * PAGE_BYTES;
    m.entry[0].payload_bytes = 100 * PAGE_BYTES; /* counts nowhere */
    for (uint32_t i = 0; i < EXPERTS; i++) {
        struct model_entry *e = &m.entry[1 + i];
        e->payload_bytes = payload[i];
        e->slot_bytes = align_up(payload[i], PAGE_BYTES);
        m.index.expert_bytes += e->payload_bytes;
        m.index.expert_slot_bytes += e->slot_bytes;
        if (e->slot_bytes > m.index.expert_slot_bytes_max)
            m.index.expert_slot_bytes_max = e->slot_bytes;
    }
}

static void make_random_model(void)
{
    uint64_t payload[EXPERTS];
    for (uint32_t i = 0; i < EXPERTS; i++)
        payload[i] = 1 + random_below(4 * PAGE_BYTES);
    make_model(payload);
}

/* From nothing to more than all; every fourth time without a limit. */
static uint64_t random_limit(void)
{
    return random_below(4) == 0 ? UINT64_MAX : random_below(50 * PAGE_BYTES);
}

/* Experts of the largest size are put into memory as long as both limits allow. */
static uint32_t fill(uint64_t quota, uint64_t payload_max)
{
    uint64_t slot = 0, payload = 0, slots, payloads = 0;
    uint32_t n = 0;
    for (uint32_t i = 0; i < EXPERTS; i++) {
        slot = m.entry[1 + i].slot_bytes > slot ? m.entry[1 + i].slot_bytes : slot;
        payload = m.entry[1 + i].payload_bytes > payload ? m.entry[1 + i].payload_bytes : payload;
    }
    for (slots = m.index.dense_bytes; n < EXPERTS; n++) {
        slots += slot;
        payloads += payload;
        if (slots > quota || payloads > payload_max)
            break;
    }
    return n;
}

START_TEST(experts_are_counted_as_if_all_were_the_largest)
{
    for (int i = 0; i < ROUNDS; i++) {
        make_random_model();
        uint64_t quota = random_limit(), cap = random_limit();
        ck_assert_uint_eq(capacity_experts(&m.index, quota, cap), fill(quota, cap));
    }
}
END_TEST

START_TEST(experts_at_the_limits)
{
    make_model((const uint64_t[EXPERTS]){1000, 1000, 3000, 1000, 1000, 1000, 1000, 1000});
    uint64_t dense = m.index.dense_bytes;
    ck_assert_uint_eq(capacity_experts(&m.index, dense + 3 * PAGE_BYTES, UINT64_MAX), 3);
    ck_assert_uint_eq(capacity_experts(&m.index, dense + 3 * PAGE_BYTES - 1, UINT64_MAX), 2);
    ck_assert_uint_eq(capacity_experts(&m.index, UINT64_MAX, 6000), 2);
    ck_assert_uint_eq(capacity_experts(&m.index, UINT64_MAX, 5999), 1);
    ck_assert_uint_eq(capacity_experts(&m.index, UINT64_MAX, UINT64_MAX), EXPERTS);
    ck_assert_uint_eq(capacity_experts(&m.index, dense - 1, UINT64_MAX), 0);
}
END_TEST

/* Equal experts: n slots are n payloads, and what is between is between. Never more payload than
 * slots, and no limit is passed. */
START_TEST(bytes_of_equal_experts)
{
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t each = 1 + random_below(4 * PAGE_BYTES), payload[EXPERTS];
        for (uint32_t e = 0; e < EXPERTS; e++)
            payload[e] = each;
        make_model(payload);
        uint64_t slot = m.entry[1].slot_bytes, dense = m.index.dense_bytes;
        uint64_t n = random_below(EXPERTS), more = random_below(slot), cap = random_limit();
        uint64_t quota = dense + n * slot + more;
        uint64_t slots = capacity_slot_bytes(&m.index, quota, UINT64_MAX);
        uint64_t bytes = capacity_payload_bytes(&m.index, quota, UINT64_MAX);
        ck_assert_uint_eq(slots, n * slot + more);
        ck_assert_uint_ge(bytes + 1, n * each); /* a proportion in double may round down by one */
        ck_assert_uint_le(bytes, n * each + more);
        ck_assert_uint_eq(capacity_slot_bytes(&m.index, quota, cap), cap < slots ? cap : slots);
        ck_assert_uint_eq(capacity_payload_bytes(&m.index, quota, cap), cap < bytes ? cap : bytes);
    }
}
END_TEST

START_TEST(nothing_is_left_below_the_dense_entries)
{
    make_random_model();
    for (uint64_t quota = 0; quota <= m.index.dense_bytes; quota++) {
        ck_assert_uint_eq(capacity_slot_bytes(&m.index, quota, UINT64_MAX), 0);
        ck_assert_uint_eq(capacity_payload_bytes(&m.index, quota, UINT64_MAX), 0);
    }
}
END_TEST

/* The pages beyond it change nothing; those that it has are used, but for an expert. */
START_TEST(quota_that_is_used)
{
    for (int i = 0; i < ROUNDS; i++) {
        make_random_model();
        uint64_t quota = random_limit(), cap = random_limit();
        uint64_t used = capacity_quota_used(&m.index, quota, cap);
        uint64_t largest = m.index.expert_slot_bytes_max;
        ck_assert_uint_le(used, quota);
        ck_assert_uint_eq(capacity_payload_bytes(&m.index, used, cap),
                          capacity_payload_bytes(&m.index, quota, cap));
        if (cap >= m.index.expert_bytes)
            ck_assert_uint_eq(used, quota);
        else if (used > m.index.dense_bytes + largest)
            ck_assert_uint_le(capacity_payload_bytes(&m.index, used - largest, UINT64_MAX), cap);
    }
}
END_TEST

START_TEST(share_of_the_experts)
{
    uint64_t payload[EXPERTS];
    for (uint32_t e = 0; e < EXPERTS; e++)
        payload[e] = 104448;
    make_model(payload);
    for (uint32_t n = 1; n < EXPERTS; n++)
        ck_assert_uint_eq(capacity_payload_max(&m.index, 100.0 * n / EXPERTS), n * payload[0]);
    ck_assert_uint_eq(capacity_payload_max(&m.index, 100.0), UINT64_MAX);
    m.index.expert_bytes = UINT64_MAX / 4 / 2 * 2; /* of the largest models: no overflow */
    ck_assert_uint_eq(capacity_payload_max(&m.index, 50.0), UINT64_MAX / 4 / 2);
}
END_TEST

/* With the minimum of either kind, the experts of a token fit. With a byte less, they do not. */
START_TEST(minimum_is_what_a_token_needs)
{
    for (int i = 0; i < ROUNDS / 10; i++) {
        make_random_model();
        uint64_t quota = m.index.dense_bytes + capacity_slot_min(&m.index);
        uint64_t cap = capacity_payload_min(&m.index);
        ck_assert_uint_eq(fill(quota, UINT64_MAX), USED);
        ck_assert_uint_eq(fill(quota - 1, UINT64_MAX), USED - 1);
        ck_assert_uint_eq(fill(UINT64_MAX, cap), USED);
        ck_assert_uint_eq(fill(UINT64_MAX, cap - 1), USED - 1);
        ck_assert_uint_eq(capacity_largest_payload(&m.index), cap / USED);
    }
}
END_TEST

START_TEST(sequences_that_fit)
{
    ck_assert_uint_eq(capacity_sequences(100, 100, 10), 1);
    ck_assert_uint_eq(capacity_sequences(100, 129, 10), 3);
    ck_assert_uint_eq(capacity_sequences(100, 1000, 10), CAPACITY_SEQUENCES);
    ck_assert_uint_eq(capacity_sequences(100, 50, 10), 1);
    ck_assert_uint_eq(capacity_sequences(100, 100, 0), CAPACITY_SEQUENCES); /* no keys and values */
}
END_TEST

int main(void)
{
    Suite *s = suite_create("capacity");
    TCase *c = tcase_create("capacity");
    tcase_add_test(c, experts_are_counted_as_if_all_were_the_largest);
    tcase_add_test(c, experts_at_the_limits);
    tcase_add_test(c, sequences_that_fit);
    tcase_add_test(c, bytes_of_equal_experts);
    tcase_add_test(c, nothing_is_left_below_the_dense_entries);
    tcase_add_test(c, quota_that_is_used);
    tcase_add_test(c, share_of_the_experts);
    tcase_add_test(c, minimum_is_what_a_token_needs);
    suite_add_tcase(s, c);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}
