/* SPDX-License-Identifier: Apache-2.0 */
/* The policy of reuse against simple searches over random tables. */
#include <check.h>
#include <string.h>

#include "lib/base/random.h"
#include "lib/policy/reuse/reuse.h"
#include "tests/unit/lib/policy/reuse/chances.h"

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
                                      .side = below(4) == 0,
                                      .rows = rows,
                                      .lowest = t.rings && below(2) ? below(ROWS) : 0,
                                      .prompt = below(rows + 1),
                                      .branch = below(2) * below(rows + 1),
                                      .start = below(2) * below(rows + 1),
                                      .shared = below(2) * below(rows + 1),
                                      .used = below(20) * SLOTS + i,
                                      .uses = below(6),
                                      .cost_ns = 1 + below(2000),
                                      .bytes = rows * 10ull};
        for (uint32_t k = 0, at = 0; k < REUSE_TURNS_MAX && below(2); k++)
            slot[i].turns[k] = at += 1 + below(ROWS / 2);
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
        while (!can_continue_from(s, rows))
            rows--;
        ck_assert_uint_eq(reuse_cut(&t, s, slot[s].rows, wanted), rows);
    }
}
END_TEST

/* Of the same conversation: its prompt is included, but for what templates rewrite. */
static bool moves(uint32_t s, uint32_t common, bool side)
{
    if (side && !slot[s].side)
        return false;
    uint32_t response = response_of(&slot[s]);
    return slot[s].use == REUSE_KEPT && (common >= slot[s].rows || common + 8 >= slot[s].prompt ||
                                         (response > 0 && common >= response));
}

START_TEST(the_longest_prefix_is_taken)
{
    uint32_t found = 0, copied = 0;
    for (int round = 0; round < ROUNDS; round++) {
        uint32_t common[SLOTS] = {0}, most = 0, most_moving = 0;
        bool side = below(3) == 0;
        make_table();
        for (uint32_t i = 0; i < t.slots; i++)
            common[i] = below(slot[i].rows + 1);
        struct reuse_prefix p = reuse_prefix(&t, common, side);
        for (uint32_t i = 0; i < t.slots; i++)
            if (slot[i].use != REUSE_EMPTY && reuse_cut(&t, i, slot[i].rows, common[i]) > most)
                most = reuse_cut(&t, i, slot[i].rows, common[i]);
        for (uint32_t i = 0; i < t.slots; i++)
            if (common[i] > 0 && moves(i, common[i], side) &&
                reuse_cut(&t, i, slot[i].rows, common[i]) > most_moving)
                most_moving = reuse_cut(&t, i, slot[i].rows, common[i]);
        if (most_moving > 0 && most_moving + 8 >= most)
            most = most_moving;
        ck_assert_uint_eq(p.rows, most);
        ck_assert_int_eq(p.slot == REUSE_NONE, most == 0);
        if (most == 0)
            continue;
        found++;
        bool taken = moves(p.slot, common[p.slot], side);
        copied += !taken;
        ck_assert_int_ne(slot[p.slot].use, REUSE_EMPTY);
        ck_assert_uint_eq(reuse_cut(&t, p.slot, slot[p.slot].rows, common[p.slot]), most);
        ck_assert_int_eq(reuse_moves(&t, p.slot, common[p.slot], side), taken);
        bool may = !side || slot[p.slot].side || moves(p.slot, common[p.slot], false);
        ck_assert_int_eq(reuse_takes(&t, p.slot, common[p.slot], 64, side),
                         slot[p.slot].use == REUSE_KEPT && may);
        ck_assert(!reuse_takes(&t, p.slot, common[p.slot], 63, side));
        for (uint32_t i = 0; i < t.slots; i++) { /* of equal ones, the one that costs least */
            if (slot[i].use == REUSE_EMPTY || common[i] == 0 ||
                reuse_cut(&t, i, slot[i].rows, common[i]) != most)
                continue;
            ck_assert(!moves(i, common[i], side) || taken);
            if (moves(i, common[i], side) == taken)
                ck_assert_uint_ge(slot[i].rows, slot[p.slot].rows);
        }
    }
    ck_assert(found > ROUNDS / 4 && copied > ROUNDS / 8);
}
END_TEST

