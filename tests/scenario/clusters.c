/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of a model in a Ceph cluster, with real processes: one monitor and one OSD
 * (tests/harness/ceph.sh). The same text from a striped file and from a store of objects, without
 * the OSD, with wrong bytes, and while the loader is killed. What the backend itself does is tested
 * in tests/unit/lib/io/server/rados. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "lib/model/store/store.h"
#include "tests/scenario/baseline.h"
#include "tests/scenario/server_programs.h"
#include "tests/scenario/walled.h"
#include "tests/unit/lib/model/store_make.h"

#define FINISH_MS 120000
#define SOON_MS   60000

static const char script[] = SLUICE_SOURCE_DIR "/tests/harness/ceph.sh";
static char cluster[64]; /* its directory; "": none was started */

static void ceph(const char *what)
{
    struct command c;
    char own[16];
    snprintf(own, sizeof own, "%d", (int)getpid());
    command_run(&c, NULL, FINISH_MS, (const char *const[]){script, what, cluster, own, NULL});
    CHECK(c.status == 0, "ceph.sh %s: %.300s%.300s", what, c.out, c.err);
    command_free(&c);
}

/* A new one. */
static void need_cluster(void)
{
    static unsigned number;
    struct command c;
    if (access(SLUICE_LOADER_RADOS, X_OK) != 0)
        test_skip("this build has no loader for Ceph");
    command_run(&c, NULL, SOON_MS, (const char *const[]){script, "missing", NULL});
    c.out[strcspn(c.out, "\n")] = 0;
    if (c.status != 0)
        test_skip("%s", c.out);
    command_free(&c);
    baseline(0);
    snprintf(cluster, sizeof cluster, "/tmp/ceph-test-%d.%u", (int)getpid(), number++);
    ceph("start");
}

static void put(const char *file, const char *object, bool striped)
{
    char conf[96], rados[] = "/usr/bin/rados";
    struct command c;
    snprintf(conf, sizeof conf, "%s/ceph.conf", cluster);
    command_run(&c, NULL, FINISH_MS,
                (const char *const[]){rados, "-c", conf, "-p", "sluice", "put", object, file,
                                      striped ? "--striper" : NULL, NULL});
    /* The program of Ceph 16 sometimes aborts when it has put all and frees its client. */
    CHECK(c.status == 0 || strstr(c.err, "Resource deadlock avoided"), "rados put %s: %.300s",
          object, c.err);
    command_free(&c);
}

/* Reads it as other clients do: with locks. */
static void get(const char *object)
{
    char conf[96], rados[] = "/usr/bin/rados", to[PATH_MAX];
    struct command c;
    snprintf(conf, sizeof conf, "%s/ceph.conf", cluster);
    command_run(&c, NULL, FINISH_MS,
                (const char *const[]){rados, "-c", conf, "-p", "sluice", "--striper", "get", object,
                                      path_in_dir(to, "got"), NULL});
    CHECK(access(to, R_OK) == 0, "rados get %s: %.300s", object, c.err);
    command_free(&c);
}

static const char *url(const char *object)
{
    static char text[256];
    snprintf(text, sizeof text, "rados://sluice/%s?conf=%s/ceph.conf&user=reader", object, cluster);
    return text;
}

static uint64_t counter(struct engine *e, const char *name)
{
    return engine_counter(e, "loader", name);
}

static struct engine *start(const char *model, const char *object, const char *option)
{
    char devices[512];
    snprintf(devices, sizeof devices, "--devices=%s", url(object));
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){devices, "-m", model, "--resident-experts=25",
                                          "--sandbox=auto", option, NULL});
    return e;
}

static void finish(struct engine *e)
{
    engine_stop(e);
    ceph("stop");
}

static void wait_read(struct engine *e, unsigned prompt)
{
    uint64_t before = counter(e, "bytes_read"), deadline = deadline_in(SOON_MS);
    while (counter(e, "bytes_read") == before) {
        baseline_compare(e, prompt, "the cluster is back");
        CHECK(deadline_tick(deadline), "nothing was read");
    }
}

static void check_no_restart(struct engine *e)
{
    json_t *doc = engine_stats(e);
    CHECK(lookup_restarts(doc) == 0, "a process exited");
    json_decref(doc);
}

