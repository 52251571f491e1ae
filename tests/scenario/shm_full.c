/* SPDX-License-Identifier: Apache-2.0 */
/* A full /dev/shm: reads into memory that cannot be made wait and are tried again, or fail with
 * that reason; no device is blamed, no process ends, and afterwards everything is as before.
 * /dev/shm is a small tmpfs in a mount namespace of this program. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "tests/scenario/baseline.h"

#define BALLAST "/dev/shm/sluice-test-ballast"
#define WAIT_MS 60000

static void small_shm(const char *size)
{
    static bool own_namespace;
    char options[32];
    if (!own_namespace &&
        (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0))
        test_skip("a mount namespace needs root: %s", strerror(errno));
    own_namespace = true;
    snprintf(options, sizeof options, "size=%s", size);
    if (mount("small", "/dev/shm", "tmpfs", 0, options) != 0)
        test_skip("cannot mount a tmpfs: %s", strerror(errno));
}

static void large_shm(void)
{
    CHECK(umount2("/dev/shm", MNT_DETACH) == 0, "umount: %s", strerror(errno));
}

/* Takes what is free, to the last page. */
static void fill(void)
{
    static char bytes[64 * KIB];
    int fd = open(BALLAST, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    CHECK(fd >= 0, "%s: %s", BALLAST, strerror(errno));
    for (size_t n = sizeof bytes; n >= PAGE_BYTES;)
        if (write(fd, bytes, n) != (ssize_t)n)
            n /= 2;
    close(fd);
}

/* Room for logs of tokens, not for keys and values. */
static void leave(off_t bytes)
{
    struct stat st;
    CHECK(stat(BALLAST, &st) == 0 && truncate(BALLAST, st.st_size - bytes) == 0, "%s: %s", BALLAST,
          strerror(errno));
}

static void empty(void)
{
    CHECK(unlink(BALLAST) == 0, "unlink: %s", strerror(errno));
}

/* Starts an engine, and a generation in it whose experts are still being read: the device is
 * slow. */
static struct generation *start(struct engine *e)
{
    engine_start(e, (const char *const[]){"--budget=90MiB", "--ctx-size=1024", "--warm-start=off",
                                          "--prefault=off", "--throttle=4MiB", NULL});
    struct generation *g = generation_start(e, test_prompt(1), baseline_tokens());
    engine_wait_counter(e, "loader", "bytes_demand", 1, WAIT_MS);
    return g;
}

/* No device was blamed, and no process ended. */
static void check_unharmed(struct engine *e)
{
    static const char *const services[] = {"compute", "cache", "loader", "predictor"};
    CHECK(engine_counter(e, "loader", "quarantines") == 0, "a device is in quarantine");
    for (size_t i = 0; i < ARRAY_LEN(services); i++)
        CHECK(engine_restarts(e, services[i], 0) == 0, "%s was restarted", services[i]);
}

static void check_reason(const struct text *got)
{
    CHECK(got->error.code == ERR_NO_MEMORY && strstr(got->error.text, "space") &&
              strstr(got->error.text, "/dev/shm"),
          "%s: %s", error_name(got->error.code), got->error.text);
}

/* More failures than those of a device that ends in quarantine. */
static void for_long(void)
{
    baseline(0);
    small_shm("60m");
    struct engine *e = engine_new();
    struct text got;
    struct generation *g = start(e);
    fill();
    engine_wait_counter(e, "loader", "reads_without_memory", 1, WAIT_MS);
    generation_finish(g, WAIT_MS, &got);
    check_reason(&got);
    CHECK(strstr(got.error.text, "expert"), "%s", got.error.text);
    text_free(&got);
    for (unsigned i = 0; i < 4; i++) {
        generation_finish(generation_start(e, test_prompt(i % TEST_PROMPTS), baseline_tokens()),
                          WAIT_MS, &got);
        check_reason(&got);
        text_free(&got);
    }
    check_unharmed(e);
    empty();
    for (unsigned i = 0; i < TEST_PROMPTS; i++)
        baseline_compare(e, i, "with space again");
    check_unharmed(e);
    engine_stop(e);
    large_shm();
}

/* The reads of a sequence that waits for them continue when there is space again. */
static void for_a_moment(void)
{
    baseline(0);
    small_shm("60m");
    struct engine *e = engine_new();
    struct text got;
    struct generation *g = start(e);
    fill();
    engine_wait_counter(e, "loader", "reads_without_memory", 1, WAIT_MS);
    empty();
    generation_finish(g, WAIT_MS, &got);
    CHECK(got.error.code == ERR_NONE, "%s: %s", error_name(got.error.code), got.error.text);
    text_check_same(baseline(1), &got, "after a moment without space");
    text_free(&got);
    check_unharmed(e);
    engine_stop(e);
    large_shm();
}

static void ask(struct engine *e, unsigned i, struct text *text)
{
    char prompt[8192];
    snprintf(prompt, sizeof prompt, "%u times: %s %s", i, test_prompt(2), test_prompt(2));
    engine_generate(e, prompt, 20, text);
}

static void forget(struct engine *e)
{
    struct command c;
    command_run(&c, NULL, WAIT_MS,
                (const char *const[]){"ctl", "--name", e->run, "prefixes", "clear", NULL});
    CHECK(c.status == 0, "ctl: %s%s", c.out, c.err);
    command_free(&c);
}

/* Other programs have taken what is left of /dev/shm, and kept prefixes the rest: they are given up
 * for a request, whose experts are in memory. */
static void kept_prefixes_yield(void)
{
    enum { PROMPTS = 5 };
    struct text want, got;
    small_shm("200m");
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"--budget=128MiB", "--ctx-size=512", NULL});
    ask(e, PROMPTS, &want);
    forget(e);
    for (unsigned i = 0; i < PROMPTS; i++) {
        ask(e, i, &got);
        text_free(&got);
    }
    uint64_t kept = engine_counter(e, "compute", "kv_kept_bytes");
    CHECK(engine_counter(e, "compute", "kv_kept_evictions") == 0, "the pool is too small");
    fill();
    leave(128 * KIB);
    ask(e, PROMPTS, &got);
    text_check_same(&want, &got, "in a full /dev/shm");
    text_free(&got);
    text_free(&want);
    CHECK(engine_counter(e, "compute", "kv_kept_evictions") > 0,
          "nothing was given up of %llu bytes", (unsigned long long)kept);
    check_unharmed(e);
    empty();
    engine_stop(e);
    large_shm();
}

