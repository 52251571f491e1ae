/* SPDX-License-Identifier: Apache-2.0 */
/* Places for experts of several sizes: how the memory is divided, what every sequence of uses keeps
 * true, and that the division follows what is used. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/policy/gpu/places.h"

#define LAYERS  6u
#define EXPERTS 16u
#define TOP_K   4u
#define ALL     (PRECISION__COUNT * LAYERS * EXPERTS)

static uint64_t state;

static uint32_t draw(uint32_t below)
{
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)((state >> 33) % below);
}

/* As of a file in Q4_K_M, and lower precisions of it. */
static struct expert_sizes mixed(void)
{
    struct expert_sizes s = {.experts = EXPERTS};
    for (uint32_t l = 0; l < LAYERS; l++) {
        expert_sizes_add(&s, PRECISION_NATIVE, l, l % 2 ? 3059712 : 2654208);
        expert_sizes_add(&s, PRECISION_INT4, l, 1474560);
        expert_sizes_add(&s, PRECISION_INT2, l, 884736);
    }
    return s;
}

/* A mebibyte less or more does not matter. */
static struct slabs divided(const struct expert_sizes *sizes, uint64_t bytes)
{
    struct slabs s = slabs_divide(sizes, bytes, TOP_K);
    ck_assert_uint_le(s.count * s.bytes, bytes);
    struct slabs again = slabs_divide(sizes, s.count * s.bytes, TOP_K);
    ck_assert_uint_eq(again.count, s.count);
    ck_assert_uint_eq(again.bytes, s.bytes);
    return s;
}

static uint64_t used_by(const struct slabs *s, uint32_t class)
{
    return (uint64_t)s->count * s->places[class] * s->class_bytes[class];
}

START_TEST(one_size)
{
    struct expert_sizes sizes;
    expert_sizes_fill(&sizes, LAYERS, EXPERTS, 1000 * SLABS_ALIGN);
    for (uint32_t places = TOP_K; places < 70; places++) {
        struct slabs s = divided(&sizes, places * 1000 * SLABS_ALIGN + 999 * SLABS_ALIGN);
        ck_assert_uint_eq(s.count, places);
        ck_assert_uint_eq(s.bytes, 1000 * SLABS_ALIGN);
        ck_assert_uint_eq(s.classes, 1);
    }
    ck_assert_uint_eq(divided(&sizes, UINT64_MAX / 2).count, ALL);
}
END_TEST

/* With much memory each class can use nearly all of it; with the minimum there are places for the
 * experts of a token. */
START_TEST(no_class_wastes_much)
{
    struct expert_sizes sizes = mixed();
    const uint64_t largest = expert_sizes_largest(&sizes);
    sizes.experts = 8 * EXPERTS;
    struct slabs s = divided(&sizes, 600 * largest);
    ck_assert_uint_eq(s.classes, 4);
    for (uint32_t c = 0; c < s.classes; c++)
        ck_assert_msg(used_by(&s, c) >= 600 * largest / 100 * 97, "class %u: %u places", c,
                      s.places[c]);
    for (uint32_t slabs = TOP_K; slabs < 100; slabs++) {
        s = divided(&sizes, slabs * largest);
        ck_assert_uint_ge(s.count, TOP_K);
        ck_assert_uint_ge(used_by(&s, 0), (slabs - slabs / 8) * largest - largest);
    }
    for (uint32_t l = 0; l < LAYERS; l++)
        for (uint32_t p = 0; p < PRECISION__COUNT; p++)
            ck_assert_uint_eq(s.class_of[p][l], p == PRECISION_INT8   ? 4
                                                : p == PRECISION_INT4 ? 2
                                                : p == PRECISION_INT2 ? 3
                                                                      : (l + 1) % 2);
}
END_TEST

