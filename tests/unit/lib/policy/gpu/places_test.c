/* SPDX-License-Identifier: Apache-2.0 */
/* Places for experts on a device: least recently used first, leases, experts that the host
 * computes. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "lib/policy/gpu/places.h"

#define EXPERTS 8u

static bool space, here;

static bool has_space(void *arg)
{
    (void)arg;
    return space;
}

static bool has_arrived(void *arg, uint32_t place)
{
    (void)arg, (void)place;
    return here;
}

#define PLACE 256 /* bytes */

static struct places *make(uint32_t places, bool cooperative)
{
    struct expert_sizes sizes;
    expert_sizes_fill(&sizes, 2, EXPERTS, PLACE);
    struct places *p = places_create(&(struct places_config){.layers = 2,
                                                             .experts = EXPERTS,
                                                             .top_k = 2,
                                                             .sizes = &sizes,
                                                             .bytes = (uint64_t)places * PLACE,
                                                             .eviction = EVICTION_LRU,
                                                             .cooperative = cooperative,
                                                             .space = has_space,
                                                             .arrived = has_arrived});
    ck_assert_ptr_nonnull(p);
    return p;
}

static struct place_result check_use(struct places *p, uint32_t expert, uint32_t rows,
                                     enum place_use want)
{
    struct place_result r = places_use(p, expert, rows);
    ck_assert_int_eq((int)r.use, (int)want);
    return r;
}

START_TEST(least_recently_used_goes)
{
    struct places *p = make(3, false);
    for (uint32_t i = 0; i < 3; i++) {
        struct place_result r = check_use(p, i, 1, PLACE_UPLOAD);
        ck_assert(r.taken && r.place == i);
        r = check_use(p, i, 1, PLACE_LEASED);
        ck_assert(!r.taken && r.place == i);
    }
    places_end_leases(p);
    check_use(p, 0, 1, PLACE_HIT);
    check_use(p, EXPERTS + 1, 1, PLACE_UPLOAD); /* in the place of 1 */
    places_end_leases(p);
    check_use(p, 2, 1, PLACE_HIT);
    check_use(p, 0, 1, PLACE_HIT);
    check_use(p, 1, 1, PLACE_UPLOAD);
    struct places_counts c = places_counts(p);
    ck_assert_uint_eq(c.hits, 3);
    ck_assert_uint_eq(c.uploaded, 5);
    ck_assert_uint_eq(c.evicted, 2);
    ck_assert_uint_eq(c.on_host, 0);
    places_destroy(p);
    places_destroy(NULL);
}
END_TEST

START_TEST(leased_stays)
{
    struct places *p = make(2, false);
    uint32_t leased = check_use(p, 0, 4, PLACE_UPLOAD).place;
    places_end_leases(p);
    check_use(p, 1, 4, PLACE_UPLOAD);
    places_end_leases(p);
    check_use(p, 0, 4, PLACE_HIT);
    for (uint32_t e = 2; e < 5; e++) { /* the other place is free each time */
        uint32_t at = check_use(p, e, 4, PLACE_UPLOAD).place;
        ck_assert_uint_ne(at, leased);
        places_end_leases(p);
        check_use(p, 0, 4, PLACE_HIT);
    }
    places_destroy(p);
}
END_TEST

/* One row: the host computes, and the expert gets a place if there is space to copy it. More rows:
 * as always. */
START_TEST(host_computes)
{
    struct places *p = make(2, true);
    space = false;
    ck_assert_uint_eq(check_use(p, 0, 1, PLACE_ON_HOST).place, PLACES_NONE);
    ck_assert_uint_eq(check_use(p, 0, 1, PLACE_ON_HOST).place, PLACES_NONE);
    space = true;
    struct place_result r = check_use(p, 1, 1, PLACE_ON_HOST);
    ck_assert(r.taken && r.place == 0);
    r = check_use(p, 1, 1, PLACE_ON_HOST); /* lent already */
    ck_assert(!r.taken && r.place == 0);
    places_end_leases(p);
    check_use(p, 1, 1, PLACE_HIT);
    check_use(p, 2, 2, PLACE_UPLOAD);
    places_end_leases(p);
    places_cooperate(p, false);
    check_use(p, 1, 1, PLACE_HIT);
    check_use(p, 3, 1, PLACE_UPLOAD); /* in the place of 2 */
    places_end_leases(p);
    places_cooperate(p, true);
    check_use(p, 1, 1, PLACE_HIT);
    check_use(p, 3, 1, PLACE_HIT);
    ck_assert_uint_eq(check_use(p, 4, 1, PLACE_ON_HOST).place, PLACES_NONE); /* all are leased */
    struct places_counts c = places_counts(p);
    ck_assert_uint_eq(c.on_host, 3);
    ck_assert_uint_eq(c.background, 1);
    ck_assert_uint_eq(c.uploaded, 2);
    ck_assert_uint_eq(c.hits, 4);
    ck_assert_uint_eq(c.evicted, 1);
    places_destroy(p);
}
END_TEST

