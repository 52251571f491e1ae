/* SPDX-License-Identifier: Apache-2.0 */
/* Presets, policy parameters, and the replacement of virtual experts. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/policy/access/swap.h"
#include "lib/policy/presets/loss.h"
#include "lib/policy/presets/presets.h"
#include "lib/tensor/precision.h"

/* ---- policy parameters ---- */

START_TEST(every_preset_resolves)
{
    struct knobs k;
    struct error error;
    const struct preset *s = preset_at((uint32_t)_i);
    ck_assert_int_eq(knobs_resolve(s->name, NULL, NULL, &k, &error), 0);
    ck_assert_uint_eq(k.preset, (uint32_t)_i);
    ck_assert_uint_eq(preset_find(s->name), (uint32_t)_i);
    ck_assert_ptr_nonnull(strstr(preset_names(), s->name));

    /* Written out and read back, the parameters are the same. */
    char text[2048];
    struct knobs back;
    knobs_text(&k, text, sizeof text);
    ck_assert_int_eq(knobs_resolve(s->name, NULL, text, &back, &error), 0);
    char again[2048];
    ck_assert_str_eq(knobs_text(&back, again, sizeof again), text);

    /* A residency can be created from them. */
    static const uint64_t bytes[PRECISION__COUNT] = {800, 400, 200, 100};
    struct precision_policy p;
    ck_assert_int_eq(knobs_precision_policy(&k, 0xf, bytes, &p, &error), 0);
    struct residency_config c = {.layers = 4,
                                 .experts = 8,
                                 .top_k = 2,
                                 .precisions = 4,
                                 .precision_bytes = {800, 400, 200, 100}};
    knobs_residency(&k, &p, 0xf, &c);
    struct residency *r = residency_create(&c);
    ck_assert_ptr_nonnull(r);
    residency_destroy(r);
}
END_TEST

/* What is said about prefetch, and about others' parts, is what the settings say. */
START_TEST(descriptions_are_true)
{
    struct knobs k, other;
    struct error error;
    const struct preset *s = preset_at((uint32_t)_i);
    const char *doc = s->doc;
    bool as_auto = strncmp(doc, "auto with", 9) == 0;
    bool beneficial = strstr(doc, "prefetch only while it reduces token time");
    bool idle = strstr(doc, "prefetch whenever storage is idle");
    bool none = strstr(doc, "no prefetch") || strstr(doc, "without prefetch");
    ck_assert_int_eq(knobs_resolve(s->name, NULL, NULL, &k, &error), 0);
    ck_assert_int_eq(knobs_resolve("default", NULL, NULL, &other, &error), 0);
    ck_assert_msg(!beneficial || k.prefetch == PREFETCH_AUTO, "%s", doc);
    ck_assert_msg(!idle || k.prefetch == PREFETCH_IDLE, "%s", doc);
    ck_assert_msg(!none || k.prefetch == PREFETCH_NONE, "%s", doc);
    ck_assert_msg(!strstr(doc, "the default's eviction") || k.eviction == other.eviction, "%s",
                  doc);
    if (strncmp(s->name, "auto", 4) == 0 || strcmp(s->name, "default") == 0)
        ck_assert_msg(beneficial || idle || none || (as_auto && k.prefetch == PREFETCH_AUTO),
                      "%s: '%s' does not say when it prefetches", s->name, doc);
}
END_TEST

START_TEST(presets_overrides_and_plans)
{
    struct knobs k;
    struct error error;
    ck_assert_int_eq(knobs_resolve("hobbit", "t1=0.5,t2=0.8", " t2=0.7 , eviction=lru", &k, &error),
                     0);
    ck_assert_str_eq(knobs_choice(&k, "eviction"), "lru");
    ck_assert_int_eq(k.allocation, ALLOCATE_PRECISIONS);
    ck_assert_double_eq(k.t1, 0.5);
    ck_assert_double_eq(k.t2, 0.7);
    ck_assert_double_eq_tol(k.w_lru + k.w_lfu + k.w_lhu + k.w_fld, 1, 1e-12);
    ck_assert(knobs_lossy(&k));
    ck_assert(!knobs_need_plan(&k));
    ck_assert_int_eq(knobs_resolve("edgemoe", NULL, NULL, &k, &error), 0);
    ck_assert(knobs_need_plan(&k) && knobs_lossy(&k));
    ck_assert_int_eq(knobs_resolve("default", NULL, "", &k, &error), 0);
    ck_assert(!knobs_need_plan(&k) && !knobs_lossy(&k));
    ck_assert_int_eq(knobs_resolve("hobbit", NULL, "w_lru=1,w_lfu=1,w_lhu=0,w_fld=0", &k, &error),
                     0);
    ck_assert_double_eq(k.w_lru, 0.5);
}
END_TEST