/* All fit where the sum of their sizes does, but for less than a slab of each class. */
START_TEST(all_fit)
{
    const struct expert_sizes sizes = mixed();
    uint64_t sum = 0;
    for (uint32_t p = 0; p < PRECISION__COUNT; p++)
        for (uint32_t l = 0; l < LAYERS; l++)
            sum += sizes.bytes[p][l] * EXPERTS;
    struct slabs s = divided(&sizes, UINT64_MAX / 2);
    ck_assert_uint_eq(slabs_for(&s, &sizes, ~0u), s.count);
    ck_assert_uint_eq(expert_sizes_count(&sizes), 3 * LAYERS * EXPERTS);
    ck_assert_uint_le(s.count * s.bytes, sum / 100 * 104);
    uint32_t parts = slabs_for(&s, &sizes, 1u << PRECISION_NATIVE) +
                     slabs_for(&s, &sizes, 1u << PRECISION_INT4 | 1u << PRECISION_INT8) +
                     slabs_for(&s, &sizes, 1u << PRECISION_INT2);
    ck_assert_uint_eq(parts, s.count);
    s = divided(&sizes, s.count * s.bytes - SLABS_ALIGN);
    ck_assert_uint_gt(slabs_for(&s, &sizes, ~0u), s.count);
}
END_TEST

/* More sizes than classes: each has a class that is not smaller. */
START_TEST(many_sizes)
{
    struct expert_sizes sizes = {.experts = EXPERTS};
    for (uint32_t l = 0; l < 40; l++)
        expert_sizes_add(&sizes, PRECISION_NATIVE, l, 1000000 + 7919 * (l * l % 41));
    struct slabs s = divided(&sizes, 300 * expert_sizes_largest(&sizes));
    ck_assert_uint_eq(s.classes, SLABS_CLASSES_MAX);
    for (uint32_t l = 0; l < 40; l++) {
        uint32_t class = s.class_of[PRECISION_NATIVE][l];
        ck_assert_uint_lt(class, s.classes);
        ck_assert_uint_ge(s.class_bytes[class], sizes.bytes[PRECISION_NATIVE][l]);
        ck_assert(class + 1 == s.classes ||
                  s.class_bytes[class + 1] < sizes.bytes[PRECISION_NATIVE][l]);
    }
}
END_TEST

/* Of few experts, too, there are slabs for those of a token. */
START_TEST(random_sizes)
{
    state = 11;
    for (uint32_t i = 0; i < 3000; i++) {
        struct expert_sizes sizes = {.experts = TOP_K + draw(3)};
        for (uint32_t l = 0; l < 1 + i % 3; l++)
            for (uint32_t p = 0; p < 1 + i / 3 % 3; p++)
                expert_sizes_add(&sizes, p, l, (4 + draw(200)) * SLABS_ALIGN);
        uint64_t minimum = TOP_K * expert_sizes_largest(&sizes);
        struct slabs s = divided(&sizes, minimum + draw(40) * minimum / 7);
        ck_assert_uint_ge(s.count, TOP_K);
        for (uint32_t c = 0; c < s.classes; c++)
            ck_assert(s.places[c] > 0 && s.places[c] * s.class_bytes[c] <= s.bytes);
    }
}
END_TEST

/* ---- places ---- */

static bool has_space(void *arg)
{
    (void)arg;
    return true;
}

static bool has_arrived(void *arg, uint32_t place)
{
    (void)arg;
    return place % 2 == 0;
}

static struct places *make(const struct expert_sizes *sizes, uint64_t bytes, enum eviction eviction)
{
    struct places *p = places_create(&(struct places_config){.layers = LAYERS,
                                                             .experts = EXPERTS,
                                                             .top_k = TOP_K,
                                                             .sizes = sizes,
                                                             .bytes = bytes,
                                                             .eviction = eviction,
                                                             .space = has_space,
                                                             .arrived = has_arrived});
    ck_assert_ptr_nonnull(p);
    return p;
}

static uint32_t number(uint32_t precision, uint32_t layer, uint32_t expert)
{
    return (precision * LAYERS + layer) * EXPERTS + expert;
}

