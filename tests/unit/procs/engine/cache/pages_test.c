/* SPDX-License-Identifier: Apache-2.0 */
/* Pages of a table on storage: each is read once, into a slot of its set; the page not read for
 * longest gives its slot; a successor, and a crash of the loader, leave no page wrong. */
#include <string.h>

#include "tests/golden/reference.h"
#include "tests/unit/procs/engine/cache/world.h"

static uint32_t first; /* page slot */

static void send_pages(const uint32_t *page, uint32_t count)
{
    struct msg_pages m = {.sent_ns = 1, .count = count};
    memcpy(m.page, page, count * sizeof *page);
    ck_assert_int_eq(channel_send(w.compute, &m, MSG_PAGES), 0);
    cache_receive_compute(&w.cache);
}

static void ask(uint32_t page)
{
    send_pages(&page, 1);
}

static uint32_t page_of(uint32_t slot)
{
    return atomic_load(&w.child.directory.entries[first + slot].page);
}

#define NOW 100000u /* reads of compute */

static void read_at(uint32_t slot, uint32_t at) /* as compute does */
{
    atomic_store(&w.child.directory.entries[first + slot].used_at, at);
}

/* One set of slots, and more pages than these. */
static void setup_table(void)
{
    setup_model(golden_path("converted/qwen4exp-base.gguf"), MODEL_PAGE_WAYS, 3 * MODEL_PAGE_WAYS);
    start("lod", 4);
    first = model_experts_end(w.child.model);
    ck_assert_uint_eq(w.child.model->entry_count, first + MODEL_PAGE_WAYS);
    ck_assert_uint_gt(model_table_pages(w.child.model), MODEL_PAGE_WAYS + 1);
    atomic_store(&w.child.directory.head->table_reads, NOW);
}

static void fill_set(void)
{
    for (uint32_t i = 0; i < MODEL_PAGE_WAYS; i++) {
        ask(i);
        arrive(first + i);
        ck_assert_uint_eq(w.cache.notes[first + i].reserved_at, NOW);
        w.cache.notes[first + i].reserved_at = 0;
    }
}

START_TEST(a_page_is_read_once)
{
    _Alignas(8) char buf[MSG_BYTES_MAX];
    const struct msg_loads *loads = (const struct msg_loads *)(const void *)buf;
    const struct model_index *m = w.child.model;
    const struct model_extent *table = &model_index_entries(m)[model_table_entry(m)].extent[0];
    uint64_t before = count(CTR_CACHE_loads_sent);
    while (channel_receive(w.loader, buf) > 0)
        ;
    atomic_store(&cache_loader_process(&w.cache, 0)->state, PROC_READY);
    atomic_store(&cache_loader_process(&w.cache, 0)->incarnation, 1);
    send_pages((const uint32_t[]){9, 9, 2}, 3);
    ck_assert_uint_eq(count(CTR_CACHE_page_loads), 2);
    ck_assert_uint_eq(count(CTR_CACHE_loads_sent), before + 2);
    ck_assert_uint_eq(page_of(0), 10);
    ck_assert_uint_eq(page_of(1), 3);
    ck_assert_int_eq(state(first), ENTRY_LOADING);
    while (channel_receive(w.loader, buf) == 0)
        ;
    ck_assert_uint_eq(loads->count, 2);
    ck_assert_uint_eq(loads->loads[0].entry, first);
    ck_assert_uint_eq(loads->loads[0].runs_count, 1);
    ck_assert_uint_eq(loads->loads[0].runs[0].bytes, PAGE_BYTES);
    ck_assert_uint_eq(loads->loads[0].runs[0].file_offset, table->file_offset + 9 * PAGE_BYTES);
    ck_assert_uint_eq(loads->loads[0].runs[0].arena_offset, w.layout.pages_offset);
    arrive(first);
    ask(9);
    ck_assert_uint_eq(count(CTR_CACHE_page_loads), 2);
    arrive(first + 1);
    ck_assert_uint_eq(w.cache.demands_open, 0);
}
END_TEST

START_TEST(the_page_not_read_for_longest_gives_its_slot)
{
    uint64_t owned = w.cache.owned_bytes;
    fill_set();
    for (uint32_t i = 0; i < MODEL_PAGE_WAYS; i++)
        read_at(i, NOW - 1 - i);
    read_at(5, NOW - 99999);
    pin(first + 5);
    ask(MODEL_PAGE_WAYS);
    ck_assert_uint_eq(page_of(7), MODEL_PAGE_WAYS + 1);
    ck_assert_int_eq(state(first + 7), ENTRY_LOADING);
    ck_assert_uint_eq(count(CTR_CACHE_page_evictions), 1);
    unpin(first + 5);
    ask(MODEL_PAGE_WAYS + 1);
    ck_assert_uint_eq(page_of(5), MODEL_PAGE_WAYS + 2);
    ck_assert_uint_eq(w.cache.owned_bytes, owned);
}
END_TEST

/* It was requested for the next rows of a prompt, and the others were read for the rows before. */
START_TEST(a_page_that_is_not_read_yet_keeps_its_slot)
{
    fill_set();
    for (uint32_t i = 0; i < MODEL_PAGE_WAYS; i++)
        read_at(i, NOW - (i == 2 ? 5 : 0));
    w.cache.notes[first + 2].reserved_at = NOW - 1;
    ask(MODEL_PAGE_WAYS);
    ck_assert_uint_eq(page_of(2), 3);
    w.cache.notes[first + 2].reserved_at = NOW - 2; /* its pass has ended */
    read_at(2, NOW - 99999);
    ask(MODEL_PAGE_WAYS + 1);
    ck_assert_uint_eq(page_of(2), MODEL_PAGE_WAYS + 2);
}
END_TEST

