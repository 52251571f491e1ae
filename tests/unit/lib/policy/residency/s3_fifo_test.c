/* SPDX-License-Identifier: Apache-2.0 */
/* S3-FIFO against the paper's algorithm 1 (Yang et al., SOSP 2023), whose hand moves through plain
 * arrays: after every request the three queues, the frequencies and the hits must be equal. */
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

struct queue { /* page[0] is the tail, which leaves next */
    uint32_t page[2 * PAGES], count;
};

struct paper {
    struct queue s, m, g;
    uint32_t freq[PAGES], c;
};

static int find(const struct queue *q, uint32_t x)
{
    for (uint32_t i = 0; i < q->count; i++)
        if (q->page[i] == x)
            return (int)i;
    return -1;
}

static void cut(struct queue *q, uint32_t at)
{
    memmove(&q->page[at], &q->page[at + 1], (q->count - at - 1) * sizeof q->page[0]);
    q->count--;
}

static void push(struct queue *q, uint32_t x)
{
    q->page[q->count++] = x;
}

static uint32_t small_of(const struct paper *p)
{
    return p->c / 10 > 0 ? p->c / 10 : 1;
}

static void evict_main(struct paper *p)
{
    for (;;) {
        uint32_t t = p->m.page[0];
        cut(&p->m, 0);
        if (p->freq[t] == 0)
            return;
        p->freq[t]--;
        push(&p->m, t);
    }
}

static void evict_small(struct paper *p)
{
    while (p->s.count > 0) {
        uint32_t t = p->s.page[0];
        cut(&p->s, 0);
        if (p->freq[t] <= 1) {
            push(&p->g, t);
            if (p->g.count > p->c - small_of(p))
                cut(&p->g, 0);
            return;
        }
        p->freq[t] = 0;
        push(&p->m, t);
    }
    evict_main(p);
}

static bool request(struct paper *p, uint32_t x)
{
    if (find(&p->s, x) >= 0 || find(&p->m, x) >= 0) {
        p->freq[x] = p->freq[x] < 3 ? p->freq[x] + 1 : 3;
        return true;
    }
    while (p->s.count + p->m.count >= p->c) {
        if (p->s.count >= small_of(p))
            evict_small(p);
        else
            evict_main(p);
    }
    int ghost = find(&p->g, x);
    if (ghost >= 0)
        cut(&p->g, (uint32_t)ghost);
    push(ghost >= 0 ? &p->m : &p->s, x);
    p->freq[x] = 0;
    return false;
}

static void same_queue(const struct residency *r, enum residency_list list,
                       const struct queue *want, const uint32_t *freq)
{
    uint32_t slot = r->group[0].oldest[list];
    ck_assert_uint_eq(r->group[0].count[list], want->count);
    for (uint32_t i = 0; i < want->count; i++, slot = r->node[slot].newer) {
        ck_assert_uint_eq(slot, want->page[i]);
        if (list != LIST_B1)
            ck_assert_uint_eq(r->node[slot].accesses, freq[slot]);
    }
    ck_assert_uint_eq(slot, POLICY_NONE);
}

static bool anyone(void *arg, uint32_t slot)
{
    (void)arg;
    (void)slot;
    return true;
}

static struct residency *queues_of(uint32_t c)
{
    struct residency_config config = {.layers = 1,
                                      .experts = PAGES,
                                      .top_k = 1,
                                      .precisions = 1,
                                      .precision_bytes = {10},
                                      .eviction = EVICTION_S3FIFO,
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

START_TEST(queues_are_the_papers)
{
    static const uint32_t sizes[] = {1, 2, 3, 5, 8, 13, 21, 34};
    static struct paper paper;
    uint32_t c = sizes[_i], hits = 0;
    for (uint32_t kind = 0; kind < 4; kind++) {
        struct residency *r = queues_of(c);
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
            same_queue(r, LIST_T1, &paper.s, paper.freq);
            same_queue(r, LIST_T2, &paper.m, paper.freq);
            same_queue(r, LIST_B1, &paper.g, paper.freq);
        }
        residency_destroy(r);
    }
    ck_assert_uint_gt(hits, 0);
}
END_TEST

static bool odd(void *arg, uint32_t slot)
{
    (void)arg;
    return slot % 2 == 1;
}

/* Whatever a search rejects, it changes nothing: neither the queues nor the next victim. */
START_TEST(searches_change_nothing)
{
    struct residency *r = queues_of(20);
    seed = 3;
    for (uint32_t i = 0; i < 3000; i++) {
        uint32_t a = below(PAGES), b = below(PAGES);
        (void)access_slot(r, a < b ? a : b, i, 20);
        const struct residency_group before = r->group[0];
        uint32_t victim = residency_victim(r, POLICY_NONE, anyone, NULL);
        (void)residency_victim(r, POLICY_NONE, odd, NULL);
        ck_assert_uint_eq(residency_victim(r, POLICY_NONE, anyone, NULL), victim);
        ck_assert_mem_eq(before.oldest, r->group[0].oldest, sizeof before.oldest);
        ck_assert_mem_eq(before.count, r->group[0].count, sizeof before.count);
    }
    residency_destroy(r);
}
END_TEST

/* The first access of a prefetched entry is its request. */
START_TEST(predictions_are_no_requests)
{
    struct residency *r = queues_of(20);
    residency_step(r, &(struct residency_step){1, 0, 0});
    residency_insert(r, 5, true);
    residency_accessed(r, 5, &(struct residency_access){.tokens = 1});
    ck_assert_uint_eq(r->node[5].accesses, 0);
    residency_accessed(r, 5, &(struct residency_access){.tokens = 1});
    ck_assert_uint_eq(r->node[5].accesses, 1);
    residency_remove(r, 5, true);
    ck_assert_uint_eq(r->node[5].list, LIST_B1);
    residency_insert(r, 5, true);
    ck_assert_uint_eq(r->node[5].list, LIST_T1);
    residency_accessed(r, 5, &(struct residency_access){.tokens = 1});
    ck_assert_uint_eq(r->node[5].list, LIST_T2);
    ck_assert_uint_eq(r->node[5].accesses, 0);
    residency_destroy(r);
}
END_TEST

/* Pins, cancelled reservations and a changing capacity: the lists stay consistent. */
START_TEST(disturbances)
{
    struct residency *r = queues_of(12);
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
        ck_assert_uint_le(g->count[LIST_B1], PAGES);
    }
    residency_destroy(r);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("residency_s3_fifo");
    TCase *c = tcase_create("s3_fifo");
    tcase_set_timeout(c, 60);
    tcase_add_loop_test(c, queues_are_the_papers, 0, 8);
    tcase_add_test(c, predictions_are_no_requests);
    tcase_add_test(c, searches_change_nothing);
    tcase_add_test(c, disturbances);
    suite_add_tcase(s, c);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_NORMAL);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed == 0 ? 0 : 1;
}
