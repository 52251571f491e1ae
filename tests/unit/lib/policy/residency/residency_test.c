/* SPDX-License-Identifier: Apache-2.0 */
/* Residency against naive oracles, which recompute every input of a policy from the whole history
 * for every victim. Random traces with prompts, several sequences, pins, and one or two precisions.
 * ARC has its own test; rules_test.c has the cases that need no oracle. */
#include <check.h>
#include <math.h>

#include "tests/harness/sample.h"
#include "tests/unit/lib/policy/residency/residency_test.h"

#define SEQUENCES 64
#define EVENTS    40000u
#define ROWS      4u /* of a pass */

uint64_t seed;

uint32_t below(uint32_t n)
{
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)((seed >> 33) % n);
}

/* ---- the oracle: a history ---- */

struct event {
    uint32_t slot, tokens;
    bool high;
    uint64_t token; /* of all rounds so far */
    uint32_t pass;  /* tokens of its pass */
    uint32_t starts;
};

struct part { /* tokens that became known at the same time */
    uint64_t token;
    uint32_t tokens, starts;
    bool longer; /* the round grew by them; or they are of the same moment */
};

struct row {                             /* a sequence */
    uint32_t sequence, position, tokens; /* tokens: of its next pass */
    uint32_t round;                      /* of its last pass */
    bool stepped;                        /* it had one */
};

struct oracle {
    const struct residency_config *config;
    struct event event[EVENTS];
    struct part part[EVENTS];
    uint32_t events, parts, starts;
    bool resident[SLOTS];
    uint64_t inserted[SLOTS], touched[SLOTS], accesses[SLOTS], in_step[SLOTS];
    uint64_t tick, step, token, start_token; /* start_token: at the last start of a sequence */
    uint32_t layer, round, length;           /* length: tokens of the running round */
    bool round_over;
};

static struct oracle o;

static uint32_t layer_of(uint32_t slot)
{
    return slot % ALL / EXPERTS;
}

static double frequency(uint32_t slot)
{
    double f = 0;
    for (uint32_t i = 0; i < o.events; i++)
        if (o.event[i].slot % ALL == slot % ALL)
            f +=
                o.event[i].tokens *
                exp2(-(double)(o.token / RESIDENCY_HALVING - o.event[i].token / RESIDENCY_HALVING));
    return f;
}

/* Sum of the weights of the last `tokens` tokens when the newest is `age` old. */
static double decayed(uint64_t age, uint32_t tokens, double half)
{
    double sum = 0;
    for (uint32_t i = 0; i < tokens; i++)
        sum += exp2(-(double)(age + i) / half);
    return sum;
}

static uint64_t age(uint64_t token, uint32_t starts)
{
    return o.token - token + 128 * (o.starts - starts);
}

/* Fraction of each pass's tokens that used the expert, weighted towards newer passes. */
static double decayed_frequency(uint32_t slot)
{
    double sum = 0;
    for (int slow = 0; slow < 2; slow++) {
        double half = slow ? 128 : 1, used = 2.0 * TOP_K / EXPERTS, all = 2;
        for (uint32_t i = 0; i < o.events; i++) {
            const struct event *e = &o.event[i];
            if (e->slot % ALL == slot % ALL)
                used +=
                    (double)e->tokens / e->pass * decayed(age(e->token, e->starts), e->pass, half);
        }
        for (uint32_t i = 0; i < o.parts; i++) {
            const struct part *p = &o.part[i];
            all += p->longer ? decayed(age(p->token, p->starts), p->tokens, half)
                             : p->tokens * decayed(age(p->token, p->starts), 1, half);
        }
        sum += (slow ? 0.75 : 0.25) * used / all;
    }
    return sum;
}

