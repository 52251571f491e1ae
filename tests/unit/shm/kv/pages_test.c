/* SPDX-License-Identifier: Apache-2.0 */
/* Pages that slots share, against a model: every slot has its own bytes, whatever the others do,
 * and what slots have in common is in memory once. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "lib/base/random.h"
#include "shm/kv/pages.h"
#include "shm/kv/regions.h"
#include "tests/harness/sample.h"
#include "tests/unit/shm/shm_test.h"

#define CONTEXT 1000
#define SLOTS   6

static const struct model_hparams plain = {.layers = 3, .kv_heads = 2, .head_size = 20};
static const struct model_hparams windows = {
    .layers = 3, .kv_heads = 2, .head_size = 16, .window = 128, .layer_kind = {[1] = LAYER_WINDOW}};

/* Two of three layers have keys of an indexer. */
static const struct model_hparams indexed = {.layers = 3,
                                             .kv_heads = 1,
                                             .head_size = 20,
                                             .kv_rank = 16,
                                             .index_heads = 2,
                                             .index_size = 24,
                                             .layer_flags = {LAYER_INDEXED, 0, LAYER_INDEXED}};

/* A key for each four positions, in the last layer. */
static const struct model_hparams pools = {.layers = 3,
                                           .kv_heads = 1,
                                           .head_size = 20,
                                           .index_heads = 2,
                                           .index_size = 24,
                                           .index_block = 4,
                                           .index_tail = 3,
                                           .layer_flags = {[2] = LAYER_INDEXED}};

static struct kv kv;
static struct random rnd;
static uint64_t empty_bytes;

/* The model: of each slot its positions, and for each page which copy it has. */
static struct {
    uint32_t tokens;
    uint8_t byte[CONTEXT];
    uint32_t copy[CONTEXT / KV_TILE + 1];
} model[SLOTS];
static uint32_t copies;

static uint32_t below(uint32_t n)
{
    return (uint32_t)(random_u64(&rnd) % n);
}

static void open_kv(const struct model_hparams *h, enum kv_type type)
{
    struct kv_counts counts = {.sequences = 2, .kept = SLOTS - 2, .checkpoints = 1};
    struct kv_shape shape = kv_shape_of(h, type, CONTEXT, 65, &counts);
    struct segment s = test_segment(SEGMENT_KV, kv_bytes(&shape));
    struct error e = {.text = ""};
    ck_assert_int_eq(segment_allocate(s.fd, 0, kv_head_bytes(&shape)), 0);
    kv_format(s.base, &shape);
    int fd = dup(s.fd);
    segment_detach(&s);
    ck_assert_msg(kv_attach(fd, true, BOOT, &kv, &e) == 0, "%s", e.text);
    empty_bytes = segment_allocated_bytes(fd);
    memset(model, 0, sizeof model);
    random_seed(&rnd, 5, (uint64_t)type);
}

static uint32_t page_of(uint32_t token)
{
    return token / kv.head->page_tokens;
}

/* A position's share of a tile: where in the tile its values are does not matter here. */
static uint8_t *at(uint32_t slot, uint32_t region, uint32_t token, uint64_t *bytes)
{
    uint8_t *base = kv_region_is_index(kv.head, region)
                        ? kv_index(&kv, slot, region - 2 * kv.head->layers)
                    : region % 2 ? kv_values(&kv, slot, region / 2)
                                 : kv_keys(&kv, slot, region / 2);
    *bytes = kv_region_tile_bytes(kv.head, region) / KV_TILE;
    return base + token * *bytes;
}

static void store(uint32_t slot, uint32_t token)
{
    uint64_t bytes;
    model[slot].byte[token] = (uint8_t)below(256);
    for (uint32_t region = 0; region < kv_region_count(kv.head); region++) {
        if (kv_region_is_ring(kv.head, region))
            continue;
        uint8_t *p = at(slot, region, token, &bytes);
        memset(p, model[slot].byte[token] + (int)region, bytes);
    }
}

static bool is_right(uint32_t slot, uint32_t token)
{
    uint64_t bytes;
    bool right = true;
    for (uint32_t region = 0; region < kv_region_count(kv.head); region++) {
        if (kv_region_is_ring(kv.head, region))
            continue;
        const uint8_t *p = at(slot, region, token, &bytes);
        for (uint64_t i = 0; i < bytes; i++)
            right = right && p[i] == (uint8_t)(model[slot].byte[token] + region);
    }
    return right;
}

