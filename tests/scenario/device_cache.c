/* SPDX-License-Identifier: Apache-2.0 */
/* A local file in front of a server (--device-cache): the same text from both. The file survives
 * starts and kills, is never confused with that of another model, is bounded, and is not needed: a
 * damaged block, a full disk and a second engine cost reads of the server. */
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "lib/base/random.h"
#include "tests/harness/nbdkit.h"
#include "tests/harness/web.h"
#include "tests/scenario/baseline.h"
#include "tests/scenario/fixtures.h"
#include "tests/scenario/walled.h"

#define FINISH_MS  120000
#define SOON_MS    30000
#define WARM_ROUND 12 /* of all prompts, until nothing is read from the server */

static struct nbdkit nbd;
static struct web web;
static bool http; /* the kind of server of this case */
/* By the model's file: nbdkit 1.32 may abort when a loader is killed with reads in flight. */
static bool mirrored;

static uint64_t counter(struct engine *e, const char *name)
{
    return engine_counter(e, "loader", name);
}

/* Bytes that loaders have read from the server. */
static uint64_t from_server(struct engine *e)
{
    return counter(e, "bytes_read") - counter(e, "cache_bytes_read");
}

static void serve(const char *file, const char *filter, const char *setting)
{
    char plugin[PATH_MAX + 8];
    snprintf(plugin, sizeof plugin, "file=%s", file);
    const char *plain[] = {"file", plugin, NULL};
    const char *filtered[] = {filter, "file", plugin, setting, NULL};
    if (access(http ? SLUICE_FETCH_HTTP : SLUICE_FETCH_NBD, X_OK) != 0)
        test_skip("this build has no loader for that server");
    if (!http && nbdkit_missing())
        test_skip("%s", nbdkit_missing());
    CHECK(http ? web_start(&web, file) : nbdkit_start(&nbd, "/tmp", filter ? filtered : plain),
          "the server does not start");
}

static void stop_server(void)
{
    if (http)
        web_kill(&web);
    else
        nbdkit_kill(&nbd);
}

static const char *url(void)
{
    static char text[256];
    if (http)
        snprintf(text, sizeof text, "http://127.0.0.1:%u/model.gguf", (unsigned)web.port);
    else
        snprintf(text, sizeof text, "nbd+unix:///model.gguf?socket=%s", nbd.socket);
    return text;
}

/* Made on the first call of a case. */
static const char *cache_dir(void)
{
    static char path[PATH_MAX];
    path_in_dir(path, "cache");
    CHECK(mkdir(path, 0700) == 0 || errno == EEXIST, "mkdir: %s", strerror(errno));
    return path;
}

static const char *cache_option(const char *dir, const char *size)
{
    static char option[PATH_MAX + 64];
    snprintf(option, sizeof option, "--device-cache=%s:%s", dir, size);
    return option;
}

static const char *skeletons(void)
{
    static char option[PATH_MAX + 16];
    char path[PATH_MAX];
    snprintf(option, sizeof option, "--cache-dir=%s", path_in_dir(path, "skeletons"));
    return option;
}

/* Without predictions: what is read is the same each time. */
static struct engine *start_with(const char *cache, const char *option)
{
    char devices[PATH_MAX];
    struct engine *e = engine_new();
    snprintf(devices, sizeof devices, "--devices=%s", url());
    baseline(0);
    engine_start(e, (const char *const[]){
                        "-m", mirrored ? test_model() : url(), mirrored ? devices : skeletons(),
                        "--resident-experts=25", "--device-timeout=2000", "--sandbox=auto",
                        "--prediction=none", "--warm-start=off", cache, option, NULL});
    return e;
}

static struct engine *start(void)
{
    return start_with(cache_option(cache_dir(), "64MiB"), NULL);
}

/* But the last prompt, of hundreds of tokens. */
static void texts(struct engine *e, const char *what)
{
    for (unsigned i = 0; i + 1 < TEST_PROMPTS; i++)
        baseline_compare(e, i, what);
}

/* Until the texts need nothing of the server. */
static void warm(struct engine *e)
{
    for (unsigned round = 0; round < WARM_ROUND; round++) {
        uint64_t before = from_server(e);
        texts(e, "a cache that is being filled");
        if (from_server(e) == before)
            return;
    }
    test_fail("the server is still read after %d rounds", WARM_ROUND);
}

static struct engine *warmed(bool with_http)
{
    http = with_http;
    serve(test_model(), NULL, NULL);
    struct engine *e = start();
    warm(e);
    return e;
}

static void check_no_restart(struct engine *e)
{
    json_t *doc = engine_stats(e);
    CHECK(lookup_restarts(doc) == 0, "a process exited");
    json_decref(doc);
}