static const struct {
    const char *preset, *overrides, *message;
} rejected[] = {
    {"best", NULL, "unknown preset 'best'; expected one of default|"},
    {"lod", "eviction=belady", "eviction: 'belady' is not one of fifo|"},
    {"lod", "eviction=l", "eviction: 'l'"},
    {"lod", "eviction=lru|lfu", "eviction"},
    {"lod", "eviction=", "eviction"},
    {"lod", "colour=red", "unknown policy parameter 'colour'"},
    {"lod", "t1=2", "t1: '2' is not a number from 0 to 1"},
    {"lod", "t1=nan", "t1"},
    {"lod", "lookahead=-1", "lookahead: '-1' is not a whole number"},
    {"lod", "lookahead=5", "lookahead"},
    {"lod", "fld_next=yes", "fld_next: 'yes' is not one of on|off"},
    {"lod", "eviction", "'eviction' is not name=value"},
    {"mixed-two", "allocation=precisions", "each expert has its own two"},
    {"hobbit", "t1=0.95", "t1 = 0.95 is above t2 = 0.9"},
    {"hobbit", "w_lru=0,w_lfu=0,w_lhu=0,w_fld=0", "all 0"},
    {"lod", "routing=masked", "routing=masked does not go with mask=none"},
    {"swapmoe", "routing=resident-first", "resident-first does not go with mask=swap: within a"},
    {"lod-nocache", "routing=resident-first", "does not go with allocation=transient: no expert"},
    {"lod", "routing=resident-first,exact_ranks=0", "exact_ranks: '0' is not a whole number"},
    {"lod", "routing=resident-first,nats=-1", "nats: '-1' is not a number from 0 to 100"},
    {"lod",
     "eviction=aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
     "aaaaaaaaaaaaaaaaaaaaaaaaaa",
     "too long"},
};

START_TEST(bad_knobs_are_rejected)
{
    struct knobs k;
    struct error error;
    ck_assert_int_eq(knobs_resolve(rejected[_i].preset, NULL, rejected[_i].overrides, &k, &error),
                     -1);
    ck_assert_int_eq(error.code, ERR_BAD_INPUT);
    ck_assert_msg(strstr(error.text, rejected[_i].message) != NULL, "%s", error.text);
}
END_TEST

START_TEST(a_bad_list_changes_nothing)
{
    struct knobs k, before;
    struct error error;
    ck_assert_int_eq(knobs_resolve("lod", NULL, NULL, &k, &error), 0);
    before = k;
    ck_assert_int_eq(knobs_apply(&k, "eviction=arc,t1=7", &error), -1);
    ck_assert_mem_eq(&k, &before, sizeof k);
}
END_TEST

START_TEST(precisions_are_found)
{
    struct knobs k;
    struct error error;
    struct precision_policy p;
    ck_assert_int_eq(knobs_resolve("hobbit", NULL, NULL, &k, &error), 0);
    /* f16: a quarter is int4. */
    ck_assert_int_eq(
        knobs_precision_policy(&k, 0xf, (const uint64_t[]){1600, 800, 400, 200}, &p, &error), 0);
    ck_assert_int_eq(p.high, PRECISION_NATIVE);
    ck_assert_int_eq(p.low, PRECISION_INT4);
    /* q8_0: a quarter is int2. */
    ck_assert_int_eq(
        knobs_precision_policy(&k, 0xf, (const uint64_t[]){850, 800, 420, 210}, &p, &error), 0);
    ck_assert_int_eq(p.low, PRECISION_INT2);
    /* A store without the native precision. */
    ck_assert_int_eq(
        knobs_precision_policy(&k, 0xa, (const uint64_t[]){0, 800, 0, 210}, &p, &error), 0);
    ck_assert_int_eq(p.high, PRECISION_INT8);
    ck_assert_int_eq(p.low, PRECISION_INT2);
    ck_assert_int_eq(knobs_precision_policy(&k, 1, (const uint64_t[]){800, 0, 0, 0}, &p, &error),
                     -1);
    ck_assert_ptr_nonnull(strstr(error.text, "two precisions"));
    ck_assert_int_eq(knobs_resolve("fate", NULL, NULL, &k, &error), 0);
    ck_assert_int_eq(knobs_precision_policy(&k, 0x7, (const uint64_t[]){8, 4, 2, 0}, &p, &error),
                     -1);
    ck_assert_ptr_nonnull(strstr(error.text, "int2"));
    ck_assert_int_eq(knobs_resolve("fate", NULL, "high=int2,low=int4", &k, &error), 0);
    ck_assert_int_eq(knobs_precision_policy(&k, 0xf, (const uint64_t[]){8, 4, 2, 1}, &p, &error),
                     -1);
    /* Shares are counted in the requested precision. */
    struct residency_config c = {0};
    ck_assert_int_eq(knobs_resolve("fate", NULL, NULL, &k, &error), 0);
    ck_assert_int_eq(knobs_precision_policy(&k, 0xd, (const uint64_t[]){8, 0, 2, 1}, &p, &error),
                     0);
    knobs_residency(&k, &p, 0xd, &c);
    ck_assert_uint_eq(c.high_precision, 1);
    ck_assert_uint_eq(c.low_precision, 2);
}
END_TEST