static int by_start(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* Parts of the memory that do not overlap, each as large as its expert. */
static uint32_t check_memory(const struct places *p, const struct expert_sizes *sizes,
                             uint64_t bytes)
{
    static uint64_t part[ALL][2];
    uint32_t parts = 0;
    for (uint32_t e = 0; e < ALL; e++) {
        uint32_t at = places_at(p, e);
        if (at == PLACES_NONE)
            continue;
        uint64_t need = sizes->bytes[e / EXPERTS / LAYERS][e / EXPERTS % LAYERS];
        uint64_t from = places_offset(p, at), size = places_bytes(p, at);
        ck_assert_uint_ge(size, need);
        ck_assert_uint_lt(at, places_count(p));
        ck_assert_uint_eq(places_with(p, from), at);
        ck_assert_uint_eq(places_with(p, from + size - 1), at);
        part[parts][0] = from;
        part[parts++][1] = from + size;
    }
    qsort(part, parts, sizeof *part, by_start);
    for (uint32_t i = 0; i < parts; i++)
        ck_assert_uint_le(part[i][1], i + 1 < parts ? part[i + 1][0] : bytes);
    ck_assert_uint_eq(places_used(p), parts);
    ck_assert_uint_le(parts, places_capacity(p));
    return parts;
}

static const enum precision present[] = {PRECISION_NATIVE, PRECISION_INT4, PRECISION_INT2};

/* A layer: some experts are used, up to those that can be leased at once; then some are copied
 * ahead. */
static void random_layer(struct places *p, uint32_t layer, uint32_t mix)
{
    uint32_t lease[64], count = 0, most = places_lent_max(p) < 64 ? places_lent_max(p) : 64;
    uint32_t want = draw(4) == 0 ? most : TOP_K;
    while (count < want) {
        uint32_t precision = present[mix < 3 ? mix : draw(3)];
        uint32_t e = number(precision, layer, draw(EXPERTS));
        struct place_result r = places_use(p, e, draw(2));
        ck_assert_int_ne((int)r.use, (int)PLACE_ON_HOST);
        ck_assert_uint_eq(r.place, places_at(p, e));
        if (r.use != PLACE_LEASED)
            lease[count++] = e;
        want -= r.use == PLACE_LEASED && draw(8) == 0; /* there are not so many */
    }
    for (uint32_t i = 0; i < TOP_K; i++) {
        uint32_t e = number(present[draw(3)], (layer + 1) % LAYERS, draw(EXPERTS));
        uint32_t at = draw(2) ? places_ahead(p, e) : (places_keep(p, e), PLACES_NONE);
        ck_assert(at == PLACES_NONE || places_at(p, e) == at);
    }
    uint32_t e = draw(ALL);
    if (e / EXPERTS / LAYERS != PRECISION_INT8)
        places_reserve(p, e);
    for (uint32_t i = 0; i < count; i++)
        ck_assert_msg(places_has(p, lease[i]), "a leased expert is gone");
    places_end_leases(p);
}

START_TEST(random_uses)
{
    const struct expert_sizes sizes = mixed();
    const uint64_t largest = expert_sizes_largest(&sizes);
    const uint64_t bytes = (_i % 3 == 0 ? TOP_K : _i % 3 == 1 ? 15 : 60) * largest + 5;
    const enum eviction eviction = (enum eviction)(_i / 3);
    if (eviction == EVICTION_LEARNED)
        return;
    uint32_t where[2][ALL];
    for (int run = 0; run < 2; run++) { /* the same both times */
        struct places *p = make(&sizes, bytes, eviction);
        state = 17 + (uint64_t)_i;
        for (uint32_t step = 0; step < 300; step++) {
            random_layer(p, step % LAYERS, step / 60);
            check_memory(p, &sizes, bytes);
            if (step % 100 == 99)
                places_sequence(p);
        }
        ck_assert_uint_gt(places_counts(p).evicted, 0);
        for (uint32_t e = 0; e < ALL; e++)
            where[run][e] = places_at(p, e);
        places_destroy(p);
    }
    ck_assert_mem_eq(where[0], where[1], sizeof where[0]);
}
END_TEST

/* All experts of a precision, some times. */
static void use_all(struct places *p, enum precision precision, uint32_t times)
{
    for (uint32_t i = 0; i < times * LAYERS; i++)
        for (uint32_t e = 0; e < EXPERTS; e++) {
            places_use(p, number(precision, i % LAYERS, e), 1);
            places_end_leases(p);
        }
}

static uint32_t count_of(const struct places *p, enum precision precision)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < LAYERS * EXPERTS; i++)
        n += places_has(p, number(precision, 0, 0) + i);
    return n;
}