static void wait_used(struct engine *e)
{
    engine_wait_counter(e, "loader", "cache_checked", counter(e, "cache_slots"), SOON_MS);
    engine_wait_counter(e, "loader", "cache_used", 1, SOON_MS);
}

/* Files of the cache; the path of the first one. */
static size_t cache_files(char path[PATH_MAX])
{
    char pattern[PATH_MAX + 16];
    glob_t found;
    snprintf(pattern, sizeof pattern, "%s/sluice-*.cache", cache_dir());
    size_t count = glob(pattern, 0, NULL, &found) == 0 ? found.gl_pathc : 0;
    if (count > 0 && path)
        snprintf(path, PATH_MAX, "%s", found.gl_pathv[0]);
    globfree(&found);
    return count;
}

/* ---- cold and warm --------------------------------------------------------------------------- */

static void cold_and_warm(bool with_http)
{
    struct engine *e = warmed(with_http);
    uint64_t used = counter(e, "cache_used"), written = counter(e, "cache_bytes_written");
    CHECK(used > 0 && written > 0 && counter(e, "cache_hits") > 0, "the cache is not used");
    CHECK(counter(e, "cache_damaged") == 0 && counter(e, "cache_evicted") == 0, "it is damaged");
    check_no_restart(e);
    engine_stop(e);

    e = start();
    wait_used(e);
    CHECK(counter(e, "cache_used") >= used, "a restart has lost %" PRIu64 " experts", used);
    uint64_t before = from_server(e);
    texts(e, "from the cache");
    uint64_t lost = from_server(e) - before; /* what waited to be written at the stop */
    CHECK(lost < counter(e, "cache_bytes_read") / 4, "%" PRIu64 " bytes were read again", lost);
    warm(e);
    uint64_t bytes = http ? web.control->bytes : 0;
    texts(e, "from the cache alone");
    CHECK(!http || web.control->bytes == bytes, "the server has sent bytes");

    stop_server();
    texts(e, "without the server");
    CHECK(counter(e, "parts_failed") == 0, "an expert was not read");
    check_no_restart(e);
    engine_stop(e);
}

static void nbd_cold_and_warm(void)
{
    cold_and_warm(false);
}

static void http_cold_and_warm(void)
{
    cold_and_warm(true);
}

/* The key of a device, TLS, and checksums of the index instead of those of the cache. */
static void with_tls(void)
{
    char keys[PATH_MAX], tls[PATH_MAX + 16], plugin[PATH_MAX + 8], devices[3 * PATH_MAX];
    path_in_dir(keys, "keys.psk");
    FILE *file = fopen(keys, "we");
    CHECK(file && fprintf(file, "sluice:%032d\n", 42) > 0 && fclose(file) == 0, "no %s", keys);
    if (nbdkit_missing() || access(SLUICE_FETCH_NBD, X_OK) != 0)
        test_skip("there is no nbdkit, or no loader for it");
    snprintf(tls, sizeof tls, "--tls-psk=%s", keys);
    snprintf(plugin, sizeof plugin, "file=%s", test_model());
    CHECK(nbdkit_start(&nbd, "/tmp",
                       (const char *const[]){"--tls=require", tls, "file", plugin, NULL}),
          "nbdkit does not start");
    snprintf(devices, sizeof devices,
             "--devices=nbds+unix://sluice@/?socket=%s&tls-psk-file=%s:cache=%s:64MiB", nbd.socket,
             keys, cache_dir());
    baseline(0);
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){devices, "--resident-experts=25", "--prediction=none",
                                          "--sandbox=auto", NULL});
    warm(e);
    CHECK(counter(e, "cache_hits") > 0 && counter(e, "parts_failed_over") == 0, "no hits");
    check_no_restart(e);
    engine_stop(e);
    nbdkit_kill(&nbd);
}

/* ---- what happens to the file ---------------------------------------------------------------- */

/* A byte of each slot, so that each payload or head is wrong. step: the size of a slot or less. */
static void damage(const char *path, uint64_t step)
{
    struct stat st;
    FILE *file = fopen(path, "r+e");
    CHECK(file && stat(path, &st) == 0, "no %s", path);
    for (uint64_t at = 3 * (uint64_t)PAGE_BYTES + 100; at < (uint64_t)st.st_size; at += step) {
        CHECK(fseek(file, (long)at, SEEK_SET) == 0, "seek");
        int byte = fgetc(file);
        CHECK(byte != EOF && fseek(file, (long)at, SEEK_SET) == 0 && fputc(byte ^ 1, file) != EOF,
              "%s", path);
    }
    CHECK(fclose(file) == 0, "%s", path);
}

