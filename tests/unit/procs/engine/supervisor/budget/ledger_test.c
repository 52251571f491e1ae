/* SPDX-License-Identifier: Apache-2.0 */
/* The ledger's arithmetic: the documented guarantees about budgets. */
#include <check.h>
#include <stdlib.h>

#include "lib/base/bytes.h"
#include "procs/engine/supervisor/budget/ledger.h"

/* A small model and a large one. */
static struct ledger_facts small_model(void)
{
    return (struct ledger_facts){
        .dense_bytes = 3371008,
        .expert_slot_bytes = 29884416,
        .experts_min_bytes = 4 * 122880,
        .segments_bytes = 1130496,
        .kv_bytes = 8388608,
        .private_bytes = 3895296,
        .text_bytes = 5788760,
        .threads = 74,
        .processes = 5,
        .mappers = 3,
        .loaders = 1,
        .loader_flight = 4 * MIB,
    };
}

static struct ledger_facts large_model(void)
{
    return (struct ledger_facts){
        .dense_bytes = 1200 * MIB,
        .expert_slot_bytes = 58 * GIB,
        .experts_min_bytes = 8 * 10 * MIB,
        .segments_bytes = 30 * MIB,
        .kv_bytes = 384 * MIB,
        .private_bytes = 60 * MIB,
        .text_bytes = 8 * MIB,
        .threads = 120,
        .processes = 8,
        .mappers = 6,
        .loaders = 4,
        .loader_flight = 16 * MIB,
    };
}

static struct ledger_facts model(int i)
{
    return i == 0 ? small_model() : large_model();
}

static uint64_t total(const struct ledger_facts *f, const struct ledger_result *p)
{
    (void)f;
    return p->margin + p->fixed + p->quota + p->nodes + p->page_tables + p->flight;
}

/* The lines never add up to more than the budget, and the rest is less than one step of the quota
 * and its costs, unless the whole model fits. */
START_TEST(lines_add_up)
{
    struct ledger_facts f = model(_i);
    uint64_t min_budget = ledger_make(&f).min_budget;
    for (uint64_t budget = min_budget; budget < 90 * GIB; budget += budget / 7) {
        f.budget = budget;
        struct ledger_result p = ledger_make(&f);
        ck_assert_uint_le(total(&f, &p), budget);
        ck_assert_uint_ge(p.quota, p.quota_min);
        bool whole = p.quota >= f.dense_bytes + f.expert_slot_bytes;
        uint64_t rest = budget - total(&f, &p);
        ck_assert(whole || rest < 256 * KIB);
        /* of what is left then, nearly all is spare */
        ck_assert_uint_le(p.spare, whole ? rest : 0);
        ck_assert_uint_ge(p.spare + (whole ? rest / 31 + 64 * KIB : 0), whole ? rest : 0);
    }
}
END_TEST

/* The minimum in the error message is enough, and one MiB less is not. */
START_TEST(min_budget_is_exact)
{
    struct ledger_facts f = model(_i);
    uint64_t min_budget = ledger_make(&f).min_budget;
    ck_assert_uint_eq(min_budget % MIB, 0);
    f.budget = min_budget;
    struct ledger_result p = ledger_make(&f);
    ck_assert_uint_ge(p.quota, p.quota_min);
    ck_assert_uint_eq(p.min_budget, min_budget);
    f.budget = min_budget - MIB;
    ck_assert_uint_lt(ledger_make(&f).quota, p.quota_min);
}
END_TEST

START_TEST(min_budget_is_independent_of_the_budget)
{
    struct ledger_facts f = model(_i);
    uint64_t min_budget = ledger_make(&f).min_budget;
    for (uint64_t budget = 1; budget < 90 * GIB; budget *= 3) {
        f.budget = budget;
        ck_assert_uint_eq(ledger_make(&f).min_budget, min_budget);
    }
}
END_TEST

