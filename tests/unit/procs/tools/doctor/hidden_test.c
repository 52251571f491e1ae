/* SPDX-License-Identifier: Apache-2.0 */
/* The keys that doctor hides from an indexer: what is left of them, and nothing behind them. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "procs/tools/doctor/forward/hidden.h"

#define GUARD 4096 /* bytes behind the keys */
#define SIZE  8
#define LAYER 3

static const struct {
    struct model_hparams h;
    uint32_t positions, keys, block; /* of so many keys each */
    enum kv_type type;
} cases[] = {
    {{.index_heads = 1, .index_size = SIZE, .index_top_k = 2048}, 8191, 8191, 1, KV_TYPE_F16},
    {{.index_heads = 1, .index_size = SIZE, .index_top_k = 2048}, 8192, 8192, 1, KV_TYPE_F32},
    {{.index_heads = 1, .index_size = SIZE, .index_top_k = 512, .index_block = 4, .index_tail = 3},
     32768,
     8192,
     1,
     KV_TYPE_F16},
    {{.index_heads = 1, .index_size = SIZE, .index_top_k = 512, .index_block = 4, .index_tail = 3},
     2055,
     513,
     1,
     KV_TYPE_Q8_0},
    {{.index_heads = 1,
      .index_size = SIZE,
      .index_top_k = 16,
      .index_block = 128,
      .index_local = 1},
     8200,
     8200,
     128,
     KV_TYPE_F16},
};

/* Whether a key is hidden, which has infinite elements only; else it has zeros only. */
static bool hidden(const uint8_t *key, bool half)
{
    uint32_t infinite = 0, zeros = 0;
    for (uint32_t i = 0; i < SIZE; i++) {
        uint16_t narrow = 0;
        float whole = 0;
        if (half)
            memcpy(&narrow, key + i * sizeof narrow, sizeof narrow);
        else
            memcpy(&whole, key + i * sizeof whole, sizeof whole);
        infinite += half ? narrow == 0x7c00 : isinf(whole) && whole > 0;
        zeros += half ? narrow == 0 : whole == 0;
    }
    ck_assert(infinite == SIZE || zeros == SIZE);
    return infinite == SIZE;
}

START_TEST(as_many_are_left_as_are_chosen)
{
    const struct model_hparams *h = &cases[_i].h;
    const bool half = cases[_i].type != KV_TYPE_F32;
    const size_t key = SIZE * (half ? 2 : 4), bytes = cases[_i].keys * key;
    const uint32_t keys = cases[_i].keys, third = keys / 3;
    uint8_t *at = calloc(1, bytes + GUARD);
    uint32_t left = 0, thirds[4] = {0};
    ck_assert_ptr_nonnull(at);
    memset(at + bytes, 0x5a, GUARD);
    hidden_keys(h, cases[_i].type, cases[_i].positions, LAYER, at);
    for (uint32_t i = 0; i < keys; i++) {
        if (hidden(at + i * key, half))
            continue;
        ck_assert_uint_eq(i % cases[_i].block, 0);
        thirds[i / third]++;
        left++;
    }
    ck_assert_uint_eq(left, h->index_top_k);
    for (uint32_t i = 0; i < 3; i++)
        ck_assert_uint_ge(thirds[i], h->index_top_k / 4);
    for (uint32_t i = 0; i < GUARD; i++)
        ck_assert_uint_eq(at[bytes + i], 0x5a);
    free(at);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("doctor hidden");
    TCase *c = tcase_create("hidden");
    tcase_add_loop_test(c, as_many_are_left_as_are_chosen, 0, sizeof cases / sizeof cases[0]);
    suite_add_tcase(s, c);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_NORMAL);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed == 0 ? 0 : 1;
}
