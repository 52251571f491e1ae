/* SPDX-License-Identifier: Apache-2.0 */
/* Expert replacement in chunks: plans, pairs and their order are those of single tokens. The choice
 * of the interval. */
#include <check.h>
#include <math.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/base/random.h"
#include "lib/policy/access/swap.h"
#include "lib/policy/access/swap_interval.h"

#define LAYERS  4u
#define EXPERTS 12u
#define KEEP    5u
#define CHUNK   256u

static struct swap *make_of(const uint32_t keep[LAYERS], uint32_t interval, bool amortise)
{
    struct swap_config c = {.layers = LAYERS,
                            .experts = EXPERTS,
                            .top_k = 2,
                            .keep = keep,
                            .interval = interval,
                            .margin = 0.5f,
                            .amortise = amortise};
    return swap_create(&c);
}

static struct swap *make(uint32_t interval, bool amortise)
{
    return make_of((const uint32_t[LAYERS]){KEEP, KEEP, KEEP, KEEP}, interval, amortise);
}

struct pairs {
    struct swap_pair pair[1024];
    uint32_t count;
};

static void drain(struct swap *s, struct pairs *to)
{
    while (swap_next(s, &to->pair[to->count])) {
        swap_done(s);
        ck_assert_uint_lt(++to->count, ARRAY_LEN(to->pair));
    }
}

static void choose_at_random(struct random *random, struct swap *a, struct swap *b)
{
    for (uint32_t i = 0; i < LAYERS * 40; i++) {
        uint32_t layer = (uint32_t)random_below(random, LAYERS);
        uint32_t expert = (uint32_t)random_below(random, EXPERTS);
        float value = (float)(1 + random_below(random, 64)) / 16;
        swap_choice(a, layer, expert, value);
        swap_choice(b, layer, expert, value);
    }
}

static const struct {
    uint32_t interval;
    bool amortise;
} cases[] = {{1, false}, {7, true}, {40, true}, {96, true}, {96, false}, {300, true}, {512, true}};

/* A call with 256 plans a layer of interval 96 two or three times; only the first plan has the
 * importance of the chunk, and the others must not cancel its pairs. */
START_TEST(chunks_swap_as_tokens)
{
    struct swap *whole = make(cases[_i].interval, cases[_i].amortise);
    struct swap *single = make(cases[_i].interval, cases[_i].amortise);
    struct pairs a = {.count = 0}, b = {.count = 0};
    struct random random;
    random_seed(&random, 3, (uint64_t)_i);
    for (uint32_t chunk = 0; chunk < 12; chunk++) {
        choose_at_random(&random, whole, single);
        swap_tokens(whole, CHUNK);
        drain(whole, &a);
        for (uint32_t t = 0; t < CHUNK; t++) {
            swap_tokens(single, 1);
            drain(single, &b);
        }
        for (uint32_t l = 0; l < LAYERS; l++)
            ck_assert_mem_eq(swap_serving(whole, l), swap_serving(single, l), EXPERTS);
    }
    ck_assert_uint_gt(b.count, 10);
    ck_assert_uint_eq(a.count, b.count);
    ck_assert_mem_eq(a.pair, b.pair, a.count * sizeof a.pair[0]);
    swap_destroy(whole);
    swap_destroy(single);
}
END_TEST

/* Importance that arrived before: the layer's pairs survive plans of an idle layer, in one call or
 * in later ones while the device is busy. */
START_TEST(nothing_new_keeps_the_pairs)
{
    struct swap *s = make(8, true);
    struct swap_pair pair;
    swap_choice(s, 1, 9, 4);
    for (int i = 0; i < (_i ? 10 : 1); i++) /* ten intervals */
        swap_tokens(s, _i ? 8 : 80);
    ck_assert(swap_next(s, &pair));
    ck_assert_uint_eq(pair.layer, 1);
    ck_assert_uint_eq(pair.in, 9);
    swap_done(s);
    ck_assert(!swap_next(s, &pair));
    swap_destroy(s);
}
END_TEST

