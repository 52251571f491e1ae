/* SPDX-License-Identifier: Apache-2.0 */
/* Tests changes of the model's files while an engine runs. Replaced or removed: the engine
 * continues on the file that it opened, also in processes that start later, and warns once. Changed
 * in place: every client gets an error that names it, unless there is another copy; never another
 * text. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "lib/model/index/model_index.h"
#include "tests/scenario/baseline.h"
#include "tests/scenario/completions.h"
#include "tests/unit/lib/model/store_make.h"

#define FINISH_MS 120000
#define SOON_MS   20000
#define REPLACED  "was replaced or removed"
#define CHANGED   "changed in place while the engine read it"

static void copy_file(const char *from, const char *to)
{
    struct command c;
    command_run(&c, NULL, FINISH_MS, (const char *const[]){"/bin/cp", from, to, NULL});
    CHECK(c.status == 0, "%.300s", c.err);
    command_free(&c);
}

static void copy_model(char path[PATH_MAX], const char *name)
{
    snprintf(path, PATH_MAX, "%s/%s", test_dir(), name);
    copy_file(test_model(), path);
}

/* Flips bits in the second half: other experts, and not one byte longer. */
static void scramble(const char *path)
{
    enum { AT_ONCE = 64 * 1024 };
    static unsigned char bytes[AT_ONCE];
    struct stat st;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    CHECK(fd >= 0 && fstat(fd, &st) == 0, "%s: %s", path, strerror(errno));
    for (off_t at = st.st_size / 2; at < st.st_size; at += AT_ONCE) {
        ssize_t n = pread(fd, bytes, sizeof bytes, at);
        CHECK(n > 0, "%s: %s", path, strerror(errno));
        for (ssize_t i = 0; i < n; i += 3)
            bytes[i] ^= 0x10;
        CHECK(pwrite(fd, bytes, (size_t)n, at) == n, "%s: %s", path, strerror(errno));
    }
    close(fd);
}

static void move_other_over(const char *path)
{
    char other[PATH_MAX + 16];
    snprintf(other, sizeof other, "%s.other", path);
    copy_file(path, other);
    scramble(other);
    CHECK(rename(other, path) == 0, "%s: %s", path, strerror(errno));
}

static void remove_file(const char *path)
{
    CHECK(unlink(path) == 0, "%s: %s", path, strerror(errno));
}

static void move_away(const char *path)
{
    char other[PATH_MAX + 16];
    snprintf(other, sizeof other, "%s.away", path);
    CHECK(rename(path, other) == 0, "%s: %s", path, strerror(errno));
}

static void restart(struct engine *e, const char *process)
{
    struct command c;
    command_run(&c, NULL, FINISH_MS,
                (const char *const[]){"ctl", "--name", e->run, "restart", process, NULL});
    CHECK(c.status == 0, "status %d: %.300s", c.status, c.err);
    command_free(&c);
}

static void replace(struct engine *e, unsigned loader)
{
    json_decref(engine_control(e, "replace", json_pack("{s:i}", "loader", (int)loader)));
}

static size_t log_lines_with(struct engine *e, const char *text)
{
    char *log = engine_log(e);
    size_t n = 0;
    for (const char *at = log; (at = strstr(at, text)) != NULL; at += strlen(text))
        n++;
    free(log);
    return n;
}

/* Waits for a text in a list of `ctl status`; with its JSON key. */
static void wait_listed(struct engine *e, const char *key, const char *text)
{
    uint64_t deadline = deadline_in(SOON_MS);
    for (;;) {
        json_t *status = engine_control(e, "status", NULL);
        char *list = json_dumps(json_object_get(status, key), JSON_ENCODE_ANY);
        json_decref(status);
        bool found = list && strstr(list, text);
        if (!found && !deadline_tick(deadline))
            test_fail("'%s' is not in %s: %.400s", text, key, list ? list : "not there");
        free(list);
        if (found)
            return;
    }
}

/* ---- replaced -------------------------------------------------------------------------------- */

/* Kills and restarts of the loaders: they find what the supervisor opened. */
static void goes_on(struct engine *e, const char *path, unsigned loaders)
{
    for (unsigned i = 0; i < loaders; i++) {
        pid_t pid = engine_pid(e, "loader", i, 0);
        CHECK(kill(pid, SIGKILL) == 0, "%s", strerror(errno));
        engine_pid(e, "loader", i, pid);
    }
    for (unsigned i = 0; i < TEST_PROMPTS; i++)
        baseline_compare(e, i, "after kill -9 of the loaders");
    restart(e, "loader.0");
    baseline_compare(e, 2, "after ctl restart loader.0");
    restart(e, "cache");
    restart(e, "compute");
    baseline_compare(e, 1, "after restarts of cache and compute");
    wait_listed(e, "replaced", path);
    size_t warned = log_lines_with(e, REPLACED);
    CHECK(warned == 1, "%zu warnings", warned);
}