static struct generation *start_generation(struct engine *e, unsigned prompt, size_t tokens)
{
    struct generation *g = generation_start(e, test_prompt(prompt), baseline_tokens());
    uint64_t deadline = deadline_in(FINISH_MS);
    while (generation_tokens(g) < tokens && !generation_done(g))
        CHECK(deadline_tick(deadline), "no tokens");
    return g;
}

static void end_same(struct generation *g, unsigned prompt, const char *what)
{
    struct text got;
    generation_finish(g, FINISH_MS, &got);
    text_check_same(baseline(prompt), &got, what);
    text_free(&got);
}

/* The keys of the client are in no argument, log or counter. */
static void check_secret(struct engine *e)
{
    char path[96], text[4096] = "";
    snprintf(path, sizeof path, "%s/keyring", cluster);
    FILE *file = fopen(path, "re");
    CHECK(file && fread(text, 1, sizeof text - 1, file) > 0 && fclose(file) == 0, "no %s", path);
    char *log = engine_log(e);
    json_t *doc = engine_stats(e);
    char *stats = json_dumps(doc, 0);
    unsigned keys = 0;
    for (char *at = text; (at = strstr(at, "key = ")); keys++) {
        at += strlen("key = ");
        char key[64];
        snprintf(key, sizeof key, "%.*s", (int)strcspn(at, "\n"), at);
        CHECK(strlen(key) > 20 && !strstr(log, key) && !strstr(stats, key), "a key is shown");
    }
    CHECK(keys == 4, "%u keys", keys);
    free(stats);
    json_decref(doc);
    free(log);
}

/* ---- what it reads --------------------------------------------------------------------------- */

static void reads_a_striped_file(void)
{
    need_cluster();
    put(test_model(), "model.gguf", true);
    struct engine *e = start(test_model(), "model.gguf", NULL);
    for (unsigned i = 0; i < 2; i++)
        baseline_compare(e, i, "a cluster");
    CHECK(counter(e, "backend") == 5 && counter(e, "bytes_read") > 0, "the cluster was not read");
    CHECK(counter(e, "parts_failed_over") == 0 && counter(e, "quarantines") == 0, "a failure");
    check_no_restart(e);
    check_secret(e);
    get("model.gguf");
    for (unsigned i = 0; i < 4; i++) {
        struct generation *g = start_generation(e, i % TEST_PROMPTS, 10);
        pid_t pid = engine_pid(e, "loader", 0, 0);
        CHECK(kill(pid, SIGKILL) == 0, "kill failed");
        engine_pid(e, "loader", 0, pid);
        end_same(g, i % TEST_PROMPTS, "the loader was killed");
    }
    wait_read(e, 0);
    char *log = engine_log(e);
    CHECK(!strstr(log, "is not a copy"), "what others read is taken for another file");
    free(log);
    finish(e);
}

static void opens_a_model(void)
{
    char option[PATH_MAX + 16], path[PATH_MAX];
    need_cluster();
    put(test_model(), "dir/model.gguf", true);
    snprintf(option, sizeof option, "--cache-dir=%s", path_in_dir(path, "skeletons"));
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"-m", url("dir/model.gguf"), option,
                                          "--resident-experts=25", "--sandbox=auto", NULL});
    for (unsigned i = 0; i < 2; i++)
        baseline_compare(e, i, "a model in a cluster");
    CHECK(counter(e, "backend") == 5 && counter(e, "parts_failed_over") == 0, "another copy");
    finish(e);
}

/* A push of this stage that has sent entries.bin is killed; then somebody else writes other bytes
 * of the same number there. The next one sends them again. */
