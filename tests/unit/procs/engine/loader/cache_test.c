/* SPDX-License-Identifier: Apache-2.0 */
/* The file of a cache: slots in the order of their use, against a plain list; heads; and the thread
 * that writes it, with a file, an arena and entry words of its own. A process that was killed in
 * the middle of a slot leaves a file whose slots are right or do not count. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xxhash.h>

#include "lib/base/bytes.h"
#include "lib/base/clock.h"
#include "procs/engine/child/run_cache.h"
#include "procs/engine/loader/cache/writer.h"

#define SLOTS      5u
#define ENTRIES    12u
#define PAYLOAD    (3 * (uint64_t)PAGE_BYTES)
#define SLOT_BYTES (PAGE_BYTES + PAYLOAD)
#define WAIT_NS    (60 * NS_PER_S)

/* ---- index ----------------------------------------------------------------------------------- */

static struct cache_index x;

static struct {
    uint32_t entry[SLOTS]; /* least recently used first */
    uint32_t count;
} list;

static void list_remove(uint32_t entry)
{
    for (uint32_t i = 0; i < list.count; i++)
        if (list.entry[i] == entry) {
            memmove(&list.entry[i], &list.entry[i + 1], (list.count - i - 1) * sizeof(uint32_t));
            list.count--;
            return;
        }
}

static void list_add(uint32_t entry)
{
    list.entry[list.count++] = entry;
}

static void check_list(void)
{
    uint32_t slot = x.oldest;
    ck_assert_uint_eq(x.used, list.count);
    for (uint32_t i = 0; i < list.count; i++, slot = x.slot[slot].newer) {
        ck_assert_uint_eq(x.slot[slot].entry, list.entry[i]);
        ck_assert_uint_eq(index_find(&x, list.entry[i]), slot);
    }
    ck_assert_uint_eq(slot, INDEX_NONE);
}

/* A fill that ends in one of three ways. */
static void fill_once(uint32_t entry)
{
    bool evicts, evict = rand() % 4 != 0;
    uint32_t oldest = list.count > 0 ? list.entry[0] : INDEX_NONE;
    uint32_t slot = index_take(&x, entry, evict, &evicts);
    if (slot == INDEX_NONE) {
        ck_assert(list.count == SLOTS && !evict);
        return;
    }
    ck_assert(evicts == (list.count == SLOTS));
    ck_assert_uint_eq(index_find(&x, entry), INDEX_NONE); /* not yet */
    if (evicts) {
        ck_assert_uint_eq(x.slot[slot].entry, oldest);
        list_remove(oldest);
    }
    switch (rand() % 3) {
    case 0:
        index_unfilled(&x, slot, true);
        if (evicts) { /* it is back, and the first to go */
            memmove(&list.entry[1], &list.entry[0], list.count * sizeof(uint32_t));
            list.entry[0] = oldest;
            list.count++;
        }
        return;
    case 1: index_unfilled(&x, slot, false); return;
    default: index_filled(&x, slot, entry); list_add(entry);
    }
}

START_TEST(slots_are_in_the_order_of_use)
{
    srand(7);
    ck_assert_int_eq(index_create(&x, SLOTS, ENTRIES), 0);
    for (int i = 0; i < 20000; i++) {
        uint32_t entry = (uint32_t)rand() % ENTRIES, slot = index_find(&x, entry);
        if (slot == INDEX_NONE) {
            fill_once(entry);
        } else if (rand() % 5 == 0) {
            index_drop(&x, slot);
            list_remove(entry);
        } else {
            ck_assert_uint_eq(x.slot[slot].sum, entry);
            index_use(&x, slot);
            list_remove(entry);
            list_add(entry);
        }
        check_list();
    }
    index_destroy(&x);
}
END_TEST

START_TEST(a_slot_that_is_read_stays)
{
    bool evicts;
    ck_assert_int_eq(index_create(&x, 2, ENTRIES), 0);
    for (uint32_t entry = 0; entry < 2; entry++)
        index_filled(&x, index_take(&x, entry, true, &evicts), entry);
    uint32_t read = index_find(&x, 0);
    x.slot[read].reading = true;
    ck_assert_uint_eq(index_take(&x, 5, true, &evicts), 1 - read);
    ck_assert(evicts);
    ck_assert_uint_eq(index_take(&x, 6, true, &evicts), INDEX_NONE);
    index_destroy(&x);
}
END_TEST