/* ---- value ---- */

static double chance_of(uint32_t s)
{
    uint32_t last = 0;
    for (uint32_t i = 0; i < t.slots; i++)
        if (slot[i].use == REUSE_KEPT && slot[i].used > last)
            last = slot[i].used;
    return (1.0 + (slot[s].uses > 3 ? 3 : slot[s].uses)) / (1.0 + last - slot[s].used);
}

static double value_of(uint32_t s)
{
    uint32_t rows = slot[s].rows;
    if (rows == 0)
        return 0;
    while (!can_continue_from(s, rows))
        rows--;
    return chance_of(s) * slot[s].cost_ns / 1e9 * rows / slot[s].rows;
}

/* Rows that are computed again without a version, times those in which that happens. */
static uint64_t loss_of(uint32_t v, uint32_t end)
{
    uint32_t s = version[v].slot, low = version[v].rows - 1, high = version[v].rows + 1;
    while (low > 0 && !has(s, low))
        low--;
    while (high <= ROWS && !has(s, high))
        high++;
    uint32_t gap = high - version[v].rows;
    return (uint64_t)(version[v].rows - low) *
           (high > ROWS ? end : chances_of(&slot[s], version[v].rows, gap, end));
}

static double version_value_of(uint32_t v)
{
    const struct reuse_slot *s = &slot[version[v].slot];
    return chance_of(version[v].slot) * s->cost_ns / 1e9 * loss_of(v, s->rows) / s->rows / s->rows;
}

static uint32_t of_slot(uint32_t s)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < t.versions; i++)
        n += version[i].slot == s;
    return n;
}

static bool is_near(double a, double b)
{
    return a <= b * (1 + 1e-9) + 1e-30 && b <= a * (1 + 1e-9) + 1e-30;
}

static double density_of(struct reuse_victim v)
{
    if (v.slot == REUSE_NONE)
        return version_value_of(v.version) / (100 + 1);
    return value_of(v.slot) / (double)(slot[v.slot].bytes + 100 * of_slot(v.slot) + 1);
}

/* The lower of two values, where what a side request left is below all else. */
struct least {
    double value; /* -1: none yet */
    bool side;
};

static void lower(struct least *l, uint32_t s, double value)
{
    bool first = l->value < 0 || (slot[s].side && !l->side);
    if (first || (slot[s].side == l->side && value < l->value))
        *l = (struct least){value, slot[s].side};
}

/* The least value per byte of what is kept; -1: nothing is. */
static double least_density(uint32_t except, bool versions)
{
    struct least least = {.value = -1};
    for (uint32_t i = 0; i < t.slots + t.versions; i++) {
        bool whole = i < t.slots;
        struct reuse_victim v = {whole ? i : REUSE_NONE, whole ? REUSE_NONE : i - t.slots, 0};
        uint32_t s = whole ? i : version[v.version].slot;
        if (s == REUSE_NONE || s == except || slot[s].use != REUSE_KEPT ||
            (whole && versions && of_slot(s) == 0) || (!whole && t.recurrent && of_slot(s) == 1))
            continue;
        lower(&least, s, density_of(v));
    }
    return least.value;
}

START_TEST(a_value_is_what_is_saved)
{
    for (int round = 0; round < ROUNDS; round++) {
        make_table();
        for (uint32_t i = 0; i < t.slots; i++)
            if (slot[i].use == REUSE_KEPT)
                ck_assert(is_near(reuse_value(&t, i), value_of(i)));
        for (uint32_t i = 0; i < t.versions; i++)
            if (version[i].slot != REUSE_NONE && slot[version[i].slot].use == REUSE_KEPT)
                ck_assert(is_near(reuse_version_value(&t, i), version_value_of(i)));
    }
}
END_TEST

