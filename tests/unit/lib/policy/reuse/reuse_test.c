/* SPDX-License-Identifier: Apache-2.0 */
/* The policy of reuse against simple searches over random tables, and in a model of slots and
 * versions in which several sequences run at a time and several are kept. */
#include <check.h>
#include <string.h>

#include "lib/base/random.h"
#include "lib/policy/reuse/reuse.h"

#define SLOTS    6
#define VERSIONS 12
#define ROWS     40 /* rows are below */
#define ROUNDS   6000

static struct reuse_slot slot[SLOTS];
static struct reuse_version version[VERSIONS];
static struct reuse_table t;
static struct random rnd;

static uint32_t below(uint32_t n)
{
    return (uint32_t)(random_u64(&rnd) % n);
}

static bool has(uint32_t s, uint32_t rows)
{
    for (uint32_t i = 0; i < t.versions; i++)
        if (version[i].slot == s && version[i].rows == rows)
            return true;
    return false;
}

/* Versions have at most the rows of their slot, and no two the same; busy ones are nobody's. */
static void make_table(void)
{
    t = (struct reuse_table){.recurrent = below(2),
                             .slots = 1 + below(SLOTS),
                             .versions = 1 + below(VERSIONS),
                             .version_bytes = 100,
                             .pool_bytes = below(3) ? 100 * below(40) : UINT64_MAX,
                             .slot = slot,
                             .version = version};
    t.rings = below(2);
    for (uint32_t i = 0; i < t.slots; i++) {
        uint32_t rows = below(ROWS);
        slot[i] = (struct reuse_slot){.use = (enum reuse_use)below(3),
                                      .rows = rows,
                                      .lowest = t.rings && below(2) ? below(ROWS) : 0,
                                      .used = below(100) * SLOTS + i,
                                      .bytes = rows * 10ull};
    }
    memset(version, 0, sizeof version);
    for (uint32_t i = 0; i < VERSIONS; i++)
        version[i].slot = REUSE_NONE;
    for (uint32_t i = 0; i < t.versions; i++) {
        struct reuse_version *v = &version[i];
        uint32_t s = below(t.slots + 1),
                 rows = s < t.slots && slot[s].rows > 0 ? 1 + below(slot[s].rows) : 0;
        v->memory = below(2);
        if (rows == 0 || has(s, rows)) {
            v->busy = v->memory && below(2);
            continue;
        }
        v->slot = s;
        v->rows = rows;
        v->memory = true;
        v->checkpoint = slot[s].use == REUSE_KEPT || below(2);
    }
}

/* ---- slots ---- */

static bool can_continue_from(uint32_t s, uint32_t rows)
{
    bool in_rings = !t.rings || rows >= slot[s].lowest;
    if (rows == 0 || (!t.recurrent && in_rings))
        return true;
    for (uint32_t i = 0; i < t.versions; i++)
        if (version[i].slot == s && version[i].rows == rows && (in_rings || version[i].checkpoint))
            return true;
    return false;
}

START_TEST(a_cut_is_the_longest_that_can_be_continued)
{
    for (int round = 0; round < ROUNDS; round++) {
        make_table();
        uint32_t s = below(t.slots), wanted = below(ROWS);
        uint32_t rows = wanted < slot[s].rows ? wanted : slot[s].rows;
        /* rings below `lowest` need a checkpoint: there may be one with more rows only where no
         * version is needed */
        while (!can_continue_from(s, rows))
            rows--;
        ck_assert_uint_eq(reuse_cut(&t, s, slot[s].rows, wanted), rows);
    }
}
END_TEST

START_TEST(the_longest_prefix_is_taken)
{
    uint32_t found = 0;
    for (int round = 0; round < ROUNDS; round++) {
        uint32_t common[SLOTS] = {0}, most = 0;
        make_table();
        for (uint32_t i = 0; i < t.slots; i++)
            common[i] = below(slot[i].rows + 1);
        struct reuse_prefix p = reuse_prefix(&t, common);
        for (uint32_t i = 0; i < t.slots; i++)
            if (slot[i].use == REUSE_KEPT && reuse_cut(&t, i, slot[i].rows, common[i]) > most)
                most = reuse_cut(&t, i, slot[i].rows, common[i]);
        ck_assert_uint_eq(p.rows, most);
        ck_assert_int_eq(p.slot == REUSE_NONE, most == 0);
        if (most == 0)
            continue;
        found++;
        ck_assert_int_eq(slot[p.slot].use, REUSE_KEPT);
        ck_assert_uint_eq(reuse_cut(&t, p.slot, slot[p.slot].rows, common[p.slot]), most);
        for (uint32_t i = 0; i < t.slots; i++) /* of equal ones, the one that loses less */
            if (slot[i].use == REUSE_KEPT && reuse_cut(&t, i, slot[i].rows, common[i]) == most)
                ck_assert_uint_ge(slot[i].rows, slot[p.slot].rows);
    }
    ck_assert_uint_gt(found, ROUNDS / 4);
}
END_TEST

