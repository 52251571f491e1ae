/* SPDX-License-Identifier: Apache-2.0 */
/* The sampler against a simple implementation that sorts everything, and its guarantees. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/sampling/sampler.h"

#define VOCAB 300
#define WIDE  1100 /* several blocks */

static struct sampler *sampler;
static float logits[VOCAB];

static void setup(void)
{
    struct error error;
    sampler = sampler_create(VOCAB, &error);
    ck_assert_ptr_nonnull(sampler);
    uint64_t x = 12345;
    for (int i = 0; i < VOCAB; i++) {
        x = x * 6364136223846793005ull + 1442695040888963407ull;
        logits[i] = (float)((double)(x >> 40) / (1 << 24) * 12.0 - 6.0);
    }
}

static void teardown(void)
{
    sampler_destroy(sampler);
}

static const struct sampler_settings plain = {
    .temperature = 1, .top_p = 1, .min_p = 0, .repeat_penalty = 1, .top_k = 0, .seed = 7};

static uint32_t choose(const struct sampler_settings *s, uint32_t position)
{
    return sampler_choose(sampler, s,
                          &(struct sampler_choice){.logits = logits, .position = position});
}

static uint32_t choose_of(const struct sampler_settings *s, const float *of, const uint32_t *recent,
                          size_t recent_count, uint32_t position)
{
    return sampler_choose(
        sampler, s,
        &(struct sampler_choice){
            .logits = of, .recent = recent, .recent_count = recent_count, .position = position});
}

/* ---- the simple implementation ---- */

struct candidate {
    double logit;
    uint32_t id;
};