static void damaged_blocks_are_read_again(void)
{
    char path[PATH_MAX];
    struct engine *e = warmed(false);
    engine_stop(e);
    CHECK(cache_files(path) == 1, "there is no file");
    damage(path, 8 * (uint64_t)PAGE_BYTES);
    e = start();
    wait_used(e);
    texts(e, "damaged blocks");
    CHECK(counter(e, "cache_damaged") > 0, "no damage was noticed");
    CHECK(counter(e, "checksums_failed") == 0 && counter(e, "quarantines") == 0,
          "the server is blamed");
    warm(e);
    engine_stop(e);
    e = start();
    wait_used(e);
    texts(e, "written again");
    CHECK(counter(e, "cache_damaged") == 0, "damaged blocks were kept");
    check_no_restart(e);
    engine_stop(e);
    stop_server();
}

/* What another user could put into the directory: a pipe, and a link to this file. */
static void links_are_not_followed(const char *path, int fd)
{
    char moved[PATH_MAX + 8];
    struct stat st;
    snprintf(moved, sizeof moved, "%s.moved", path);
    CHECK(rename(path, moved) == 0 && mkfifo(path, 0600) == 0, "%s", path);
    for (int i = 0; i < 2; i++) {
        struct engine *e = start();
        engine_wait_log(e, "the loader runs without this cache: ", SOON_MS);
        texts(e, "a pipe, and a link");
        check_no_restart(e);
        engine_stop(e);
        CHECK(unlink(path) == 0 && symlink(moved, path) == 0, "%s", path);
    }
    CHECK(fstat(fd, &st) == 0 && st.st_size == 0, "a link was followed");
}

/* Also one without the first bytes of a cache file. */
static void foreign_files_are_left_alone(void)
{
    char path[PATH_MAX], text[16] = "";
    struct engine *e = warmed(false);
    engine_stop(e);
    CHECK(cache_files(path) == 1, "there is no file");
    int fd = open(path, O_RDWR | O_CLOEXEC);
    CHECK(fd >= 0 && pwrite(fd, "somebody's", 10, 0) == 10, "%s", path);
    e = start();
    engine_wait_log(e, "it is not a file of a cache", SOON_MS);
    texts(e, "without the file");
    CHECK(counter(e, "cache_hits") == 0 && pread(fd, text, 10, 0) == 10 &&
              strcmp(text, "somebody's") == 0,
          "it was used");
    engine_stop(e);
    CHECK(ftruncate(fd, 0) == 0, "%s", path);
    links_are_not_followed(path, fd);
    close(fd);
    stop_server();
}

static void full_cache_evicts(void)
{
    char path[PATH_MAX];
    struct stat st;
    http = false;
    serve(test_model(), NULL, NULL);
    struct engine *e = start_with(cache_option(cache_dir(), "1MiB"), NULL);
    texts(e, "a small cache");
    texts(e, "a small cache again");
    uint64_t slots = counter(e, "cache_slots");
    CHECK(slots > 1 && counter(e, "cache_used") <= slots, "%" PRIu64 " slots", slots);
    engine_wait_counter(e, "loader", "cache_evicted", 1, SOON_MS);
    CHECK(counter(e, "cache_damaged") == 0, "it is damaged");
    CHECK(cache_files(path) == 1 && stat(path, &st) == 0 && (uint64_t)st.st_size <= MIB,
          "the file is too large");
    test_note("%" PRIu64 " slots, %" PRIu64 " evictions, %" PRIu64 " hits", slots,
              counter(e, "cache_evicted"), counter(e, "cache_hits"));
    check_no_restart(e);
    engine_stop(e);
    e = start(); /* a larger one takes over what it has */
    wait_used(e);
    CHECK(counter(e, "cache_slots") > slots, "it has not grown");
    texts(e, "a cache that has grown");
    CHECK(counter(e, "cache_damaged") == 0, "it is damaged");
    engine_stop(e);
    stop_server();
}

/* A model of the same size and shape whose experts are others. */
static void another_model_has_another_file(void)
{
    char other[PATH_MAX];
    struct text own, got;
    other_model_make(other);
    struct engine *e = warmed(false);
    engine_stop(e);
    stop_server();
    serve(other, NULL, NULL);
    e = start_with("--preset=default", NULL);
    engine_generate(e, test_prompt(0), baseline_tokens(), &own);
    engine_stop(e);
    e = start();
    engine_generate(e, test_prompt(0), baseline_tokens(), &got);
    text_check_same(&own, &got, "another model");
    CHECK(counter(e, "cache_hits") == 0 || counter(e, "cache_damaged") == 0, "confused");
    CHECK(cache_files(NULL) == 2, "%zu files", cache_files(NULL));
    engine_stop(e);
    text_free(&own);
    text_free(&got);
    stop_server();
}

