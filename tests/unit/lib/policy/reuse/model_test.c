/* SPDX-License-Identifier: Apache-2.0 */
/* The policy of reuse in a model of slots and versions in which several sequences run at a time and
 * several are kept. */
#include <check.h>
#include <string.h>

#include "lib/base/random.h"
#include "lib/policy/reuse/reuse.h"

#define SLOTS    6
#define VERSIONS 12
#define ROUNDS   6000

static struct reuse_slot slot[SLOTS];
static struct reuse_version version[VERSIONS];
static struct reuse_table t;
static struct random rnd;

static uint32_t below(uint32_t n)
{
    return (uint32_t)(random_u64(&rnd) % n);
}

static void give_up(uint32_t s)
{
    slot[s] = (struct reuse_slot){.use = REUSE_EMPTY};
    for (uint32_t i = 0; i < t.versions; i++)
        if (version[i].slot == s)
            version[i] = (struct reuse_version){.slot = REUSE_NONE};
}

/* Logs of a family are alike; the first SHARED tokens are those of all. A state is a number that
 * says of what it is. */
#define SHARED    40u
#define FAMILIES  5u
#define EVERY     16u
#define LENGTH    200u
#define SEQUENCES 4u

static struct {
    uint32_t family, prompt, length;
    uint32_t writes; /* version of the pass; REUSE_NONE */
} sequence[SLOTS];
static uint64_t content[VERSIONS];
static uint32_t clock_of_keeping, reused, most_kept;

static uint64_t state_of(uint32_t family, uint32_t rows)
{
    return (rows <= SHARED ? 0 : family + 1ull) << 32 | rows;
}

static void start(void)
{
    uint32_t common[SLOTS] = {0}, running = 0, family = below(FAMILIES),
             prompt = 2 + below(LENGTH - 2);
    for (uint32_t i = 0; i < t.slots; i++)
        running += slot[i].use == REUSE_RUNNING;
    if (running == SEQUENCES)
        return;
    for (uint32_t i = 0; i < t.slots; i++) {
        common[i] = sequence[i].family == family || slot[i].rows < SHARED ? slot[i].rows : SHARED;
        common[i] = slot[i].use != REUSE_KEPT ? 0 : common[i] < prompt - 1 ? common[i] : prompt - 1;
    }
    struct reuse_prefix p = reuse_prefix(&t, common, false);
    uint32_t s = p.slot != REUSE_NONE ? p.slot : reuse_slot(&t);
    ck_assert_uint_ne(s, REUSE_NONE);
    if (p.slot == REUSE_NONE)
        give_up(s);
    for (uint32_t i = 0; i < t.versions; i++)
        if (version[i].slot == s && version[i].rows > p.rows)
            version[i] = (struct reuse_version){.slot = REUSE_NONE};
    reused += p.rows > 0;
    slot[s].use = REUSE_RUNNING;
    slot[s].rows = p.rows;
    slot[s].branch = reuse_branch(&t, common);
    slot[s].prompt = prompt;
    slot[s].start = p.rows;
    memset(slot[s].turns, 0, sizeof slot[s].turns);
    for (uint32_t k = 0, at = 0; k < REUSE_TURNS_MAX && below(2); k++)
        slot[s].turns[k] = at += 1 + below(50);
    sequence[s].family = family;
    sequence[s].prompt = prompt;
    sequence[s].length = prompt + below(40);
}

static void begin(uint32_t s)
{
    uint32_t rows = slot[s].rows;
    uint32_t read = reuse_version(&t, s, rows);
    ck_assert_int_eq(read == REUSE_NONE, rows == 0);
    ck_assert(rows == 0 || content[read] == state_of(sequence[s].family, rows));
    struct reuse_victim victim;
    while (victim = reuse_room(&t, s, rows), !reuse_nothing(victim)) {
        if (victim.slot != REUSE_NONE)
            give_up(victim.slot);
        else
            version[victim.version].slot = REUSE_NONE;
    }
    uint32_t v = reuse_write(&t, s, rows);
    ck_assert_uint_ne(v, REUSE_NONE);
    version[v] = (struct reuse_version){.slot = REUSE_NONE, .memory = true, .busy = true};
    content[v] = 0;
    sequence[s].writes = v;
}

static void commit(uint32_t s)
{
    uint32_t rows = slot[s].rows, prompt = sequence[s].prompt, v = sequence[s].writes;
    uint32_t wanted = rows < prompt ? prompt - rows : 1;
    uint32_t read = reuse_version(&t, s, rows); /* still there while the others began */
    ck_assert(rows == 0 || content[read] == state_of(sequence[s].family, rows));
    const struct reuse_points points = {prompt, slot[s].branch, EVERY, slot[s].turns};
    slot[s].rows = rows += reuse_pass_rows(rows, wanted < 30 ? wanted : 30, &points);
    version[v] = (struct reuse_version){
        .slot = s, .rows = rows, .memory = true, .checkpoint = reuse_is_point(rows, &points)};
    content[v] = state_of(sequence[s].family, rows);
}