/* The kept slots by age, the oldest first, without one. */
static uint32_t by_age(uint32_t except, uint32_t order[SLOTS])
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < t.slots; i++) {
        if (i == except || slot[i].use != REUSE_KEPT)
            continue;
        uint32_t at = n++;
        for (; at > 0 && slot[order[at - 1]].used > slot[i].used; at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
    return n;
}

START_TEST(a_slot_is_empty_or_the_oldest)
{
    for (int round = 0; round < ROUNDS; round++) {
        uint32_t order[SLOTS], n, got;
        make_table();
        n = by_age(REUSE_NONE, order);
        got = reuse_slot(&t);
        bool empty = false;
        for (uint32_t i = 0; i < t.slots; i++)
            empty = empty || slot[i].use == REUSE_EMPTY;
        if (empty)
            ck_assert_int_eq(slot[got].use, REUSE_EMPTY);
        else
            ck_assert_uint_eq(got, n > 0 ? order[0] : REUSE_NONE);
    }
}
END_TEST

static void give_up(uint32_t s)
{
    slot[s] = (struct reuse_slot){.use = REUSE_EMPTY};
    for (uint32_t i = 0; i < t.versions; i++)
        if (version[i].slot == s)
            version[i] = (struct reuse_version){.slot = REUSE_NONE};
}

static uint64_t bytes_of_others(uint32_t except, bool kept_only)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < t.slots; i++)
        if (i != except && (!kept_only || slot[i].use == REUSE_KEPT))
            bytes += slot[i].bytes;
    for (uint32_t i = 0; kept_only && i < t.versions; i++)
        if (version[i].slot != except && version[i].slot != REUSE_NONE && version[i].memory &&
            slot[version[i].slot].use == REUSE_KEPT)
            bytes += t.version_bytes;
    return bytes;
}

static uint64_t all_bytes(void)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < t.slots; i++)
        bytes += slot[i].bytes;
    for (uint32_t i = 0; i < t.versions; i++)
        bytes += version[i].memory ? t.version_bytes : 0;
    return bytes;
}

/* Rows that would have to be computed again, at most, without this version. */
static uint32_t gap(uint32_t s, uint32_t rows, uint32_t end)
{
    uint32_t low = rows - 1, high = rows + 1;
    while (low > 0 && !has(s, low))
        low--;
    while (high < end && !has(s, high))
        high++;
    return high > end ? end - low : high - low;
}

static uint32_t nobodys(bool memory)
{
    for (uint32_t i = 0; i < t.versions; i++)
        if (version[i].slot == REUSE_NONE && !version[i].busy && version[i].memory == memory)
            return i;
    return REUSE_NONE;
}

static uint32_t of_pass_before(uint32_t s, uint32_t end)
{
    for (uint32_t i = 0; i < t.versions; i++)
        if (version[i].slot == s && !version[i].checkpoint && version[i].rows != end)
            return i;
    return REUSE_NONE;
}

static uint32_t of_slot(uint32_t s)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < t.versions; i++)
        n += version[i].slot == s;
    return n;
}

static bool is_needed(const struct reuse_version *v)
{
    const struct reuse_slot *s = &slot[v->slot];
    return v->rows == s->rows && (t.recurrent || s->rows < s->lowest);
}

/* Versions that are no checkpoint go first: they are worth nothing but to the pass that they were
 * read by. */
static uint32_t of_neighbours(uint32_t except)
{
    uint32_t best = REUSE_NONE, smallest = 2 * ROWS;
    for (uint32_t i = t.versions; i-- > 0;) {
        const struct reuse_version *v = &version[i];
        if (v->slot == REUSE_NONE || v->slot == except || slot[v->slot].use != REUSE_RUNNING ||
            is_needed(v))
            continue;
        uint32_t g = v->checkpoint ? gap(v->slot, v->rows, slot[v->slot].rows) : 0;
        if (g <= smallest) {
            smallest = g;
            best = i;
        }
    }
    return best;
}

/* Unused memory goes first, then kept ones, the oldest first, then what running ones need least;
 * no more than must, and never what they need. */