static double priority(uint32_t slot)
{
    const struct residency_config *c = o.config;
    double r = 0, f = 0, h = 0;
    uint64_t since = c->records_model ? 0 : o.start_token;
    for (uint32_t i = 0; i < o.events; i++) {
        const struct event *e = &o.event[i];
        if (e->slot % ALL != slot % ALL || (!c->records_model && e->starts != o.starts))
            continue;
        r = (double)(e->token - since);
        f += e->tokens;
        h += e->high ? e->tokens : 0;
    }
    double t = (double)(o.token - since);
    uint32_t away = (layer_of(slot) + LAYERS - o.layer) % LAYERS;
    if (c->fld_next) /* the layer after the running one is nearest */
        away = (layer_of(slot) + LAYERS - (o.layer + 1) % LAYERS) % LAYERS;
    /* Equation 3, multiplied by T and S to stay in whole numbers: the weights are eighths. */
    return LAYERS * ((double)c->w_lru * r + (double)c->w_lfu * f + (double)c->w_lhu * h) +
           (double)c->w_fld * (LAYERS - away) * t;
}

/* Layer steps until the layer runs again, counted one by one. */
static uint32_t distance(uint32_t layer)
{
    uint32_t d = 1;
    for (uint32_t at = (o.layer + 1) % LAYERS; at != layer; at = (at + 1) % LAYERS)
        d++;
    return d;
}

static double activation(uint32_t slot)
{
    bool all = o.config->records_model;
    double accesses = 0, tokens = (double)(o.token - (all ? 0 : o.start_token));
    for (uint32_t i = 0; i < o.events; i++)
        if (o.event[i].slot % ALL == slot % ALL && (all || o.event[i].starts == o.starts))
            accesses += o.event[i].tokens;
    return -(accesses * 1024 + tokens * TOP_K) * (LAYERS - layer_of(slot));
}

/* The entry with the highest score is evicted first. */
static double eviction_score(uint32_t slot)
{
    enum eviction e = o.config->eviction;
    if (e == EVICTION_LRU)
        return 0;
    if (e == EVICTION_FIFO)
        return -(double)o.inserted[slot];
    if (e == EVICTION_LFU)
        return -(double)o.accesses[slot];
    if (e == EVICTION_EDGEMOE)
        return -frequency(slot) / distance(layer_of(slot));
    if (e == EVICTION_EDGEMOE_PRINTED) {
        uint32_t d = (LAYERS - layer_of(slot) + o.layer) % LAYERS;
        return d == 0 ? -INFINITY : -frequency(slot) / d;
    }
    if (e == EVICTION_DECAYED)
        return -decayed_frequency(slot) / distance(layer_of(slot));
    if (e == EVICTION_ACTIVATION)
        return activation(slot);
    return -priority(slot);
}

static bool superseded(uint32_t slot)
{
    return slot >= ALL && o.resident[slot - ALL];
}

static bool pinned(void *arg, uint32_t slot)
{
    return ((slot * 2654435761u) ^ (*(const uint64_t *)arg * 40503u)) % 7 == 0;
}

static bool may(void *arg, uint32_t slot)
{
    return !pinned(arg, slot);
}

static bool any(void *arg, uint32_t slot)
{
    (void)arg, (void)slot;
    return true;
}

/* True when a is evicted before b. The caller compares groups. */
static bool evicted_before(uint32_t a, uint32_t b)
{
    double x = eviction_score(a), y = eviction_score(b);
    if (fabs(x - y) > 1e-9 || isinf(x) != isinf(y))
        return x > y;
    if (o.config->eviction == EVICTION_EDGEMOE && distance(layer_of(a)) != distance(layer_of(b)))
        return distance(layer_of(a)) > distance(layer_of(b));
    return o.touched[a] < o.touched[b];
}

static double excess(struct residency *r, uint32_t slot, uint32_t incoming)
{
    uint32_t g = residency_group_of(r, slot);
    double bytes = 0;
    for (uint32_t s = 0; s < SLOTS; s++)
        if ((o.resident[s] || s == incoming) && residency_group_of(r, s) == g)
            bytes += (double)residency_slot_bytes(r, s);
    return bytes - (double)residency_group_share(r, g);
}