/* The name of the file cannot tell them apart: what the server says of its file does. */
static void changed_experts_are_read_again(void)
{
    char changed[PATH_MAX];
    struct text own, got;
    other_experts_make(changed);
    struct engine *e = warmed(true);
    engine_stop(e);
    stop_server();
    serve(changed, NULL, NULL);
    web_fault(&web, WEB_REPLACED, 0); /* another ETag */
    e = start_with("--preset=default", NULL);
    engine_generate(e, test_prompt(0), baseline_tokens(), &own);
    engine_stop(e);
    e = start();
    engine_generate(e, test_prompt(0), baseline_tokens(), &got);
    text_check_same(&own, &got, "other experts");
    CHECK(cache_files(NULL) == 1, "a sample was changed: %zu files", cache_files(NULL));
    engine_stop(e);
    text_free(&own);
    text_free(&got);
    stop_server();
}

/* Of nbd, whose server says nothing of its file. */
static void replace_empties_the_file(void)
{
    struct engine *e = warmed(false);
    CHECK(counter(e, "cache_used") > 0, "the cache is empty");
    json_decref(engine_control(e, "replace", json_pack("{s:i}", "loader", 0)));
    engine_wait_counter(e, "loader", "cache_slots", 1, SOON_MS);
    CHECK(counter(e, "cache_used") == 0, "%" PRIu64 " slots are left", counter(e, "cache_used"));
    texts(e, "a cache that was emptied");
    engine_stop(e);
    stop_server();
}

static void second_engine_runs_without(void)
{
    http = false;
    serve(test_model(), NULL, NULL);
    struct engine *first = start();
    warm(first);
    struct engine *second = start();
    engine_wait_log(second, "the loader runs without this cache: another engine uses it", SOON_MS);
    texts(second, "the second engine");
    CHECK(counter(second, "cache_hits") == 0, "both use one file");
    texts(first, "the first engine");
    engine_stop(second);
    engine_stop(first);
    stop_server();
}

/* Of 512 KiB in a mount namespace of this program. */
static void full_disk_is_no_error(void)
{
    char dir[PATH_MAX];
    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0)
        test_skip("a mount namespace needs root: %s", strerror(errno));
    path_in_dir(dir, "small");
    CHECK(mkdir(dir, 0700) == 0, "mkdir: %s", strerror(errno));
    if (mount("small", dir, "tmpfs", 0, "size=512k") != 0)
        test_skip("cannot mount a tmpfs: %s", strerror(errno));
    http = false;
    serve(test_model(), NULL, NULL);
    struct engine *e = start_with(cache_option(dir, "64MiB"), NULL);
    texts(e, "a full disk");
    engine_wait_log(e, "cannot be written: No space left on device", SOON_MS);
    texts(e, "what fitted");
    CHECK(counter(e, "cache_hits") > 0 && counter(e, "cache_damaged") == 0, "it is not read");
    check_no_restart(e);
    engine_stop(e);
    CHECK(mount(NULL, dir, NULL, MS_REMOUNT | MS_RDONLY, NULL) == 0, "remount: %s",
          strerror(errno));
    e = start_with(cache_option(dir, "64MiB"), NULL);
    engine_wait_log(e, "runs without this cache: ", SOON_MS);
    texts(e, "a disk that cannot be written");
    check_no_restart(e);
    engine_stop(e);
    CHECK(umount2(dir, MNT_DETACH) == 0, "umount: %s", strerror(errno));
    stop_server();
}

/* ---- kills ----------------------------------------------------------------------------------- */

static struct generation *generation_of(struct engine *e, unsigned prompt, size_t tokens)
{
    struct generation *g = generation_start(e, test_prompt(prompt), baseline_tokens());
    uint64_t deadline = deadline_in(FINISH_MS);
    while (generation_tokens(g) < tokens && !generation_done(g))
        CHECK(deadline_tick(deadline), "no tokens");
    return g;
}

static void end_same(struct generation *g, unsigned prompt)
{
    struct text got;
    generation_finish(g, FINISH_MS, &got);
    text_check_same(baseline(prompt), &got, "a process was killed");
    text_free(&got);
}

/* With a small file, so that slots are replaced all the time; the loader is killed at least every
 * second time. Afterwards every slot that counts is right. */
