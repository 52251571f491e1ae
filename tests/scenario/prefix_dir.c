/* SPDX-License-Identifier: Apache-2.0 */
/* Prefixes on storage: a conversation continues after a restart with the same text and computes its
 * new tokens only; whatever is in the directory, whenever compute is killed, with a full device and
 * with two engines, the text is the same, and each file that is not used has one line in the
 * log. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "lib/prefix/prefix.h"
#include "tests/scenario/continued.h"
#include "tests/scenario/prefix_files.h"

#define SLACK 10 /* tokens at the end of a prompt that may be computed again */

/* ---- restarts ---- */

static void restarted(const char *const shape[])
{
    stored_prepare(shape);
    stored_store(shape);
    struct engine *e = stored_start(shape, (const char *const[]){"--threads=1", NULL});
    uint64_t cached = stored_check(e, true, "after a restart");
    uint64_t known = lookup_u64(stored_want.stats, "prompt_tokens");
    CHECK(cached + SLACK >= known, "%llu of %llu tokens were reused", (unsigned long long)cached,
          (unsigned long long)known);
    CHECK(stored_count(e, "prefixes_read") == 1 && stored_count(e, "prefix_tokens_read") == cached,
          "not read from storage");
    CHECK(stored_check(e, false, "cut back") > 0, "nothing was reused"); /* of memory */
    stored_wait(e, "prefixes_stored", 1);
    engine_stop(e);
    e = stored_start_reader(shape); /* the longer one is there, too */
    CHECK(stored_check(e, true, "after another restart") >= cached, "fewer tokens were reused");
    CHECK(stored_count(e, "prefixes_rejected") == 0 && stored_count(e, "prefix_errors") == 0,
          "failures");
    engine_stop(e);
    stored_finish();
}

static void attention(void)
{
    restarted(stored_demo);
}

static void recurrent(void)
{
    restarted(stored_qwen35moe);
}

static void windows(void)
{
    restarted(stored_gpt_oss);
}

/* ---- damaged files ---- */

struct file {
    uint8_t *bytes;
    size_t size;
    struct prefix_head head;
};

static struct file take_file(void)
{
    struct file f = {.bytes = NULL};
    char path[2 * PATH_MAX];
    struct stat st;
    DIR *d = opendir(stored_dir);
    CHECK(d, "opendir: %s", strerror(errno));
    for (struct dirent *e; (e = readdir(d));) {
        if (!prefix_is_name(e->d_name))
            continue;
        snprintf(path, sizeof path, "%s/%s", stored_dir, e->d_name);
        CHECK(!f.bytes && stat(path, &st) == 0, "more than one file");
        FILE *in = fopen(path, "r");
        f.size = (size_t)st.st_size;
        f.bytes = malloc(f.size);
        CHECK(in && f.bytes && fread(f.bytes, 1, f.size, in) == f.size, "%s: not read", path);
        fclose(in);
        CHECK((st.st_mode & 0777) == 0600, "mode %o", (unsigned)st.st_mode);
        CHECK(unlink(path) == 0, "unlink: %s", strerror(errno));
    }
    closedir(d);
    CHECK(f.bytes, "no file");
    memcpy(&f.head, f.bytes, sizeof f.head);
    return f;
}

static unsigned put_file(const struct file *f, size_t size)
{
    static unsigned number;
    char path[2 * PATH_MAX];
    snprintf(path, sizeof path, "%s/%016x" PREFIX_NAME_SUFFIX, stored_dir, ++number);
    FILE *out = fopen(path, "w");
    CHECK(out && fchmod(fileno(out), 0600) == 0 && fwrite(f->bytes, 1, size, out) == size &&
              fclose(out) == 0,
          "%s: %s", path, strerror(errno));
    return number;
}

static void put_flipped(const struct file *f, uint64_t at)
{
    CHECK(at < f->size, "%llu is beyond the file", (unsigned long long)at);
    f->bytes[at] ^= 0x10;
    put_file(f, f->size);
    f->bytes[at] ^= 0x10;
}

