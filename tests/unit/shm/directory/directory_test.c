/* SPDX-License-Identifier: Apache-2.0 */
/* The directory: constants, attach checks, the ready counters, the sweep. */
#include <linux/futex.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "lib/tensor/precision.h"
#include "shm/arena/arena.h"
#include "shm/directory/directory.h"
#include "tests/unit/shm/shm_test.h"

static const uint32_t sizes[] = {2, 5};

struct rig {
    struct model_index *model;
    struct arena_layout layout;
    struct directory d;
};

static struct rig rig_open(void)
{
    struct rig r = {.model = test_model(3, 2, 4, sizes, 2)};
    struct error e = {.text = ""};
    ck_assert_int_eq(arena_layout_make(r.model, &r.layout, &e), 0);
    struct segment s = test_segment(SEGMENT_DIRECTORY, directory_bytes(r.model));
    directory_format(s.base, r.model, &r.layout, 2);
    int fd = dup(s.fd);
    segment_detach(&s);
    ck_assert_msg(directory_attach(fd, true, BOOT, r.model, &r.d, &e) == 0, "%s", e.text);
    return r;
}

static void rig_close(struct rig *r)
{
    segment_detach(&r->d.segment);
    free(r->model);
}

START_TEST(constants)
{
    struct rig r = rig_open();
    ck_assert_uint_eq(r.d.head->entry_count, 11);
    ck_assert_uint_eq(r.d.head->layer_count, 2);
    ck_assert_uint_eq(r.d.head->loader_count, 2);
    ck_assert_uint_eq((uintptr_t)r.d.entries % 64, 0);
    ck_assert_uint_eq((uintptr_t)r.d.counters % 64, 0);
    for (uint32_t i = 0; i < 11; i++) {
        const struct directory_entry *e = &r.d.entries[i];
        ck_assert_uint_eq(e->word, 0); /* ABSENT, generation 0 */
        ck_assert_uint_eq(e->slot_pages, i < 3 ? 1 : sizes[(i - 3) % 2]);
        ck_assert_uint_eq(e->size_class, i < 3 ? UINT16_MAX : (i - 3) % 2);
        ck_assert_uint_eq(e->kind, i < 3 ? ENTRY_DENSE : ENTRY_EXPERT);
        if (i < 3)
            ck_assert_uint_eq(e->arena_offset, (i + 1) * PAGE_BYTES);
    }
    ck_assert_uint_eq(directory_counter_of(&r.d, 0), 2); /* global tensors use the last counter */
    ck_assert_uint_eq(directory_counter_of(&r.d, 3 + 4), 1);
    rig_close(&r);
}
END_TEST

/* Two precisions; the second has only the last expert, and none of its other size. */
START_TEST(precisions_and_absent)
{
    static const uint32_t two_sizes[] = {5, 3};
    struct model_index *m = test_model(1, 4, 2, two_sizes, 2); /* as 2 precisions of 2 layers */
    struct model_entry *entries = (void *)(m + 1);
    m->hparams.layers = 2;
    m->precision_mask = 1u << PRECISION_NATIVE | 1u << PRECISION_INT4;
    m->precision_count = 2;
    for (uint32_t i = 5; i < 9; i++) {
        entries[i].precision = PRECISION_INT4;
        entries[i].layer = (uint16_t)((i - 5) / 2);
        entries[i].slot_bytes = (i % 2 ? 2 : 1) * PAGE_BYTES;
        entries[i].extents = i == 8;
    }
    struct arena_layout layout;
    struct error e;
    ck_assert_int_eq(arena_layout_make(m, &layout, &e), 0);
    ck_assert_uint_eq(layout.classes, 3); /* 1, 3 and 5 pages; none of 2 */
    ck_assert_uint_eq(layout.class[0].slot_bytes, PAGE_BYTES);
    ck_assert_uint_eq(layout.class[0].slots, 1);
    ck_assert_uint_eq(layout.class[1].slots, 2);
    ck_assert_uint_eq(layout.class[2].slots, 2);
    void *base = aligned_alloc(64, directory_bytes(m));
    memset(base, 0, directory_bytes(m));
    directory_format(base, m, &layout, 1);
    const struct directory_head *head = base;
    const struct directory_entry *d = (void *)((char *)base + head->entries_offset);
    ck_assert_uint_eq(head->entry_count, 9);
    for (uint32_t i = 1; i < 9; i++) {
        ck_assert_uint_eq(d[i].precision, i < 5 ? PRECISION_NATIVE : PRECISION_INT4);
        ck_assert_uint_eq(d[i].layer, (i - 1) % 4 / 2);
        ck_assert_uint_eq(d[i].size_class, i == 8 ? 0 : i > 4 ? UINT16_MAX : i % 2 ? 2 : 1);
    }
    free(base);
    free(m);
}
END_TEST