static int descending(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    if (x->logit != y->logit)
        return x->logit > y->logit ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

static uint32_t obvious(const struct sampler_settings *s, uint32_t position)
{
    static struct candidate c[VOCAB];
    size_t n = VOCAB, kept;
    double total = 0, sum = 0;
    for (uint32_t i = 0; i < VOCAB; i++)
        c[i] = (struct candidate){(double)logits[i], i};
    qsort(c, n, sizeof *c, descending);
    n = s->top_k && s->top_k < n ? s->top_k : n;
    for (size_t i = 0; i < n; i++)
        total += exp(c[i].logit - c[0].logit);
    for (kept = 0; kept < n; kept++) {
        double weight = exp(c[kept].logit - c[0].logit);
        if (kept > 0 && ((s->top_p < 1 && sum >= s->top_p * total) || weight < s->min_p))
            break;
        sum += weight;
    }
    total = 0;
    for (size_t i = 0; i < kept; i++)
        total += exp((c[i].logit - c[0].logit) / s->temperature);
    double left = sampler_random(s->seed, position) * total;
    for (size_t i = 0; i + 1 < kept; i++)
        if ((left -= exp((c[i].logit - c[0].logit) / s->temperature)) < 0)
            return c[i].id;
    return c[kept - 1].id;
}

START_TEST(same_as_obvious)
{
    static const uint32_t ks[] = {0, 1, 2, 40, VOCAB - 1, VOCAB, VOCAB + 5};
    static const double ps[] = {1, 0.95, 0.3, 0}, ms[] = {0, 0.05, 1}, ts[] = {0.2, 1, 3};
    for (size_t k = 0; k < 7; k++)
        for (size_t p = 0; p < 4; p++)
            for (size_t m = 0; m < 3; m++)
                for (size_t t = 0; t < 3; t++)
                    for (uint32_t position = 0; position < 20; position++) {
                        struct sampler_settings s = plain;
                        s.top_k = ks[k];
                        s.top_p = ps[p];
                        s.min_p = ms[m];
                        s.temperature = ts[t];
                        ck_assert_uint_eq(choose(&s, position), obvious(&s, position));
                    }
}
END_TEST

START_TEST(greedy_takes_the_lower_of_equals)
{
    struct sampler_settings s = plain;
    s.temperature = 0;
    logits[17] = logits[200] = 50;
    ck_assert_uint_eq(choose(&s, 3), 17);
    logits[5] = NAN;
    ck_assert_uint_eq(choose(&s, 3), 17);
    logits[16] = INFINITY;
    ck_assert_uint_eq(choose(&s, 3), 16);
}
END_TEST

/* Without a mask, tokens are compared by blocks. */
START_TEST(same_with_a_mask_of_all)
{
    struct sampler_settings s = plain;
    struct error error;
    struct sampler *wide = sampler_create(WIDE, &error);
    static float of[WIDE];
    uint64_t all[WIDE / 64 + 1], x = 99;
    ck_assert_ptr_nonnull(wide);
    memset(all, 0xff, sizeof all);
    for (uint32_t turn = 0; turn < 3000; turn++) {
        uint32_t kinds = 1 + turn % 9;
        for (int i = 0; i < WIDE; i++) {
            static const float some[] = {-INFINITY, NAN, -0.0f, 0.0f, -3, INFINITY, 1, 2, 1e-40f};
            x = x * 6364136223846793005ull + 1442695040888963407ull;
            of[i] = (x >> 60) == 0 ? some[(x >> 40) % kinds] : some[turn / 4 % 2];
        }
        struct sampler_choice choice = {.logits = of, .position = turn};
        s.temperature = turn % 4;
        s.top_k = 1 + turn % 7;
        uint32_t chosen = sampler_choose(wide, &s, &choice);
        choice.mask = all;
        ck_assert_uint_eq(chosen, sampler_choose(wide, &s, &choice));
    }
    sampler_destroy(wide);
}
END_TEST

START_TEST(damaged_logits_choose_some_token)
{
    struct sampler_settings s = plain;
    for (int i = 0; i < VOCAB; i++)
        logits[i] = NAN;
    ck_assert_uint_lt(choose(&s, 0), VOCAB);
    s.temperature = 0;
    ck_assert_uint_lt(choose(&s, 0), VOCAB);
    logits[9] = INFINITY;
    s.temperature = 1;
    ck_assert_uint_eq(choose(&s, 0), 9);
}
END_TEST

START_TEST(penalty_divides_and_multiplies_once)
{
    struct sampler_settings s = plain;
    const uint32_t recent[] = {10, 10, 10, VOCAB + 3, UINT32_MAX};
    s.temperature = 0;
    s.repeat_penalty = 2;
    logits[10] = 40;
    logits[20] = 21;
    logits[30] = 19;
    ck_assert_uint_eq(choose_of(&s, logits, recent, 5, 0), 20); /* 40 / 2 = 20 */
    ck_assert_uint_eq(choose_of(&s, logits, NULL, 0, 0), 10);   /* no penalty */
    for (int i = 0; i < VOCAB; i++)
        logits[i] = -30;
    logits[10] = -9;
    logits[20] = -19;
    ck_assert_uint_eq(choose_of(&s, logits, recent, 5, 0), 10); /* -9 * 2 = -18 */
    logits[20] = -17;
    ck_assert_uint_eq(choose_of(&s, logits, recent, 5, 0), 20);
    ck_assert_float_eq(logits[10], -9); /* the caller's logits are unchanged */
}
END_TEST

START_TEST(random_depends_on_seed_and_position_alone)
{
    double first = sampler_random(1, 100), sum = 0;
    ck_assert_double_eq(first, sampler_random(1, 100));
    ck_assert_double_ne(first, sampler_random(2, 100));
    ck_assert_double_ne(first, sampler_random(1, 101));
    for (uint32_t i = 0; i < 100000; i++) {
        double r = sampler_random(99, i);
        ck_assert(r >= 0 && r < 1);
        sum += r;
    }
    ck_assert_double_eq_tol(sum / 100000, 0.5, 0.01);
}
END_TEST

START_TEST(frequencies_are_the_probabilities)
{
    uint32_t counts[4] = {0};
    const double wanted[4] = {0.1, 0.2, 0.3, 0.4};
    for (int i = 0; i < VOCAB; i++)
        logits[i] = i < 4 ? (float)log(wanted[i]) : -INFINITY;
    for (uint32_t position = 0; position < 100000; position++) {
        uint32_t id = choose(&plain, position);
        ck_assert_uint_lt(id, 4);
        counts[id]++;
    }
    for (int i = 0; i < 4; i++)
        ck_assert_double_eq_tol(counts[i] / 1e5, wanted[i], 0.01);
}
END_TEST

/* Both penalties are those of the logits minus what the definition says. */
START_TEST(penalties_of_presence_and_frequency)
{
    static const uint32_t recent[] = {3, 5, 3, 3, 70, 5, VOCAB + 9};
    static const double values[][2] = {{0.5, 0}, {0, 0.7}, {1.5, 0.25}, {-1, -0.5}, {0, 0}};
    static float shifted[VOCAB];
    for (size_t v = 0; v < sizeof values / sizeof values[0]; v++) {
        struct sampler_settings with = plain, without = plain;
        with.presence_penalty = values[v][0];
        with.frequency_penalty = values[v][1];
        for (uint32_t i = 0; i < VOCAB; i++) {
            int times = (i == 3) * 3 + (i == 5) * 2 + (i == 70);
            double subtracted = times > 0 ? values[v][0] + times * values[v][1] : 0;
            shifted[i] = (float)((double)logits[i] - subtracted);
        }
        for (uint32_t at = 0; at < 2000; at++) {
            with.temperature = without.temperature = at % 4 == 0 ? 0 : 1.5;
            ck_assert_uint_eq(choose_of(&with, logits, recent, 7, at),
                              choose_of(&without, shifted, NULL, 0, at));
        }
    }
}
END_TEST

/* A mask is what -inf is for the other tokens. */
START_TEST(mask_leaves_the_allowed)
{
    static float without[VOCAB];
    static const uint32_t moduli[] = {1, 2, 7, 64, 150, VOCAB};
    static const uint32_t ks[] = {0, 1, 3, 40};
    for (size_t m = 0; m < sizeof moduli / sizeof *moduli; m++) {
        uint64_t mask[VOCAB / 64 + 1] = {0};
        for (uint32_t i = 0; i < VOCAB; i++) {
            bool in = i % moduli[m] == moduli[m] / 2;
            mask[i / 64] |= (uint64_t)in << (i % 64);
            without[i] = in ? logits[i] : -INFINITY;
        }
        for (uint32_t at = 0; at < 400; at++) {
            struct sampler_settings s = plain;
            s.temperature = at % 3;
            s.top_k = ks[at % 4];
            s.min_p = at % 5 == 0 ? 0.1 : 0;
            struct sampler_choice choice = {.logits = logits, .mask = mask, .position = at};
            ck_assert_uint_eq(sampler_choose(sampler, &s, &choice),
                              choose_of(&s, without, NULL, 0, at));
        }
    }
}
END_TEST

START_TEST(mask_holds_for_damaged_logits)
{
    uint64_t mask[VOCAB / 64 + 1] = {0};
    struct sampler_choice choice = {.logits = logits, .mask = mask};
    struct sampler_settings s = plain;
    ck_assert_uint_eq(sampler_choose(sampler, &s, &choice), SAMPLER_NONE);
    mask[VOCAB / 64] = 1ull << (VOCAB % 64); /* beyond the vocabulary */
    ck_assert_uint_eq(sampler_choose(sampler, &s, &choice), SAMPLER_NONE);
    mask[2] = 1ull << 13;
    for (int i = 0; i < VOCAB; i++)
        logits[i] = i % 2 ? NAN : -INFINITY;
    for (int t = 0; t < 2; t++) {
        s.temperature = t;
        ck_assert_uint_eq(sampler_choose(sampler, &s, &choice), 2 * 64 + 13);
    }
}
END_TEST

/* A suppressed token is chosen only if no other may be, whatever its bias. */
START_TEST(suppressed_tokens)
{
    static const uint32_t all[] = {3, 7, 299, VOCAB + 5};
    static const struct sampler_bias bias[] = {{7, 1000}, {8, 1}};
    struct sampler_settings settings = plain, greedy = plain;
    uint64_t mask[(VOCAB + 63) / 64] = {1ull << 3 | 1ull << 7 | 1ull << 9};
    struct sampler_choice c = {
        .logits = logits, .bias = bias, .bias_count = 2, .suppressed = all, .suppressed_count = 4};
    greedy.temperature = 0;
    settings.temperature = 100;
    for (uint32_t at = 0; at < 3000; at++) {
        c.position = at;
        uint32_t id = sampler_choose(sampler, &settings, &c);
        ck_assert(id < VOCAB && id != 3 && id != 7 && id != 299);
    }
    ck_assert_uint_ne(sampler_choose(sampler, &greedy, &c), 7);
    c.mask = mask;
    ck_assert_uint_eq(sampler_choose(sampler, &greedy, &c), 9);
    ck_assert_uint_eq(sampler_choose(sampler, &settings, &c), 9);
    mask[0] = 1ull << 7;
    ck_assert_uint_eq(sampler_choose(sampler, &greedy, &c), 7);
    ck_assert_uint_eq(sampler_choose(sampler, &settings, &c), 7);
    c.suppressed_count = 0; /* nothing is left of it */
    c.mask = NULL;
    ck_assert_uint_eq(sampler_choose(sampler, &greedy, &c), 7);
}
END_TEST

/* The last bias of a token is added before the penalties. */
START_TEST(biases_are_added)
{
    static const struct sampler_bias bias[] = {{5, 100},         {5, 2.5f}, {70, -100},
                                               {VOCAB + 9, 100}, {0, 1},    {299, 0.5f}};
    static const uint32_t recent[] = {5, 70};
    static float shifted[VOCAB];
    memcpy(shifted, logits, sizeof shifted);
    shifted[5] += 2.5f;
    shifted[70] -= 100;
    shifted[0] += 1;
    shifted[299] += 0.5f;
    for (uint32_t at = 0; at < 2000; at++) {
        struct sampler_settings s = plain;
        s.temperature = at % 4 == 0 ? 0 : 1.5;
        s.repeat_penalty = 1.5;
        struct sampler_choice choice = {.logits = logits,
                                        .recent = recent,
                                        .recent_count = 2,
                                        .bias = bias,
                                        .bias_count = 6,
                                        .position = at};
        ck_assert_uint_eq(sampler_choose(sampler, &s, &choice),
                          choose_of(&s, shifted, recent, 2, at));
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sampler");
    TCase *c = tcase_create("sampler");
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_test(c, same_as_obvious);
    tcase_add_test(c, greedy_takes_the_lower_of_equals);
    tcase_add_test(c, same_with_a_mask_of_all);
    tcase_add_test(c, damaged_logits_choose_some_token);
    tcase_add_test(c, penalty_divides_and_multiplies_once);
    tcase_add_test(c, random_depends_on_seed_and_position_alone);
    tcase_add_test(c, frequencies_are_the_probabilities);
    tcase_add_test(c, penalties_of_presence_and_frequency);
    tcase_add_test(c, mask_leaves_the_allowed);
    tcase_add_test(c, mask_holds_for_damaged_logits);
    tcase_add_test(c, biases_are_added);
    tcase_add_test(c, suppressed_tokens);
    suite_add_tcase(suite, c);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
