/* SPDX-License-Identifier: Apache-2.0 */
/* Eviction "learned", with and without logits, against an oracle that stores every level and every
 * access, recomputes all sums for every victim, and solves for the weights by elimination; and
 * general properties. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/policy/residency/residency.h"

#define LAYERS  3u
#define EXPERTS 20u /* more than a record of the access log has */
#define PIECE   16u
#define TOP_K   3u
#define SLOTS   (LAYERS * EXPERTS)
#define TOKENS  90u
#define INPUTS  6
#define GAP     128 /* tokens that a new sequence counts as */
#define FRESH   64

static uint64_t seed;

static double uniform(void) /* -1 .. 1 */
{
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    return (double)(seed >> 33) / (double)(1u << 30) - 1;
}

/* ---- a text and the current position in it --------------------------------------------------- */

struct moment {
    uint64_t clock;
    uint32_t sequence, position;
    uint8_t level[LAYERS][EXPERTS];
    bool used[LAYERS][EXPERTS];
    double above[LAYERS][EXPERTS]; /* nats */
    double in[LAYERS][EXPERTS][INPUTS];
};

static struct moment text[TOKENS];
static uint32_t token;                             /* the running token */
static uint32_t received[LAYERS], counted[LAYERS]; /* tokens with reported logits, accesses */
static double weight[INPUTS], curvature[INPUTS][INPUTS], gradient[INPUTS];
static bool counting; /* without logits: inputs are the counts */
static int used_inputs;
static uint32_t rounds; /* that were learned from */

static int higher(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x < y) - (x > y);
}

static void route(struct moment *m, uint32_t layer, const float *logits)
{
    float sorted[EXPERTS];
    uint8_t level[EXPERTS];
    memcpy(sorted, logits, sizeof sorted);
    qsort(sorted, EXPERTS, sizeof *sorted, higher);
    residency_logit_levels(logits, EXPERTS, level);
    memcpy(m->level[layer], level, sizeof level);
    uint32_t last = 0, next = UINT32_MAX; /* levels around the threshold */
    for (uint32_t e = 0; e < EXPERTS; e++) {
        m->used[layer][e] = logits[e] >= sorted[TOP_K - 1];
        if (m->used[layer][e] && level[e] > last)
            last = level[e];
        if (!m->used[layer][e] && level[e] < next)
            next = level[e];
    }
    for (uint32_t e = 0; e < EXPERTS; e++)
        m->above[layer][e] = ((last + next) / 2.0 - level[e]) / 16;
}

/* Logits that drift around different means. */
static void make_text(void)
{
    static float logits[LAYERS][EXPERTS];
    memset(logits, 0, sizeof logits);
    uint32_t sequence = 0, position = 0;
    for (uint32_t t = 0; t < TOKENS; t++, position++) {
        if (t == 0 || t == 40 || t == 55) {
            sequence++;
            position = 5 * sequence;
        }
        text[t] = (struct moment){
            .clock = t + 1 + GAP * (sequence - 1), .sequence = sequence, .position = position};
        for (uint32_t l = 0; l < LAYERS; l++) {
            for (uint32_t e = 0; e < EXPERTS; e++)
                logits[l][e] = 0.8f * logits[l][e] + (float)(0.3 * sin(e * 1.7 + l) + uniform());
            route(&text[t], l, logits[l]);
        }
    }
}

/* ---- the oracle ----------------------------------------------------------------------------- */

static double decay(uint64_t age, double half)
{
    return exp2(-(double)age / half);
}

static double share(uint32_t layer, uint32_t expert, double half)
{
    double used = 2.0 * TOP_K / EXPERTS, all = 2;
    for (uint32_t t = 0; t <= token; t++) {
        double worth = decay(text[token].clock - text[t].clock, half);
        all += worth;
        used += t < counted[layer] && text[t].used[layer][expert] ? worth : 0;
    }
    return used / all;
}

static double mean(uint32_t layer, uint32_t expert, double half)
{
    double sum = 0, all = 0;
    for (uint32_t t = 0; t < received[layer]; t++) {
        double worth = decay(text[received[layer] - 1].clock - text[t].clock, half);
        sum += worth * text[t].above[layer][expert];
        all += worth;
    }
    return all > 0 ? sum / all : 0;
}

static double log_odds(double p)
{
    return log(p / (1 - p));
}

static void inputs(uint32_t layer, uint32_t expert, double in[INPUTS])
{
    static const double halves[] = {1, 8, 128};
    for (int h = 0; h < 3 && counting; h++)
        in[h] = log_odds(share(layer, expert, halves[h]));
    for (int h = 0; h < 4 && !counting; h++)
        in[h] = mean(layer, expert, 1 << 2 * h);
    if (!counting)
        in[4] = log_odds(share(layer, expert, 128));
    if (counting)
        in[3] = log_odds(0.25 * share(layer, expert, 1) + 0.75 * share(layer, expert, 128));
    in[used_inputs - 1] = 1;
}