/* Ahead of a use: what is leased, kept or has a place already stays, and each expert is counted
 * once. */
START_TEST(ahead_of_a_use)
{
    struct places *p = make(4, false);
    space = true;
    check_use(p, 0, 1, PLACE_UPLOAD);
    ck_assert_uint_eq(places_ahead(p, 0), PLACES_NONE); /* has one */
    ck_assert_uint_eq(places_ahead(p, EXPERTS), 1);
    ck_assert(places_has(p, EXPERTS) && !places_has(p, EXPERTS + 1));
    space = false;
    ck_assert_uint_eq(places_ahead(p, EXPERTS + 1), PLACES_NONE);
    space = true;
    ck_assert_uint_eq(places_ahead(p, EXPERTS + 1), 2);
    ck_assert_uint_eq(places_ahead(p, EXPERTS + 2), 3);
    ck_assert_uint_eq(places_ahead(p, EXPERTS + 3), PLACES_NONE); /* all are leased */
    places_end_leases(p);
    here = true;
    check_use(p, EXPERTS, 1, PLACE_HIT);
    here = false;
    check_use(p, EXPERTS + 1, 1, PLACE_HIT);
    places_end_leases(p);
    check_use(p, EXPERTS + 1, 1, PLACE_HIT); /* neither timely nor late again */
    places_end_leases(p);
    places_keep(p, 0);
    places_keep(p, EXPERTS + 5); /* has none */
    ck_assert_uint_eq(places_ahead(p, 1),
                      3); /* of EXPERTS + 2, which was not used; 0 is older, but kept */
    struct places_counts c = places_counts(p);
    ck_assert_uint_eq(c.ahead, 4);
    ck_assert_uint_eq(c.timely, 1);
    ck_assert_uint_eq(c.late, 1);
    ck_assert_uint_eq(c.unused, 1);
    ck_assert_uint_eq(c.uploaded, 1);
    ck_assert_uint_eq(c.hits, 3);
    ck_assert_uint_eq(c.evicted, 1);
    places_end_leases(p);
    ck_assert_uint_eq(places_ahead(p, 2), 0); /* not kept any more */
    places_destroy(p);
}
END_TEST

/* The names of the option, each with an eviction of its own, and no others. */
START_TEST(evictions)
{
    static const struct {
        const char *name;
        enum eviction eviction;
    } rows[] = {
#define X(id, name) {name, id},
        EVICTION_LIST(X)
#undef X
    };
    char all[] = PLACES_EVICTIONS " ", one[32];
    enum eviction e;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bool known = places_eviction_find(rows[i].name, &e);
        snprintf(one, sizeof one, " %s ", rows[i].name);
        ck_assert(known == (rows[i].eviction != EVICTION_LEARNED));
        ck_assert(known == (strstr(all, one) != NULL));
        ck_assert(!known || e == rows[i].eviction);
    }
    ck_assert(!places_eviction_find("oldest", &e));
}
END_TEST

static struct places *with(enum eviction eviction)
{
    struct expert_sizes sizes;
    expert_sizes_fill(&sizes, 2, EXPERTS, PLACE);
    struct places *p = places_create(&(struct places_config){.layers = 2,
                                                             .experts = EXPERTS,
                                                             .top_k = 1,
                                                             .sizes = &sizes,
                                                             .bytes = 3 * PLACE,
                                                             .eviction = eviction,
                                                             .space = has_space,
                                                             .arrived = has_arrived});
    ck_assert_ptr_nonnull(p);
    return p;
}

static void use_one(struct places *p, uint32_t expert, enum place_use want)
{
    check_use(p, expert, 1, want);
    places_end_leases(p);
}

/* Passes over both layers: 0 is used most, then 1, and 2 last; in layer 1 always the same. Returns
 * which of them goes when another one needs a place. */
static uint32_t victim_of(struct places *p)
{
    static const uint32_t uses[] = {0, 0, 0, 1, 0, 1, 2};
    for (size_t i = 0; i < sizeof uses / sizeof *uses; i++)
        places_use(p, uses[i], 1), places_end_leases(p);
    use_one(p, EXPERTS + 1, PLACE_UPLOAD);
    for (uint32_t e = 0; e < 3; e++)
        if (!places_has(p, e))
            return e;
    return PLACES_NONE;
}