static void sends_again_what_others_wrote(const char *stage)
{
    static const char name[] = STORE_ENTRIES_FILE;
    char program[PATH_MAX], to[256], path[PATH_MAX], journal[PATH_MAX + 32], line[1024];
    char here[PATH_MAX + 32], got[PATH_MAX];
    bool done = false;
    struct stat st;
    struct command c;
    snprintf(program, sizeof program, "%s/sluice-push-rados", test_libexec());
    snprintf(to, sizeof to, "rados://sluice/b/store?conf=%s/ceph.conf", cluster);
    snprintf(journal, sizeof journal, "%s/push.journal", stage);
    snprintf(here, sizeof here, "%s/%s", stage, name);
    pid_t pid = program_start((const char *const[]){program, "--rate=1MiB", to, stage, NULL});
    for (uint64_t deadline = deadline_in(SOON_MS); !done;) {
        CHECK(deadline_tick(deadline), "%s is not sent", name);
        FILE *file = fopen(journal, "re");
        while (file && fgets(line, sizeof line, file))
            done |= strncmp(line, "done entries.bin ", 17) == 0 && strchr(line, '\n');
        if (file)
            (void)fclose(file);
    }
    program_kill(pid);
    CHECK(stat(here, &st) == 0, "no %s", here);
    file_write(path_in_dir(path, "other"), "");
    CHECK(truncate(path, st.st_size) == 0, "%s", path);
    put(path, "b/store/entries.bin", true);
    command_run(&c, NULL, FINISH_MS, (const char *const[]){program, to, stage, NULL});
    CHECK(c.status == 0, "%d: %s", c.status, c.err);
    command_free(&c);
    get("b/store/entries.bin");
    command_run(&c, NULL, SOON_MS,
                (const char *const[]){"/usr/bin/cmp", here, path_in_dir(got, "got"), NULL});
    CHECK(c.status == 0 && unlink(got) == 0, "%s%s", c.out, c.err);
    command_free(&c);
}

/* `sluice pack -o rados://`: what Ceph's own program reads is the store, and so is what an engine
 * does. */
static void pack_sends_a_store(void)
{
    static const char *const names[] = {"manifest.json", "entries.bin", "model.gguf",
                                        "experts.0.bin"};
    char to[256], stage[PATH_MAX], object[64], here[2 * PATH_MAX], got[PATH_MAX], option[PATH_MAX];
    struct command c;
    need_cluster();
    snprintf(to, sizeof to, "rados://sluice/a/store?conf=%s/ceph.conf", cluster);
    path_in_dir(stage, "stage");
    /* A push was killed between an object and its attributes, which say that it is a file. */
    put(SLUICE_SOURCE_DIR "/LICENSE", "a/store/manifest.json.0000000000000000", false);
    put(SLUICE_SOURCE_DIR "/LICENSE", "a/store/entries.bin.0000000000000000", false);
    command_run(
        &c, NULL, FINISH_MS,
        (const char *const[]){"pack", "-m", test_model(), "-o", to, "--stage", stage, NULL});
    CHECK(c.status == 0 && strstr(c.err, "of which this run sent"), "%d: %s", c.status, c.err);
    command_free(&c);
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        snprintf(object, sizeof object, "a/store/%s", names[i]);
        snprintf(here, sizeof here, "%s/%s", stage, names[i]);
        get(object);
        command_run(&c, NULL, SOON_MS,
                    (const char *const[]){"/usr/bin/cmp", here, path_in_dir(got, "got"), NULL});
        CHECK(c.status == 0 && unlink(got) == 0, "%s: %s%s", object, c.out, c.err);
        command_free(&c);
    }
    command_run(&c, NULL, FINISH_MS,
                (const char *const[]){"pack", "-o", to, "--stage", stage, NULL});
    CHECK(c.status == 0 && strstr(c.err, "this run sent 0 B"), "%d: %s", c.status, c.err);
    command_free(&c);
    sends_again_what_others_wrote(stage);
    snprintf(to, sizeof to, "rados://sluice/other?conf=%s/ceph.conf&user=reader", cluster);
    command_run(&c, NULL, FINISH_MS,
                (const char *const[]){"pack", "-o", to, "--stage", stage, NULL});
    CHECK(c.status == 1 && strstr(c.err, "Operation not permitted"), "%d: %s", c.status, c.err);
    command_free(&c);
    snprintf(option, sizeof option, "--cache-dir=%s", path_in_dir(got, "skeletons"));
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"-m", url("a/store/manifest.json"), option,
                                          "--resident-experts=25", "--sandbox=auto", NULL});
    baseline_compare(e, 0, "a store in a cluster");
    CHECK(counter(e, "backend") == 5 && counter(e, "parts_failed_over") == 0, "another copy");
    finish(e);
}

/* ---- what can happen to it ------------------------------------------------------------------- */

static void the_osd_is_killed(void)
{
    need_cluster();
    put(test_model(), "model.gguf", true);
    struct engine *e = start(test_model(), "model.gguf", "--device-timeout=8000");
    wait_read(e, 0);
    struct generation *g = start_generation(e, 0, 20);
    ceph("kill");
    end_same(g, 0, "the OSD was killed");
    baseline_compare(e, 1, "without the OSD");
    uint64_t elsewhere = counter(e, "parts_failed_over");
    ceph("osd");
    wait_read(e, 1);
    CHECK(counter(e, "quarantined") == 0, "it is in quarantine");
    test_note("%" PRIu64 " shards were read elsewhere", elsewhere);
    check_no_restart(e);
    finish(e);
}