/* A model that is small, but has a long context, in a small /dev/shm: the context is what fits. */
static void long_context(void)
{
    char path[PATH_MAX];
    struct command c;
    snprintf(path, sizeof path, "%s/long.gguf", test_dir());
    command_run(&c, NULL, WAIT_MS,
                (const char *const[]){"synth", "-q", "-o", path, "tiny", "arch=qwen3moe",
                                      "context=131072", NULL});
    CHECK(c.status == 0, "%.300s", c.err);
    command_free(&c);
    small_shm("40m");
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"-m", path, "--budget=4GiB", NULL});
    json_t *doc = engine_stats(e);
    uint64_t context = lookup_u64(doc, "model.context");
    json_decref(doc);
    CHECK(context >= 4096 && context < 131072, "%llu tokens", (unsigned long long)context);
    engine_stop(e);
    large_shm();
}

/* A budget that nobody has given is what a small /dev/shm holds. */
static void chosen_budget(void)
{
    small_shm("40m");
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"--budget=0", "--ctx-size=2048", NULL});
    json_t *doc = engine_stats(e);
    uint64_t quota = lookup_u64(doc, "memory.arena_quota_bytes");
    json_decref(doc);
    CHECK(quota > 6 * MIB && quota < 40 * MIB, "a quota of %llu", (unsigned long long)quota);
    baseline_compare(e, 0, "in a small /dev/shm");
    engine_stop(e);
    large_shm();
}

/* One that is smaller than the minimum, but holds what is there of it, leaves the context whole. */
static void chosen_context(void)
{
    small_shm("24m");
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"--budget=0", NULL});
    json_t *doc = engine_stats(e);
    uint64_t context = lookup_u64(doc, "model.context");
    json_decref(doc);
    CHECK(context == 2048, "%llu tokens", (unsigned long long)context);
    baseline_compare(e, 0, "in a smaller /dev/shm");
    engine_stop(e);
    large_shm();
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        ROW(for_long),     ROW(for_a_moment),  ROW(kept_prefixes_yield),
        ROW(long_context), ROW(chosen_budget), ROW(chosen_context)};
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