static void model_gone(void (*act)(const char *path), const char *option)
{
    char path[PATH_MAX];
    copy_model(path, "model.gguf");
    baseline(0);
    struct engine *e = engine_new();
    engine_start(
        e, (const char *const[]){"-m", path, "--resident-experts=25", "--loaders=2", option, NULL});
    act(path);
    goes_on(e, path, 2);
    engine_stop(e);
}

static void another_model_moved_over(void)
{
    model_gone(move_other_over, "--backend=auto");
}

static void another_model_moved_over_pread(void)
{
    model_gone(move_other_over, "--backend=pread");
}

static void model_removed(void)
{
    model_gone(remove_file, "--backend=auto");
}

static void model_moved_away(void)
{
    model_gone(move_away, "--direct-io=off");
}

/* ---- changed in place ------------------------------------------------------------------------ */

/* Where bytes of one expert are. */
static off_t expert_at(int fd, const char *path)
{
    struct model_index *model;
    struct error error;
    CHECK(model_index_build(fd, path, &model, &error) == 0, "%s", error.text);
    const struct model_extent *x =
        &model_index_entries(model)[model_entry_expert(model, 4, 9)].extent[0];
    off_t at = (off_t)(x->file_offset + x->head_bytes);
    free(model);
    return at;
}

/* Its old mtime is set again: only ctime shows the change. */
static void change_expert(const char *path, void (*write_at)(int fd, off_t at))
{
    struct stat st;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    CHECK(fd >= 0 && fstat(fd, &st) == 0, "%s: %s", path, strerror(errno));
    write_at(fd, expert_at(fd, path));
    CHECK(futimens(fd, (const struct timespec[]){{.tv_nsec = UTIME_OMIT}, st.st_mtim}) == 0, "%s",
          strerror(errno));
    close(fd);
}

static void write_bytes(int fd, off_t at)
{
    unsigned char bytes[4096];
    CHECK(pread(fd, bytes, sizeof bytes, at) == (ssize_t)sizeof bytes, "%s", strerror(errno));
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] ^= 0x10;
    CHECK(pwrite(fd, bytes, sizeof bytes, at) == (ssize_t)sizeof bytes, "%s", strerror(errno));
}

static void write_mapped(int fd, off_t at)
{
    off_t page = (off_t)align_down((uint64_t)at, PAGE_BYTES);
    unsigned char *bytes = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, page);
    CHECK(bytes != MAP_FAILED, "mmap: %s", strerror(errno));
    for (size_t i = (size_t)(at - page); i < PAGE_BYTES; i++)
        bytes[i] ^= 0x10;
    CHECK(msync(bytes, PAGE_BYTES, MS_SYNC) == 0 && munmap(bytes, PAGE_BYTES) == 0, "%s",
          strerror(errno));
}

static void overwrite_expert(const char *path)
{
    change_expert(path, write_bytes);
}

static void overwrite_mapped(const char *path)
{
    change_expert(path, write_mapped);
}

static void cut(const char *path)
{
    struct stat st;
    CHECK(stat(path, &st) == 0 && truncate(path, st.st_size / 2) == 0, "%s", strerror(errno));
}

static void touch(const char *path)
{
    CHECK(utimensat(AT_FDCWD, path, NULL, 0) == 0, "%s: %s", path, strerror(errno));
}

static void expect_changed(struct generation *g, const char *path)
{
    struct text got;
    generation_finish(g, FINISH_MS, &got);
    CHECK(got.error.code == ERR_MODEL_CHANGED, "%s: %s", error_name(got.error.code),
          got.error.text);
    CHECK(strstr(got.error.text, CHANGED) && strstr(got.error.text, path), "%s", got.error.text);
    text_free(&got);
}

static void native_program(const struct engine *e, const char *path)
{
    struct command c;
    command_run(&c, NULL, FINISH_MS,
                (const char *const[]){"generate", "--name", e->run, "-p", "The", "-n", "8", NULL});
    CHECK(c.status == 1 && strstr(c.err, path) && strstr(c.err, CHANGED), "status %d: %.400s",
          c.status, c.err);
    CHECK(c.out_bytes == 0, "text: %.80s", c.out);
    command_free(&c);
}