START_TEST(all_but_what_is_read_is_forgotten)
{
    bool evicts;
    ck_assert_int_eq(index_create(&x, 3, ENTRIES), 0);
    for (uint32_t entry = 0; entry < 2; entry++)
        index_filled(&x, index_take(&x, entry, true, &evicts), entry);
    uint32_t read = index_find(&x, 0), fills = index_take(&x, 2, false, &evicts);
    x.slot[read].reading = true;
    ck_assert(!index_forget(&x));
    ck_assert(index_find(&x, 0) == read && index_find(&x, 1) == INDEX_NONE);
    x.slot[read].reading = false;
    ck_assert(index_forget(&x));
    index_filled(&x, fills, 2); /* that was being written */
    ck_assert(index_find(&x, 2) == fills && index_forget(&x));
    index_destroy(&x);
}
END_TEST

START_TEST(of_two_slots_the_later_counts)
{
    struct index_found found[] = {{.entry = 3, .slot = 4, .stamp = 9, .sum = 1},
                                  {.entry = 3, .slot = 1, .stamp = 11, .sum = 2},
                                  {.entry = 7, .slot = 0, .stamp = 10, .sum = 3},
                                  {.entry = INDEX_NONE, .slot = 2, .stamp = 12},
                                  {.entry = ENTRIES, .slot = 3, .stamp = 13}};
    bool evicts;
    ck_assert_int_eq(index_create(&x, SLOTS, ENTRIES), 0);
    index_build(&x, found, 5);
    ck_assert_uint_eq(x.used, 2);
    ck_assert_uint_eq(index_find(&x, 3), 1);
    ck_assert_uint_eq(x.slot[x.oldest].entry, 7);
    for (uint32_t entry = 8; entry < 11; entry++) /* the three others are free */
        ck_assert(index_take(&x, entry, false, &evicts) != INDEX_NONE && !evicts);
    ck_assert_uint_eq(index_take(&x, 11, false, &evicts), INDEX_NONE);
    index_destroy(&x);
}
END_TEST

/* ---- heads ----------------------------------------------------------------------------------- */

START_TEST(heads_are_checked)
{
    struct cache_head wanted = {.magic = RUN_CACHE_MAGIC, .version = CACHE_VERSION, .loaders = 1};
    struct cache_head found = {.magic = 0};
    wanted.slot_bytes = SLOT_BYTES;
    cache_head_seal(&wanted);
    ck_assert_int_eq(cache_head_judge(&found, &wanted), CACHE_FILE_NEW);
    found = wanted;
    ck_assert_int_eq(cache_head_judge(&found, &wanted), CACHE_FILE_RIGHT);
    found.identity = 7; /* the server is not connected yet */
    cache_head_seal(&found);
    ck_assert_int_eq(cache_head_judge(&found, &wanted), CACHE_FILE_RIGHT);
    wanted.identity = 8;
    ck_assert_int_eq(cache_head_judge(&found, &wanted), CACHE_FILE_NEW);
    wanted.identity = 7;
    ck_assert_int_eq(cache_head_judge(&found, &wanted), CACHE_FILE_RIGHT);
    found.hash++;
    ck_assert_int_eq(cache_head_judge(&found, &wanted), CACHE_FILE_NEW);
    found.version++;
    ck_assert_int_eq(cache_head_judge(&found, &wanted), CACHE_FILE_NEW);
    found.magic++;
    ck_assert_int_eq(cache_head_judge(&found, &wanted), CACHE_FILE_OTHER);
    struct cache_slot_head right = {.magic = CACHE_SLOT_MAGIC, .entry = 3, .bytes = PAYLOAD};
    cache_slot_head_seal(&right);
    ck_assert(cache_slot_head_right(&right, SLOT_BYTES));
    ck_assert(!cache_slot_head_right(&right, SLOT_BYTES - PAGE_BYTES));
    for (size_t at = 0; at < 8 * sizeof right; at++) {
        struct cache_slot_head wrong = right;
        ((uint8_t *)&wrong)[at / 8] ^= (uint8_t)(1u << at % 8);
        ck_assert(!cache_slot_head_right(&wrong, SLOT_BYTES));
    }
}
END_TEST

/* ---- the thread ------------------------------------------------------------------------------ */

static char path[] = "./cache_test.XXXXXX"; /* in the build directory: a real file system */
static int arena_fd;
static entry_word words[ENTRIES];