/* The memory follows what is used, and comes back. */
START_TEST(follows_the_mix)
{
    const struct expert_sizes sizes = mixed();
    const uint64_t bytes = 30 * expert_sizes_largest(&sizes);
    const struct slabs s = divided(&sizes, bytes);
    struct places *p = make(&sizes, bytes, EVICTION_LRU);
    for (int round = 0; round < 3; round++) {
        use_all(p, PRECISION_NATIVE, 2);
        ck_assert_uint_ge(check_memory(p, &sizes, bytes), s.count * s.places[0]);
        ck_assert_uint_eq(count_of(p, PRECISION_INT2), 0);
        use_all(p, PRECISION_INT2, 2);
        ck_assert_uint_eq(count_of(p, PRECISION_INT2), s.count * s.places[3]);
        check_memory(p, &sizes, bytes);
    }
    ck_assert_uint_gt(s.count * s.places[3], 2 * s.count * s.places[0]);
    places_destroy(p);
}
END_TEST

/* What is used more often keeps its slab, though others of another class come all the time. */
START_TEST(used_more_stays)
{
    const struct expert_sizes sizes = mixed();
    const uint64_t bytes = 30 * expert_sizes_largest(&sizes);
    struct places *p = make(&sizes, bytes, EVICTION_LRU);
    const uint32_t warm = EXPERTS / 2;
    for (uint32_t pass = 0; pass < 400; pass++) {
        for (uint32_t i = 0; i < warm && pass % 2 == 0; i++) {
            struct place_result r = places_use(p, number(PRECISION_INT4, 0, i), 1);
            ck_assert_int_eq((int)r.use, pass ? (int)PLACE_HIT : (int)PLACE_UPLOAD);
            places_end_leases(p);
        }
        for (uint32_t i = 0; i < 4; i++) {
            places_use(p, number(PRECISION_NATIVE, 1 + 2 * draw(2), draw(EXPERTS)), 1);
            places_end_leases(p);
        }
    }
    ck_assert_uint_gt(places_counts(p).evicted, 100);
    places_destroy(p);
}
END_TEST

static uint64_t size_of(const struct expert_sizes *sizes, uint32_t expert)
{
    return sizes->bytes[expert / EXPERTS / LAYERS][expert / EXPERTS % LAYERS];
}

/* An expert that gets the place of another one has that of the oldest of its class. */
START_TEST(oldest_of_its_class)
{
    const struct expert_sizes sizes = mixed();
    struct places *p = make(&sizes, 30 * expert_sizes_largest(&sizes), EVICTION_LRU);
    uint32_t used[ALL] = {0}, replaced = 0;
    state = 5;
    for (uint32_t i = 1; i < 4000; i++) {
        uint32_t had[ALL], oldest = UINT32_MAX;
        uint32_t k = draw(3); /* no expert in two precisions: the lower one would go first */
        uint32_t e = number(present[k], i % LAYERS, draw(EXPERTS / 3) * 3 + k);
        for (uint32_t o = 0; o < ALL; o++) {
            had[o] = places_at(p, o);
            bool alike = had[o] != PLACES_NONE && size_of(&sizes, o) == size_of(&sizes, e);
            oldest = alike && used[o] < oldest ? used[o] : oldest;
        }
        struct place_result r = places_use(p, e, 1);
        places_end_leases(p);
        used[e] = i;
        for (uint32_t o = 0; o < ALL && r.taken; o++)
            if (had[o] == r.place && size_of(&sizes, o) == size_of(&sizes, e)) {
                ck_assert_uint_eq(used[o], oldest);
                replaced++;
            }
    }
    ck_assert_uint_gt(replaced, 500);
    places_destroy(p);
}
END_TEST