/* What the start finds; returns the number of files. */
static unsigned put_bad_heads(const struct file *f)
{
    const uint64_t tables = prefix_tables_bytes(&f->head);
    const size_t cut[] = {
        0, 1, sizeof f->head - 1, PREFIX_ALIGN, PREFIX_ALIGN + tables / 2, f->size - 1};
    unsigned n = 0;
    for (size_t at = 0; at < sizeof f->head; at += 7, n++)
        put_flipped(f, at);
    for (unsigned i = 0; i < 8; i++, n++)
        put_flipped(f, PREFIX_ALIGN + i * (tables - 1) / 7);
    for (size_t i = 0; i < ARRAY_LEN(cut); i++, n++)
        put_file(f, cut[i]);
    return n;
}

static unsigned put_bad_block(const struct file *f, uint32_t block)
{
    uint64_t at = prefix_block_offset(&f->head, block), bytes = prefix_block_bytes(&f->head, block);
    put_flipped(f, at);
    put_flipped(f, at + bytes / 2);
    put_flipped(f, at + bytes - 1); /* zeros, or the last byte */
    return 3;
}

/* What only a read finds: in each kind of block that is read for `rows` rows, at its ends and in
 * the middle. */
static unsigned put_bad_blocks(const struct file *f, uint32_t rows, bool recurrent)
{
    const struct prefix_head *h = &f->head;
    uint32_t positions[PREFIX_STATES_MAX];
    memcpy(positions, f->bytes + PREFIX_ALIGN + h->tokens * sizeof(uint32_t),
           h->states * sizeof positions[0]);
    struct prefix_use use = prefix_use(h, positions, rows, recurrent);
    unsigned n = put_bad_block(f, 0) + put_bad_block(f, (rows - 1) / PREFIX_TILE);
    CHECK(use.rows == rows, "%u rows instead of %u", use.rows, rows);
    if (use.state != PREFIX_NO_STATE)
        n += put_bad_block(f, prefix_state_block(h) + use.state);
    else if (h->ring_bytes > 0)
        n += put_bad_block(f, prefix_ring_block(h));
    return n;
}

static void damaged(const char *const shape[])
{
    stored_prepare(shape);
    stored_store(shape);
    struct engine *e = stored_start_reader(shape);
    uint32_t rows = (uint32_t)stored_check(e, true, "with a right file");
    CHECK(rows > 0, "it was not used");
    engine_stop(e);
    struct file f = take_file();
    unsigned heads = put_bad_heads(&f),
             blocks = put_bad_blocks(&f, rows, shape == stored_qwen35moe);
    e = stored_start_reader(shape);
    stored_wait(e, "prefixes_rejected", heads);
    CHECK(stored_count(e, "prefixes_rejected") == heads, "files with right heads are rejected");
    for (unsigned i = 0; i < blocks; i++)
        stored_check(e, true, "with damaged blocks");
    stored_wait(e, "prefixes_rejected", heads + blocks);
    CHECK(stored_check(e, true, "without any file") == 0, "a damaged file was used");
    CHECK(stored_count(e, "prefixes_read") == 0, "a damaged file was used");
    CHECK(stored_lines(e, "is not used") == heads + blocks, "%zu lines for %u files",
          stored_lines(e, "is not used"), heads + blocks);
    engine_stop(e);
    free(f.bytes);
    stored_finish();
}

static void damaged_attention(void)
{
    damaged(stored_demo);
}

static void damaged_recurrent(void)
{
    damaged(stored_qwen35moe);
}

static void damaged_windows(void)
{
    damaged(stored_gpt_oss);
}

/* ---- files of others ---- */

static void other_kv_type(void)
{
    stored_prepare(stored_demo);
    stored_store(stored_demo);
    struct text other, got;
    struct engine *e =
        stored_start(stored_demo, (const char *const[]){"--keep-kv=0", "--kv-type=q8_0", NULL});
    engine_generate(e, stored_prompt(false), STORED_TOKENS, &other);
    engine_stop(e);
    e = stored_start(stored_demo, (const char *const[]){"--kv-type=q8_0", NULL});
    engine_generate(e, stored_prompt(false), STORED_TOKENS, &got);
    text_check_same(&other, &got, "with files of another KV type");
    CHECK(lookup_u64(got.stats, "cached_tokens") == 0, "rows of another KV type were used");
    CHECK(stored_count(e, "prefixes_rejected") == 1 && stored_lines(e, "another --kv-type") == 1,
          "not rejected");
    engine_stop(e);
    text_free(&other);
    text_free(&got);
    stored_finish();
}