START_TEST(memory_is_given_up_in_order)
{
    uint32_t fitted = 0, not = 0;
    for (int round = 0; round < ROUNDS; round++) {
        uint32_t order[SLOTS], n, given = 0;
        make_table();
        uint32_t s = below(t.slots);
        slot[s].use = REUSE_RUNNING;
        uint64_t bytes = slot[s].bytes + below(1000);
        n = by_age(s, order);
        for (;;) {
            struct reuse_victim v = reuse_yield(&t, s, bytes);
            bool fits = all_bytes() - slot[s].bytes + bytes <= t.pool_bytes;
            ck_assert_int_eq(reuse_fits(&t, s, bytes), fits);
            uint32_t unused = nobodys(true), least = of_neighbours(REUSE_NONE);
            if (fits || (unused == REUSE_NONE && given == n && least == REUSE_NONE)) {
                ck_assert(reuse_nothing(v));
                fitted += fits;
                not += !fits;
                break;
            }
            if (unused != REUSE_NONE) {
                ck_assert_uint_eq(v.version, unused);
                version[v.version] = (struct reuse_version){.slot = REUSE_NONE};
            } else if (given < n) {
                ck_assert_uint_eq(v.slot, order[given++]);
                give_up(v.slot);
            } else {
                ck_assert_uint_eq(v.version, least);
                version[v.version] = (struct reuse_version){.slot = REUSE_NONE};
            }
        }
    }
    ck_assert(fitted > ROUNDS / 4 && not > ROUNDS / 20);
}
END_TEST

/* Kept ones give up no more than a pass needs, and all of it before a running one loses any. */
START_TEST(kept_ones_make_room_for_a_version)
{
    uint32_t gave = 0;
    for (int round = 0; round < ROUNDS; round++) {
        make_table();
        uint32_t s = below(t.slots), end = slot[s].rows;
        slot[s].use = REUSE_RUNNING;
        for (;;) {
            struct reuse_victim v = reuse_room(&t, s, end);
            bool spare = nobodys(true) != REUSE_NONE || of_pass_before(s, end) != REUSE_NONE ||
                         (nobodys(false) != REUSE_NONE && all_bytes() + 100 <= t.pool_bytes);
            if (reuse_nothing(v)) {
                for (uint32_t i = 0; i < t.slots; i++)
                    ck_assert(spare || i == s || slot[i].use != REUSE_KEPT ||
                              (nobodys(false) == REUSE_NONE && of_slot(i) == 0));
                break;
            }
            ck_assert(!spare);
            gave++;
            uint32_t of = v.slot != REUSE_NONE ? v.slot : version[v.version].slot;
            ck_assert_int_eq(slot[of].use, REUSE_KEPT);
            if (v.slot != REUSE_NONE) {
                ck_assert_uint_le(of_slot(of), 1);
                give_up(of);
                continue;
            }
            for (uint32_t i = 0; i < t.versions; i++) /* the later ones serve longer prompts */
                ck_assert(version[i].slot != of || version[i].rows >= version[v.version].rows);
            version[v.version] = (struct reuse_version){.slot = REUSE_NONE, .memory = true};
        }
    }
    ck_assert_uint_gt(gave, ROUNDS / 50);
}
END_TEST

START_TEST(so_many_are_kept)
{
    uint32_t several = 0;
    for (int round = 0; round < ROUNDS; round++) {
        uint32_t order[SLOTS], n, given = 0, next;
        make_table();
        uint32_t s = below(t.slots), most = 1 + below(SLOTS);
        uint64_t bytes = below(1000), limit = below(3) ? UINT64_MAX : below(3000);
        slot[s].use = REUSE_RUNNING;
        n = by_age(s, order);
        while (given < n && (n - given + 1 > most || bytes_of_others(s, true) + bytes > limit)) {
            next = reuse_surplus(&t, s, most, bytes, limit);
            ck_assert_uint_eq(next, order[given++]);
            give_up(next);
        }
        ck_assert_uint_eq(reuse_surplus(&t, s, most, bytes, limit), REUSE_NONE);
        ck_assert_uint_le(n - given, most - 1);
        several += n - given > 1;
    }
    ck_assert_uint_gt(several, ROUNDS / 100);
}
END_TEST

/* ---- checkpoints ---- */

START_TEST(a_pass_ends_at_the_next_point)
{
    for (int round = 0; round < ROUNDS; round++) {
        uint32_t position = below(300), rows = 1 + below(200), prompt = 1 + below(400),
                 every = 16 + below(100);
        uint32_t want = 1;
        while (want < rows && !reuse_is_point(position + want, prompt, every))
            want++;
        ck_assert_uint_eq(reuse_pass_rows(position, rows, prompt, every), want);
    }
    ck_assert(reuse_is_point(92, 100, 64) && reuse_is_point(128, 100, 64) &&
              !reuse_is_point(93, 100, 64));
    ck_assert_uint_eq(reuse_prompt_point(8), 0);
    ck_assert_uint_eq(reuse_prompt_point(9), 1);
}
END_TEST