/* A store has checksums: wrong bytes of an object are read from the stripe itself. */
static void wrong_bytes_are_read_elsewhere(void)
{
    char store[PATH_MAX], stripe[PATH_MAX], copy[PATH_MAX];
    struct error error;
    struct command c;
    need_cluster();
    path_in_dir(store, "store");
    path_in_dir(stripe, "store/experts.0.bin");
    path_in_dir(copy, "copy.bin");
    const struct store_make how = {.stripes = 1, .precision_mask = 1};
    CHECK(store_make(test_model(), store, &how, &error) == 0, "%s", error.text);
    command_run(&c, NULL, FINISH_MS, (const char *const[]){"/bin/cp", stripe, copy, NULL});
    CHECK(c.status == 0, "%.300s", c.err);
    command_free(&c);
    FILE *file = fopen(copy, "r+e"); /* every second page of the first MiB */
    CHECK(file, "no %s", copy);
    for (long at = 0; at < (long)MIB; at += 2 * (long)PAGE_BYTES)
        CHECK(fseek(file, at, SEEK_SET) == 0 && fputs("wrong", file) >= 0, "%s", copy);
    CHECK(fclose(file) == 0, "%s", copy);
    put(copy, "experts.0.bin", false); /* one object */
    struct engine *e = start(store, "experts.0.bin", NULL);
    for (unsigned i = 0; i < TEST_PROMPTS; i++)
        baseline_compare(e, i, "wrong bytes");
    CHECK(counter(e, "checksums_failed") > 0 && counter(e, "parts_failed_over") > 0,
          "no wrong byte was noticed");
    CHECK(counter(e, "checksums_verified") > 0, "nothing was verified");
    check_no_restart(e);
    finish(e);
}

/* No cluster: ceph.conf has names of monitors or none, so that librados would ask for addresses. */
static void a_file_without_addresses(void)
{
    static const struct {
        const char *hosts, *why;
    } rows[] = {{"mon host = mon.invalid, 127.0.0.1", "must have the addresses"},
                {"", "has no `mon host`"}};
    char path[PATH_MAX];
    if (access(SLUICE_LOADER_RADOS, X_OK) != 0)
        test_skip("this build has no loader for Ceph");
    baseline(0);
    snprintf(cluster, sizeof cluster, "/tmp/ceph-test-%d", (int)getpid());
    snprintf(path, sizeof path, "%s/ceph.conf", cluster);
    CHECK(mkdir(cluster, 0700) == 0, "no %s", cluster);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        FILE *file = fopen(path, "we");
        CHECK(file && fprintf(file, "[global]\n%s\n", rows[i].hosts) > 0 && fclose(file) == 0,
              "no %s", path);
        struct engine *e = start(test_model(), "model.gguf", NULL);
        engine_wait_log(e, rows[i].why, SOON_MS);
        baseline_compare(e, 0, "without addresses");
        check_no_restart(e);
        engine_stop(e);
    }
    CHECK(unlink(path) == 0 && rmdir(cluster) == 0, "%s remains", cluster);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void keeps_the_budget(void)
{
    char devices[512];
    struct walled w;
    need_cluster();
    put(test_model(), "model.gguf", true);
    snprintf(devices, sizeof devices, "--devices=%s", url("model.gguf"));
    walled_start(&w, walled_budget(start(test_model(), "model.gguf", NULL)),
                 (const char *const[]){devices, "-m", test_model(), NULL});
    for (unsigned i = 0; i < TEST_PROMPTS; i++)
        baseline_compare(w.engine, i, "within the budget");
    pid_t pid = engine_pid(w.engine, "loader", 0, 0);
    CHECK(kill(pid, SIGKILL) == 0, "kill failed");
    engine_pid(w.engine, "loader", 0, pid);
    wait_read(w.engine, 0);
    walled_end(&w);
    ceph("stop");
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        ROW(reads_a_striped_file), ROW(opens_a_model),
        ROW(the_osd_is_killed),    ROW(wrong_bytes_are_read_elsewhere),
        ROW(keeps_the_budget),     ROW(a_file_without_addresses),
        ROW(pack_sends_a_store),
    };
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
