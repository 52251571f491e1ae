/* Eviction policies against an oracle that is as naive as can be: a table of what is held with
 * stamps and counts, searched from end to end. Both replay one recorded trace; every victim must
 * agree. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/policy/policy.h"

#define ENTRIES   192
#define TRACE_MAX 8192

struct oracle {
    bool held[ENTRIES];
    uint64_t inserted[ENTRIES], used[ENTRIES], uses[ENTRIES], tick;
};

static uint32_t trace[TRACE_MAX];
static size_t trace_length;

static void load_trace(void)
{
    char line[256];
    FILE *f = fopen(TRACE_FILE, "r");
    ck_assert_msg(f != NULL, "cannot open %s", TRACE_FILE);
    trace_length = 0;
    while (fgets(line, sizeof line, f)) {
        if (line[0] == '#')
            continue;
        for (char *at = line, *end; trace_length < TRACE_MAX; at = end) {
            unsigned long entry = strtoul(at, &end, 10);
            if (end == at)
                break;
            ck_assert_uint_lt(entry, ENTRIES);
            trace[trace_length++] = (uint32_t)entry;
        }
    }
    fclose(f);
    ck_assert_uint_gt(trace_length, 3000);
}

static void oracle_insert(struct oracle *o, uint32_t e)
{
    o->held[e] = true;
    o->inserted[e] = o->used[e] = ++o->tick;
    o->uses[e] = 0;
}

static void oracle_touch(struct oracle *o, uint32_t e)
{
    o->used[e] = ++o->tick;
    o->uses[e]++;
}

static bool leaves_before(const char *policy, const struct oracle *o, uint32_t a, uint32_t b)
{
    if (strcmp(policy, "fifo") == 0)
        return o->inserted[a] < o->inserted[b];
    if (strcmp(policy, "lfu") == 0 && o->uses[a] != o->uses[b])
        return o->uses[a] < o->uses[b];
    return o->used[a] < o->used[b];
}

/* Some entries are pinned at any moment: a few pseudo-random ones. */
struct pins {
    uint64_t now;
};

static bool may(void *arg, uint32_t entry)
{
    const struct pins *p = arg;
    return ((entry * 2654435761u) ^ (p->now * 40503u)) % 5 != 0;
}

static uint32_t oracle_victim(const char *policy, const struct oracle *o, struct pins *pins)
{
    uint32_t best = POLICY_NONE;
    for (uint32_t e = 0; e < ENTRIES; e++)
        if (o->held[e] && may(pins, e) &&
            (best == POLICY_NONE || leaves_before(policy, o, e, best)))
            best = e;
    return best;
}

static size_t replay(const char *policy, uint32_t room)
{
    struct oracle o = {.tick = 0};
    struct eviction *ev = eviction_create(policy, ENTRIES, 1);
    size_t hits = 0;
    uint32_t count = 0;
    for (size_t i = 0; i < trace_length; i++) {
        struct pins pins = {i};
        uint32_t e = trace[i];
        ck_assert_int_eq(eviction_holds(ev, e), o.held[e]);
        if (o.held[e]) {
            hits++;
        } else {
            while (count >= room) {
                uint32_t victim = eviction_victim(ev, may, &pins);
                ck_assert_uint_eq(victim, oracle_victim(policy, &o, &pins));
                ck_assert_uint_ne(victim, POLICY_NONE);
                ck_assert(eviction_holds(ev, victim)); /* asking does not remove */
                eviction_remove(ev, victim);
                o.held[victim] = false;
                count--;
            }
            eviction_insert(ev, e);
            oracle_insert(&o, e);
            count++;
        }
        eviction_touch(ev, e);
        oracle_touch(&o, e);
    }
    eviction_destroy(ev);
    return hits;
}

START_TEST(victims_agree_with_the_oracle)
{
    static const char *const policies[] = {"lru", "lfu", "fifo"};
    static const uint32_t rooms[] = {24, 48, 96, 150};
    load_trace();
    ck_assert_uint_gt(replay(policies[_i / 4], rooms[_i % 4]), 0);
}
END_TEST