static uint32_t smallest_gap(uint32_t s, uint32_t end, uint32_t a, uint32_t b,
                             bool only_checkpoints)
{
    uint32_t best = REUSE_NONE, smallest = 2 * ROWS;
    for (uint32_t i = t.versions; i-- > 0;) {
        const struct reuse_version *v = &version[i];
        if (v->slot != s || v->rows == a || v->rows == b || (only_checkpoints && !v->checkpoint))
            continue;
        uint32_t g = gap(s, v->rows, end);
        if (g <= smallest) {
            smallest = g;
            best = i;
        }
    }
    return best;
}

START_TEST(the_weakest_has_the_smallest_gap)
{
    for (int round = 0; round < ROUNDS; round++) {
        make_table();
        uint32_t s = below(t.slots), end = slot[s].rows + below(2), point = below(ROWS);
        ck_assert_uint_eq(reuse_weakest(&t, s, end, point),
                          smallest_gap(s, end, end, point, false));
    }
}
END_TEST

static uint32_t to_write(uint32_t s, uint32_t end, uint32_t point)
{
    uint32_t found[] = {nobodys(true),
                        of_pass_before(s, end),
                        all_bytes() + 100 <= t.pool_bytes ? nobodys(false) : REUSE_NONE,
                        smallest_gap(s, end, end, point, true),
                        of_neighbours(s),
                        t.recurrent ? reuse_version(&t, s, point == end ? 0 : point) : REUSE_NONE};
    for (size_t i = 0; i < sizeof found / sizeof *found; i++)
        if (found[i] != REUSE_NONE)
            return found[i];
    return REUSE_NONE;
}

START_TEST(a_pass_writes_what_is_needed_least)
{
    uint32_t taken = 0, none = 0;
    for (int round = 0; round < ROUNDS; round++) {
        make_table();
        uint32_t s = below(t.slots);
        slot[s].use = REUSE_RUNNING;
        uint32_t end = t.recurrent ? slot[s].rows : slot[s].rows + 1, point = below(ROWS);
        uint32_t got = reuse_write(&t, s, end, point);
        ck_assert_uint_eq(got, to_write(s, end, point));
        none += got == REUSE_NONE;
        taken += got != REUSE_NONE && version[got].slot != REUSE_NONE && version[got].slot != s &&
                 slot[version[got].slot].use == REUSE_RUNNING;
    }
    ck_assert_uint_gt(none, ROUNDS / 200);
    ck_assert_uint_gt(taken, ROUNDS / 200);
}
END_TEST

/* ---- a model of it ---- */

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
        common[i] = common[i] < prompt - 1 ? common[i] : prompt - 1;
    }
    struct reuse_prefix p = reuse_prefix(&t, common);
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
    uint32_t v = reuse_write(&t, s, rows, reuse_prompt_point(sequence[s].prompt));
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
    slot[s].rows = rows += reuse_pass_rows(rows, wanted < 30 ? wanted : 30, prompt, EVERY);
    version[v] = (struct reuse_version){
        .slot = s, .rows = rows, .memory = true, .checkpoint = reuse_is_point(rows, prompt, EVERY)};
    content[v] = state_of(sequence[s].family, rows);
}

static void end(uint32_t s, uint32_t most)
{
    uint32_t other, kept = 0;
    for (uint32_t i = 0; i < t.versions; i++) {
        if (version[i].slot == s && version[i].rows == slot[s].rows)
            version[i].checkpoint = true;
        else if (version[i].slot == s && !version[i].checkpoint)
            version[i] = (struct reuse_version){.slot = REUSE_NONE};
    }
    while ((other = reuse_surplus(&t, s, most, 0, UINT64_MAX)) != REUSE_NONE)
        give_up(other);
    slot[s].use = slot[s].rows > 0 ? REUSE_KEPT : REUSE_EMPTY;
    slot[s].used = ++clock_of_keeping;
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

static void setup(void)
{
    random_seed(&rnd, 1, 0);
}

int main(void)
{
    Suite *s = suite_create("reuse");
    TCase *c = tcase_create("reuse");
    tcase_add_checked_fixture(c, setup, NULL);
    tcase_add_test(c, a_cut_is_the_longest_that_can_be_continued);
    tcase_add_test(c, the_longest_prefix_is_taken);
    tcase_add_test(c, a_slot_is_empty_or_the_oldest);
    tcase_add_test(c, memory_is_given_up_in_order);
    tcase_add_test(c, kept_ones_make_room_for_a_version);
    tcase_add_test(c, so_many_are_kept);
    tcase_add_test(c, a_pass_ends_at_the_next_point);
    tcase_add_test(c, the_weakest_has_the_smallest_gap);
    tcase_add_test(c, a_pass_writes_what_is_needed_least);
    tcase_add_loop_test(c, sequences_run_beside_each_other, 0, VERSIONS - 2 * (int)SEQUENCES + 1);
    suite_add_tcase(s, c);
    SRunner *runner = srunner_create(s);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