START_TEST(a_slot_is_empty_or_worth_least)
{
    for (int round = 0; round < ROUNDS; round++) {
        make_table();
        uint32_t got = reuse_slot(&t);
        bool empty = false, kept = false;
        for (uint32_t i = 0; i < t.slots; i++) {
            empty = empty || slot[i].use == REUSE_EMPTY;
            kept = kept || slot[i].use == REUSE_KEPT;
        }
        ck_assert_int_eq(got == REUSE_NONE, !empty && !kept);
        if (got == REUSE_NONE)
            continue;
        ck_assert_int_eq(slot[got].use, empty ? REUSE_EMPTY : REUSE_KEPT);
        struct least least = {.value = -1};
        for (uint32_t i = 0; i < t.slots; i++)
            if (slot[i].use == REUSE_KEPT)
                lower(&least, i, value_of(i));
        ck_assert(empty || (is_near(value_of(got), least.value) && slot[got].side == least.side));
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

static uint64_t all_bytes(void)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < t.slots; i++)
        bytes += slot[i].bytes;
    for (uint32_t i = 0; i < t.versions; i++)
        bytes += version[i].memory ? t.version_bytes : 0;
    return bytes;
}

static void free_version(uint32_t v)
{
    version[v] = (struct reuse_version){.slot = REUSE_NONE};
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

static bool is_needed(const struct reuse_version *v)
{
    const struct reuse_slot *s = &slot[v->slot];
    return v->rows == s->rows && (t.recurrent || s->rows < s->lowest);
}

/* Of running slots but `except`: versions that are no checkpoint go first, because they are worth
 * nothing but to the pass that they were read by. `own`: with checkpoints, but that of `end`. */
static uint32_t of_running(uint32_t except, bool own, uint32_t end)
{
    uint32_t best = REUSE_NONE;
    uint64_t least = UINT64_MAX;
    for (uint32_t i = t.versions; i-- > 0;) {
        const struct reuse_version *v = &version[i];
        if (v->slot == REUSE_NONE || (slot[v->slot].use != REUSE_RUNNING && v->slot != except))
            continue;
        bool is_own = v->slot == except;
        bool point = !t.recurrent && v->rows == response_of(&slot[v->slot]);
        if (is_own ? !own || v->rows == end || !v->checkpoint || point : is_needed(v))
            continue;
        uint64_t loss = v->checkpoint ? loss_of(i, is_own ? end : slot[v->slot].rows) : 0;
        if (loss <= least) {
            least = loss;
            best = i;
        }
    }
    return best;
}

/* What is left of a kept slot from which bytes were taken. */
static void cut(struct reuse_victim v)
{
    if (v.slot == REUSE_NONE) {
        free_version(v.version);
        return;
    }
    uint64_t left = slot[v.slot].bytes > v.bytes ? slot[v.slot].bytes - v.bytes : 0;
    uint32_t rows = reuse_cut(&t, v.slot, slot[v.slot].rows, (uint32_t)(left / 10));
    if (rows == 0) {
        give_up(v.slot);
        return;
    }
    slot[v.slot].rows = rows;
    slot[v.slot].bytes = rows * 10ull;
    for (uint32_t i = 0; i < t.versions; i++)
        if (version[i].slot == v.slot && version[i].rows > rows)
            free_version(i);
}

/* Unused memory goes first, then what is kept, of the least value per byte first, then what running
 * ones need least; no more than must, and never what they need. */
START_TEST(memory_is_given_up_in_order)
{
    uint32_t fitted = 0, not = 0;
    for (int round = 0; round < ROUNDS; round++) {
        make_table();
        uint32_t s = below(t.slots);
        slot[s].use = REUSE_RUNNING;
        uint64_t bytes = slot[s].bytes + below(1000);
        for (;;) {
            struct reuse_victim v = reuse_yield(&t, s, bytes);
            uint64_t all = all_bytes() - slot[s].bytes + bytes;
            bool fits = all <= t.pool_bytes;
            ck_assert_int_eq(reuse_fits(&t, s, bytes), fits);
            uint32_t unused = nobodys(true), least = of_running(REUSE_NONE, false, 0);
            double density = least_density(s, false);
            if (fits || (unused == REUSE_NONE && density < 0 && least == REUSE_NONE)) {
                ck_assert(reuse_nothing(v));
                fitted += fits;
                not += !fits;
                break;
            }
            if (unused != REUSE_NONE) {
                ck_assert_uint_eq(v.version, unused);
            } else if (density >= 0) {
                ck_assert(is_near(density_of(v), density));
                ck_assert_uint_le(v.bytes, all - t.pool_bytes);
            } else {
                ck_assert_uint_eq(v.version, least);
            }
            cut(v);
        }
    }
    ck_assert(fitted > ROUNDS / 4 && not > ROUNDS / 20);
}
END_TEST

/* Whether a checkpoint of the running slot `s` is worth less per byte than the victim, with rows
 * that cost as the victim's. */
static bool own_is_worth_less(uint32_t s, uint32_t end, struct reuse_victim v)
{
    const struct reuse_slot *other = &slot[v.slot != REUSE_NONE ? v.slot : version[v.version].slot];
    double own = -1, uses = slot[s].uses < 3 ? slot[s].uses : 3;
    for (uint32_t i = 0; i < t.versions; i++) {
        const struct reuse_version *w = &version[i];
        if (w->slot != s || w->busy || !w->checkpoint || w->rows == end ||
            (!t.recurrent && w->rows == reuse_response(slot[s].prompt, slot[s].turns)))
            continue;
        double rows = (double)reuse_loss(&t, s, w->rows, end) / end;
        double density = (1 + uses) * rows * ((double)other->cost_ns * 1e-9 / other->rows) / 101;
        own = own < 0 || density < own ? density : own;
    }
    if (own < 0 || slot[s].side != other->side)
        return own >= 0 && slot[s].side;
    return own < density_of(v) && !is_near(own, density_of(v));
}

/* Kept ones give up no more than a pass needs, and no more than what is worth less than the
 * checkpoints of the slot that runs. */
START_TEST(kept_ones_make_room_for_a_version)
{
    uint32_t gave = 0, own_less = 0;
    for (int round = 0; round < ROUNDS; round++) {
        make_table();
        uint32_t s = below(t.slots), end = slot[s].rows;
        slot[s].use = REUSE_RUNNING;
        for (;;) {
            struct reuse_victim v = reuse_room(&t, s, end);
            bool entry = nobodys(false) != REUSE_NONE;
            bool spare = nobodys(true) != REUSE_NONE || of_pass_before(s, end) != REUSE_NONE ||
                         (entry && all_bytes() + 100 <= t.pool_bytes);
            double density = least_density(s, !entry);
            struct reuse_victim least = reuse_least_dense(&t, s, !entry);
            bool own = !spare && density >= 0 && own_is_worth_less(s, end, least);
            own_less += own;
            ck_assert_int_eq(reuse_nothing(v), spare || density < 0 || own);
            if (reuse_nothing(v))
                break;
            gave++;
            ck_assert(is_near(density_of(v), density));
            if (v.slot != REUSE_NONE)
                cut(v);
            else
                version[v.version] = (struct reuse_version){.slot = REUSE_NONE, .memory = true};
        }
    }
    ck_assert_uint_gt(gave, ROUNDS / 50);
    ck_assert_uint_gt(own_less, ROUNDS / 100);
}
END_TEST

START_TEST(so_much_is_kept)
{
    uint32_t several = 0, gave = 0;
    for (int round = 0; round < ROUNDS; round++) {
        make_table();
        uint32_t most = 1 + below(SLOTS);
        uint64_t limit = below(3) ? UINT64_MAX : below(3000);
        for (;;) {
            struct reuse_victim v = reuse_surplus(&t, most, limit);
            uint32_t kept = 0;
            uint64_t bytes = 0;
            struct least least = {.value = -1};
            for (uint32_t i = 0; i < t.slots; i++) {
                if (slot[i].use != REUSE_KEPT)
                    continue;
                kept++;
                bytes += slot[i].bytes + 100 * of_slot(i);
                lower(&least, i, value_of(i));
            }
            ck_assert_int_eq(reuse_nothing(v), kept <= most && bytes <= limit);
            if (reuse_nothing(v)) {
                several += kept > 1;
                break;
            }
            gave++;
            if (kept > most)
                ck_assert(is_near(value_of(v.slot), least.value) && v.bytes == UINT64_MAX);
            else
                ck_assert(is_near(density_of(v), least_density(REUSE_NONE, false)) &&
                          v.bytes <= bytes - limit);
            cut(v);
        }
    }
    ck_assert(several > ROUNDS / 100 && gave > ROUNDS / 10);
}
END_TEST

/* Two states, or the window that the rings of a slot were cut back to. */
static uint64_t lacks(uint32_t s)
{
    return t.recurrent ? 200 : t.rings && s < t.slots && slot[s].rows < slot[s].lowest ? 100 : 0;
}

/* As long as they may grow, what each needs is within the pool. */
START_TEST(running_ones_share_the_pool)
{
    uint32_t may = 0;
    for (int round = 0; round < ROUNDS; round++) {
        make_table();
        uint32_t s = below(t.slots + 1);
        uint64_t bytes = below(1000), all = bytes + lacks(s);
        for (uint32_t i = 0; i < t.slots; i++)
            if (i != s && slot[i].use == REUSE_RUNNING)
                all += slot[i].bytes + lacks(i);
        bool got = reuse_may_grow(&t, s < t.slots ? s : REUSE_NONE, bytes);
        ck_assert_int_eq(got, all <= t.pool_bytes);
        may += got;
    }
    ck_assert(may > ROUNDS / 10 && may < ROUNDS - ROUNDS / 10);
}
END_TEST

START_TEST(the_weakest_is_the_least_loss)
{
    for (int round = 0; round < ROUNDS; round++) {
        make_table();
        uint32_t s = below(t.slots), end = slot[s].rows + below(2), best = REUSE_NONE;
        for (uint32_t i = t.versions; i-- > 0;)
            if (version[i].slot == s && version[i].rows != end &&
                (best == REUSE_NONE || loss_of(i, end) <= loss_of(best, end)))
                best = i;
        ck_assert_uint_eq(reuse_weakest(&t, s, end), best);
    }
}
END_TEST

static uint32_t to_write(uint32_t s, uint32_t end)
{
    uint32_t found[] = {nobodys(true), of_pass_before(s, end),
                        all_bytes() + 100 <= t.pool_bytes ? nobodys(false) : REUSE_NONE,
                        of_running(s, true, end)};
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
        uint32_t end = t.recurrent ? slot[s].rows : slot[s].rows + 1;
        uint32_t got = reuse_write(&t, s, end);
        ck_assert_uint_eq(got, to_write(s, end));
        none += got == REUSE_NONE;
        taken += got != REUSE_NONE && version[got].slot != REUSE_NONE && version[got].slot != s &&
                 slot[version[got].slot].use == REUSE_RUNNING;
    }
    ck_assert_uint_gt(none, ROUNDS / 200);
    ck_assert_uint_gt(taken, ROUNDS / 200);
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
    tcase_add_test(c, a_slot_is_empty_or_worth_least);
    tcase_add_test(c, a_value_is_what_is_saved);
    tcase_add_test(c, memory_is_given_up_in_order);
    tcase_add_test(c, kept_ones_make_room_for_a_version);
    tcase_add_test(c, so_much_is_kept);
    tcase_add_test(c, running_ones_share_the_pool);
    tcase_add_test(c, the_weakest_is_the_least_loss);
    tcase_add_test(c, a_pass_writes_what_is_needed_least);
    suite_add_tcase(s, c);
    SRunner *runner = srunner_create(s);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