/* Of each copy of a page, the memory of the slot that has most of it; rings by themselves. */
static uint64_t expected_bytes(void)
{
    uint64_t all = 0;
    for (uint32_t region = 0; region < kv_region_count(kv.head); region++) {
        for (uint32_t slot = 0; slot < SLOTS; slot++) {
            bool ring = kv_region_is_ring(kv.head, region);
            all += ring ? kv_region_bytes(kv.head, region, model[slot].tokens) : 0;
            for (uint32_t page = 0; !ring && page * kv.head->page_tokens < model[slot].tokens;
                 page++) {
                uint32_t most = 0, first = page * kv.head->page_tokens, user = SLOTS;
                for (uint32_t i = 0; i < SLOTS; i++) {
                    if (model[i].tokens <= first || model[i].copy[page] != model[slot].copy[page])
                        continue;
                    user = user == SLOTS ? i : user;
                    most = model[i].tokens > most ? model[i].tokens : most;
                }
                uint32_t end = first + kv.head->page_tokens;
                most = most < end ? most : end;
                all += user == slot ? kv_region_bytes(kv.head, region, most) -
                                          kv_region_bytes(kv.head, region, first)
                                    : 0;
            }
        }
    }
    return all;
}

static void check(void)
{
    ck_assert_uint_eq(segment_allocated_bytes(kv.segment.fd) - empty_bytes, expected_bytes());
    for (uint32_t slot = 0; slot < SLOTS; slot++) {
        bool right = true;
        for (uint32_t token = 0; token < model[slot].tokens; token++)
            right = right && is_right(slot, token);
        ck_assert_msg(right, "slot %u of %u positions", slot, model[slot].tokens);
        for (uint32_t other = 0; other < SLOTS; other++) {
            uint32_t common = 0, most = model[slot].tokens < model[other].tokens
                                            ? model[slot].tokens
                                            : model[other].tokens;
            while (common * kv.head->page_tokens < most &&
                   model[slot].copy[common] == model[other].copy[common])
                common++;
            if (other != slot)
                ck_assert_uint_eq(kv_pages_common(&kv, slot, other), common);
        }
    }
}

static bool others_have(uint32_t slot, uint32_t page)
{
    bool found = false;
    for (uint32_t i = 0; i < SLOTS; i++)
        found = found || (i != slot && model[i].tokens > page * kv.head->page_tokens &&
                          model[i].copy[page] == model[slot].copy[page]);
    return found;
}

static void resize(uint32_t slot, uint32_t tokens)
{
    struct error e;
    uint32_t before = model[slot].tokens, partly = before % kv.head->page_tokens;
    ck_assert_int_eq(kv_slot_resize(&kv, slot, tokens, NULL, NULL, &e), 0);
    if (tokens > before) {
        if (partly == 0 || others_have(slot, page_of(before)))
            model[slot].copy[page_of(before)] = ++copies;
        for (uint32_t page = page_of(before) + 1; page * kv.head->page_tokens < tokens; page++)
            model[slot].copy[page] = ++copies;
    }
    model[slot].tokens = tokens;
    for (uint32_t token = before; token < tokens; token++)
        store(slot, token);
}

static void share(uint32_t from, uint32_t to, uint32_t tokens)
{
    struct error e;
    resize(to, 0);
    ck_assert_int_eq(kv_slot_share(&kv, from, to, tokens, NULL, NULL, &e), 0);
    model[to] = model[from];
    model[to].tokens = tokens;
    if (tokens % kv.head->page_tokens != 0)
        model[to].copy[page_of(tokens)] = ++copies;
}

/* All that compute has beside the segment goes. */
static void restart(void)
{
    struct error e;
    int fd = dup(kv.segment.fd);
    segment_detach(&kv.segment);
    ck_assert_msg(kv_attach(fd, true, BOOT, &kv, &e) == 0, "%s", e.text);
    for (uint32_t slot = 0; slot < SLOTS; slot++)
        ck_assert_int_eq(kv_slot_map(&kv, slot, &e), 0);
    kv_pages_settle(&kv, NULL, NULL);
}