static void over_http(unsigned port, const char *path)
{
    struct http h;
    completion_call(&h, port, "The", 8, "", 500);
    CHECK(strstr(h.body, "\"code\":\"model_changed\"") && strstr(h.body, path), "%.400s", h.body);
    http_close(&h);
    http_call(&h, port, "/stats", NULL, NULL, 200);
    json_t *doc = http_json(&h);
    CHECK(strcmp(lookup_text(doc, "fault.code"), "model_changed") == 0 &&
              strstr(lookup_text(doc, "fault.text"), path),
          "%.400s", lookup_text(doc, "fault.text"));
    json_decref(doc);
    http_close(&h);
    uint64_t deadline = deadline_in(SOON_MS);
    do {
        http_open(&h, port, "/health", NULL, NULL);
        http_finish(&h, SOON_MS);
        if (h.status == 503)
            break;
        http_close(&h);
    } while (deadline_tick(deadline));
    CHECK(h.status == 503 && strstr(h.body, "model_changed") && strstr(h.body, path),
          "status %d: %.400s", h.status, h.body);
    http_close(&h);
}

static void stop_named(struct engine *e, const char *path)
{
    engine_stop_with(e, 1);
    char *log = engine_log(e), *last = strstr(log, "error: the model file ");
    CHECK(last && strstr(last, path) && strstr(last, CHANGED), "%.600s", log);
    free(log);
}

/* The sequence in progress and all later ones, whatever they need. */
static void changed(void (*act)(const char *path), const char *resident)
{
    char path[PATH_MAX];
    unsigned port;
    copy_model(path, "model.gguf");
    baseline(0);
    struct engine *e =
        gateway_start(&port, (const char *const[]){"-m", path, resident, "--http=0", NULL});
    baseline_compare(e, 0, "all is well");
    struct generation *g = generation_start(e, test_prompt(1), LONG);
    uint64_t deadline = deadline_in(FINISH_MS);
    while (generation_tokens(g) < 20 && !generation_done(g))
        CHECK(deadline_tick(deadline), "no tokens");
    act(path);
    expect_changed(g, path);
    expect_changed(generation_start(e, test_prompt(2), baseline_tokens()), path);
    wait_listed(e, "fault", "model_changed");
    native_program(e, path);
    over_http(port, path);
    restart(e, "loader.0"); /* which changes nothing */
    expect_changed(generation_start(e, test_prompt(0), baseline_tokens()), path);
    stop_named(e, path);
}

static void expert_overwritten(void)
{
    changed(overwrite_expert, "--resident-experts=25");
}

static void expert_overwritten_through_a_mapping(void)
{
    changed(overwrite_mapped, "--resident-experts=25");
}

static void model_truncated(void)
{
    changed(cut, "--resident-experts=25");
}

static void model_touched(void)
{
    changed(touch, "--resident-experts=25");
}

/* Nothing is read any more: a loader notices it on its own. */
static void touched_when_resident(void)
{
    changed(touch, "--preset=resident");
}

/* ctl replace: not with the changed file, but with a right one. */
static void right_copy_moved_over(void)
{
    char path[PATH_MAX], right[PATH_MAX];
    copy_model(path, "model.gguf");
    copy_model(right, "right.gguf");
    baseline(0);
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"-m", path, "--resident-experts=25", NULL});
    overwrite_expert(path);
    expect_changed(generation_start(e, test_prompt(1), baseline_tokens()), path);
    wait_listed(e, "quarantined", CHANGED);
    replace(e, 0);
    wait_listed(e, "quarantined", CHANGED);
    expect_changed(generation_start(e, test_prompt(1), baseline_tokens()), path);
    CHECK(rename(right, path) == 0, "%s", strerror(errno));
    replace(e, 0);
    uint64_t deadline = deadline_in(SOON_MS);
    for (bool fault = true; fault;) {
        json_t *status = engine_control(e, "status", NULL);
        fault = json_object_get(status, "fault") != NULL;
        json_decref(status);
        CHECK(!fault || deadline_tick(deadline), "the fault does not end");
    }
    for (unsigned i = 0; i < TEST_PROMPTS; i++)
        baseline_compare(e, i, "a right copy moved over the changed file");
    engine_stop(e);
}

/* ---- stores and copies ----------------------------------------------------------------------- */

static void make_store(char path[PATH_MAX], char stripe[PATH_MAX + 32], bool mirrored)
{
    struct error error;
    snprintf(path, PATH_MAX, "%s/store", test_dir());
    snprintf(stripe, PATH_MAX + 32, "%s/experts.1.bin", path);
    CHECK(store_make(test_model(), path,
                     &(struct store_make){.stripes = 2, .precision_mask = 1, .mirrored = mirrored},
                     &error) == 0,
          "%s", error.text);
}

static void stripe_moved_over(void)
{
    char path[PATH_MAX], stripe[PATH_MAX + 32];
    make_store(path, stripe, false);
    baseline(0);
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"-m", path, "--resident-experts=25", NULL});
    move_other_over(stripe);
    goes_on(e, stripe, 2);
    json_t *doc = engine_stats(e);
    CHECK(lookup_counter(doc, "loader", "checksums_failed") == 0, "the other file was read");
    json_decref(doc);
    engine_stop(e);
}