/* Of the same shape and tokens: only the weights differ. */
static void other_model(void)
{
    static const char *const other[] = {"arch=gpt-oss",   "layers=4",        "window=64",
                                        "rope_scaling=2", "rope_factor=8",   "rope_context=64",
                                        "context=8192",   "rope_theta=2000", NULL};
    stored_prepare(other);
    stored_store(other);
    stored_finish();
    stored_prepare(stored_gpt_oss); /* the same path */
    struct engine *e = stored_start(stored_gpt_oss, NULL);
    CHECK(stored_check(e, false, "with files of another model") == 0, "they were used");
    CHECK(stored_count(e, "prefixes_rejected") == 1 && stored_lines(e, "of another model") == 1,
          "not rejected");
    engine_stop(e);
    stored_finish();
}

/* ---- kills ---- */

static void kill_at(struct engine *e, const char *point, int passes, bool more)
{
    pid_t pid = engine_pid(e, "compute", 0, 0);
    struct text got;
    json_decref(
        engine_control(e, "inject", json_pack("{s:s, s:i}", "point", point, "arg", passes)));
    struct generation *g = generation_start(e, stored_prompt(more), STORED_TOKENS);
    uint64_t deadline = deadline_in(STORED_WAIT_MS);
    while (process_state(pid) != 'T')
        CHECK(deadline_tick(deadline), "compute did not reach %s %d", point, passes);
    continued_kill(e, pid);
    generation_finish(g, STORED_WAIT_MS, &got);
    text_check_same(more ? &stored_want_more : &stored_want, &got, point);
    text_free(&got);
}

/* Steps of a file: it is opened, has each of its blocks, and its name. */
static int steps_of(const char *const shape[])
{
    stored_store(shape);
    struct file f = take_file();
    int steps = (int)prefix_blocks(&f.head) + 2;
    free(f.bytes);
    return steps;
}

static void killed_while_writing(const char *const shape[])
{
    unsigned met = 0;
    stored_prepare(shape);
    int steps = steps_of(shape);
    for (int i = 0; i < steps; i++) {
        if (i != steps - 1 && !test_sample(EVERY_prefix_dir_kills, &met))
            continue;
        struct engine *e = stored_start(shape, NULL);
        kill_at(e, "COMPUTE_PREFIX_WRITTEN", i, false);
        CHECK(stored_files(".part") == 0, "the file of a killed writer is left");
        CHECK(stored_check(e, true, "after a kill while writing") > 0, "nothing was reused");
        engine_stop(e);
        e = stored_start_reader(shape);
        stored_check(e, true, "after a kill while writing, and a restart");
        CHECK(stored_count(e, "prefixes_rejected") == 0, "a part of a file has its name");
        engine_stop(e);
        stored_remove_files();
    }
    stored_finish();
}

static void killed_while_reading(const char *const shape[])
{
    unsigned met = 0;
    stored_prepare(shape);
    stored_store(shape);
    struct file f = take_file();
    int reads = (int)prefix_tiles(&f.head);
    put_file(&f, f.size);
    struct engine *e = stored_start_reader(shape);
    for (int i = 0; i < reads; i++)
        if (test_sample(EVERY_prefix_dir_kills, &met))
            kill_at(e, "COMPUTE_PREFIX_READ", i, true);
    kill_at(e, "COMPUTE_PREFIX_TAKEN", 0, true);
    CHECK(stored_check(e, true, "after kills while reading") > 0, "nothing was reused");
    CHECK(stored_count(e, "prefixes_rejected") == 0, "a right file was rejected");
    engine_stop(e);
    stored_remove_files();
    free(f.bytes);
    stored_finish();
}

static void kills_of_writers(void)
{
    killed_while_writing(stored_qwen35moe);
}