/* ---- expert replacement ---- */

#define LAYERS  4u
#define EXPERTS 12u
#define KEEP    5u

static struct swap *make_swap(uint32_t interval, bool amortise, const float *norm)
{
    static const uint32_t keep[LAYERS] = {KEEP, KEEP, KEEP, KEEP};
    struct swap_config c = {.layers = LAYERS,
                            .experts = EXPERTS,
                            .top_k = 2,
                            .keep = keep,
                            .norm = norm,
                            .interval = interval,
                            .amortise = amortise};
    return swap_create(&c);
}

static uint32_t serving(const struct swap *s, uint32_t layer)
{
    uint32_t n = 0;
    for (uint32_t e = 0; e < EXPERTS; e++)
        n += swap_serving(s, layer)[e] != 0;
    return n;
}

/* After the pairs of a plan, the set has the KEEP experts that are most important in the window.
 * Oracle: sorting. */
START_TEST(sets_follow_importance)
{
    float norm[LAYERS * EXPERTS];
    uint64_t seed = 17;
    for (uint32_t i = 0; i < LAYERS * EXPERTS; i++)
        norm[i] = 1 + (float)(i * 7 % 5);
    struct swap *s = make_swap(8, false, norm);
    double sum[LAYERS][EXPERTS] = {{0}};
    for (uint32_t token = 1; token <= 400; token++) {
        for (uint32_t l = 0; l < LAYERS; l++)
            for (uint32_t i = 0; i < 2; i++) {
                seed = seed * 6364136223846793005ull + 1442695040888963407ull;
                uint32_t e = (uint32_t)((seed >> 33) % EXPERTS);
                float value = (float)((seed >> 40) % 64) / 16;
                swap_choice(s, l, e, value);
                sum[l][e] += (double)(value * norm[l * EXPERTS + e]);
            }
        struct swap_pair pair;
        ck_assert(!swap_next(s, &pair)); /* no pair is due between plans */
        swap_tokens(s, 1);
        if (token % 8 != 0)
            continue;
        while (swap_next(s, &pair)) {
            ck_assert(!swap_serving(s, pair.layer)[pair.in]);
            ck_assert(swap_serving(s, pair.layer)[pair.out]);
            ck_assert(sum[pair.layer][pair.in] > sum[pair.layer][pair.out]);
            struct swap_pair none;
            ck_assert(!swap_next(s, &none)); /* one at a time */
            swap_done(s);
        }
        for (uint32_t l = 0; l < LAYERS; l++) {
            ck_assert_uint_eq(serving(s, l), KEEP);
            double min = 1e9, max = -1;
            for (uint32_t e = 0; e < EXPERTS; e++) {
                if (swap_serving(s, l)[e])
                    min = sum[l][e] < min ? sum[l][e] : min;
                else
                    max = sum[l][e] > max ? sum[l][e] : max;
                ck_assert_float_eq(swap_importance(s, l, e), 0);
            }
            ck_assert(min >= max - 1e-6);
        }
        memset(sum, 0, sizeof sum);
    }
    ck_assert_uint_gt(swap_pairs_done(s), 100);
    swap_destroy(s);
}
END_TEST

/* Amortised: the pairs of layer l come in its part of the interval, and none in the first
 * interval. */
START_TEST(updates_are_spread)
{
    struct swap *s = make_swap(40, true, NULL);
    for (uint32_t token = 0; token < 400; token++) {
        struct swap_pair pair;
        while (swap_next(s, &pair)) {
            ck_assert_uint_ge(token, 40);
            ck_assert_uint_eq(pair.layer, token % 40 / 10);
            swap_done(s);
        }
        for (uint32_t l = 0; l < LAYERS; l++) /* only experts outside the set gain */
            for (uint32_t e = 0; e < EXPERTS; e++)
                if (!swap_serving(s, l)[e])
                    swap_choice(s, l, e, 1);
        swap_tokens(s, 1);
    }
    ck_assert_uint_gt(swap_pairs_done(s), 9 * LAYERS);
    swap_destroy(s);
}
END_TEST

/* With M, a window's mean importance per expert: a candidate ahead by less than margin * M is
 * rejected, one ahead by more is accepted, and pairs after a rejected one are not checked. */