START_TEST(other_evictions)
{
    static const struct {
        enum eviction eviction;
        uint32_t victim;
    } rows[] = {{EVICTION_LRU, 0}, {EVICTION_FIFO, 0}, {EVICTION_LFU, 2}, {EVICTION_EDGEMOE, 2}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct places *p = with(rows[i].eviction);
        ck_assert_uint_eq(victim_of(p), rows[i].victim);
        places_destroy(p);
    }
}
END_TEST

/* HOBBIT: of as many uses those of the best precision count more, also if they are older; in
 * another sequence none of before counts. */
START_TEST(hobbit)
{
    for (int other = 0; other < 2; other++) {
        struct places *p = with(EVICTION_HOBBIT);
        const uint32_t low = 2 * EXPERTS * 2; /* expert 0 of layer 0 at a lower precision */
        for (int pass = 0; pass < 12; pass++) {
            use_one(p, 1, pass ? PLACE_HIT : PLACE_UPLOAD);
            use_one(p, EXPERTS, pass ? PLACE_HIT : PLACE_UPLOAD);
            use_one(p, low, pass ? PLACE_HIT : PLACE_UPLOAD);
            use_one(p, EXPERTS, PLACE_HIT);
        }
        if (other) {
            places_sequence(p);
            use_one(p, low, PLACE_HIT);
            use_one(p, EXPERTS, PLACE_HIT);
        }
        use_one(p, 3, PLACE_UPLOAD); /* in the place of one of layer 0 */
        ck_assert(places_has(p, EXPERTS));
        ck_assert(places_has(p, other ? low : 1) && !places_has(p, other ? 1 : low));
        places_destroy(p);
    }
}
END_TEST

/* A place that no expert has, before a use: the first use is counted as a copy, later ones are
 * hits. */
START_TEST(free_places)
{
    struct places *p = make(3, false), *shared = make(3, true);
    space = true;
    check_use(p, 0, 1, PLACE_UPLOAD);
    ck_assert_uint_eq(places_reserve(p, 0), PLACES_NONE); /* has one */
    ck_assert_uint_eq(places_reserve(p, 1), 1);
    ck_assert_uint_eq(places_at(p, 1), 1);
    space = false;
    ck_assert_uint_eq(places_reserve(p, 2), PLACES_NONE);
    space = true;
    ck_assert_uint_eq(places_reserve(p, 2), 2);
    ck_assert_uint_eq(places_reserve(p, 3), PLACES_NONE); /* none is free */
    places_end_leases(p);
    ck_assert_uint_eq(places_counts(p).filled, 2);
    for (int use = 0; use < 2; use++) {
        struct place_result r = check_use(p, 1, 1, PLACE_HIT);
        ck_assert(!r.taken && r.place == 1);
        places_end_leases(p);
    }
    check_use(p, 0, 1, PLACE_HIT);
    check_use(p, 4, 1, PLACE_UPLOAD); /* instead of 2, which was not used */
    struct places_counts c = places_counts(p);
    ck_assert_uint_eq(c.filled, 0);
    ck_assert_uint_eq(c.uploaded, 3);
    ck_assert_uint_eq(c.hits, 2);
    ck_assert_uint_eq(c.evicted, 1);
    ck_assert_uint_eq(c.ahead, 0);
    ck_assert_uint_eq(places_used(p), 3);
    ck_assert_uint_eq(places_at(p, 2), PLACES_NONE);
    ck_assert_uint_eq(places_reserve(shared, 1), PLACES_NONE); /* the host would compute it */
    places_destroy(p);
    places_destroy(shared);
}
END_TEST

START_TEST(pieces)
{
    ck_assert_uint_eq(places_pieces(1), PLACES_MATRICES);
    ck_assert_uint_eq(places_ring(1), 8);
    ck_assert_uint_eq(places_ring(10 * PLACES_PIECE), 2 * (10 + PLACES_MATRICES));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("places");
    TCase *c = tcase_create("places");
    tcase_add_test(c, least_recently_used_goes);
    tcase_add_test(c, leased_stays);
    tcase_add_test(c, host_computes);
    tcase_add_test(c, ahead_of_a_use);
    tcase_add_test(c, evictions);
    tcase_add_test(c, other_evictions);
    tcase_add_test(c, hobbit);
    tcase_add_test(c, free_places);
    tcase_add_test(c, pieces);
    suite_add_tcase(s, c);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}