static double probability(const double in[INPUTS])
{
    double sum = 0;
    for (int i = 0; i < used_inputs; i++)
        sum += weight[i] * in[i];
    return 1 / (1 + exp(-sum));
}

/* Before the layer's logits of the running token arrive. */
static void oracle_learns(uint32_t layer)
{
    struct moment *m = &text[token];
    bool follows = token > 0 && text[token - 1].sequence == m->sequence;
    for (uint32_t e = 0; e < EXPERTS && follows; e++) {
        double *in = m->in[layer][e], p;
        inputs(layer, e, in);
        p = probability(in);
        for (int i = 0; i < used_inputs; i++) {
            double earlier = 0;
            for (uint32_t t = token; t > 0 && text[t - 1].sequence == m->sequence; t--)
                earlier += 0.25 * pow(0.75, token - t) * text[t].in[layer][e][i];
            gradient[i] += (m->used[layer][e] ? earlier : 0) - p * in[i];
            for (int j = 0; j < used_inputs; j++)
                curvature[i][j] += p * (1 - p) * in[i] * in[j];
        }
    }
}

/* weight += curvature^-1 gradient, by elimination */
static void oracle_steps(void)
{
    double a[INPUTS][INPUTS + 1];
    rounds += gradient[used_inputs - 1] != 0;
    for (int i = 0; i < used_inputs; i++) {
        memcpy(a[i], curvature[i], sizeof curvature[i]);
        a[i][used_inputs] = gradient[i];
    }
    for (int k = 0; k < used_inputs; k++)
        for (int i = 0; i < used_inputs; i++) {
            double times = a[i][k] / a[k][k];
            for (int j = 0; j <= used_inputs && i != k; j++)
                a[i][j] -= times * a[k][j];
        }
    for (int i = 0; i < used_inputs; i++) {
        weight[i] += a[i][used_inputs] / a[i][i];
        gradient[i] = 0;
        for (int j = 0; j < used_inputs; j++)
            curvature[i][j] = 0.999 * curvature[i][j] + (i == j ? 0.1 : 0);
    }
}

static double eviction_score(uint32_t slot, uint32_t now)
{
    uint32_t layer = slot / EXPERTS, expert = slot % EXPERTS;
    double in[INPUTS], p;
    bool known =
        received[layer] > 0 && text[token].clock - text[received[layer] - 1].clock <= FRESH;
    if (counting ? rounds < 1 : !known) {
        p = 0.25 * share(layer, expert, 1) + 0.75 * share(layer, expert, 128);
    } else {
        inputs(layer, expert, in);
        p = probability(in);
    }
    return -p / (layer > now ? layer - now : layer + LAYERS - now);
}

static bool running(uint32_t slot, uint32_t layer)
{
    return slot / EXPERTS == layer && text[token].used[layer][slot % EXPERTS];
}

static void check_victim(const struct residency *r, uint32_t victim, uint32_t layer)
{
    double best = -INFINITY;
    for (uint32_t s = 0; s < SLOTS; s++)
        if (residency_is_resident(r, s) && !running(s, layer))
            best = fmax(best, eviction_score(s, layer));
    ck_assert_uint_lt(victim, SLOTS);
    ck_assert(!running(victim, layer));
    ck_assert_msg(fabs(eviction_score(victim, layer) - best) < 1e-5,
                  "token %u layer %u: %u leaves, worth %g, best %g", token, layer, victim,
                  eviction_score(victim, layer), best);
}

/* ---- residency and oracle -------------------------------------------------------------------- */

static bool anyone(void *arg, uint32_t slot)
{
    (void)arg, (void)slot;
    return true;
}

static struct residency *create(enum eviction eviction)
{
    struct residency_config c = {.layers = LAYERS,
                                 .experts = EXPERTS,
                                 .top_k = TOP_K,
                                 .precisions = 1,
                                 .precision_bytes = {1},
                                 .eviction = eviction,
                                 .allocation = ALLOCATE_SHARED};
    struct residency *r = residency_create(&c);
    ck_assert_ptr_nonnull(r);
    residency_capacity(r, SLOTS / 2);
    memset(received, 0, sizeof received);
    memset(counted, 0, sizeof counted);
    return r;
}