static void kills_of_readers(void)
{
    killed_while_reading(stored_qwen35moe);
    killed_while_reading(stored_gpt_oss);
}

/* ---- the directory ---- */

static void full_device(void)
{
    static bool own_namespace;
    path_in_dir(stored_dir, "small");
    stored_prepare(stored_demo);
    path_in_dir(stored_dir, "small");
    if (!own_namespace &&
        (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0))
        test_skip("a mount namespace needs root: %s", strerror(errno));
    own_namespace = true;
    CHECK((mkdir(stored_dir, 0700) == 0 || errno == EEXIST), "mkdir: %s", strerror(errno));
    if (mount("small", stored_dir, "tmpfs", 0, "size=64k,mode=700") != 0)
        test_skip("cannot mount a tmpfs: %s", strerror(errno));
    struct engine *e = stored_start(stored_demo, NULL);
    stored_check(e, false, "on a full device");
    stored_wait(e, "prefix_errors", 1);
    stored_check(e, true, "on a full device");
    CHECK(stored_files(".part") + stored_files(PREFIX_NAME_SUFFIX) == 0,
          "a part of a file is left");
    CHECK(stored_lines(e, "prefixes are not written") == 1, "not one line in the log");
    engine_stop(e);
    CHECK(umount2(stored_dir, MNT_DETACH) == 0, "umount: %s", strerror(errno));
    stored_finish();
}

/* The second one reads; it writes when the first one has ended. */
static void two_engines(void)
{
    stored_prepare(stored_demo);
    struct engine *first = stored_start(stored_demo, NULL);
    stored_check(first, false, "of two engines, the first");
    stored_wait(first, "prefixes_stored", 1);
    struct engine *second = stored_start(stored_demo, NULL);
    CHECK(stored_lines(second, "another engine writes") == 1, "no line in the log");
    CHECK(stored_check(second, true, "of two engines, the second") > 0, "it does not read");
    CHECK(stored_count(second, "prefixes_stored") == 0, "both write");
    engine_stop(first);
    stored_wait(second, "prefixes_stored", 1);
    engine_stop(second);
    stored_finish();
}

static void refused(void)
{
    const char *args[16];
    int status;
    path_in_dir(stored_dir, "open");
    CHECK(mkdir(stored_dir, 0700) == 0 && chmod(stored_dir, 0770) == 0, "mkdir: %s",
          strerror(errno));
    struct engine *e = engine_new();
    stored_options(stored_demo, NULL, args);
    engine_spawn(e, args);
    CHECK(!engine_wait_started(e, STORED_WAIT_MS, &status) && WIFEXITED(status) &&
              WEXITSTATUS(status) == 2,
          "it started");
    CHECK(stored_lines(e, "others may write to --prefix-dir") == 1, "no reason");
}

/* At most so many bytes: the older one goes. */
static void bounded(void)
{
    struct text got;
    char other[8192], option[64];
    stored_prepare(stored_demo);
    stored_store(stored_demo);
    struct file f = take_file();
    put_file(&f, f.size);
    snprintf(option, sizeof option, "--prefix-dir-bytes=%zu", f.size * 3 / 2);
    struct engine *e = stored_start(stored_demo, (const char *const[]){option, NULL});
    snprintf(other, sizeof other, "Another story. %s", test_prompt(2));
    engine_generate(e, other, STORED_TOKENS, &got);
    text_free(&got);
    stored_wait(e, "prefixes_stored", 1);
    CHECK(stored_files(PREFIX_NAME_SUFFIX) == 1, "%zu files", stored_files(PREFIX_NAME_SUFFIX));
    stored_check(e, false, "after its file was removed");
    engine_stop(e);
    free(f.bytes);
    stored_finish();
}

static const struct test_case cases[] = {
    ROW(attention),         ROW(recurrent),        ROW(windows),     ROW(damaged_attention),
    ROW(damaged_recurrent), ROW(damaged_windows),  ROW(other_model), ROW(other_kv_type),
    ROW(kills_of_writers),  ROW(kills_of_readers), ROW(full_device), ROW(two_engines),
    ROW(refused),           ROW(bounded),
};

int main(int argc, char **argv)
{
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
