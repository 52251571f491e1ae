/* SPDX-License-Identifier: Apache-2.0 */
/* Tests what is held out: the division by domain, the bound for a new text (against simulated
 * texts), the search for the loss that keeps it. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/random.h"
#include "procs/tools/plan/held.h"
#include "tests/harness/sample.h"

#define WINDOWS_MAX 400

/* ---- division ---- */

static const struct division {
    const char *what;
    uint32_t have[4], wanted, use[4]; /* windows of each domain */
} divisions[] = {
    {"all", {8, 8, 0, 0}, 0, {8, 8, 0, 0}},
    {"more than there are", {8, 8, 0, 0}, 99, {8, 8, 0, 0}},
    {"one domain", {100, 0, 0, 0}, 40, {40, 0, 0, 0}},
    {"the same of each", {100, 50, 20, 10}, 40, {10, 10, 10, 10}},
    {"a small one", {100, 50, 2, 10}, 40, {14, 14, 2, 10}},
    {"an empty one", {100, 0, 100, 0}, 10, {5, 0, 5, 0}},
    {"fewer than domains", {9, 9, 9, 9}, 3, {1, 1, 1, 0}},
    {"a large one last", {1, 1, 1, 300}, 203, {1, 1, 1, 200}},
    {"single ones", {1, 9, 1, 0}, 0, {1, 9, 1, 0}},
};

START_TEST(divided)
{
    const struct division *d = &divisions[_i];
    uint16_t domain[WINDOWS_MAX];
    uint8_t role[WINDOWS_MAX];
    uint32_t n = 0, at = 0;
    for (uint16_t k = 0; k < 4; k++)
        for (uint32_t i = 0; i < d->have[k]; i++)
            domain[n++] = k;
    held_divide(domain, n, d->wanted, role);
    for (uint32_t k = 0; k < 4; at += d->have[k++]) {
        uint32_t count[3] = {0};
        for (uint32_t i = 0; i < d->have[k]; i++)
            count[role[at + i]]++;
        ck_assert_msg(count[HELD_PLANNED] + count[HELD_OUT] == d->use[k], "%s: domain %u: %u, %u",
                      d->what, k, count[HELD_PLANNED], count[HELD_OUT]);
        uint32_t off = count[HELD_PLANNED] - count[HELD_OUT];
        ck_assert_msg(off + 1 <= (d->use[k] >= 16 ? 5 : 2), "%s: domain %u: %u, %u", d->what, k,
                      count[HELD_PLANNED], count[HELD_OUT]);
        ck_assert_msg(d->use[k] == 0 || count[HELD_OUT] > 0, "%s: domain %u is not judged", d->what,
                      k);
    }
}
END_TEST

/* ---- bounds ---- */

static double normal(struct random *r)
{
    double sum = -6; /* of twelve uniform ones */
    for (int i = 0; i < 12; i++)
        sum += (double)random_below(r, 1u << 20) / (1u << 20);
    return sum;
}

struct drawn {
    uint32_t windows, domains, text_windows; /* windows: of each domain */
    double turns; /* share of the variance that four neighbours have in common */
};

#define MEAN  0.01
#define APART 0.005

static void draw(struct random *r, const struct drawn *row, double *delta, uint16_t *domain)
{
    double common = 0;
    for (uint32_t w = 0; w < row->windows * row->domains; w++) {
        if (w % row->windows % 4 == 0)
            common = normal(r);
        domain[w] = (uint16_t)(w / row->windows);
        delta[w] = MEAN + APART * (sqrt(row->turns) * common + sqrt(1 - row->turns) * normal(r));
    }
}

/* The mean that 95 % of the texts do not exceed. */
static double most_texts(const struct drawn *row)
{
    double variance = (1 - row->turns) / row->text_windows +
                      row->turns * (row->text_windows < 4 ? 1 : 4.0 / row->text_windows);
    return expm1(MEAN + APART * 1.6449 * sqrt(variance));
}

/* In so many draws 95 % of the texts are within the bound. */
static double share_within(const struct drawn *row)
{
    enum { TRIALS = 500 };
    struct random r;
    uint32_t within = 0;
    random_seed(&r, 7, row->windows);
    for (uint32_t t = 0; t < TRIALS; t++) {
        double delta[WINDOWS_MAX];
        uint16_t domain[WINDOWS_MAX];
        struct held_domain out[HELD_DOMAINS_MAX], all;
        uint32_t worst;
        draw(&r, row, delta, domain);
        ck_assert(held_bounds(delta, domain, row->windows * row->domains, row->text_windows,
                              row->domains, out, &worst, &all));
        within += most_texts(row) <= out[0].high;
        ck_assert(all.high == out[worst].high && out[worst].high >= out[0].high);
    }
    return (double)within / TRIALS;
}

START_TEST(new_texts_are_within)
{
    static const struct drawn rows[] = {{2, 1, 8, 0},    {4, 1, 8, 0},    {16, 1, 1, 0},
                                        {64, 1, 8, 0},   {4, 4, 8, 0},    {16, 4, 8, 0},
                                        {20, 1, 8, 0.6}, {20, 4, 8, 0.6}, {64, 1, 8, 0.6}};
    unsigned met = (unsigned)_i;
    if (!test_sample(EVERY_drawn_texts, &met))
        return;
    double share = share_within(&rows[_i]);
    ck_assert_msg(share > HELD_CONFIDENCE - 0.03 && share < HELD_CONFIDENCE + 0.04,
                  "%u windows: %.4f", rows[_i].windows, share);
}
END_TEST

