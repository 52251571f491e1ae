/* SPDX-License-Identifier: Apache-2.0 */
/* Prefixes on storage, without a core: what was kept is written, and read into another segment, as
 * the same bytes, for layers with all positions, with rings and with states; a slot that changes
 * while it is written leaves no file; a sequence that ends while it waits is not written to; a read
 * that does not return holds no prompt up; all of them are removed while one is written; a file
 * that contradicts itself is not used. */
#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>
#include <xxhash.h>

#include "lib/prefix/prefix.h"
#include "tests/unit/procs/engine/compute/prefixes/prefixes_rig.h"

/* Every row that a pass from `rows` on attends to. */
static void check_rows(uint32_t slot, uint32_t rows)
{
    for (uint32_t layer = 0; layer < 3; layer++) {
        bool ring = w.head->ring > 0 && w.head->layer_kind[layer] == LAYER_WINDOW;
        uint32_t from = ring && rows > WINDOW - 1 ? rows - (WINDOW - 1) : 0;
        for (uint32_t i = from; i < rows && has_rows(layer); i++)
            for (int side = 0; side < sides(layer); side++)
                ck_assert_uint_eq(*row_at(slot, layer, side, i), word(layer, side, i));
    }
}

/* A prompt that differs from position `differs` on; `rows` of it are read. */
static void check_prompt(uint64_t id, uint32_t differs, uint32_t rows)
{
    struct error error;
    struct state_pass pass;
    uint32_t slot;
    struct kv_request *q = begin(id, PROMPT + 200, differs, &slot);
    load(slot, q);
    ck_assert_uint_eq(atomic_load(&q->kv_valid), rows);
    if (rows > 0) { /* windows are restored, and the state is there */
        ck_assert_int_eq(state_begin(&w.slots, slot, q, rows, 1, &pass, &error), 0);
        check_rows(slot, rows);
        if (pass.before)
            ck_assert_uint_eq(*(const uint64_t *)pass.before, rows);
    }
    rig_end(0, slot, q, false);
}

static void round_trip(enum shape shape)
{
    bool all = shape == ALL || shape == INDEXED;
    open_shape(shape, 5);
    store();
    close_shape();
    open_shape(shape, 5);
    check_prompt(1, CONTEXT, PROMPT);
    check_prompt(2, 650, all || shape == RINGS ? 650 : 640);
    check_prompt(3, 300, all ? 300 : 256);
    check_prompt(4, 100, all ? 100 : 0);
    ck_assert_uint_eq(counter(CTR_COMPUTE_prefixes_read), all ? 4 : 3);
    close_shape();
    open_shape(shape, 6); /* another model */
    check_prompt(5, CONTEXT, 0);
    turn_until(CTR_COMPUTE_prefixes_rejected, 1);
    close_shape();
}

START_TEST(all_positions)
{
    round_trip(ALL);
}
END_TEST

START_TEST(rings)
{
    round_trip(RINGS);
}
END_TEST

START_TEST(states)
{
    round_trip(RECURRENT);
}
END_TEST

/* Keys of an indexer are stored, too. A file without them, from before they were kept, is one of
 * another model. */
START_TEST(keys_of_an_indexer)
{
    round_trip(INDEXED);
    remove_dir();
    make_dir();
    open_shape(ALL, 7);
    store();
    close_shape();
    open_shape(INDEXED, 7);
    check_prompt(1, CONTEXT, 0);
    close_shape();
    remove_dir();
    make_dir();
    index_top_k = CONTEXT; /* chooses all: the keys are not computed */
    open_shape(INDEXED, 8);
    store();
    close_shape();
    index_top_k = 0;
    open_shape(INDEXED, 8);
    check_prompt(1, CONTEXT, 0);
    close_shape();
}
END_TEST

