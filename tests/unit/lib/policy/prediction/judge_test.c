/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the judge of prefetch over synthetic sequences of token times: a cold start, slow drift,
 * noise, a change of the text. No time is measured. */
#include <check.h>
#include <math.h>

#include "lib/base/bytes.h"
#include "lib/base/random.h"
#include "lib/policy/prediction/judge.h"

#define LONG 20000u

static struct random noise;

/* Uniform, of mean 1: 0.5 .. 1.5 with an amplitude of 0.5. */
static double factor(double amplitude)
{
    return 1 + amplitude * (2 * (double)random_below(&noise, 1 << 20) / (1 << 20) - 1);
}

struct world { /* relative time of a token with prefetch is `gain` of that without */
    double gain, amplitude;
    double cold;  /* a token takes so much more at first, half of it after every 40 tokens */
    double drift; /* more after LONG tokens */
    uint32_t spike_every;
};

static double token_ns(const struct world *w, uint32_t i, bool with)
{
    double ns = 1e6 * (with ? w->gain : 1) * factor(w->amplitude);
    ns *= 1 + w->cold * exp2(-(double)i / 40) + w->drift * i / LONG;
    return w->spike_every && i % w->spike_every == 0 ? 20 * ns : ns;
}

/* Tokens with prefetch, of those from `from` on. */
static uint32_t tokens_with(const struct world *w, struct prefetch_judge *j, uint32_t from,
                            uint32_t tokens)
{
    uint32_t with = 0;
    for (uint32_t i = 0; i < tokens; i++) {
        bool on = j->on;
        with += i >= from && on;
        prefetch_judge_token(j, token_ns(w, i, on));
    }
    return with;
}

static void setup(void)
{
    random_seed(&noise, 7, 0);
}

/* The share of tokens with prefetch: nearly all or nearly none, but for the trials. */
static const struct {
    struct world world;
    bool on;
} cases[] = {
    {{.gain = 0.8}, true},
    {{.gain = 0.97}, true},
    {{.gain = 0.99}, false}, /* the reads are not worth it */
    {{.gain = 1}, false},
    {{.gain = 1.2}, false},
    {{.gain = 0.85, .cold = 8}, true},
    {{.gain = 1.15, .cold = 8}, false},
    {{.gain = 0.9, .drift = 3}, true},
    {{.gain = 1.1, .drift = 3}, false},
    {{.gain = 0.8, .amplitude = 0.5}, true},
    {{.gain = 1.25, .amplitude = 0.5}, false},
    {{.gain = 0.8, .amplitude = 0.5, .cold = 4, .drift = 1, .spike_every = 131}, true},
    {{.gain = 1.25, .amplitude = 0.5, .cold = 4, .drift = 1, .spike_every = 131}, false},
};

START_TEST(it_finds_the_faster_one)
{
    struct prefetch_judge j;
    prefetch_judge_init(&j, true);
    uint32_t with = tokens_with(&cases[_i].world, &j, LONG / 4, LONG);
    double share = (double)with / (LONG - LONG / 4);
    ck_assert_msg(cases[_i].on ? share > 0.95 : share < 0.05, "case %d: %.1f %% of the tokens", _i,
                  100 * share);
}
END_TEST

/* While the cache becomes full every token is faster than the one before, whatever is done. Of 200
 * seeds nearly all keep a prefetch that saves a sixth, from the first decision on. */
START_TEST(a_cold_cache_does_not_stop_it)
{
    const struct world w = {.gain = 0.83, .amplitude = 0.3, .cold = 6};
    uint32_t wrong = 0;
    for (uint32_t seed = 0; seed < 200; seed++) {
        struct prefetch_judge j;
        random_seed(&noise, seed, 1);
        prefetch_judge_init(&j, true);
        tokens_with(&w, &j, 0, JUDGE_KEEP_MIN + JUDGE_TRIAL);
        ck_assert(!j.trying);
        wrong += !j.on;
    }
    ck_assert_uint_le(wrong, 4);
}
END_TEST

/* A trial has as many tokens with prefetch as without, and cancels what grows steadily: nothing is
 * gained by it. */