static void end(uint32_t s, uint32_t most)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < t.versions; i++) {
        if (version[i].slot == s && version[i].rows == slot[s].rows)
            version[i].checkpoint = true;
        else if (version[i].slot == s && !version[i].checkpoint)
            version[i] = (struct reuse_version){.slot = REUSE_NONE};
    }
    slot[s].use = slot[s].rows > 0 ? REUSE_KEPT : REUSE_EMPTY;
    slot[s].used = ++clock_of_keeping;
    slot[s].cost_ns = slot[s].rows;
    struct reuse_victim v;
    while (v = reuse_surplus(&t, most, UINT64_MAX), !reuse_nothing(v))
        give_up(v.slot);
    for (uint32_t i = 0; i < t.slots; i++)
        kept += slot[i].use == REUSE_KEPT;
    ck_assert_uint_le(kept, most);
    most_kept = kept > most_kept ? kept : most_kept;
}

/* Passes of any of the sequences that run; some are killed. Nobody's state is lost or another
 * one's. */
START_TEST(sequences_run_beside_each_other)
{
    t = (struct reuse_table){.recurrent = true,
                             .slots = SLOTS,
                             .versions = 2 * SEQUENCES + (uint32_t)_i,
                             .version_bytes = 1,
                             .pool_bytes = 2 * SEQUENCES + (uint32_t)_i,
                             .slot = slot,
                             .version = version};
    random_seed(&rnd, 3, (uint64_t)_i);
    clock_of_keeping = reused = most_kept = 0;
    for (uint32_t i = 0; i < VERSIONS; i++)
        version[i] = (struct reuse_version){.slot = REUSE_NONE};
    for (uint32_t i = 0; i < SLOTS; i++)
        give_up(i);
    for (int round = 0; round < ROUNDS; round++) {
        uint32_t members = below(1u << SLOTS);
        if (below(3) == 0)
            start();
        for (uint32_t i = 0; i < SLOTS; i++)
            if (slot[i].use == REUSE_RUNNING && (members & 1u << i))
                begin(i);
        bool killed = below(10) == 0;
        for (uint32_t i = 0; i < SLOTS; i++) {
            if (slot[i].use != REUSE_RUNNING || !(members & 1u << i))
                continue;
            if (!killed)
                commit(i);
            else
                version[sequence[i].writes].busy = false;
        }
        for (uint32_t i = 0; i < SLOTS; i++)
            if (slot[i].use == REUSE_RUNNING &&
                (slot[i].rows >= sequence[i].length || below(50) == 0))
                end(i, SLOTS - SEQUENCES);
    }
    ck_assert_uint_eq(most_kept, SLOTS - SEQUENCES);
    ck_assert(_i == 0 || reused > 20);
}
END_TEST

/* A conversation outlives prompts that nobody continues, however many there are, unless it is not
 * used for long. */
START_TEST(side_requests_do_not_displace_conversations)
{
    t = (struct reuse_table){.slots = 2, .slot = slot, .version = version};
    slot[0] = (struct reuse_slot){
        .use = REUSE_KEPT, .rows = 1000, .used = 1, .uses = 3, .cost_ns = 100000, .bytes = 1000};
    for (uint32_t age = 1; age < 10; age++) {
        slot[1] = (struct reuse_slot){
            .use = REUSE_KEPT, .rows = 1000, .used = 1 + age, .cost_ns = 100000, .bytes = 1000};
        ck_assert_uint_eq(reuse_surplus(&t, 1, UINT64_MAX).slot, age < 3 ? 1 : 0);
        slot[1].rows = slot[1].bytes = 50; /* a title */
        slot[1].cost_ns = 5000;
        ck_assert_uint_eq(reuse_surplus(&t, 1, UINT64_MAX).slot, 1);
        slot[1].cost_ns = 100000000; /* however much a side request computed */
        slot[1].side = true;
        ck_assert_uint_eq(reuse_surplus(&t, 1, UINT64_MAX).slot, 1);
        ck_assert_uint_eq(reuse_surplus(&t, 2, 1000).slot, 1);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("reuse_model");
    TCase *c = tcase_create("reuse_model");
    tcase_add_loop_test(c, sequences_run_beside_each_other, 0, VERSIONS - 2 * (int)SEQUENCES + 1);
    tcase_add_test(c, side_requests_do_not_displace_conversations);
    suite_add_tcase(s, c);
    SRunner *runner = srunner_create(s);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