/* Rows of a lossy preset are used under the same parameters only. */
START_TEST(presets)
{
    open_shape(ALL, 5);
    w.slots.lossy = true;
    w.slots.preset_class = 99;
    store();
    close_shape();
    open_shape(ALL, 5);
    check_prompt(1, CONTEXT, 0);
    w.slots.lossy = true;
    w.slots.preset_class = 98;
    check_prompt(2, CONTEXT, 0);
    w.slots.preset_class = 99;
    check_prompt(3, CONTEXT, PROMPT);
    close_shape();
}
END_TEST

static bool turn_once(void)
{
    prefixes_turn(p, true, 0);
    poll(NULL, 0, 1);
    return counter(CTR_COMPUTE_prefixes_stored) == 0;
}

/* The slot is taken over and computed on while its file is written: whatever was written by then is
 * no file, and what is stored later is right. */
START_TEST(a_slot_that_changes)
{
    uint32_t slot;
    open_shape(ALL, 5);
    struct kv_request *q = begin(1, PROMPT, CONTEXT, &slot);
    run(slot, q, PROMPT);
    end(slot, q);
    for (unsigned i = 0; i < 1003; i++) /* about when it is begun, or before, or after */
        if (!turn_once())
            break;
    q = begin(2, PROMPT + 200, 650, &slot);
    load(slot, q);
    run(slot, q, PROMPT + 200);
    prefixes_turn(p, false, 0);
    end(slot, q);
    turn_until(CTR_COMPUTE_prefixes_stored, 1);
    close_shape();
    open_shape(ALL, 5);
    uint32_t rows = 0;
    q = begin(3, PROMPT + 200, 650, &slot);
    load(slot, q);
    rows = atomic_load(&q->kv_valid);
    ck_assert_uint_ge(rows, 650);
    check_rows(slot, rows);
    rig_end(0, slot, q, false);
    close_shape();
}
END_TEST

/* It ends before the read does: its memory is another one's at once. */
START_TEST(cancelled_reads)
{
    uint32_t slot;
    open_shape(RINGS, 5);
    store();
    close_shape();
    open_shape(RINGS, 5);
    for (uint64_t id = 1; id < 200; id++) {
        struct kv_request *q = begin(id, PROMPT + 200, CONTEXT, &slot);
        prefixes_cancel(p, slot);
        rig_end(0, slot, q, false);
        q = begin(1000 + id, 300, 0, &slot); /* other tokens */
        ck_assert(!prefixes_loading(p, slot, q));
        run(slot, q, 200);
        check_rows(slot, 200);
        prefixes_cancel(p, slot);
        rig_end(0, slot, q, false);
    }
    check_prompt(5000, CONTEXT, PROMPT);
    close_shape();
}
END_TEST

/* Storage has more of the prompt of a side request than the conversation whose rows it borrows: the
 * rows of the conversation are not given up for that. */
START_TEST(borrowed_rows_are_not_read_again)
{
    enum { ROWS = 690, TOKENS = 1500 };
    uint32_t slot;
    open_shape((enum shape)_i, 5);
    store();
    close_shape();
    open_shape((enum shape)_i, 5);
    struct kv_request *q = begin(1, ROWS, CONTEXT, &slot);
    load(slot, q);
    run(slot, q, ROWS);
    end(slot, q);
    rig_leave(1, 9, TOKENS, ROWS);
    q = rig_submit(0, 2, TOKENS - 1, CONTEXT, 77);
    q->flags = KV_FLAG_SIDE;
    ck_assert_uint_eq(rig_start(0, q, TOKENS), slot);
    prefixes_begin(p, slot, q, kv_log(&w.child.kv, 0));
    load(slot, q);
    ck_assert_uint_eq(atomic_load(&q->kv_valid), ROWS);
    end(slot, q);
    ck_assert_uint_eq(atomic_load(&w.head->slot[slot].owner), 0);
    ck_assert_uint_eq(atomic_load(&w.head->slot[slot].rows), ROWS);
    close_shape();
}
END_TEST

/* ---- removal of all ---- */