static void oracle_starts(bool counts)
{
    static const double first[2][INPUTS] = {{0.1, 0, 0.1, 0, 0.8, -0.1}, {0, 0, 0, 1, 0}};
    counting = counts;
    used_inputs = counts ? 5 : 6;
    rounds = 0;
    memset(gradient, 0, sizeof gradient);
    memset(curvature, 0, sizeof curvature);
    memcpy(weight, first[counts], sizeof weight);
    for (int i = 0; i < used_inputs; i++)
        curvature[i][i] = 100;
}

static void send_logits(struct residency *r, uint32_t layer)
{
    const uint8_t *level = text[token].level[layer];
    struct residency_step at = {text[token].sequence, text[token].position, layer};
    residency_logits(r, &at, 0, level, PIECE);
    residency_logits(r, &at, PIECE, level + PIECE, EXPERTS - PIECE);
}

static void step(struct residency *r, uint32_t layer)
{
    residency_step(r, &(struct residency_step){text[token].sequence, text[token].position, layer});
}

/* Accesses of the layer, then loads of the missing experts. check: compares with the oracle. */
static void access_layer(struct residency *r, uint32_t layer, uint32_t *left, bool check)
{
    for (uint32_t e = 0; e < EXPERTS; e++)
        if (text[token].used[layer][e])
            residency_accessed(r, layer * EXPERTS + e, &(struct residency_access){1, true});
    counted[layer] = token + 1;
    for (uint32_t e = 0; e < EXPERTS; e++) {
        uint32_t slot = layer * EXPERTS + e, victim = POLICY_NONE;
        if (!text[token].used[layer][e] || residency_is_resident(r, slot))
            continue;
        if (residency_resident_count(r) == SLOTS / 2) {
            victim = residency_victim(r, slot, anyone, NULL);
            if (check)
                check_victim(r, victim, layer);
            residency_remove(r, victim, true);
        }
        residency_insert(r, slot, false);
        *left = *left * 31 + victim;
    }
}

START_TEST(victims_agree_with_the_oracle)
{
    seed = (uint64_t)_i;
    make_text();
    struct residency *r = create(EVICTION_LEARNED);
    uint32_t left = 0;
    oracle_starts(false);
    for (token = 0; token < TOKENS; token++) {
        bool silent = token >= 70 && token % 3 == 0; /* simulates a lost piece of the log */
        for (uint32_t l = 0; l < LAYERS; l++) {
            if (!silent || l != 1) {
                oracle_learns(l);
                send_logits(r, l);
                received[l] = token + 1;
            }
            step(r, l);
            access_layer(r, l, &left, token < 70);
        }
        oracle_steps();
    }
    residency_destroy(r);
}
END_TEST

START_TEST(victims_without_logits)
{
    seed = (uint64_t)_i;
    make_text();
    struct residency *r = create(EVICTION_LEARNED);
    uint32_t left = 0;
    oracle_starts(true);
    for (token = 0; token < TOKENS; token++) {
        for (uint32_t l = 0; l < LAYERS; l++) {
            oracle_learns(l);
            step(r, l);
            access_layer(r, l, &left, true);
        }
        oracle_steps();
    }
    ck_assert_uint_eq(rounds, TOKENS - 3); /* the first token of a sequence follows none */
    residency_destroy(r);
}
END_TEST

static uint32_t whole(enum eviction eviction, bool logits, bool query_victims)
{
    struct residency *r = create(eviction);
    uint32_t left = 1;
    for (token = 0; token < TOKENS; token++)
        for (uint32_t l = 0; l < LAYERS; l++) {
            if (logits)
                send_logits(r, l);
            if (query_victims)
                (void)residency_victim(r, POLICY_NONE, anyone, NULL);
            step(r, l);
            if (query_victims)
                (void)residency_victim(r, POLICY_NONE, anyone, NULL);
            access_layer(r, l, &left, false);
        }
    residency_destroy(r);
    return left;
}

START_TEST(the_same_calls_give_the_same_victims)
{
    seed = 9;
    make_text();
    uint32_t once = whole(EVICTION_LEARNED, true, false);
    ck_assert_uint_eq(whole(EVICTION_LEARNED, true, false), once);
    /* Extra victim queries change nothing: no cached value is used after it changed. */
    ck_assert_uint_eq(whole(EVICTION_LEARNED, true, true), once);
    ck_assert_uint_ne(whole(EVICTION_DECAYED, true, false), once);
}
END_TEST

START_TEST(without_logits_it_learns_from_counts)
{
    seed = 10;
    make_text();
    uint32_t once = whole(EVICTION_LEARNED, false, false);
    ck_assert_uint_eq(whole(EVICTION_LEARNED, false, true), once);
    ck_assert_uint_ne(whole(EVICTION_DECAYED, false, false), once);
    ck_assert_uint_eq(whole(EVICTION_LRU, true, false), whole(EVICTION_LRU, false, false));
}
END_TEST