/* Where all have a place, none loses it, whatever comes first. */
START_TEST(all_have_places)
{
    const struct expert_sizes sizes = mixed();
    const struct slabs s = divided(&sizes, UINT64_MAX / 2);
    struct places *p = make(&sizes, s.count * s.bytes, EVICTION_LRU);
    uint32_t all = 3 * LAYERS * EXPERTS;
    ck_assert_uint_eq(places_capacity(p), all);
    state = 3;
    for (uint32_t i = 0; i < 5000; i++) {
        uint32_t e = draw(ALL);
        if (e / EXPERTS / LAYERS != PRECISION_INT8)
            places_use(p, e, 1);
        places_end_leases(p);
    }
    ck_assert_uint_eq(check_memory(p, &sizes, s.count * s.bytes), all);
    ck_assert_uint_eq(places_counts(p).evicted, 0);
    places_destroy(p);
}
END_TEST

/* ---- the order of a walk ---- */

struct order {
    uint32_t slot[ALL], count;
    bool seen[ALL];
};

static bool note(void *arg, uint32_t slot)
{
    struct order *o = arg;
    if (!o->seen[slot])
        o->slot[o->count++] = slot;
    o->seen[slot] = true;
    return false;
}

static bool unseen(void *arg, uint32_t slot)
{
    return !((struct order *)arg)->seen[slot];
}

/* Each is the victim if those before it may not be. */
START_TEST(walk)
{
    const enum eviction eviction = (enum eviction)_i;
    struct residency_config config = {.layers = LAYERS,
                                      .experts = EXPERTS,
                                      .top_k = TOP_K,
                                      .precisions = PRECISION__COUNT,
                                      .precision_bytes = {1, 1, 1, 1},
                                      .eviction = eviction,
                                      .w_lru = 0.4f,
                                      .w_lfu = 0.3f,
                                      .w_lhu = 0.2f,
                                      .w_fld = 0.1f,
                                      .walks = true};
    struct residency *r = residency_create(&config);
    residency_capacity(r, 150);
    state = (uint64_t)_i;
    for (uint32_t i = 0; i < 3000; i++) {
        uint32_t slot = number(draw(PRECISION__COUNT), i / 5 % LAYERS, draw(EXPERTS));
        residency_step(r, &(struct residency_step){0, i / 5 / LAYERS, i / 5 % LAYERS});
        residency_accessed(r, slot, &(struct residency_access){.tokens = 1, .high = i % 2});
        if (residency_is_resident(r, slot))
            continue;
        struct order all = {0};
        if (residency_resident_count(r) == 150)
            residency_remove(r, residency_victim(r, slot, unseen, &all), true);
        residency_insert(r, slot, false);
    }
    struct order walked = {0}, victims = {0};
    residency_walk(r, 0, note, &walked);
    ck_assert_uint_eq(walked.count, residency_resident_count(r));
    while (eviction != EVICTION_RANDOM && victims.count < walked.count) {
        uint32_t slot = residency_victim(r, 0, unseen, &victims);
        ck_assert_uint_eq(slot, walked.slot[victims.count]);
        note(&victims, slot);
    }
    residency_destroy(r);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("slabs");
    TCase *c = tcase_create("slabs");
    const int evictions = EVICTION_SCORE;
    tcase_set_timeout(c, 60);
    tcase_add_test(c, one_size);
    tcase_add_test(c, no_class_wastes_much);
    tcase_add_test(c, all_fit);
    tcase_add_test(c, many_sizes);
    tcase_add_test(c, random_sizes);
    tcase_add_loop_test(c, random_uses, 0, 3 * evictions);
    tcase_add_test(c, follows_the_mix);
    tcase_add_test(c, used_more_stays);
    tcase_add_test(c, oldest_of_its_class);
    tcase_add_test(c, all_have_places);
    tcase_add_loop_test(c, walk, 0, evictions);
    suite_add_tcase(s, c);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}