static void kills(bool with_http)
{
    static const char *const victims[] = {"loader", "cache", "loader", "compute"};
    struct random random;
    http = with_http;
    mirrored = !http;
    random_seed(&random, http ? 2 : 1, 0);
    serve(test_model(), http ? NULL : "--filter=delay", "delay-read=1ms");
    struct engine *e = start_with(cache_option(cache_dir(), "3MiB"), NULL);
    unsigned count = test_amount(AMOUNT_device_cache_kills);
    for (unsigned i = 0; i < count; i++) {
        const char *victim = victims[i % ARRAY_LEN(victims)];
        unsigned prompt = i % (TEST_PROMPTS - 1);
        struct generation *g = generation_of(e, prompt, 1 + random_below(&random, 30));
        pid_t pid = engine_pid(e, victim, 0, 0);
        CHECK(kill(pid, SIGKILL) == 0, "kill failed");
        engine_pid(e, victim, 0, pid);
        end_same(g, prompt);
    }
    engine_stop(e);
    e = start_with(cache_option(cache_dir(), "3MiB"), NULL);
    wait_used(e);
    uint64_t slots = counter(e, "cache_used");
    texts(e, "after the kills");
    test_note("%u kills; then %" PRIu64 " slots, %" PRIu64 " hits, %" PRIu64 " damaged", count,
              slots, counter(e, "cache_hits"), counter(e, "cache_damaged"));
    CHECK(counter(e, "cache_hits") > 0, "nothing is left");
    CHECK(counter(e, "cache_damaged") == 0, "a kill has damaged a slot that counts");
    engine_stop(e);
    stop_server();
    mirrored = false;
}

static void nbd_kills(void)
{
    kills(false);
}

static void http_kills(void)
{
    kills(true);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void keep_budget(uint64_t budget, const char *size)
{
    struct walled w;
    walled_start(&w, budget,
                 (const char *const[]){"-m", url(), skeletons(), "--direct-io=off",
                                       cache_option(cache_dir(), size), NULL});
    for (unsigned i = 0; i < TEST_PROMPTS; i++)
        baseline_compare(w.engine, i, "within the budget");
    test_note("%s: %" PRIu64 " bytes written, %" PRIu64 " hits", size,
              counter(w.engine, "cache_bytes_written"), counter(w.engine, "cache_hits"));
    CHECK(counter(w.engine, "cache_bytes_written") > 0, "nothing was written");
    walled_end(&w);
}

/* Seen from outside, with the pages of the file: slots are replaced all the time, or all of them
 * are read. */
static void keeps_the_budget(void)
{
    http = false;
    serve(test_model(), NULL, NULL);
    uint64_t budget = walled_budget(start());
    keep_budget(budget, "3MiB");
    keep_budget(budget, "64MiB");
    stop_server();
}

/* ---- what is rejected ------------------------------------------------------------------------ */

static void rejects(const char *devices, const char *option, const char *text)
{
    struct command c;
    command_run(&c, NULL, SOON_MS,
                (const char *const[]){"run", "-m", test_model(), "--name", "cache-refused", devices,
                                      option, NULL});
    CHECK(c.status == 2 && strstr(c.err, text), "%s: status %d: %.300s", devices, c.status, c.err);
    command_free(&c);
}

static void bad_caches_are_rejected(void)
{
    char missing[PATH_MAX], devices[2 * PATH_MAX];
    static const char server[] = "--devices=nbd+unix:///?socket=/tmp/none";
    path_in_dir(missing, "missing");
    snprintf(devices, sizeof devices, "--devices=:cache=%s:1GiB", cache_dir());
    rejects(devices, NULL, "a cache is for servers");
    rejects(cache_option(cache_dir(), "1GiB"), NULL, "no device is a server");
    rejects(cache_option(cache_dir(), "much"), NULL, "a cache is DIR:SIZE");
    if (access(SLUICE_FETCH_NBD, X_OK) != 0)
        return;
    rejects(server, cache_option(cache_dir(), "10KiB"), "no room for an expert; give at least");
    rejects(server, cache_option(missing, "1GiB"), "No such file or directory");
    rejects(server, cache_option(test_model(), "1GiB"), "is not a directory");
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        ROW(nbd_cold_and_warm),
        ROW(http_cold_and_warm),
        ROW(with_tls),
        ROW(damaged_blocks_are_read_again),
        ROW(foreign_files_are_left_alone),
        ROW(full_cache_evicts),
        ROW(another_model_has_another_file),
        ROW(changed_experts_are_read_again),
        ROW(replace_empties_the_file),
        ROW(second_engine_runs_without),
        ROW(full_disk_is_no_error),
        ROW(nbd_kills),
        ROW(http_kills),
        ROW(keeps_the_budget),
        ROW(bad_caches_are_rejected),
    };
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