static uint32_t oracle_victim(struct residency *r, uint32_t incoming, uint64_t *pins)
{
    uint32_t best = POLICY_NONE;
    int best_class = 0;
    double best_excess = 0;
    for (uint32_t s = 0; s < SLOTS; s++) {
        if (!o.resident[s] || pinned(pins, s))
            continue;
        bool running = o.in_step[s] == o.step;
        int class = superseded(s) && !running ? 0 : running ? 2 : 1;
        double x = class == 0 ? 0 : excess(r, s, incoming);
        uint32_t g = residency_group_of(r, s), own = residency_group_of(r, incoming);
        bool better = best == POLICY_NONE || class < best_class;
        if (!better && class == best_class) {
            uint32_t bg = residency_group_of(r, best);
            if (class == 0)
                better = o.touched[s] < o.touched[best];
            else if (g == bg)
                better = evicted_before(s, best);
            else
                better = x != best_excess ? x > best_excess : g == own || (bg != own && g < bg);
        }
        if (better) {
            best = s;
            best_class = class;
            best_excess = x;
        }
    }
    return best;
}

/* ---- a random trace over policy and oracle ---- */

static void access_slot(struct residency *r, const struct row *row, uint32_t slot, uint32_t tokens,
                        bool high)
{
    ck_assert_uint_lt(o.events, EVENTS);
    o.event[o.events++] = (struct event){slot, tokens, high, o.token, row->tokens, o.starts};
    o.in_step[slot] = o.step;
    if (o.resident[slot]) {
        o.touched[slot] = ++o.tick;
        o.accesses[slot]++;
    }
    residency_accessed(r, slot, &(struct residency_access){.tokens = tokens, .high = high});
}

static void bring(struct residency *r, uint32_t slot, uint64_t capacity, uint64_t *pins)
{
    while (residency_resident_bytes(r) + residency_slot_bytes(r, slot) > capacity) {
        uint32_t victim = residency_victim(r, slot, may, pins);
        uint32_t expected = oracle_victim(r, slot, pins);
        ck_assert_msg(victim == expected, "%d/%d: victim %u, expected %u (event %u)",
                      o.config->eviction, o.config->allocation, victim, expected, o.events);
        if (victim == POLICY_NONE)
            return;
        ck_assert(residency_is_resident(r, victim)); /* the query does not remove */
        residency_remove(r, victim, true);
        o.resident[victim] = false;
    }
    residency_insert(r, slot, false);
    o.resident[slot] = true;
    o.inserted[slot] = o.touched[slot] = ++o.tick;
    o.accesses[slot] = 0;
}

static uint32_t pick(uint32_t layer) /* skewed */
{
    uint32_t a = below(EXPERTS), b = below(EXPERTS);
    return layer * EXPERTS + (a < b ? a : b);
}

/* Returns the number of missing entries. */
static uint32_t layer_of_row(struct residency *r, const struct row *row,
                             uint32_t missing[TOP_K * 2])
{
    uint32_t want[TOP_K * 2], n = 0, misses = 0, tokens = row->tokens;
    uint32_t max = tokens > 1 ? TOP_K * 2 : TOP_K;
    for (uint32_t i = 0; i < max; i++) {
        uint32_t slot = pick(o.layer);
        bool high = o.config->precisions == 1 || below(3) > 0, twice = false;
        if (!high && !o.resident[slot])
            slot += ALL;
        for (uint32_t j = 0; j < n; j++)
            twice |= want[j] % ALL == slot % ALL;
        if (twice)
            continue;
        want[n++] = slot;
        if (!o.resident[slot])
            missing[misses++] = slot;
        access_slot(r, row, slot, i == 0 ? tokens : 1 + below(tokens), high);
    }
    return misses;
}

static void start(struct residency *r, struct row *row, uint32_t sequence, bool tell)
{
    *row = (struct row){.sequence = sequence, .tokens = 1 + below(20)};
    if (tell)
        residency_sequence_starts(r, sequence);
}

static void add_part(uint32_t tokens, bool longer)
{
    ck_assert_uint_lt(o.parts, EVENTS);
    if (tokens > 0)
        o.part[o.parts++] = (struct part){o.token, tokens, o.starts, longer};
}