/* Of two experts that were never accessed, the one that was nearer to being chosen stays. */
START_TEST(nearly_chosen_stays)
{
    uint8_t level[EXPERTS];
    struct residency *r = create(EVICTION_LEARNED);
    for (uint32_t near = 10; near < 12; near++) {
        memset(level, 200, sizeof level);
        memset(level, 0, TOP_K);
        level[near] = 20;
        struct residency_step at = {near, 0, 0};
        residency_logits(r, &at, 0, level, EXPERTS);
        residency_step(r, &at);
        residency_insert(r, 10, false);
        residency_insert(r, 11, false);
        ck_assert_uint_eq(residency_victim(r, POLICY_NONE, anyone, NULL), near == 10 ? 11 : 10);
        residency_remove(r, 10, true);
        residency_remove(r, 11, true);
    }
    residency_destroy(r);
}
END_TEST

/* Pieces that are not consecutive are not combined into a layer. */
START_TEST(lost_pieces)
{
    uint8_t level[EXPERTS] = {0};
    struct residency *r = create(EVICTION_LEARNED);
    struct residency_step at = {1, 0, 0}, other = {1, 0, 1}, next = {1, 1, 0};
    memset(level + 1, 200, EXPERTS - 1);
    residency_logits(r, &at, PIECE, level, EXPERTS - PIECE);
    residency_logits(r, &at, 0, level, PIECE);
    residency_logits(r, &other, PIECE, level, EXPERTS - PIECE);
    residency_logits(r, &at, PIECE, level, EXPERTS - PIECE);
    residency_step(r, &at);
    residency_insert(r, 0, false);
    residency_insert(r, 1, false);
    ck_assert_uint_eq(residency_victim(r, POLICY_NONE, anyone, NULL), 0); /* the older one */
    residency_logits(r, &next, 0, level, PIECE);
    residency_logits(r, &next, PIECE, level, EXPERTS - PIECE);
    residency_step(r, &other); /* not theirs: they wait */
    ck_assert_uint_eq(residency_victim(r, POLICY_NONE, anyone, NULL), 0);
    residency_step(r, &next);
    ck_assert_uint_eq(residency_victim(r, POLICY_NONE, anyone, NULL), 1);
    residency_destroy(r);
}
END_TEST

/* Few experts, all accessed, all equal: no NaN or infinity results. */
START_TEST(odd_shapes)
{
    for (uint32_t experts = 1; experts < 300; experts += experts < 8 ? 1 : 97)
        for (uint32_t k = 0; k < 4; k++) {
            uint8_t level[300];
            struct residency_config c = {.layers = 2,
                                         .experts = experts,
                                         .top_k = k < 3 ? k : experts,
                                         .precisions = 1,
                                         .precision_bytes = {1},
                                         .eviction = EVICTION_LEARNED,
                                         .allocation = ALLOCATE_SHARED};
            struct residency *r = residency_create(&c);
            ck_assert_ptr_nonnull(r);
            residency_insert(r, 0, false);
            for (uint32_t t = 0; t < 300; t++) {
                memset(level, t % 2 ? 255 : 0, sizeof level);
                level[t % experts] = 0;
                struct residency_step at = {1, t, t % 2};
                residency_logits(r, &at, 0, level, experts);
                residency_step(r, &at);
                ck_assert_uint_eq(residency_victim(r, POLICY_NONE, anyone, NULL), 0);
            }
            residency_destroy(r);
        }
}
END_TEST

START_TEST(levels)
{
    uint8_t level[6];
    residency_logit_levels((const float[]){1, 2, 1.97f, -20, -INFINITY, NAN}, 6, level);
    ck_assert_mem_eq(level, ((const uint8_t[]){16, 0, 0, 255, 255, 255}), 6);
    residency_logit_levels((const float[]){-INFINITY, INFINITY}, 2, level);
    ck_assert_uint_eq(level[0], 255);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("residency learned");
    TCase *t = tcase_create("eviction");
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, victims_agree_with_the_oracle, 0, 4);
    tcase_add_test(t, the_same_calls_give_the_same_victims);
    tcase_add_loop_test(t, victims_without_logits, 0, 4);
    tcase_add_test(t, without_logits_it_learns_from_counts);
    tcase_add_test(t, nearly_chosen_stays);
    tcase_add_test(t, lost_pieces);
    tcase_add_test(t, odd_shapes);
    tcase_add_test(t, levels);
    suite_add_tcase(s, t);
    SRunner *runner = srunner_create(s);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