START_TEST(worst_domain)
{
    const double delta[] = {0.01, 0.011, 0.02, 0.021, 0.3, -0.2};
    const uint16_t domain[] = {0, 0, 1, 1, 3, 3};
    struct held_domain out[4], all;
    uint32_t worst;
    ck_assert(held_bounds(delta, domain, 4, 8, 4, out, &worst, &all));
    ck_assert_uint_eq(worst, 1);
    ck_assert_uint_eq(out[2].windows, 0);
    ck_assert_double_eq_tol(out[1].loss, expm1(0.0205), 1e-12);
    ck_assert_double_eq_tol(all.loss, expm1(0.0155), 1e-12);
    ck_assert(all.high == out[1].high && all.windows == 4);
    ck_assert(held_bounds(delta, domain, 6, 8, 4, out, &worst, &all));
    ck_assert_uint_eq(worst, 3); /* because it varies */
}
END_TEST

/* The lossless model keeps every loss; single windows of domains have the variance between these,
 * one has none. */
START_TEST(no_variance)
{
    const double delta[4] = {0};
    const uint16_t domain[] = {0, 1, 2, 2};
    struct held_domain out[3], all;
    uint32_t worst;
    ck_assert(held_bounds(delta, domain, 4, 8, 3, out, &worst, &all));
    ck_assert_double_eq(all.high, 0);
    const double apart[] = {0.01, 0.02, 0.03};
    ck_assert(held_bounds(apart, domain, 3, 8, 3, out, &worst, &all));
    ck_assert_uint_eq(worst, 2);
    ck_assert(all.high > 0.05);
    ck_assert(!held_bounds(delta, domain, 1, 8, 1, out, &worst, &all));
}
END_TEST

/* Factors of tables (95 %, with 95 % confidence), for texts of one window of the only domain. */
START_TEST(few_windows)
{
    static const double factor[] = {26.260, 7.656, 5.144, 4.203, 3.708, 3.399};
    uint32_t freedom = (uint32_t)_i + 1, n = freedom + 1, worst;
    double delta[8] = {0}, mean = 0, square = 0;
    const uint16_t domain[8] = {0};
    struct held_domain out[1], all;
    for (uint32_t w = 0; w < n; w++)
        mean += (delta[w] = 0.01 * w * w) / n;
    for (uint32_t w = 0; w < n; w++)
        square += (delta[w] - mean) * (delta[w] - mean);
    ck_assert(held_bounds(delta, domain, n, 1, 1, out, &worst, &all));
    ck_assert_double_eq_tol((log1p(all.high) - mean) / sqrt(square / freedom), factor[_i], 0.001);
}
END_TEST

/* Of tables; and where the mean of a text is that of all windows, nothing but the mean is
 * uncertain: Student's t. */
START_TEST(factors)
{
    static const struct {
        uint32_t freedom, windows, text_windows;
        double factor;
    } rows[] = {{9, 10, 1, 2.911},          {19, 20, 1, 2.396},        {99, 100, 1, 1.927},
                {1, 1, UINT32_MAX, 6.3138}, {2, 1, 100000000, 2.9200}, {3, 1, 100000000, 2.3534},
                {4, 1, UINT32_MAX, 2.1318}, {30, 1, 100000000, 1.6973}};
    double got = held_tolerance(rows[_i].freedom, rows[_i].windows, rows[_i].text_windows);
    ck_assert_double_eq_tol(got, rows[_i].factor, 0.001);
}
END_TEST

/* ---- tightening ---- */

/* Searches find what loses `share` of their target; the bound is `factor` times that and `more`. */
START_TEST(tightened)
{
    static const struct {
        double share, factor, more;
        uint32_t rounds; /* at most */
        double reached;  /* bound that is reached, as a share of what is allowed */
    } rows[] = {{1, 0.9, 0, 1, 0.9},     {1, 1.6, 0, 2, 0.9},       {1, 2, 0.002, 4, 0.85},
                {0.9, 3, 0.004, 6, 0.8}, {0.999, 1.2, 0.009, 6, 0}, {1, 1, 0.02, 6, 0}};
    const double max = 0.01;
    struct tightening t = tightening_start(max);
    double kept = -1, loss, bound;
    do {
        bool none = isinf(t.target);
        loss = none ? 0 : rows[_i].share * t.target;
        bound = none ? 0 : rows[_i].factor * loss + rows[_i].more;
        if (bound <= max) {
            ck_assert(bound >= kept); /* the last one that is kept is the best */
            kept = bound;
        }
    } while (tightening_next(&t, loss, bound));
    ck_assert_msg(t.rounds <= rows[_i].rounds, "%u rounds", t.rounds);
    ck_assert_msg(kept >= rows[_i].reached * max, "%g is reached", kept);
}
END_TEST

/* A loss that is noise below 0 cannot be scaled. */
START_TEST(noise)
{
    struct tightening t = tightening_start(0.001);
    ck_assert(tightening_next(&t, -0.0002, 0.002));
    ck_assert(isinf(t.target) && t.target < 0);
    ck_assert(!tightening_next(&t, 0, 0));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("held");
    TCase *cases = tcase_create("held");
    tcase_set_timeout(cases, 60);
    tcase_add_loop_test(cases, divided, 0, (int)(sizeof divisions / sizeof *divisions));
    tcase_add_loop_test(cases, new_texts_are_within, 0, 9);
    tcase_add_loop_test(cases, few_windows, 0, 6);
    tcase_add_loop_test(cases, factors, 0, 8);
    tcase_add_test(cases, worst_domain);
    tcase_add_test(cases, no_variance);
    tcase_add_loop_test(cases, tightened, 0, 6);
    tcase_add_test(cases, noise);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