static void step(void)
{
    uint32_t slot = below(SLOTS), other = below(SLOTS), tokens = model[slot].tokens;
    switch (below(8)) {
    case 0:
    case 1: resize(slot, tokens + below(CONTEXT + 1 - tokens)); break;
    case 2: resize(slot, below(tokens + 1)); break;
    case 3: /* cut back, and on: as a sequence that takes a slot over */
        resize(slot, below(tokens + 1));
        resize(slot, model[slot].tokens + below(CONTEXT + 1 - model[slot].tokens));
        break;
    case 4:
        kv_slot_release(&kv, slot, NULL, NULL);
        model[slot].tokens = 0;
        break;
    case 5: restart(); break;
    default:
        if (slot != other)
            share(slot, other, below(tokens + 1));
    }
}

static void run(const struct model_hparams *h, enum kv_type type)
{
    open_kv(h, type);
    for (uint32_t i = 0; i < test_amount(AMOUNT_kv_pages); i++) {
        step();
        check();
    }
    for (uint32_t slot = 0; slot < SLOTS; slot++)
        resize(slot, 0);
    ck_assert_uint_eq(segment_allocated_bytes(kv.segment.fd), empty_bytes);
    segment_detach(&kv.segment);
}

START_TEST(slots_have_their_own_bytes)
{
    run(&plain, (enum kv_type)_i);
}
END_TEST

START_TEST(rings_are_not_shared)
{
    run(&windows, (enum kv_type)_i);
}
END_TEST

START_TEST(keys_of_an_indexer_are_in_the_pages)
{
    run(&indexed, (enum kv_type)_i);
}
END_TEST

START_TEST(keys_of_pools_are_in_the_pages)
{
    run(&pools, (enum kv_type)_i);
}
END_TEST

/* Whichever store compute was killed before: what is left is what the table says. */
START_TEST(a_page_that_no_slot_has_is_freed)
{
    open_kv(&plain, KV_TYPE_F16);
    uint32_t page = kv.head->page_tokens;
    resize(0, 3 * page);
    share(0, 1, 2 * page);
    uint64_t before = segment_allocated_bytes(kv.segment.fd);
    /* Slot 2 was about to grow: it has memory that is in no table, and positions that have none. */
    ck_assert_int_eq(segment_allocate(kv.segment.fd, kv_region_offset(&kv, 2, 0), PAGE_BYTES), 0);
    atomic_store(&kv.head->slot[2].allocated, 2 * page);
    restart();
    ck_assert_uint_eq(atomic_load(&kv.head->slot[2].allocated), 0);
    ck_assert_uint_eq(segment_allocated_bytes(kv.segment.fd), before);
    check();
    segment_detach(&kv.segment);
}
END_TEST

START_TEST(many_slots_have_one_copy)
{
    open_kv(&plain, KV_TYPE_F16);
    uint32_t common = 2 * kv.head->page_tokens, all = common + 100;
    resize(0, all);
    for (uint32_t slot = 1; slot < SLOTS; slot++) {
        share(0, slot, common);
        ck_assert(kv_page_is_shared(&kv, slot, common - 1));
        resize(slot, all);
        ck_assert(!kv_page_is_shared(&kv, slot, common));
    }
    check();
    uint64_t one = kv_tokens_bytes(&kv, all), shared = kv_pages_bytes(&kv, common);
    ck_assert_uint_eq(segment_allocated_bytes(kv.segment.fd) - empty_bytes,
                      shared + SLOTS * (one - shared));
    segment_detach(&kv.segment);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("kv_pages");
    TCase *t = tcase_create("all");
    tcase_set_timeout(t, 300);
    tcase_add_loop_test(t, slots_have_their_own_bytes, 0, KV_TYPE__COUNT);
    tcase_add_loop_test(t, rings_are_not_shared, 0, KV_TYPE__COUNT);
    tcase_add_loop_test(t, keys_of_an_indexer_are_in_the_pages, 0, KV_TYPE__COUNT);
    tcase_add_loop_test(t, keys_of_pools_are_in_the_pages, 0, KV_TYPE__COUNT);
    tcase_add_test(t, a_page_that_no_slot_has_is_freed);
    tcase_add_test(t, many_slots_have_one_copy);
    suite_add_tcase(s, t);
    SRunner *runner = srunner_create(s);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