static enum store_state state_of_store(void)
{
    prefixes_lock(p);
    enum store_state state = p->store.state;
    prefixes_unlock(p);
    return state;
}

/* A file is open, and the thread waits for its next piece. */
static void begin_file(void)
{
    uint32_t slot;
    struct kv_request *q = begin(1, PROMPT, CONTEXT, &slot);
    run(slot, q, PROMPT);
    end(slot, q);
    for (unsigned i = 0; state_of_store() != STORE_WAITS; i++) {
        ck_assert_uint_lt(i, 60000);
        if (state_of_store() == STORE_NONE)
            prefixes_turn(p, true, 0);
        poll(NULL, 0, 1);
    }
}

static unsigned files_in_dir(const char **name)
{
    static char found[NAME_MAX + 1];
    unsigned n = 0;
    DIR *d = opendir(dir);
    ck_assert_ptr_nonnull(d);
    for (struct dirent *f; (f = readdir(d));)
        if (strstr(f->d_name, PREFIX_NAME_SUFFIX)) {
            strcpy(found, f->d_name);
            n++;
        }
    closedir(d);
    *name = found;
    return n;
}

/* ---- storage that does not answer ---- */

static bool is_stalled(void)
{
    prefixes_lock(p);
    bool stalled = p->stalled;
    prefixes_unlock(p);
    return stalled;
}

/* Instead of the file, what nobody writes to: it cannot be opened. */
static void replace_by_fifo(const char *path)
{
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(mkfifo(path, 0600), 0);
}

/* The prompt is computed after --load-timeout, and others at once, until storage answers. */
START_TEST(a_read_that_does_not_return)
{
    const char *name;
    char path[512];
    uint32_t slot;
    open_shape((enum shape)_i, 5);
    store();
    ck_assert_uint_eq(files_in_dir(&name), 1);
    snprintf(path, sizeof path, "%s/%s", dir, name);
    struct kv_request *q = begin(2, PROMPT, 0, &slot);
    run(slot, q, PROMPT);
    end(slot, q);
    turn_until(CTR_COMPUTE_prefixes_stored, 2);
    close_shape();
    open_shape((enum shape)_i, 5);
    replace_by_fifo(path);
    w.params.load_timeout = 200;
    q = begin(3, PROMPT + 200, CONTEXT, &slot);
    ck_assert(prefixes_loading(p, slot, q));
    load(slot, q);
    ck_assert_uint_eq(atomic_load(&q->kv_valid), 0);
    ck_assert_uint_eq(q->stats.cached, 0);
    ck_assert_uint_eq(atomic_load(&p->index.counts.errors), 1);
    run(slot, q, 300);
    check_rows(slot, 300);
    rig_end(0, slot, q, false);
    q = begin(4, PROMPT, 0, &slot);
    ck_assert(!prefixes_loading(p, slot, q) && is_stalled());
    rig_end(0, slot, q, false);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    for (unsigned i = 0; is_stalled(); i++) {
        ck_assert_uint_lt(i, 20000);
        poll(NULL, 0, 1);
    }
    q = begin(5, PROMPT, 0, &slot);
    load(slot, q);
    ck_assert_uint_eq(atomic_load(&q->kv_valid), PROMPT);
    rig_end(0, slot, q, false);
    close_shape();
    close(fd);
}
END_TEST

START_TEST(removed_while_one_is_written)
{
    const char *name;
    open_shape(ALL, 5);
    begin_file();
    ck_assert_uint_eq(files_in_dir(&name), 1);
    prefixes_clear(p);
    for (unsigned i = 0; prefixes_clearing(p); i++) {
        ck_assert_uint_lt(i, 20000);
        prefixes_turn(p, true, 0);
        poll(NULL, 0, 1);
    }
    ck_assert_uint_eq(counter(CTR_COMPUTE_prefixes_stored), 0);
    ck_assert_uint_eq(files_in_dir(&name), 0);
    close_shape();
}
END_TEST

