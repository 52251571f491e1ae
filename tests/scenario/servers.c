/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of a model on servers (nbd), with real processes and nbdkit: the same text while a server
 * is slow, breaks off, fails, has other bytes or another size, goes away and comes back, and while
 * the loader is killed. What the backend itself does is tested in tests/unit/lib/io/server. */
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "tests/harness/nbdkit.h"
#include "tests/scenario/baseline.h"
#include "tests/scenario/walled.h"
#include "tests/unit/lib/model/store_make.h"

#define FINISH_MS 120000
#define SOON_MS   20000
/* Without the last one, of hundreds of tokens, which reads every expert many times. */
#define SHORT_PROMPTS (TEST_PROMPTS - 1)

static struct nbdkit server;

/* Returns the option for the engine. */
static const char *serve_with(const char *const args[])
{
    static char option[256];
    if (nbdkit_missing())
        test_skip("%s", nbdkit_missing());
    if (access(SLUICE_LOADER_NBD, X_OK) != 0)
        test_skip("this build has no loader for nbd");
    CHECK(nbdkit_start(&server, "/tmp", args), "nbdkit does not start");
    snprintf(option, sizeof option, "--devices=nbd+unix:///?socket=%s", server.socket);
    return option;
}

static const char *plugin_setting(const char *file)
{
    static char setting[PATH_MAX + 8];
    snprintf(setting, sizeof setting, "file=%s", file);
    return setting;
}

/* Of the model, through one filter with its setting; NULL: without. */
static const char *serve(const char *file, const char *filter, const char *setting)
{
    const char *plugin = plugin_setting(file);
    const char *plain[] = {"file", plugin, NULL};
    const char *filtered[] = {filter, "file", plugin, setting, NULL};
    return serve_with(filter ? filtered : plain);
}

static uint64_t counter(struct engine *e, const char *name)
{
    return engine_counter(e, "loader", name);
}

/* What a server does is seen within a few tokens, which read hundreds of experts. */
static void compare_few(struct engine *e, unsigned prompt, const char *what)
{
    baseline_compare_first(e, prompt, test_amount(AMOUNT_fault_tokens), what);
}

static void wait_read(struct engine *e, unsigned prompt)
{
    uint64_t before = counter(e, "bytes_read"), deadline = deadline_in(SOON_MS);
    while (counter(e, "bytes_read") == before) {
        compare_few(e, prompt, "a server is back");
        CHECK(deadline_tick(deadline), "nothing was read");
    }
}

static void check_quarantined(struct engine *e, const char *reason)
{
    char text[512] = "";
    uint64_t deadline = deadline_in(SOON_MS);
    while (!strstr(text, reason)) {
        json_t *status = engine_control(e, "status", json_object());
        const char *line =
            json_string_value(json_array_get(json_object_get(status, "quarantined"), 0));
        snprintf(text, sizeof text, "%s", line ? line : "");
        json_decref(status);
        CHECK(deadline_tick(deadline), "in quarantine: '%s', expected '%s'", text, reason);
    }
    CHECK(strncmp(text, "loader.0 nbd+unix:///?socket=", 29) == 0, "%s", text);
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

static struct engine *start_option(const char *devices, const char *model, const char *option)
{
    baseline(0);
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){devices, "-m", model, "--resident-experts=25",
                                          "--device-timeout=2000", "--sandbox=auto", option, NULL});
    return e;
}

static struct engine *start(const char *devices, const char *model)
{
    return start_option(devices, model, NULL);
}

static void finish(struct engine *e)
{
    engine_stop(e);
    nbdkit_kill(&server);
}

/* ---- what it reads --------------------------------------------------------------------------- */

static void reads_a_slow_server(void)
{
    struct engine *e = start(serve(test_model(), "--filter=delay", "delay-read=3ms"), test_model());
    for (unsigned i = 0; i < 2; i++)
        baseline_compare(e, i, "a slow server");
    CHECK(counter(e, "backend") == 3 && counter(e, "bytes_read") > 0, "the server was not read");
    CHECK(counter(e, "parts_failed_over") == 0 && counter(e, "quarantines") == 0, "a failure");
    check_no_restart(e);
    finish(e);
}

