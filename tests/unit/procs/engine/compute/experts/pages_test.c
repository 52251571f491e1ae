/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of a table on storage as compute reads them: from the slots that have their pages, whole
 * also where a row is in two pages; it waits for those that are not there, asks again, and ends
 * with a named error or when it is cancelled. A thread acts as cache and loader. */
#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "tests/golden/reference.h"
#include "tests/unit/procs/engine/compute/experts/world.h"

#define ROWS 48

static struct {
    const uint8_t *rows; /* the table in memory */
    const uint8_t *slot; /* and what lies before it in its first page */
    uint64_t row_bytes;
    uint32_t count, pages;
} table;

static struct directory_entry *slot_at(uint32_t i)
{
    return &w.child.directory.entries[model_experts_end(w.child.model) + i];
}

static void setup_table(void)
{
    image_open(&w.image, golden_path("converted/qwen4exp-base.gguf"), 16);
    const struct model_index *m = w.image.model;
    const struct model_entry *e = &model_index_entries(m)[model_table_entry(m)];
    const struct model_tensor *t = &model_index_tensors(m)[e->extent[0].tensor];
    world_open_with(m);
    table.rows = offline_dense(w.image.file, model_table_entry(m));
    table.slot = table.rows - e->extent[0].head_bytes;
    table.row_bytes = t->row_bytes;
    table.count = (uint32_t)t->ne[1];
    table.pages = model_table_pages(m);
    ck_assert_uint_gt(table.pages, 1);
}

/* The slot of its set for a page; all pages fit. */
static struct directory_entry *reserve(uint32_t page, uint64_t *generation)
{
    uint32_t first = model_page_set(w.child.model, page) - model_experts_end(w.child.model);
    for (uint32_t i = first; i < first + MODEL_PAGE_WAYS; i++) {
        if (atomic_load(&slot_at(i)->page) != 0)
            continue;
        atomic_store(&slot_at(i)->page, page + 1);
        ck_assert(entry_reserve(&slot_at(i)->word, 1, generation));
        return slot_at(i);
    }
    ck_abort_msg("no slot for page %u", page);
    return NULL;
}

static void publish(struct directory_entry *d, uint32_t page, uint64_t generation)
{
    uint64_t at = (uint64_t)page * PAGE_BYTES;
    uint64_t end = (uint64_t)(table.rows - table.slot) + table.count * table.row_bytes;
    memcpy((char *)w.child.arena.base + atomic_load(&d->arena_offset), table.slot + at,
           end - at < PAGE_BYTES ? end - at : PAGE_BYTES);
    ck_assert_int_eq(entry_shard_done(&d->word, generation, 0), SHARD_READY);
    directory_signal(&w.child.directory, w.child.directory.head->layer_count);
}

static void make_ready(uint32_t page)
{
    uint64_t generation;
    struct directory_entry *d = reserve(page, &generation);
    publish(d, page, generation);
}

static int read_rows(const uint32_t *row, uint32_t rows, struct error *error)
{
    static uint8_t got[ROWS * 4096];
    ck_assert(rows <= ROWS && table.row_bytes <= 4096);
    if (w.source.table_read(w.source.self, row, rows, got, error) != 0)
        return -1;
    for (uint32_t i = 0; i < rows; i++)
        ck_assert_msg(memcmp(got + i * table.row_bytes, table.rows + row[i] * table.row_bytes,
                             table.row_bytes) == 0,
                      "row %u", row[i]);
    return 0;
}

static uint32_t page_of(uint32_t row)
{
    return (uint32_t)(((uint64_t)(table.rows - table.slot) + row * table.row_bytes) / PAGE_BYTES);
}

static bool nothing_is_pinned(void)
{
    for (uint32_t i = 0; i < w.child.model->page_count; i++)
        if (entry_pins_of(entry_read(&slot_at(i)->word)) != 0)
            return false;
    return true;
}

START_TEST(rows_of_pages_that_are_there)
{
    struct error error;
    uint32_t row[ROWS], parts = 0;
    for (uint32_t page = 0; page < table.pages; page++)
        make_ready(page);
    for (uint32_t first = 0; first < table.count; first += ROWS) {
        uint32_t n = table.count - first < ROWS ? table.count - first : ROWS;
        for (uint32_t i = 0; i < n; i++) {
            row[i] = first + (i * 7) % n;
            parts += 1 + (page_of(row[i]) != page_of(row[i] + 1));
        }
        w.source.table_ask(w.source.self, row, n);
        ck_assert_int_eq(read_rows(row, n, &error), 0);
    }
    ck_assert_uint_eq(world_count(CTR_COMPUTE_table_rows), table.count);
    ck_assert_uint_le(world_count(CTR_COMPUTE_table_pages), parts);
    ck_assert_uint_eq(world_count(CTR_COMPUTE_table_misses), 0);
    ck_assert_uint_eq(world_count(CTR_COMPUTE_table_wait_ns), 0);
    ck_assert(nothing_is_pinned());
}
END_TEST

static void wait_for_questions(uint64_t count)
{
    while (world_count(CTR_COMPUTE_table_misses) < count)
        ;
}