START_TEST(more_budget_is_never_less_arena)
{
    struct ledger_facts f = model(_i);
    uint64_t before = 0;
    for (uint64_t budget = MIB; budget < 80 * GIB; budget += budget / 5 + MIB) {
        f.budget = budget;
        uint64_t quota = ledger_make(&f).quota;
        ck_assert_uint_ge(quota, before);
        before = quota;
    }
}
END_TEST

/* The guarantee of --print-memory: the stated bytes of experts fit that budget, but not one MiB
 * less; for no experts it is the minimum budget. */
START_TEST(budget_for_experts_is_exact)
{
    for (int i = 0; i < 2; i++) {
        struct ledger_facts f = model(i);
        ck_assert_uint_eq(ledger_budget_for(&f, 0), ledger_make(&f).min_budget);
        for (unsigned share = 25; share <= 100; share += 25) {
            uint64_t experts = f.expert_slot_bytes / 100 * share;
            f.budget = ledger_budget_for(&f, experts);
            ck_assert_uint_ge(ledger_make(&f).quota, f.dense_bytes + experts);
            f.budget -= MIB;
            ck_assert_uint_lt(ledger_make(&f).quota, align_up(f.dense_bytes + experts, 64 * KIB));
        }
    }
}
END_TEST

START_TEST(measured_page_tables_count_when_larger)
{
    struct ledger_facts f = small_model();
    f.budget = 48 * MIB;
    uint64_t before = ledger_make(&f).quota;
    f.page_tables = 3 * MIB;
    struct ledger_result p = ledger_make(&f);
    ck_assert_uint_eq(p.page_tables, 3 * MIB);
    ck_assert_uint_lt(p.quota, before);
}
END_TEST

/* Page tables, of two slots that are mapped in turn, and nodes of keys and values, as of the
 * arena. */
START_TEST(kernel_memory_of_keys_and_values)
{
    struct ledger_facts without = large_model(), with = without;
    without.kv_bytes = 0;
    with.kv_bytes = 24 * GIB;
    without.budget = with.budget = 90 * GIB;
    struct ledger_result a = ledger_make(&without), b = ledger_make(&with);
    ck_assert_uint_eq(b.fixed - a.fixed, align_up(with.kv_bytes + with.kv_bytes / 400, PAGE_BYTES));
    ck_assert_uint_eq(b.quota, a.quota); /* all experts */
    ck_assert_uint_eq(b.page_tables - a.page_tables, 2 * with.kv_bytes / 512);
}
END_TEST

START_TEST(margin)
{
    ck_assert_uint_eq(ledger_margin(0), 4 * MIB);
    ck_assert_uint_eq(ledger_margin(200 * MIB), 4 * MIB);
    ck_assert_uint_eq(ledger_margin(100 * GIB), 2 * GIB);
}
END_TEST

START_TEST(quota_moves)
{
    ck_assert(ledger_quota_moves(10 * MIB, 10 * MIB - 64 * KIB));
    ck_assert(!ledger_quota_moves(10 * MIB, 10 * MIB));
    ck_assert(!ledger_quota_moves(10 * MIB, 10 * MIB + 64 * KIB));
    ck_assert(ledger_quota_moves(10 * MIB, 10 * MIB + 256 * KIB));
    ck_assert(!ledger_quota_moves(10 * GIB, 10 * GIB + 256 * KIB));
}
END_TEST

/* However often it is published and then used, an eighth of what there was stays free; and it is
 * given back when others take memory, or the engine will. */