static void reads_with_tls(void)
{
    char keys[PATH_MAX], settings[PATH_MAX + 16], option[2 * PATH_MAX];
    path_in_dir(keys, "keys.psk");
    FILE *file = fopen(keys, "we");
    CHECK(file && fprintf(file, "sluice:%032d\n", 42) > 0 && fclose(file) == 0, "no %s", keys);
    snprintf(settings, sizeof settings, "--tls-psk=%s", keys);
    char plugin[PATH_MAX + 8];
    snprintf(plugin, sizeof plugin, "file=%s", test_model());
    if (nbdkit_missing())
        test_skip("%s", nbdkit_missing());
    if (access(SLUICE_LOADER_NBD, X_OK) != 0)
        test_skip("this build has no loader for nbd");
    const char *args[] = {"--tls=require", settings, "file", plugin, NULL};
    CHECK(nbdkit_start(&server, "/tmp", args), "nbdkit does not start");
    snprintf(option, sizeof option, "--devices=nbds+unix://sluice@/?socket=%s&tls-psk-file=%s",
             server.socket, keys);
    struct engine *e = start(option, test_model());
    baseline_compare(e, 0, "TLS");
    uint64_t before = counter(e, "bytes_read");
    CHECK(before > 0 && counter(e, "parts_failed_over") == 0, "the server was not read");
    nbdkit_kill(&server); /* keys are read again */
    CHECK(nbdkit_start(&server, "/tmp", args), "nbdkit does not start");
    wait_read(e, 1);
    compare_few(e, 1, "TLS again");
    finish(e);
}

/* ---- a server that fails --------------------------------------------------------------------- */

static void goes_away_and_comes_back(void)
{
    struct engine *e = start(serve(test_model(), NULL, NULL), test_model());
    for (unsigned round = 0; round < 3; round++) {
        struct generation *g = start_generation(e, round % SHORT_PROMPTS, 20);
        nbdkit_kill(&server);
        end_same(g, round % SHORT_PROMPTS, "the server was killed");
        compare_few(e, 0, "without the server");
        (void)serve(test_model(), NULL, NULL);
        uint64_t local = counter(e, "parts_failed_over");
        wait_read(e, 1);
        CHECK(counter(e, "quarantined") == 0, "it is in quarantine");
        test_note("%" PRIu64 " shards were read elsewhere", local);
    }
    check_no_restart(e);
    finish(e);
}

/* The loader has reads of the other copy all the time. */
static void connects_while_it_reads(void)
{
    char log[PATH_MAX], setting[PATH_MAX + 16], text[4096] = "";
    path_in_dir(log, "requests");
    snprintf(setting, sizeof setting, "logfile=%s", log);
    const char *devices = serve(test_model(), NULL, NULL);
    nbdkit_kill(&server);
    struct engine *e = start(devices, test_model());
    json_decref(engine_control(
        e, "throttle", json_pack("{s:i,s:I}", "loader", 0, "bytes_per_s", (json_int_t)(4 * MIB))));
    struct generation *g = start_generation(e, 0, 5);
    (void)serve(test_model(), "--filter=log", setting);
    uint64_t deadline = deadline_in(FINISH_MS);
    while (!strstr(text, " Read ")) {
        CHECK(!generation_done(g) && deadline_tick(deadline), "the server was not read: %s", text);
        FILE *file = fopen(log, "re");
        size_t n = file ? fread(text, 1, sizeof text - 1, file) : 0;
        text[n] = 0;
        if (file)
            (void)fclose(file);
    }
    json_decref(engine_control(e, "throttle",
                               json_pack("{s:i,s:I}", "loader", 0, "bytes_per_s", (json_int_t)0)));
    end_same(g, 0, "the server has started");
    check_no_restart(e);
    finish(e);
}

static void errors_are_read_elsewhere(void)
{
    struct engine *e =
        start(serve(test_model(), "--filter=error", "error-pread-rate=100%"), test_model());
    compare_few(e, 0, "a server with errors");
    check_quarantined(e, "Input/output error");
    check_no_restart(e);
    finish(e);
}

/* The server has no memory, not the loader. */
static void lack_of_memory_is_read_elsewhere(void)
{
    const char *args[] = {
        "--filter=error",        "file", plugin_setting(test_model()), "error-pread=ENOMEM",
        "error-pread-rate=100%", NULL};
    struct engine *e = start(serve_with(args), test_model());
    compare_few(e, 0, "a server without memory");
    check_quarantined(e, "Input/output error");
    CHECK(counter(e, "reads_without_memory") == 0, "the loader has no memory");
    check_no_restart(e);
    finish(e);
}