static void *read_what_is_asked(void *arg)
{
    (void)arg;
    wait_for_questions(1);
    for (uint32_t page = 0; page < table.pages; page++)
        if (page != page_of(0))
            make_ready(page);
    return NULL;
}

START_TEST(it_waits_for_the_others)
{
    struct error error;
    pthread_t thread;
    uint32_t row[] = {0, table.count - 1, table.count / 2, 1};
    make_ready(page_of(0));
    w.source.table_ask(w.source.self, row, ARRAY_LEN(row));
    uint64_t asked = world_count(CTR_COMPUTE_table_misses);
    ck_assert_uint_ge(asked, 1);
    ck_assert_int_eq(pthread_create(&thread, NULL, read_what_is_asked, NULL), 0);
    ck_assert_int_eq(read_rows(row, ARRAY_LEN(row), &error), 0);
    pthread_join(thread, NULL);
    ck_assert(nothing_is_pinned());
}
END_TEST

static uint32_t used_at(uint32_t page)
{
    uint32_t first = model_page_set(w.child.model, page) - model_experts_end(w.child.model);
    for (uint32_t i = first; i < first + MODEL_PAGE_WAYS; i++)
        if (atomic_load(&slot_at(i)->page) == page + 1)
            return atomic_load(&slot_at(i)->used_at);
    ck_abort_msg("no slot has page %u", page);
    return 0;
}

/* Each read is a tick of the time of page slots; what a request finds is used from then on. */
START_TEST(pages_have_the_time_of_their_last_use)
{
    struct error error;
    uint32_t row[] = {0, table.count - 1}, page[] = {page_of(0), page_of(table.count - 1)};
    _Atomic uint32_t *reads = &w.child.directory.head->table_reads;
    make_ready(page[0]);
    make_ready(page[1]);
    ck_assert_uint_eq(atomic_load(reads), 1);
    ck_assert_int_eq(read_rows(row, 1, &error), 0);
    ck_assert_uint_eq(atomic_load(reads), 2);
    ck_assert_uint_eq(used_at(page[0]), 1);
    ck_assert_uint_eq(used_at(page[1]), 0);
    w.source.table_ask(w.source.self, row, 2);
    ck_assert_uint_eq(atomic_load(reads), 2);
    ck_assert_uint_eq(used_at(page[0]), 2);
    ck_assert_uint_eq(used_at(page[1]), 2);
}
END_TEST

/* A slot that had the page has another one meanwhile. */
START_TEST(a_replaced_page_is_not_used)
{
    uint32_t row = table.count - 1, page = page_of(row), other = 0;
    struct error error;
    while (other == page ||
           model_page_set(w.child.model, other) != model_page_set(w.child.model, page))
        other++;
    make_ready(other);
    atomic_store(&w.request.cancel, 1);
    ck_assert_int_eq(read_rows(&row, 1, &error), -1);
    ck_assert_int_eq(error.code, ERR_CANCELLED);
    atomic_store(&w.request.cancel, 0);
    make_ready(page);
    ck_assert_int_eq(read_rows(&row, 1, &error), 0);
}
END_TEST

/* A cache that requests the page three times, and a loader that cannot read it, once the page was
 * looked for. */
static void *fail_thrice(void *arg)
{
    struct directory_entry *d = arg;
    while (atomic_load(&w.child.process->wait) != WAIT_PAGES)
        ;
    atomic_store(&d->last_errno, EIO);
    atomic_fetch_add(&d->failures, 3);
    directory_signal(&w.child.directory, w.child.directory.head->layer_count);
    return NULL;
}

START_TEST(a_page_that_cannot_be_read)
{
    struct error error;
    uint32_t row = table.count / 2;
    uint64_t generation;
    struct directory_entry *d = reserve(page_of(row), &generation);
    atomic_store(&d->failures, 2); /* of an earlier request: not counted */
    w.experts->load_timeout_ns = 2 * NS_PER_S;
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, fail_thrice, d), 0);
    ck_assert_int_eq(read_rows(&row, 1, &error), -1);
    pthread_join(thread, NULL);
    ck_assert_int_eq(error.code, ERR_IO);
    ck_assert_msg(strstr(error.text, "rows of per_layer_token_embd.weight"), "%s", error.text);
}
END_TEST

START_TEST(no_loader_makes_progress)
{
    struct error error;
    uint32_t row = 5;
    ck_assert_int_eq(read_rows(&row, 1, &error), -1);
    ck_assert_int_eq(error.code, ERR_NO_PROGRESS);
    ck_assert_msg(strstr(error.text, "while waiting for rows of a table"), "%s", error.text);
    ck_assert_uint_gt(world_count(CTR_COMPUTE_table_wait_ns), 0);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("compute_pages");
    TCase *t = tcase_create("compute_pages");
    tcase_add_checked_fixture(t, setup_table, NULL);
    tcase_set_timeout(t, 60);
    tcase_add_test(t, rows_of_pages_that_are_there);
    tcase_add_test(t, it_waits_for_the_others);
    tcase_add_test(t, pages_have_the_time_of_their_last_use);
    tcase_add_test(t, a_replaced_page_is_not_used);
    tcase_add_test(t, a_page_that_cannot_be_read);
    tcase_add_test(t, no_loader_makes_progress);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_ENV);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}