START_TEST(spare_memory_of_a_machine)
{
    const uint64_t all = 8000 * MIB, missing = 800 * MIB;
    uint64_t used = 0, sent = 0;
    for (int i = 0; i < 100; i++) {
        sent = ledger_spare_step(ledger_spare_within(all - used, used, missing), sent);
        ck_assert_uint_eq(sent, (all - missing) / 8 * 7);
        used = sent;
    }
    ck_assert_uint_eq(ledger_spare_within(0, used, 0), used / 8 * 7);
    ck_assert_uint_eq(ledger_spare_within(0, used, used), 0);
    ck_assert_uint_eq(ledger_spare_within(100, 0, 200), 0);
    /* a step that is crossed to and fro */
    sent = ledger_spare_step(10 * MIB, 0);
    ck_assert_uint_eq(sent, 10 * MIB);
    sent = ledger_spare_step(10 * MIB - 1, sent);
    ck_assert_uint_eq(sent, 9 * MIB);
    ck_assert_uint_eq(ledger_spare_step(10 * MIB + 1, sent), 9 * MIB);
    ck_assert_uint_eq(ledger_spare_step(11 * MIB, sent), 11 * MIB);
    ck_assert_uint_eq(ledger_spare_step(0, sent), 0);
}
END_TEST

/* Whatever prefixes wish for, the parts stay within the budget, experts keep half of what they have
 * without it and the minimum, and the minimum of the budget is the same. */
START_TEST(lent_memory_is_within_the_budget)
{
    struct ledger_facts f = model(_i);
    const uint64_t min_budget = ledger_make(&f).min_budget;
    for (uint64_t budget = min_budget; budget < 4 * min_budget; budget += min_budget / 13) {
        f.budget = budget;
        f.lent_bytes = 0;
        const struct ledger_facts all_kept = f;
        struct ledger_result without = ledger_make(&f);
        uint64_t before = 0;
        for (uint64_t wanted = 0; wanted < budget; wanted += budget / 37) {
            f.lent_bytes = ledger_lend(&f, wanted);
            struct ledger_result p = ledger_make(&f);
            ck_assert_uint_le(f.lent_bytes, wanted);
            ck_assert(wanted > without.spare || f.lent_bytes == 0);
            ck_assert_uint_ge(f.lent_bytes, before);
            before = f.lent_bytes;
            /* Before experts have left it, prefixes have what they had; then also what is lent. */
            uint64_t spare = 0, had = 0, least = ledger_beside_pool(&all_kept, budget, 0, &had);
            ck_assert_uint_eq(ledger_beside_pool(&f, budget, 0, &spare), least);
            uint64_t both = ledger_beside_pool(&f, budget, f.lent_bytes, &spare);
            ck_assert(both >= least && both + MIB > f.lent_bytes);
            ck_assert_uint_le(total(&f, &p) + both, budget);
            ck_assert_uint_eq(ledger_beside_pool(&f, least / 2, f.lent_bytes, &spare) <= least / 2,
                              true);
            ck_assert_uint_eq(p.min_budget, min_budget);
            ck_assert_uint_ge(p.quota, without.quota_min);
            ck_assert_uint_ge(2 * (p.quota - f.dense_bytes) + 256 * KIB,
                              without.quota - f.dense_bytes);
            ck_assert_uint_le(total(&f, &p) + p.spare + f.lent_bytes, budget);
        }
        ck_assert(budget < 2 * min_budget || before > 0);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("supervisor_ledger");
    TCase *tcase = tcase_create("ledger");
    tcase_add_loop_test(tcase, lines_add_up, 0, 2);
    tcase_add_loop_test(tcase, min_budget_is_exact, 0, 2);
    tcase_add_loop_test(tcase, min_budget_is_independent_of_the_budget, 0, 2);
    tcase_add_loop_test(tcase, more_budget_is_never_less_arena, 0, 2);
    tcase_add_test(tcase, budget_for_experts_is_exact);
    tcase_add_test(tcase, measured_page_tables_count_when_larger);
    tcase_add_test(tcase, kernel_memory_of_keys_and_values);
    tcase_add_test(tcase, margin);
    tcase_add_test(tcase, spare_memory_of_a_machine);
    tcase_add_test(tcase, quota_moves);
    tcase_add_loop_test(tcase, lent_memory_is_within_the_budget, 0, 2);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