/* One that never refuses, and one that always does. */
static bool anyone(void *arg, uint32_t entry)
{
    (void)arg;
    (void)entry;
    return true;
}

static bool nobody(void *arg, uint32_t entry)
{
    ++*(unsigned *)arg;
    (void)entry;
    return false;
}

static const char *const all[] = {"lru", "lfu", "fifo", "random"};

START_TEST(edges)
{
    struct eviction *ev = eviction_create(all[_i], 8, 3);
    unsigned asked = 0;
    ck_assert_str_eq(eviction_name(ev), all[_i]);
    ck_assert_ptr_nonnull(strstr(eviction_names(), all[_i]));
    ck_assert_uint_eq(eviction_victim(ev, anyone, NULL), POLICY_NONE);
    for (uint32_t e = 0; e < 8; e++)
        eviction_insert(ev, e);
    ck_assert_uint_eq(eviction_victim(ev, nobody, &asked), POLICY_NONE);
    ck_assert_uint_eq(asked, 8); /* each was asked about once */
    for (uint32_t left = 8; left > 0; left--)
        eviction_remove(ev, eviction_victim(ev, anyone, NULL));
    ck_assert_uint_eq(eviction_victim(ev, anyone, NULL), POLICY_NONE);
    eviction_insert(ev, 5);
    ck_assert_uint_eq(eviction_victim(ev, anyone, NULL), 5);
    eviction_destroy(ev);
    ck_assert_ptr_null(eviction_create("belady", 8, 3));
}
END_TEST

START_TEST(orders_by_hand)
{
    /* inserted 0 1 2 3; used 0, 2, 0 */
    static const struct {
        const char *policy;
        uint32_t order[4];
    } table[] = {{"lru", {1, 3, 2, 0}}, {"fifo", {0, 1, 2, 3}}, {"lfu", {1, 3, 2, 0}}};
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct eviction *ev = eviction_create(table[i].policy, 4, 1);
        for (uint32_t e = 0; e < 4; e++)
            eviction_insert(ev, e);
        eviction_touch(ev, 0);
        eviction_touch(ev, 2);
        eviction_touch(ev, 0);
        for (uint32_t k = 0; k < 4; k++) {
            uint32_t victim = eviction_victim(ev, anyone, NULL);
            ck_assert_uint_eq(victim, table[i].order[k]);
            eviction_remove(ev, victim);
        }
        eviction_destroy(ev);
    }
}
END_TEST

START_TEST(random_is_uniform_and_repeatable)
{
    enum { HELD = 20, DRAWS = 20000 };
    uint32_t seen[HELD] = {0};
    struct eviction *a = eviction_create("random", HELD, 42);
    struct eviction *b = eviction_create("random", HELD, 42);
    struct eviction *c = eviction_create("random", HELD, 43);
    uint32_t differ = 0;
    for (uint32_t e = 0; e < HELD; e++) {
        eviction_insert(a, e);
        eviction_insert(b, e);
        eviction_insert(c, e);
    }
    for (uint32_t i = 0; i < DRAWS; i++) {
        uint32_t victim = eviction_victim(a, anyone, NULL);
        ck_assert_uint_eq(victim, eviction_victim(b, anyone, NULL));
        differ += victim != eviction_victim(c, anyone, NULL);
        seen[victim]++;
    }
    ck_assert_uint_gt(differ, DRAWS / 2);
    for (uint32_t e = 0; e < HELD; e++) /* 1000 expected, standard deviation 31 */
        ck_assert(seen[e] > 850 && seen[e] < 1150);
    eviction_destroy(a);
    eviction_destroy(b);
    eviction_destroy(c);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("eviction");
    TCase *c = tcase_create("eviction");
    tcase_add_loop_test(c, victims_agree_with_the_oracle, 0, 12);
    tcase_add_loop_test(c, edges, 0, 4);
    tcase_add_test(c, orders_by_hand);
    tcase_add_test(c, random_is_uniform_and_repeatable);
    suite_add_tcase(s, c);
    SRunner *runner = srunner_create(s);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