/* Some reads fail at once, and the others are never answered: those are in flight when the errors
 * of others end in quarantine. */
static void errors_and_a_stall_are_read_elsewhere(void)
{
    const char *args[] = {
        "--filter=error",  "--filter=delay",       "file", plugin_setting(test_model()),
        "delay-read=1000", "error-pread-rate=85%", NULL};
    struct engine *e = start_option(serve_with(args), test_model(), "--device-errors=1");
    compare_few(e, 0, "a server with errors that stalls");
    engine_wait_counter(e, "loader", "quarantined", 1, SOON_MS);
    check_no_restart(e);
    finish(e);
}

/* It accepts reads and answers none. The loader takes them back and stays. */
static void stall_is_read_elsewhere(void)
{
    struct engine *e =
        start(serve(test_model(), "--filter=delay", "delay-read=1000"), test_model());
    compare_few(e, 0, "a server that stalls");
    check_quarantined(e, "Timer expired");
    CHECK(counter(e, "reads_failed") == 0 && counter(e, "reads_retried") == 0,
          "reads that were taken back are counted as failed");
    check_no_restart(e);
    nbdkit_kill(&server);
    (void)serve(test_model(), NULL, NULL);
    json_decref(engine_control(e, "replace", json_pack("{s:i}", "loader", 0)));
    wait_read(e, 1);
    CHECK(counter(e, "quarantined") == 0, "it is still in quarantine");
    finish(e);
}

/* A file of another size is never read. */
static void another_file_is_left_out(void)
{
    char other[PATH_MAX];
    path_in_dir(other, "other");
    FILE *file = fopen(other, "we");
    CHECK(file && fputs("something else", file) >= 0 && fclose(file) == 0, "no %s", other);
    struct engine *e = start(serve(other, NULL, NULL), test_model());
    compare_few(e, 0, "another file");
    char *log = engine_log(e);
    CHECK(strstr(log, "is not a copy of the model: it has 14 bytes instead of"), "%s", log);
    free(log);
    finish(e);
}

/* A store of one stripe, and a copy of that stripe for a server. */
static void make_store(char store[PATH_MAX], char stripe[PATH_MAX], char copy[PATH_MAX])
{
    struct error error;
    struct command c;
    path_in_dir(store, "store");
    path_in_dir(stripe, "store/experts.0.bin");
    path_in_dir(copy, "copy.bin");
    const struct store_make how = {.stripes = 1, .precision_mask = 1};
    CHECK(store_make(test_model(), store, &how, &error) == 0, "%s", error.text);
    command_run(&c, NULL, FINISH_MS, (const char *const[]){"/bin/cp", stripe, copy, NULL});
    CHECK(c.status == 0, "%.300s", c.err);
    command_free(&c);
}

/* False: its server cannot be read. */
static bool finishes(struct generation *g, unsigned prompt)
{
    struct text got;
    generation_finish(g, FINISH_MS, &got);
    bool right = got.error.code == ERR_NONE;
    if (right)
        text_check_same(baseline(prompt), &got, "a server alone");
    else
        CHECK(strstr(got.error.text, "cannot be read"), "%s", got.error.text);
    text_free(&got);
    return right;
}

static bool generates(struct engine *e, unsigned prompt)
{
    return finishes(generation_start(e, test_prompt(prompt), baseline_tokens()), prompt);
}

/* Without another copy: sequences fail while the server is away, and not a moment longer. */
static void alone_goes_away_and_comes_back(void)
{
    char store[PATH_MAX], stripe[PATH_MAX], copy[PATH_MAX];
    make_store(store, stripe, copy);
    struct engine *e = start(serve(copy, NULL, NULL), store);
    CHECK(utimensat(AT_FDCWD, stripe, NULL, 0) == 0, "no %s", stripe); /* it has changed */
    engine_wait_counter(e, "loader", "quarantined", 1, SOON_MS);
    CHECK(generates(e, 0), "nothing is generated");
    struct generation *g = start_generation(e, 0, 5);
    nbdkit_kill(&server);
    (void)finishes(g, 0);
    uint64_t deadline = deadline_in(FINISH_MS);
    while (generates(e, 1))
        CHECK(deadline_tick(deadline), "there is no server");
    (void)serve(copy, NULL, NULL);
    while (!generates(e, 1))
        CHECK(deadline_tick(deadline), "the server is not read again");
    CHECK(counter(e, "quarantines") == 1, "the server is in quarantine");
    check_no_restart(e);
    finish(e);
}

