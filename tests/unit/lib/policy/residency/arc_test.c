/* SPDX-License-Identifier: Apache-2.0 */
/* ARC against the paper's pseudocode (Megiddo and Modha, FAST 2003, figure 4), implemented line by
 * line over plain arrays: after every request the four lists and the hits must be equal. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "lib/policy/residency/internal.h"

#define PAGES 60u

static uint64_t seed;

static uint32_t below(uint32_t n)
{
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)((seed >> 33) % n);
}

struct list { /* page[0] is the LRU end */
    uint32_t page[2 * PAGES], count;
};

struct paper {
    struct list t1, t2, b1, b2;
    double p;
    uint32_t c;
};

static int find(const struct list *l, uint32_t x)
{
    for (uint32_t i = 0; i < l->count; i++)
        if (l->page[i] == x)
            return (int)i;
    return -1;
}

static void cut(struct list *l, uint32_t at)
{
    memmove(&l->page[at], &l->page[at + 1], (l->count - at - 1) * sizeof l->page[0]);
    l->count--;
}

static void mru(struct list *l, uint32_t x)
{
    l->page[l->count++] = x;
}

static void replace(struct paper *a, uint32_t x)
{
    if (a->t1.count >= 1 && ((find(&a->b2, x) >= 0 && a->t1.count == a->p) || a->t1.count > a->p)) {
        mru(&a->b1, a->t1.page[0]);
        cut(&a->t1, 0);
    } else {
        mru(&a->b2, a->t2.page[0]);
        cut(&a->t2, 0);
    }
}

static void adapt(struct paper *a, bool up)
{
    double b1 = a->b1.count, b2 = a->b2.count;
    double delta = up ? (b2 / b1 > 1 ? b2 / b1 : 1) : (b1 / b2 > 1 ? b1 / b2 : 1);
    a->p = up ? a->p + delta : a->p - delta;
    a->p = a->p > a->c ? a->c : a->p < 0 ? 0 : a->p;
}

static bool request(struct paper *a, uint32_t x)
{
    int at;
    if ((at = find(&a->t1, x)) >= 0) { /* case I */
        cut(&a->t1, (uint32_t)at);
        mru(&a->t2, x);
        return true;
    }
    if ((at = find(&a->t2, x)) >= 0) {
        cut(&a->t2, (uint32_t)at);
        mru(&a->t2, x);
        return true;
    }
    if (find(&a->b1, x) >= 0) { /* case II */
        adapt(a, true);
        replace(a, x);
        cut(&a->b1, (uint32_t)find(&a->b1, x));
        mru(&a->t2, x);
        return false;
    }
    if (find(&a->b2, x) >= 0) { /* case III */
        adapt(a, false);
        replace(a, x);
        cut(&a->b2, (uint32_t)find(&a->b2, x));
        mru(&a->t2, x);
        return false;
    }
    uint32_t l1 = a->t1.count + a->b1.count, all = l1 + a->t2.count + a->b2.count; /* case IV */
    if (l1 == a->c) {
        if (a->t1.count < a->c) {
            cut(&a->b1, 0);
            replace(a, x);
        } else {
            cut(&a->t1, 0);
        }
    } else if (all >= a->c) {
        if (all == 2 * a->c)
            cut(&a->b2, 0);
        replace(a, x);
    }
    mru(&a->t1, x);
    return false;
}

static void same_list(const struct residency *r, enum residency_list list, const struct list *want)
{
    uint32_t slot = r->group[0].oldest[list];
    ck_assert_uint_eq(r->group[0].count[list], want->count);
    for (uint32_t i = 0; i < want->count; i++, slot = r->node[slot].newer)
        ck_assert_uint_eq(slot, want->page[i]);
    ck_assert_uint_eq(slot, POLICY_NONE);
}

static bool anyone(void *arg, uint32_t slot)
{
    (void)arg;
    (void)slot;
    return true;
}

static struct residency *arc_of(uint32_t c)
{
    struct residency_config config = {.layers = 1,
                                      .experts = PAGES,
                                      .top_k = 1,
                                      .precisions = 1,
                                      .precision_bytes = {10},
                                      .eviction = EVICTION_ARC,
                                      .allocation = ALLOCATE_SHARED};
    struct residency *r = residency_create(&config);
    residency_capacity(r, 10 * c);
    return r;
}

static bool access_slot(struct residency *r, uint32_t slot, uint32_t position, uint32_t c)
{
    residency_step(r, &(struct residency_step){1, position, 0});
    bool hit = residency_is_resident(r, slot);
    residency_accessed(r, slot, &(struct residency_access){.tokens = 1, .high = true});
    if (hit)
        return true;
    while (residency_resident_count(r) >= c)
        residency_remove(r, residency_victim(r, slot, anyone, NULL), true);
    residency_insert(r, slot, false);
    return false;
}