/* The row's tokens are counted in its first layer: the first one, then the others. */
static void count_row(struct row *row)
{
    bool other = o.round == 0 || row->round == o.round || o.round_over;
    if (!row->stepped) { /* a start that no pass follows changes nothing */
        o.starts++;
        o.start_token = o.token - (o.round_over ? 0 : o.length);
    }
    row->stepped = true;
    o.round += other;
    o.length = other ? 0 : o.length;
    o.round_over = false;
    row->round = o.round;
    o.token += o.length == 0;
    add_part(1, o.length == 0);
    o.length = o.length == 0 ? 1 : o.length;
    uint32_t longer = row->tokens > o.length ? row->tokens - o.length : 0;
    o.token += longer;
    o.length += longer;
    add_part(longer, true);
    add_part(row->tokens - 1 - longer, false);
}

static void end(struct residency *r, const struct row *rows, uint32_t count, const struct row *row)
{
    bool shared = false;
    for (uint32_t i = 0; i < count; i++)
        shared |= &rows[i] != row && rows[i].round == o.round;
    o.round_over |= row->round == o.round && !shared;
    residency_sequence_ends(r, row->sequence);
}

/* All rows of a layer are accessed, then the missing entries are loaded. */
static void pass_of(struct residency *r, struct row *const *rows, uint32_t count, uint64_t capacity)
{
    for (uint32_t l = 0; l < LAYERS; l++) {
        uint32_t missing[ROWS * TOP_K * 2], misses = 0;
        o.layer = l;
        o.step++;
        for (uint32_t i = 0; i < count; i++) {
            if (l == 0)
                count_row(rows[i]);
            residency_step(r, &(struct residency_step){rows[i]->sequence, rows[i]->position, l});
            misses += layer_of_row(r, rows[i], missing + misses);
        }
        for (uint32_t i = 0; i < misses; i++) {
            uint64_t pins = below(1000);
            if (!o.resident[missing[i]])
                bring(r, missing[i], capacity, &pins);
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        rows[i]->position += rows[i]->tokens;
        rows[i]->tokens = 1;
    }
}

static struct residency *begin(const struct residency_config *config, uint64_t capacity)
{
    struct residency *r = residency_create(config);
    ck_assert_ptr_nonnull(r);
    o = (struct oracle){.config = config};
    residency_capacity(r, capacity);
    return r;
}

static void finish(struct residency *r)
{
    uint32_t resident = 0;
    for (uint32_t s = 0; s < SLOTS; s++) {
        resident += o.resident[s];
        if (s < residency_slots(r))
            ck_assert_int_eq(residency_is_resident(r, s), o.resident[s]);
    }
    ck_assert_uint_eq(residency_resident_count(r), resident);
    ck_assert_uint_gt(resident, 0);
    residency_destroy(r);
}

/* One sequence after another. records: its start is told. */
static void replay(const struct residency_config *config, uint64_t capacity, uint32_t tokens,
                   bool records)
{
    struct residency *r = begin(config, capacity);
    for (uint32_t sequence = 1, t = 0; t < tokens; sequence++) {
        struct row row, *rows = &row;
        start(r, &row, sequence, records);
        if (below(4) == 0) { /* one without a pass */
            residency_sequence_starts(r, 1000000);
            residency_sequence_ends(r, 1000000);
        }
        for (uint32_t i = 10 + below(60); i > 0 && t < tokens; i--, t++)
            pass_of(r, &rows, 1, capacity);
        end(r, &row, 1, &row);
    }
    finish(r);
}

/* Sequences that start and end while others run; each pass computes some of them, in any order. */
static void replay_many(const struct residency_config *config, uint64_t capacity, uint32_t passes)
{
    struct residency *r = begin(config, capacity);
    struct row row[ROWS], *rows[ROWS];
    uint32_t sequences = 0;
    for (uint32_t i = 0; i < ROWS; i++)
        start(r, &row[i], ++sequences, true);
    for (uint32_t t = 0; t < passes; t++) {
        uint32_t count = 0, first = below(ROWS);
        for (uint32_t i = 0; i < ROWS; i++)
            if (below(2) == 0)
                rows[count++] = &row[(first + i) % ROWS];
        if (count > 0)
            pass_of(r, rows, count, capacity);
        if (below(20) == 0) {
            struct row *other = &row[below(ROWS)];
            end(r, row, ROWS, other);
            start(r, other, ++sequences, true);
        }
    }
    finish(r);
}

struct residency_config config_of(enum eviction eviction, enum allocation allocation,
                                  uint32_t precisions)
{
    return (struct residency_config){.layers = LAYERS,
                                     .experts = EXPERTS,
                                     .top_k = TOP_K,
                                     .precisions = precisions,
                                     .precision_bytes = {64, 16},
                                     .low_precision = precisions - 1,
                                     .eviction = eviction,
                                     .allocation = allocation,
                                     .share_high = 0.7,
                                     .boundary = 2,
                                     .w_lru = 0.25f,
                                     .w_lfu = 0.25f,
                                     .w_lhu = 0.375f,
                                     .w_fld = 0.125f};
}

static const enum eviction ordered[] = {EVICTION_LRU,
                                        EVICTION_LFU,
                                        EVICTION_FIFO,
                                        EVICTION_EDGEMOE,
                                        EVICTION_EDGEMOE_PRINTED,
                                        EVICTION_HOBBIT,
                                        EVICTION_DECAYED,
                                        EVICTION_ACTIVATION};
static const enum allocation allocations[] = {ALLOCATE_SHARED, ALLOCATE_PRECISIONS, ALLOCATE_EVEN,
                                              ALLOCATE_FATE, ALLOCATE_PLANNED};

START_TEST(victims_agree_with_the_oracle)
{
    static const float shares[LAYERS] = {3, 1, 1, 4, 2};
    enum allocation allocation = allocations[_i / (int)ARRAY_LEN(ordered)];
    unsigned met = (unsigned)_i;
    for (uint32_t round = 0; round < 6; round++) {
        if (!test_sample(EVERY_oracle_rounds, &met))
            continue;
        uint32_t precisions = 1 + round % 2;
        struct residency_config c =
            config_of(ordered[_i % (int)ARRAY_LEN(ordered)], allocation, precisions);
        c.shares = round < 4 ? shares : NULL;
        c.fld_next = round % 3 == 1;
        c.records_model = round % 3 == 2;
        seed = 77 * (unsigned)_i + round;
        replay(&c, 64 * (10 + 5 * round), 150, round % 2);
        replay_many(&c, 64 * (20 + 5 * round), 60);
    }
}
END_TEST

/* More sequences than places, none of which ends: each start is one, and nothing else changes. */
START_TEST(places_are_reused)
{
    struct residency_config c = config_of(EVICTION_DECAYED, ALLOCATE_SHARED, 1);
    struct residency *r = residency_create(&c);
    residency_insert(r, 0, false);
    residency_insert(r, 1, false);
    for (uint32_t s = 1; s < 5 * SEQUENCES; s++) {
        residency_step(r, &(struct residency_step){s, 7, 0});
        residency_accessed(r, s % 2, &(struct residency_access){1, true});
        residency_step(r, &(struct residency_step){s, 7, 1});
        ck_assert_uint_eq(residency_victim(r, POLICY_NONE, any, NULL), 1 - s % 2);
    }
    residency_sequence_ends(r, 5 * SEQUENCES); /* unknown */
    residency_destroy(r);
}
END_TEST

/* The same with entries of many sizes: one insertion may need several victims. */
START_TEST(sizes_differ)
{
    uint64_t bytes[SLOTS];
    for (uint32_t s = 0; s < SLOTS; s++)
        bytes[s] = s < ALL ? 40 + s % 7 * 10 : 8 + s % 3;
    for (uint32_t i = 0; i < ARRAY_LEN(ordered); i++) {
        struct residency_config c = config_of(ordered[i], ALLOCATE_EVEN, 2);
        c.slot_bytes = bytes;
        seed = i;
        replay(&c, 1500, 120, true);
        replay_many(&c, 2500, 50);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("residency");
    TCase *c = tcase_create("residency");
    tcase_set_timeout(c, 60);
    tcase_add_loop_test(c, victims_agree_with_the_oracle, 0,
                        (int)(ARRAY_LEN(ordered) * ARRAY_LEN(allocations)));
    tcase_add_test(c, sizes_differ);
    tcase_add_test(c, places_are_reused);
    add_rules(c);
    suite_add_tcase(s, c);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_NORMAL);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed == 0 ? 0 : 1;
}