static void setup(void)
{
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    close(fd);
    arena_fd = memfd_create("arena", MFD_CLOEXEC);
    ck_assert_int_eq(ftruncate(arena_fd, (off_t)(ENTRIES * PAYLOAD)), 0);
    for (uint32_t entry = 0; entry < ENTRIES; entry++) {
        char byte[PAYLOAD];
        uint64_t generation;
        memset(byte, 'a' + (int)entry, sizeof byte);
        ck_assert_int_eq(pwrite(arena_fd, byte, sizeof byte, (off_t)(entry * PAYLOAD)), PAYLOAD);
        atomic_store(&words[entry], 0);
        ck_assert(entry_reserve(&words[entry], 1, &generation));
        ck_assert_int_eq(entry_shard_done(&words[entry], generation, 0), SHARD_READY);
    }
}

static void teardown(void)
{
    close(arena_fd);
    unlink(path);
}

static struct writer *start(int flags)
{
    struct error error;
    struct writer_file file = {
        .fd = open(path, O_RDWR | O_CLOEXEC | flags),
        .arena_fd = arena_fd,
        .slots = SLOTS,
        .head = {.magic = RUN_CACHE_MAGIC, .version = CACHE_VERSION, .slot_bytes = SLOT_BYTES}};
    if (file.fd < 0) /* no direct I/O there */
        file.fd = open(path, O_RDWR | O_CLOEXEC);
    cache_head_seal(&file.head);
    struct writer *w = writer_start(&file, &error);
    ck_assert(w != NULL);
    uint64_t deadline = clock_now_ns() + WAIT_NS;
    while (writer_state(w) == WRITER_STARTING && clock_now_ns() < deadline)
        sched_yield();
    return w;
}

static struct filled fill(struct writer *w, uint32_t entry, uint32_t slot, bool evicts)
{
    struct filled done = {.slot = SLOTS};
    struct fill f = {.entry = entry,
                     .slot = slot,
                     .generation = entry_generation_of(words[entry]),
                     .stamp = entry + 1,
                     .bytes = PAYLOAD,
                     .word = &words[entry],
                     .runs = 2,
                     .evicts = evicts,
                     .run = {{entry * PAYLOAD, PAGE_BYTES},
                             {entry * PAYLOAD + PAGE_BYTES, PAYLOAD - PAGE_BYTES}}};
    writer_give(w, &f);
    uint64_t deadline = clock_now_ns() + WAIT_NS;
    while (!writer_take(w, &done) && clock_now_ns() < deadline)
        sched_yield();
    ck_assert_uint_eq(done.slot, slot);
    return done;
}

/* In a process of its own, whose file is free when it has ended. */
static void apart(void (*work)(void))
{
    pid_t pid = fork();
    int status;
    if (pid == 0) {
        work();
        _exit(0);
    }
    ck_assert(pid > 0 && waitpid(pid, &status, 0) == pid);
    ck_assert_int_eq(status, 0);
}

/* Slots whose heads count. wrong: the number of those without their payload. */
static uint32_t check_file(struct writer *w, uint32_t *wrong)
{
    uint32_t count;
    struct index_found *found = writer_take_found(w, &count);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    *wrong = 0;
    for (uint32_t i = 0; i < count; i++) {
        char got[PAYLOAD], right[PAYLOAD];
        off_t at = (off_t)(cache_slot_at(SLOT_BYTES, found[i].slot) + PAGE_BYTES);
        ck_assert_int_eq(pread(fd, got, sizeof got, at), PAYLOAD);
        memset(right, 'a' + (int)found[i].entry, sizeof right);
        ck_assert_uint_eq(found[i].sum, XXH3_64bits(right, sizeof right));
        *wrong += memcmp(got, right, sizeof right) != 0;
    }
    close(fd);
    free(found);
    return count;
}

static void write_some(void)
{
    struct writer *w = start(O_DIRECT);
    ck_assert_int_eq(writer_state(w), WRITER_READY);
    for (uint32_t i = 0; i < 4; i++)
        ck_assert_int_eq(fill(w, i, i, false).result, FILL_WRITTEN);
    ck_assert_int_eq(fill(w, 9, 2, true).result, FILL_WRITTEN);
    entry_evict(&words[5]); /* it leaves memory before it is copied */
    ck_assert_int_eq(fill(w, 5, 3, true).result, FILL_DROPPED);
}

START_TEST(what_was_written_is_found)
{
    uint32_t wrong;
    apart(write_some);
    struct writer *w = start(_i == 0 ? O_DIRECT : 0);
    ck_assert_int_eq(writer_state(w), WRITER_READY);
    ck_assert_uint_eq(writer_checked(w), SLOTS);
    ck_assert_uint_eq(check_file(w, &wrong), 4);
    ck_assert_uint_eq(wrong, 0);
}
END_TEST