/* Its former page was read in the read in which it lost the slot. */
START_TEST(what_the_former_page_was_read_for_does_not_count)
{
    fill_set();
    for (uint32_t i = 0; i < MODEL_PAGE_WAYS; i++)
        read_at(i, NOW);
    ask(MODEL_PAGE_WAYS);
    ck_assert_uint_eq(page_of(0), MODEL_PAGE_WAYS + 1);
    arrive(first);
    atomic_store(&w.child.directory.head->table_reads, NOW + 1);
    for (uint32_t i = 1; i < MODEL_PAGE_WAYS; i++)
        read_at(i, NOW + 1);
    ask(MODEL_PAGE_WAYS + 1);
    ck_assert_uint_eq(page_of(0), MODEL_PAGE_WAYS + 1);
    ck_assert_uint_eq(page_of(1), MODEL_PAGE_WAYS + 2);
}
END_TEST

START_TEST(a_full_set_leaves_the_rest_to_the_next_demand)
{
    uint32_t pages[MODEL_PAGE_WAYS + 1];
    for (uint32_t i = 0; i < ARRAY_LEN(pages); i++)
        pages[i] = i;
    send_pages(pages, ARRAY_LEN(pages));
    ck_assert_uint_eq(count(CTR_CACHE_page_loads), MODEL_PAGE_WAYS);
    arrive(first + 3);
    ask(MODEL_PAGE_WAYS);
    ck_assert_uint_eq(page_of(3), MODEL_PAGE_WAYS + 1);
}
END_TEST

START_TEST(a_failed_page_is_left_to_the_next_demand)
{
    ask(4);
    load_fails(first);
    ck_assert_int_eq(state(first), ENTRY_ABSENT);
    ck_assert_uint_eq(w.cache.demands_open, 0);
    ask(4);
    ck_assert_int_eq(state(first), ENTRY_LOADING);
    ck_assert_uint_eq(page_of(0), 5);
}
END_TEST

START_TEST(a_page_of_a_crashed_loader_is_read_again)
{
    uint64_t generation;
    ask(4);
    generation = entry_generation_of(word(first));
    cache_clean_loader(&w.cache, 0, 1);
    ck_assert_int_eq(state(first), ENTRY_LOADING);
    ck_assert_uint_gt(entry_generation_of(word(first)), generation);
    ck_assert_uint_eq(page_of(0), 5);
    arrive(first);
}
END_TEST

START_TEST(a_successor_keeps_pages_that_are_there)
{
    ask(4);
    arrive(first);
    ask(5);
    close_cache();
    open_cache("lod");
    cache_rebuild(&w.cache);
    ck_assert_int_eq(state(first), ENTRY_READY);
    ck_assert_int_eq(state(first + 1), ENTRY_ABSENT);
    cache_load_required(&w.cache);
    ck_assert_int_eq(state(first + 1), ENTRY_ABSENT);
    cache_demand_pages(&w.cache, &(struct msg_pages){.count = 2, .page = {4, 5}});
    ck_assert_int_eq(state(first + 1), ENTRY_LOADING);
    arrive(first + 1);
}
END_TEST

START_TEST(a_wrong_page_is_counted)
{
    ask(model_table_pages(w.child.model));
    ck_assert_uint_eq(count(CTR_CACHE_messages_invalid), 1);
    ck_assert_uint_eq(count(CTR_CACHE_page_loads), 0);
}
END_TEST

/* Neither the table nor its slots are in a DEMAND. */
START_TEST(a_demand_has_no_pages)
{
    uint32_t table = model_table_entry(w.child.model);
    struct msg_demand m = {.count = 2,
                           .wants = {{.entry = first, .tokens = 1}, {.entry = table, .tokens = 1}}};
    ck_assert_int_eq(state(table), ENTRY_ABSENT);
    ck_assert_int_eq(channel_send(w.compute, &m, MSG_DEMAND), 0);
    cache_receive_compute(&w.cache);
    ck_assert_uint_eq(count(CTR_CACHE_messages_invalid), 2);
    ck_assert_int_eq(state(first), ENTRY_ABSENT);
    pin(table); /* left by a compute that is gone */
    cache_load_required(&w.cache);
    ck_assert_int_eq(state(table), ENTRY_ABSENT);
}
END_TEST

int main(void)
{
    if (!make_dir())
        return 1;
    Suite *s = suite_create("cache_pages");
    TCase *t = tcase_create("cache_pages");
    tcase_add_checked_fixture(t, setup_table, teardown);
    tcase_set_timeout(t, 60);
    tcase_add_test(t, a_page_is_read_once);
    tcase_add_test(t, the_page_not_read_for_longest_gives_its_slot);
    tcase_add_test(t, a_page_that_is_not_read_yet_keeps_its_slot);
    tcase_add_test(t, what_the_former_page_was_read_for_does_not_count);
    tcase_add_test(t, a_full_set_leaves_the_rest_to_the_next_demand);
    tcase_add_test(t, a_failed_page_is_left_to_the_next_demand);
    tcase_add_test(t, a_page_of_a_crashed_loader_is_read_again);
    tcase_add_test(t, a_successor_keeps_pages_that_are_there);
    tcase_add_test(t, a_wrong_page_is_counted);
    tcase_add_test(t, a_demand_has_no_pages);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    remove_dir();
    return failed != 0;
}