START_TEST(small_gains_are_left)
{
    static const uint32_t keep[1] = {2};
    struct swap_config c = {
        .layers = 1, .experts = 6, .top_k = 1, .keep = keep, .interval = 1, .margin = 1};
    static const float ahead_by_less[] = {2, 1, 2.9f, 2.1f, 0, 0}; /* M = 1.33 */
    static const float one_is_worth_it[] = {2, 1, 2.4f, 2.3f, 0.3f, 0};
    struct swap_pair pair;
    struct swap *s = swap_create(&c); /* the set is 0 and 1 */
    for (uint32_t e = 0; e < 6; e++)
        swap_choice(s, 0, e, ahead_by_less[e]);
    swap_choice(s, 0, 1, 0.7f); /* 1.7: 2.9 is ahead by 1.2 < M = 1.45 */
    swap_tokens(s, 1);
    ck_assert(!swap_next(s, &pair));
    for (uint32_t e = 0; e < 6; e++)
        swap_choice(s, 0, e, one_is_worth_it[e]); /* M = 1.33: 2.4 - 1 accepted, 2.3 - 2 not */
    swap_tokens(s, 1);
    ck_assert(swap_next(s, &pair));
    ck_assert_uint_eq(pair.in, 2);
    ck_assert_uint_eq(pair.out, 1);
    swap_done(s);
    ck_assert(!swap_next(s, &pair));
    ck_assert(swap_serving(s, 0)[0] && swap_serving(s, 0)[2]);
    swap_destroy(s);
    c.margin = -1;
    ck_assert_ptr_null(swap_create(&c));
}
END_TEST

START_TEST(pairs_given_up)
{
    struct swap *s = make_swap(1, false, NULL);
    uint8_t set[EXPERTS] = {0};
    struct swap_pair pair;
    memset(set + 4, 1, KEEP);
    swap_set(s, 2, set);
    swap_choice(s, 2, 0, 1);
    swap_tokens(s, 1);
    ck_assert(swap_next(s, &pair));
    ck_assert_uint_eq(pair.layer, 2);
    ck_assert_uint_eq(pair.in, 0);
    swap_abandon(s);
    ck_assert(!swap_serving(s, 2)[0]);
    ck_assert(!swap_next(s, &pair));
    swap_choice(s, 2, 1, 3);
    swap_tokens(s, 1);
    ck_assert(swap_next(s, &pair));
    swap_choice(s, 2, 0, 3); /* planned again while a pair is pending */
    swap_tokens(s, 1);
    swap_done(s);
    ck_assert(swap_serving(s, 2)[1]);
    while (swap_next(s, &pair))
        swap_done(s);
    ck_assert_uint_eq(serving(s, 2), KEEP);
    ck_assert(swap_serving(s, 2)[0]);
    swap_choice(s, 1, 3, -1);
    swap_choice(s, 1, 3, 0.0f / (float)swap_importance(s, 0, 0)); /* a NaN input */
    ck_assert_float_eq(swap_importance(s, 1, 3), 0);
    swap_destroy(s);
    static const uint32_t small[LAYERS] = {1, 5, 5, 5};
    struct swap_config c = {
        .layers = LAYERS, .experts = EXPERTS, .top_k = 2, .keep = small, .interval = 1};
    ck_assert_ptr_null(swap_create(&c));
}
END_TEST

/* Dense weights of a rule that no plan measures are those of the lossless model. */
START_TEST(dense_weights_of_an_unmeasured_rule)
{
    struct knobs k;
    struct error error = {.text = ""};
    ck_assert_int_eq(knobs_resolve("lod", NULL, "precision=drop,t2=0.5", &k, &error), 0);
    ck_assert_int_eq(preset_planned_dense(&k, NULL), PRECISION_NATIVE);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("presets");
    TCase *c = tcase_create("systems");
    tcase_add_loop_test(c, every_preset_resolves, 0, (int)preset_count());
    tcase_add_loop_test(c, descriptions_are_true, 0, (int)preset_count());
    tcase_add_test(c, presets_overrides_and_plans);
    tcase_add_loop_test(c, bad_knobs_are_rejected, 0, (int)ARRAY_LEN(rejected));
    tcase_add_test(c, a_bad_list_changes_nothing);
    tcase_add_test(c, precisions_are_found);
    tcase_add_test(c, sets_follow_importance);
    tcase_add_test(c, updates_are_spread);
    tcase_add_test(c, small_gains_are_left);
    tcase_add_test(c, pairs_given_up);
    tcase_add_test(c, dense_weights_of_an_unmeasured_rule);
    suite_add_tcase(s, c);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_NORMAL);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed == 0 ? 0 : 1;
}