START_TEST(drift_alone_is_no_gain)
{
    static const double slopes[] = {-0.01, -0.001, 0.001, 0.02};
    for (size_t i = 0; i < ARRAY_LEN(slopes); i++) {
        struct prefetch_judge j;
        uint32_t with = 0;
        prefetch_judge_init(&j, true);
        for (uint32_t t = 0; t < JUDGE_KEEP_MIN; t++)
            prefetch_judge_token(&j, 1e6);
        double before = j.gain;
        for (uint32_t t = 0; t < JUDGE_TRIAL; t++) {
            ck_assert(j.trying);
            with += j.on;
            prefetch_judge_token(&j, 1e6 * (1 + slopes[i] * t));
        }
        ck_assert(!j.trying);
        ck_assert_uint_eq(with, JUDGE_TRIAL / 2);
        ck_assert_msg(fabs(2 * j.gain - before) < 0.01, "%g: %g", slopes[i], 2 * j.gain - before);
    }
}
END_TEST

/* A text of another kind: what was decided changes, although decisions hold longer and longer. */
START_TEST(it_is_tried_again)
{
    const struct world saves = {.gain = 0.8, .amplitude = 0.2};
    const struct world costs = {.gain = 1.2, .amplitude = 0.2};
    struct prefetch_judge j;
    prefetch_judge_init(&j, true);
    tokens_with(&saves, &j, 0, LONG);
    ck_assert(j.on && j.keep == JUDGE_KEEP_MAX);
    tokens_with(&costs, &j, 0, 4 * JUDGE_KEEP_MAX);
    ck_assert(!j.on || j.trying);
    uint32_t with = tokens_with(&saves, &j, 3 * JUDGE_KEEP_MAX, 4 * JUDGE_KEEP_MAX);
    ck_assert_uint_gt(with, JUDGE_KEEP_MAX / 2);
}
END_TEST

/* Reads that are not used stop it at once, with and without times, and the pauses grow. */
START_TEST(unused_reads_stop_it)
{
    struct prefetch_judge j;
    bool timed = _i;
    uint32_t reads = 0, tokens = 4 * JUDGE_KEEP_MAX;
    prefetch_judge_init(&j, timed);
    for (uint32_t i = 0; i < JUDGE_OUTCOMES; i++) {
        ck_assert(j.on);
        prefetch_judge_outcome(&j, i % 6 == 0);
    }
    ck_assert(!j.on);
    for (uint32_t i = 0; i < tokens; i++) {
        for (int n = 0; n < 6 && j.on; n++, reads++)
            prefetch_judge_outcome(&j, n == 0);
        prefetch_judge_token(&j, 1e6);
    }
    ck_assert_msg(reads >= 2 * JUDGE_OUTCOMES, "it is not tried again: %u reads", reads);
    ck_assert_msg(reads < tokens / 8, "%u reads in %u tokens", reads, tokens);
}
END_TEST

/* Enough used ones keep it, and bring it back. */
START_TEST(used_reads_keep_it)
{
    struct prefetch_judge j;
    prefetch_judge_init(&j, false);
    for (uint32_t i = 0; i < LONG; i++) {
        ck_assert(j.on);
        prefetch_judge_outcome(&j, i % 3 == 0);
        prefetch_judge_token(&j, 1e6 * factor(0.5));
    }
    for (uint32_t i = 0; i < 2 * JUDGE_OUTCOMES; i++)
        prefetch_judge_outcome(&j, false);
    ck_assert(!j.on);
    for (uint32_t i = 0; i < 2 * JUDGE_KEEP_MAX; i++) {
        for (uint32_t n = 0; n < 4 && j.on; n++)
            prefetch_judge_outcome(&j, true);
        prefetch_judge_token(&j, 1e6);
    }
    ck_assert(j.on && !j.trying);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("judge");
    TCase *c = tcase_create("judge");
    tcase_add_checked_fixture(c, setup, NULL);
    tcase_add_loop_test(c, it_finds_the_faster_one, 0, (int)ARRAY_LEN(cases));
    tcase_add_test(c, a_cold_cache_does_not_stop_it);
    tcase_add_test(c, drift_alone_is_no_gain);
    tcase_add_test(c, it_is_tried_again);
    tcase_add_loop_test(c, unused_reads_stop_it, 0, 2);
    tcase_add_test(c, used_reads_keep_it);
    suite_add_tcase(s, c);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? 1 : 0;
}