/* The number of tokens without work is exact: not one token earlier, not one later. */
START_TEST(idle_tokens)
{
    struct swap *s = make(40, true);
    struct pairs got = {.count = 0};
    struct random random;
    random_seed(&random, 5, 0);
    struct swap *same = make(40, true);
    for (uint32_t n = 0; n < 60; n++) {
        choose_at_random(&random, s, same);
        uint64_t idle = swap_idle_tokens(s);
        ck_assert_uint_gt(idle, 0);
        for (uint64_t t = 1; t < idle; t++) {
            struct swap_pair none;
            swap_tokens(s, 1);
            ck_assert(!swap_next(s, &none));
            ck_assert_uint_eq(swap_idle_tokens(s), idle - t);
        }
        swap_tokens(s, 1);
        drain(s, &got);
    }
    ck_assert_uint_gt(got.count, 10);
    swap_destroy(s);
    swap_destroy(same);
}
END_TEST

START_TEST(rows_of_a_pass)
{
    static const struct {
        uint64_t interval;
        uint32_t rows;
    } t[] = {{1, 1}, {3, 1}, {8, 2}, {96, 32}, {1048576, 349525}, {UINT64_MAX, UINT32_MAX}};
    for (size_t i = 0; i < ARRAY_LEN(t); i++)
        ck_assert_uint_eq(swap_rows_max(t[i].interval), t[i].rows);
}
END_TEST

/* 411 us per token, 268 us per read: up to 0.0767 replacements per token cost at most 5 %. */
START_TEST(interval_until_latency_bends)
{
    struct swap_search s;
    swap_search_start(&s, 8, 411, 268);
    ck_assert_uint_eq(s.interval, 512);
    ck_assert(swap_search_measured(&s, 0.015, 9.5));
    ck_assert(swap_search_measured(&s, 0.032, 7.8));
    ck_assert(swap_search_measured(&s, 0.076, 6.9));
    ck_assert_uint_eq(s.interval, 64);
    ck_assert_double_eq_tol(swap_latency_increase(&s, 0.193), 0.126, 0.001);
    ck_assert(!swap_search_measured(&s, 0.193, 6.1)); /* less loss, but it bends */
    ck_assert_uint_eq(s.best, 128);
}
END_TEST

/* Without times only the loss decides, down to the minimum; a bend at once leaves the first. */
START_TEST(interval_of_the_smallest_loss)
{
    static const double loss[] = {4, 3, 1, 2, 2.5, 0.5};
    struct swap_search s;
    uint32_t n = 0;
    swap_search_start(&s, 16, NAN, 268);
    while (swap_search_measured(&s, 100, loss[n++]))
        ck_assert_uint_lt(n, ARRAY_LEN(loss));
    ck_assert_uint_eq(n, 6); /* 512 to 16 */
    ck_assert_uint_eq(s.best, 16);
    swap_search_start(&s, 32, 0, 0);
    for (n = 0; swap_search_measured(&s, 100, loss[n]); n++)
        continue;
    ck_assert_uint_eq(s.best, 128);
    swap_search_start(&s, 32, 1, 1);
    ck_assert(!swap_search_measured(&s, 1, 3));
    ck_assert_uint_eq(s.best, 512);
}
END_TEST

/* Layers without experts are passed over wherever they are: the others are updated in turn. */
START_TEST(any_layers_have_experts)
{
    struct swap *s = make_of((const uint32_t[LAYERS]){0, KEEP, 0, KEEP}, 2, true);
    struct swap_pair pair;
    uint32_t seen[LAYERS] = {0};
    ck_assert_ptr_nonnull(s);
    for (uint32_t token = 0; token < 8; token++) {
        for (uint32_t e = 0; e < EXPERTS; e++) {
            float importance = (float)((e + token) % EXPERTS);
            swap_choice(s, 1, e, importance);
            swap_choice(s, 3, e, importance);
        }
        swap_tokens(s, 1);
        for (; swap_next(s, &pair); swap_done(s))
            seen[pair.layer]++;
    }
    ck_assert(seen[0] == 0 && seen[1] > 0 && seen[2] == 0 && seen[3] > 0);
    swap_destroy(s);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("swap");
    TCase *c = tcase_create("swap");
    tcase_add_loop_test(c, chunks_swap_as_tokens, 0, (int)ARRAY_LEN(cases));
    tcase_add_loop_test(c, nothing_new_keeps_the_pairs, 0, 2);
    tcase_add_test(c, idle_tokens);
    tcase_add_test(c, any_layers_have_experts);
    tcase_add_test(c, rows_of_a_pass);
    tcase_add_test(c, interval_until_latency_bends);
    tcase_add_test(c, interval_of_the_smallest_loss);
    suite_add_tcase(s, c);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_NORMAL);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed == 0 ? 0 : 1;
}