/* ---- files that contradict themselves ---- */

static uint64_t sum_of_zeros(uint64_t bytes)
{
    void *zeros = calloc(1, bytes);
    ck_assert_ptr_nonnull(zeros);
    uint64_t sum = XXH3_64bits(zeros, bytes);
    free(zeros);
    return sum;
}

/* Changes the head of the only file; its blocks are zero, and all of its checksums are right. */
static void change_head(void (*change)(struct prefix_head *h))
{
    const char *name;
    char path[512];
    struct prefix_head h;
    ck_assert_uint_eq(files_in_dir(&name), 1);
    snprintf(path, sizeof path, "%s/%s", dir, name);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    ck_assert_int_eq(pread(fd, &h, sizeof h, 0), sizeof h);
    void *tables = calloc(1, prefix_tables_bytes(&h));
    ck_assert_int_eq(pread(fd, tables, prefix_tables_bytes(&h), PREFIX_ALIGN),
                     (ssize_t)prefix_tables_bytes(&h));
    change(&h);
    for (uint32_t i = 0; i < prefix_blocks(&h); i++)
        prefix_set_checksum(&h, tables, i, sum_of_zeros(prefix_block_bytes(&h, i)));
    prefix_seal(&h, tables);
    ck_assert_int_eq(ftruncate(fd, PREFIX_ALIGN), 0);
    ck_assert_int_eq(pwrite(fd, tables, prefix_tables_bytes(&h), PREFIX_ALIGN),
                     (ssize_t)prefix_tables_bytes(&h));
    ck_assert_int_eq(pwrite(fd, &h, sizeof h, 0), sizeof h);
    ck_assert_int_eq(ftruncate(fd, (off_t)prefix_file_bytes(&h)), 0);
    free(tables);
    close(fd);
}

static void larger_tiles(struct prefix_head *h)
{
    h->tile_bytes *= 2;
}

static void larger_ring(struct prefix_head *h)
{
    h->ring_bytes *= 2;
}

static void larger_states(struct prefix_head *h)
{
    h->state_bytes *= 2;
}

static void sizes_of_another(enum shape shape, void (*change)(struct prefix_head *h))
{
    const char *name;
    open_shape(shape, 5);
    store();
    close_shape();
    change_head(change);
    open_shape(shape, 5);
    check_prompt(1, CONTEXT, 0);
    check_prompt(2, CONTEXT, 0);
    turn_until(CTR_COMPUTE_prefixes_rejected, 1);
    ck_assert_uint_eq(counter(CTR_COMPUTE_prefixes_rejected), 1);
    ck_assert_uint_eq(counter(CTR_COMPUTE_prefixes_read), 0);
    ck_assert_uint_eq(files_in_dir(&name), 0);
    close_shape();
}

START_TEST(sizes_of_blocks)
{
    sizes_of_another(ALL, larger_tiles);
    sizes_of_another(RINGS, larger_ring);
    sizes_of_another(RECURRENT, larger_states);
}
END_TEST

int main(void)
{
    TCase *t = tcase_create("prefixes");
    tcase_set_timeout(t, 120);
    tcase_add_checked_fixture(t, make_dir, remove_dir);
    tcase_add_test(t, all_positions);
    tcase_add_test(t, rings);
    tcase_add_test(t, states);
    tcase_add_test(t, keys_of_an_indexer);
    tcase_add_test(t, presets);
    tcase_add_test(t, a_slot_that_changes);
    tcase_add_test(t, cancelled_reads);
    tcase_add_loop_test(t, borrowed_rows_are_not_read_again, ALL, RECURRENT + 1);
    tcase_add_loop_test(t, a_read_that_does_not_return, ALL, RECURRENT + 1);
    tcase_add_test(t, removed_while_one_is_written);
    tcase_add_test(t, sizes_of_blocks);
    return rig_main("prefixes", t);
}