START_TEST(lists_are_the_papers)
{
    static const uint32_t sizes[] = {1, 2, 3, 5, 8, 13, 21, 34};
    static struct paper paper;
    uint32_t c = sizes[_i], hits = 0;
    for (uint32_t kind = 0; kind < 4; kind++) {
        struct residency *r = arc_of(c);
        paper = (struct paper){.c = c};
        seed = kind * 1000 + c;
        for (uint32_t i = 0; i < 6000; i++) {
            uint32_t a = below(PAGES), b = below(PAGES), x = a;
            if (kind == 1)
                x = a < b ? a : b; /* skewed */
            else if (kind == 2)
                x = i % 400 < 200 ? below(c + 2) : i % PAGES; /* hot set, then scans */
            else if (kind == 3)
                x = (i / 300 + (a < b ? a : b)) % PAGES; /* drifting */
            bool hit = access_slot(r, x, i, c);
            ck_assert_int_eq(hit, request(&paper, x));
            hits += hit;
            same_list(r, LIST_T1, &paper.t1);
            same_list(r, LIST_T2, &paper.t2);
            same_list(r, LIST_B1, &paper.b1);
            same_list(r, LIST_B2, &paper.b2);
            ck_assert_double_eq_tol(r->group[0].target, paper.p, 1e-9);
        }
        residency_destroy(r);
    }
    ck_assert_uint_gt(hits, 0);
}
END_TEST

/* The first access of a prefetched entry counts as a first access; the second promotes. An unused
 * prefetch leaves no ghost. */
START_TEST(predictions_do_not_promote)
{
    struct residency *r = arc_of(4);
    residency_step(r, &(struct residency_step){1, 0, 0});
    residency_insert(r, 5, true);
    residency_insert(r, 6, true);
    residency_accessed(r, 5, &(struct residency_access){.tokens = 1});
    ck_assert_uint_eq(r->node[5].list, LIST_T1);
    residency_accessed(r, 5, &(struct residency_access){.tokens = 1});
    ck_assert_uint_eq(r->node[5].list, LIST_T2);
    residency_remove(r, 6, true);
    ck_assert_uint_eq(r->node[6].list, LIST_NONE);
    /* A prefetch that hits a ghost: its access, not the prefetch, is the request. */
    residency_insert(r, 7, false);
    residency_remove(r, 7, true);
    ck_assert_uint_eq(r->node[7].list, LIST_B1);
    residency_insert(r, 7, true);
    ck_assert_double_eq(r->group[0].target, 0);
    residency_accessed(r, 7, &(struct residency_access){.tokens = 1});
    ck_assert_uint_eq(r->node[7].list, LIST_T2);
    ck_assert_double_eq(r->group[0].target, 1);
    residency_destroy(r);
}
END_TEST

static bool odd(void *arg, uint32_t slot)
{
    (void)arg;
    return slot % 2 == 1;
}

/* Pins, cancelled reservations and a changing capacity: the lists stay consistent. */
START_TEST(disturbances)
{
    struct residency *r = arc_of(12);
    uint32_t c = 12;
    seed = 9;
    for (uint32_t i = 0; i < 20000; i++) {
        uint32_t x = below(PAGES);
        residency_step(r, &(struct residency_step){1, i, 0});
        if (below(50) == 0)
            residency_capacity(r, 10 * (c = 1 + below(30)));
        residency_accessed(r, x, &(struct residency_access){.tokens = 1});
        while (residency_resident_count(r) > c ||
               (residency_resident_count(r) == c && !residency_is_resident(r, x))) {
            uint32_t v = residency_victim(r, x, below(2) ? odd : anyone, NULL);
            if (v != POLICY_NONE)
                residency_remove(r, v, true);
        }
        if (!residency_is_resident(r, x))
            residency_insert(r, x, below(4) == 0);
        if (below(10) == 0 && residency_is_resident(r, x))
            residency_remove(r, x, false);
        const struct residency_group *g = &r->group[0];
        ck_assert_uint_eq(g->count[LIST_T1] + g->count[LIST_T2], residency_resident_count(r));
        ck_assert_uint_le(residency_resident_count(r), c);
        ck_assert(g->target >= 0);
    }
    residency_destroy(r);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("residency_arc");
    TCase *c = tcase_create("arc");
    tcase_set_timeout(c, 60);
    tcase_add_loop_test(c, lists_are_the_papers, 0, 8);
    tcase_add_test(c, predictions_do_not_promote);
    tcase_add_test(c, disturbances);
    suite_add_tcase(s, c);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_NORMAL);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed == 0 ? 0 : 1;
}