static void write_and_begin(void)
{
    struct filled done = {.slot = 0};
    struct writer *w = start(O_DIRECT);
    ck_assert_uint_eq(writer_identity(w), 0);
    ck_assert_int_eq(fill(w, 1, 0, false).result, FILL_WRITTEN);
    writer_give(w, &(struct fill){.slot = INDEX_NONE, .begins = true, .identity = 7});
    while (!writer_take(w, &done))
        sched_yield();
    ck_assert(done.slot == INDEX_NONE && done.result == FILL_WRITTEN);
    ck_assert_int_eq(fill(w, 2, 1, false).result, FILL_WRITTEN);
}

START_TEST(a_file_begins_again)
{
    uint32_t wrong;
    apart(write_and_begin);
    struct writer *w = start(0);
    ck_assert_uint_eq(writer_identity(w), 7);
    ck_assert_uint_eq(check_file(w, &wrong), 1);
    ck_assert_uint_eq(wrong, 0);
}
END_TEST

/* Tells of each slot before it is written. */
static void write_for_ever(int told)
{
    struct writer *w = start(O_DIRECT);
    for (uint32_t i = 0;; i++) {
        (void)!write(told, "", 1);
        (void)fill(w, i % ENTRIES, i % SLOTS, i >= SLOTS);
    }
}

START_TEST(a_kill_leaves_right_slots)
{
    for (int round = 0; round < 20; round++) {
        uint32_t wrong;
        int told[2];
        char byte;
        ck_assert_int_eq(pipe(told), 0);
        pid_t pid = fork();
        if (pid == 0)
            write_for_ever(told[1]);
        for (int i = 0; i <= round; i++)
            ck_assert_int_eq(read(told[0], &byte, 1), 1);
        close(told[0]);
        close(told[1]);
        ck_assert(kill(pid, SIGKILL) == 0 && waitpid(pid, NULL, 0) == pid);
        pid = fork();
        if (pid == 0) {
            struct writer *w = start(0);
            bool right = writer_state(w) == WRITER_READY && check_file(w, &wrong) <= SLOTS;
            _exit(right && wrong == 0 ? 0 : 1);
        }
        int status;
        ck_assert(waitpid(pid, &status, 0) == pid);
        ck_assert_int_eq(status, 0);
    }
}
END_TEST

START_TEST(only_one_process_has_it)
{
    int ready[2];
    char byte;
    ck_assert_int_eq(pipe(ready), 0);
    pid_t pid = fork();
    if (pid == 0) {
        (void)start(0);
        (void)!write(ready[1], "r", 1);
        pause();
    }
    ck_assert_int_eq(read(ready[0], &byte, 1), 1);
    ck_assert_int_eq(writer_state(start(0)), WRITER_BUSY);
    ck_assert(kill(pid, SIGKILL) == 0 && waitpid(pid, NULL, 0) == pid);
    ck_assert_int_eq(writer_state(start(0)), WRITER_READY);
}
END_TEST

START_TEST(a_foreign_file_stays_as_it_is)
{
    char text[64];
    int fd = open(path, O_RDWR | O_CLOEXEC);
    ck_assert_int_eq(write(fd, "the diary of somebody", 21), 21);
    ck_assert_int_eq(writer_state(start(0)), WRITER_OTHER);
    ck_assert_int_eq(pread(fd, text, sizeof text, 0), 21);
    ck_assert_int_eq(memcmp(text, "the diary of somebody", 21), 0);
    close(fd);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cache");
    TCase *index = tcase_create("index"), *file = tcase_create("file");
    tcase_set_timeout(file, 300);
    tcase_add_test(index, slots_are_in_the_order_of_use);
    tcase_add_test(index, a_slot_that_is_read_stays);
    tcase_add_test(index, all_but_what_is_read_is_forgotten);
    tcase_add_test(index, of_two_slots_the_later_counts);
    tcase_add_test(index, heads_are_checked);
    tcase_add_checked_fixture(file, setup, teardown);
    tcase_add_loop_test(file, what_was_written_is_found, 0, 2);
    tcase_add_test(file, a_file_begins_again);
    tcase_add_test(file, a_kill_leaves_right_slots);
    tcase_add_test(file, only_one_process_has_it);
    tcase_add_test(file, a_foreign_file_stays_as_it_is);
    suite_add_tcase(s, index);
    suite_add_tcase(s, file);
    SRunner *runner = srunner_create(s);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