/* A store has checksums: wrong bytes of its server are read from the stripe itself. */
static void wrong_bytes_are_read_elsewhere(void)
{
    char store[PATH_MAX], stripe[PATH_MAX], copy[PATH_MAX];
    make_store(store, stripe, copy);
    FILE *file = fopen(copy, "r+e"); /* every second page of the first MiB */
    CHECK(file, "no %s", copy);
    for (long at = 0; at < (long)MIB; at += 2 * (long)PAGE_BYTES)
        CHECK(fseek(file, at, SEEK_SET) == 0 && fputs("wrong", file) >= 0, "%s", copy);
    CHECK(fclose(file) == 0, "%s", copy);
    struct engine *e = start(serve(copy, NULL, NULL), store);
    for (unsigned i = 0; i < SHORT_PROMPTS; i++)
        baseline_compare(e, i, "wrong bytes");
    CHECK(counter(e, "checksums_failed") > 0 && counter(e, "parts_failed_over") > 0,
          "no wrong byte was noticed");
    CHECK(counter(e, "checksums_verified") > 0, "nothing was verified");
    check_no_restart(e);
    finish(e);
}

static void loader_is_killed(void)
{
    struct engine *e = start(serve(test_model(), "--filter=delay", "delay-read=2ms"), test_model());
    for (unsigned i = 0; i < 4; i++) {
        struct generation *g = start_generation(e, i % SHORT_PROMPTS, 10);
        pid_t pid = engine_pid(e, "loader", 0, 0);
        CHECK(kill(pid, SIGKILL) == 0, "kill failed");
        engine_pid(e, "loader", 0, pid);
        end_same(g, i % SHORT_PROMPTS, "the loader was killed");
    }
    CHECK(counter(e, "bytes_read") > 0 && counter(e, "backend") == 3, "the server is not read");
    finish(e);
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* Seen from outside, and with the libraries of the loader. */
static void keeps_the_budget(void)
{
    const char *devices = serve(test_model(), NULL, NULL);
    struct walled w;
    walled_start(&w, walled_budget(start(devices, test_model())),
                 (const char *const[]){devices, NULL});
    for (unsigned i = 0; i < TEST_PROMPTS; i++)
        baseline_compare(w.engine, i, "within the budget");
    pid_t pid = engine_pid(w.engine, "loader", 0, 0);
    CHECK(kill(pid, SIGKILL) == 0, "kill failed");
    engine_pid(w.engine, "loader", 0, pid);
    baseline_compare(w.engine, 0, "the loader was killed");
    nbdkit_kill(&server);
    (void)serve(test_model(), NULL, NULL);
    wait_read(w.engine, 1);
    walled_end(&w);
    nbdkit_kill(&server);
}

/* ---- what is rejected ------------------------------------------------------------------------ */

static void rejects(const char *devices, const char *text)
{
    struct command c;
    command_run(&c, NULL, SOON_MS,
                (const char *const[]){"run", "-m", test_model(), "--name", "servers-refused",
                                      devices, NULL});
    CHECK(c.status == 2 && strstr(c.err, text), "%s: status %d: %.300s", devices, c.status, c.err);
    command_free(&c);
}

static void bad_servers_are_rejected(void)
{
    rejects("--devices=nbd+unix:///?socket=relative", "expected ?socket=PATH");
    rejects("--devices=ftp://host/", "expected nbd://");
    if (access(SLUICE_LOADER_NBD, X_OK) != 0)
        rejects("--devices=nbd://127.0.0.1/", "sluice-loader-nbd is not there");
    else
        rejects("--devices=nbds://storage.lan/?tls-certificates=/etc", "in numbers");
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        ROW(reads_a_slow_server),
        ROW(reads_with_tls),
        ROW(goes_away_and_comes_back),
        ROW(connects_while_it_reads),
        ROW(errors_are_read_elsewhere),
        ROW(lack_of_memory_is_read_elsewhere),
        ROW(errors_and_a_stall_are_read_elsewhere),
        ROW(stall_is_read_elsewhere),
        ROW(another_file_is_left_out),
        ROW(alone_goes_away_and_comes_back),
        ROW(wrong_bytes_are_read_elsewhere),
        ROW(loader_is_killed),
        ROW(keeps_the_budget),
        ROW(bad_servers_are_rejected),
    };
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