START_TEST(another_model)
{
    struct rig r = rig_open();
    struct error e;
    struct directory d;
    r.model->entry_count--;
    ck_assert_int_eq(directory_attach(r.d.segment.fd, false, BOOT, r.model, &d, &e), -1);
    ck_assert_msg(strstr(e.text, "11 entries in 2 layers, the model has 10") != NULL, "%s", e.text);
    rig_close(&r);
}
END_TEST

START_TEST(sweep)
{
    struct rig r = rig_open();
    for (uint32_t i = 0; i < 11; i++) {
        entry_pin(&r.d.entries[i].word, PINNER_COMPUTE);
        entry_pin(&r.d.entries[i].word, PINNER_KEEP);
    }
    atomic_store(&r.d.counters[1].waiters, 1); /* a process died while it waited */
    directory_sweep(&r.d, PINNER_COMPUTE);
    for (uint32_t i = 0; i < 11; i++)
        ck_assert_uint_eq(entry_pins_of(entry_read(&r.d.entries[i].word)), 1u << PINNER_KEEP);
    ck_assert_uint_eq(r.d.counters[1].waiters, 0);
    rig_close(&r);
}
END_TEST

START_TEST(wait_ends)
{
    struct rig r = rig_open();
    uint32_t seen = directory_counter_now(&r.d, 0);
    directory_wait(&r.d, 0, seen, NS_PER_MS); /* ends by its timeout */
    directory_signal(&r.d, 0);
    ck_assert_uint_eq(directory_counter_now(&r.d, 0), seen + 1);
    directory_wait(&r.d, 0, seen, 600 * NS_PER_S); /* returns at once: the counter changed */
    ck_assert_uint_eq(r.d.counters[0].waiters, 0);
    rig_close(&r);
}
END_TEST

static void *signal_when_waiting(void *arg)
{
    struct directory *d = arg;
    while (atomic_load(&d->counters[1].waiters) == 0)
        sched_yield();
    entry_shard_done(&d->entries[7].word, 0, 0);
    directory_signal(d, 1);
    return NULL;
}

START_TEST(wait_is_woken)
{
    struct rig r = rig_open();
    uint64_t generation;
    for (int i = 0; i < 200; i++) {
        pthread_t thread;
        r.d.entries[7].word = 0;
        ck_assert(entry_reserve(&r.d.entries[7].word, 1, &generation));
        entry_pin(&r.d.entries[7].word, PINNER_COMPUTE);
        ck_assert_int_eq(pthread_create(&thread, NULL, signal_when_waiting, &r.d), 0);
        for (;;) { /* the order of rule (d): pin, counter, word, wait */
            uint32_t seen = directory_counter_now(&r.d, 1);
            if (entry_state_of(entry_read(&r.d.entries[7].word)) == ENTRY_READY)
                break;
            directory_wait(&r.d, 1, seen, 600 * NS_PER_S); /* a lost wake-up times out */
        }
        pthread_join(thread, NULL);
    }
    rig_close(&r);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("directory");
    TCase *t = tcase_create("directory");
    tcase_set_timeout(t, 30);
    tcase_add_test(t, constants);
    tcase_add_test(t, precisions_and_absent);
    tcase_add_test(t, another_model);
    tcase_add_test(t, sweep);
    tcase_add_test(t, wait_ends);
    tcase_add_test(t, wait_is_woken);
    suite_add_tcase(suite, t);
    return test_run(suite);
}