static void change_stripe(void (*change)(const char *path))
{
    char path[PATH_MAX], stripe[PATH_MAX + 32];
    make_store(path, stripe, false);
    baseline(0);
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"-m", path, "--resident-experts=25", NULL});
    baseline_compare(e, 0, "all is well");
    change(stripe);
    wait_listed(e, "fault", stripe);
    expect_changed(generation_start(e, test_prompt(1), baseline_tokens()), stripe);
    stop_named(e, stripe);
}

static void stripe_changed(void)
{
    change_stripe(touch);
}

static void stripe_truncated(void)
{
    change_stripe(cut);
}

/* The engine continues on the other copy, and reports it. */
static void quarantined_only(struct engine *e, const char *path, unsigned loader)
{
    for (unsigned i = 0; i < TEST_PROMPTS; i++)
        baseline_compare(e, i, "one copy changed");
    char line[PATH_MAX + 128];
    snprintf(line, sizeof line, "loader.%u %s: " CHANGED, loader, path);
    wait_listed(e, "quarantined", line);
    restart(e, "loader"); /* it does not end with a restart */
    wait_listed(e, "quarantined", line);
    baseline_compare(e, 1, "after a restart");
    json_t *status = engine_control(e, "status", NULL);
    CHECK(!json_object_get(status, "fault"), "a fault");
    json_decref(status);
}

static void stripe_with_a_mirror_changed(void)
{
    char path[PATH_MAX], stripe[PATH_MAX + 32];
    make_store(path, stripe, true);
    baseline(0);
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"-m", path, "--resident-experts=25", NULL});
    scramble(stripe);
    quarantined_only(e, stripe, 1);
    engine_stop(e);
}

/* Of a GGUF file: no checksum shows it. */
static void copy_changed(void (*act)(const char *path))
{
    char copy[PATH_MAX], option[2 * PATH_MAX + 16];
    copy_model(copy, "copy.gguf");
    snprintf(option, sizeof option, "--devices=%s,%s", test_model(), copy);
    baseline(0);
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){option, "--resident-experts=25", NULL});
    baseline_compare(e, 0, "two devices");
    act(copy);
    quarantined_only(e, copy, 1);
    engine_stop(e);
}

static void copy_overwritten(void)
{
    copy_changed(scramble);
}

static void copy_truncated(void)
{
    copy_changed(cut);
}

static void copy_moved_over(void)
{
    char copy[PATH_MAX], option[2 * PATH_MAX + 16];
    copy_model(copy, "copy.gguf");
    snprintf(option, sizeof option, "--devices=%s,%s", test_model(), copy);
    baseline(0);
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){option, "--resident-experts=25", NULL});
    move_other_over(copy);
    goes_on(e, copy, 2);
    replace(e, 1); /* it has not failed: what the path names now is not read */
    baseline_compare(e, 1, "after ctl replace");
    engine_stop(e);
}

/* A copy that appears later is read from `ctl replace` on. */
static void missing_copy_appears(void)
{
    char copy[PATH_MAX], option[2 * PATH_MAX + 16];
    snprintf(copy, sizeof copy, "%s/copy.gguf", test_dir());
    snprintf(option, sizeof option, "--devices=%s,%s", test_model(), copy);
    baseline(0);
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){option, "--resident-experts=25", NULL});
    baseline_compare(e, 0, "a copy is missing");
    copy_file(test_model(), copy);
    CHECK(log_lines_with(e, copy) == 1, "%zu lines about the missing copy",
          log_lines_with(e, copy));
    snprintf(option, sizeof option,
             "No such file or directory; the engine starts without this copy and reads %s instead",
             test_model());
    CHECK(log_lines_with(e, option) == 1, "nothing says what is read instead of it");
    replace(e, 1);
    baseline_compare(e, 1, "after ctl replace");
    scramble(copy); /* and only what is read can change */
    wait_listed(e, "quarantined", copy);
    baseline_compare(e, 2, "it changed");
    engine_stop(e);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        ROW(another_model_moved_over),
        ROW(another_model_moved_over_pread),
        ROW(model_removed),
        ROW(model_moved_away),
        ROW(expert_overwritten),
        ROW(expert_overwritten_through_a_mapping),
        ROW(model_truncated),
        ROW(model_touched),
        ROW(touched_when_resident),
        ROW(right_copy_moved_over),
        ROW(stripe_moved_over),
        ROW(stripe_changed),
        ROW(stripe_truncated),
        ROW(stripe_with_a_mirror_changed),
        ROW(copy_overwritten),
        ROW(copy_truncated),
        ROW(copy_moved_over),
        ROW(missing_copy_appears),
    };
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
