/* SPDX-License-Identifier: Apache-2.0 */
/* Storage devices with real processes. Each is read as configured. A device that fails or stalls is
 * quarantined by name: sequences read another copy, or end with a named error if they need the
 * device and there is none. Replacing its loader ends the quarantine. Faults are injected where the
 * loader reads its device (LOADER_READS_FAIL, LOADER_READS_WAIT, LOADER_READS_STALL). */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "tests/scenario/baseline.h"

#define FINISH_MS 120000
#define SOON_MS   20000

/* Copies the model, as on a second device. */
static void make_storage(char copy[PATH_MAX], char option[2 * PATH_MAX + 16])
{
    struct command c;
    snprintf(copy, PATH_MAX, "%s/copy.gguf", test_dir());
    command_run(&c, NULL, FINISH_MS, (const char *const[]){"/bin/cp", test_model(), copy, NULL});
    CHECK(c.status == 0, "%.300s", c.err);
    command_free(&c);
    snprintf(option, 2 * PATH_MAX + 16, "--devices=%s,%s", test_model(), copy);
}

static void inject(struct engine *e, const char *point, int loader)
{
    json_decref(
        engine_control(e, "inject", json_pack("{s:s, s:i}", "point", point, "arg", loader)));
}

static void replace(struct engine *e, int loader, const char *backend)
{
    json_decref(engine_control(e, "replace",
                               json_pack("{s:i, s:s*}", "loader", loader, "backend", backend)));
}

/* The quarantine list of `ctl status` as one text; "": empty. */
static void quarantined(struct engine *e, char *text, size_t bytes)
{
    json_t *status = engine_control(e, "status", json_object());
    json_t *list = json_object_get(status, "quarantined");
    text[0] = 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        size_t used = strlen(text);
        snprintf(text + used, bytes - used, "%s%s", i ? "; " : "",
                 json_string_value(json_array_get(list, i)));
    }
    json_decref(status);
}

static void wait_quarantined(struct engine *e, const char *loader, const char *path,
                             const char *reason)
{
    char text[4 * PATH_MAX], expected[PATH_MAX + 128];
    uint64_t deadline = deadline_in(SOON_MS);
    snprintf(expected, sizeof expected, "%s %s: %s", loader, path, reason);
    do
        quarantined(e, text, sizeof text);
    while (strcmp(text, expected) != 0 && deadline_tick(deadline));
    CHECK(strcmp(text, expected) == 0, "in quarantine: '%s', expected '%s'", text, expected);
}

static void check_no_quarantine(struct engine *e)
{
    char text[4 * PATH_MAX];
    quarantined(e, text, sizeof text);
    CHECK(text[0] == 0, "still in quarantine: %s", text);
}

static uint64_t loader_counter(struct engine *e, unsigned number, const char *name)
{
    json_t *doc = engine_stats(e);
    char path[64];
    snprintf(path, sizeof path, "counters.%s", name);
    uint64_t value = lookup_u64(lookup_process(doc, "loader", number), path);
    json_decref(doc);
    return value;
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

/* ---- configured ------------------------------------------------------------------------------ */

static void each_as_configured(void)
{
    char copy[PATH_MAX], option[2 * PATH_MAX + 16];
    make_storage(copy, option);
    strncat(option, ":backend=pread:queue_depth=3:throttle=900MB", 64);
    baseline(0);
    struct engine *e = engine_new();
    engine_start(e,
                 (const char *const[]){option, "--resident-experts=25", "--throttle=800MB", NULL});
    baseline_compare(e, 0, "two devices");
    json_t *doc = engine_stats(e);
    json_t *rates = json_object_get(json_object_get(doc, "directory"), "throttle_bytes_per_s");
    CHECK(json_array_size(rates) == 2 &&
              json_integer_value(json_array_get(rates, 0)) == 800000000 &&
              json_integer_value(json_array_get(rates, 1)) == 900000000,
          "throttles");
    json_decref(doc);
    CHECK(loader_counter(e, 1, "backend") == 2, "the second device is not read with pread");
    for (unsigned i = 0; i < 2; i++)
        CHECK(loader_counter(e, i, "bytes_read") > 0, "device %u was not read", i);
    engine_stop(e);
}

static void bad_storage_is_rejected(void)
{
    struct command c;
    command_run(&c, NULL, SOON_MS,
                (const char *const[]){"run", "-m", test_model(), "--name", "devices-refused",
                                      "--devices=,/x:queue_depth=zero", NULL});
    CHECK(c.status == 2 && strstr(c.err, "device 1: --queue-depth: 'zero' is not a whole number"),
          "status %d: %.300s", c.status, c.err);
    command_free(&c);
}

/* ctl replace: the loader is required, the back end is optional. */
static void ctl_replace(struct engine *e)
{
    struct command c;
    command_run(&c, NULL, FINISH_MS,
                (const char *const[]){"ctl", "--name", e->run, "replace", "loader.1", NULL});
    CHECK(c.status == 0 && strstr(c.out, "replace: done"), "status %d: %.300s", c.status, c.err);
    command_free(&c);
    command_run(&c, NULL, FINISH_MS,
                (const char *const[]){"ctl", "--name", e->run, "replace", NULL});
    CHECK(c.status == 2 && strstr(c.err, "replace LOADER [BACKEND]"), "status %d: %.300s", c.status,
          c.err);
    command_free(&c);
}

/* The back end changes during generations, back and forth. */
static void replaced_while_generating(void)
{
    baseline(0);
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"--resident-experts=25", "--loaders=2", NULL});
    for (unsigned round = 0; round < 4; round++) {
        unsigned prompt = round % TEST_PROMPTS;
        struct generation *g = start_generation(e, prompt, 20);
        replace(e, (int)round % 2, round < 2 ? "pread" : "io_uring");
        CHECK(round > 0 || !generation_done(g),
              "the generation ended before the loader was replaced");
        end_same(g, prompt, "a loader replaced");
        CHECK(loader_counter(e, round % 2, "backend") == (round < 2 ? 2 : 1),
              "the back end was not changed");
    }
    ctl_replace(e);
    CHECK(loader_counter(e, 1, "backend") == 1, "the back end changed without a request");
    engine_stop(e);
}

/* ---- faults ---------------------------------------------------------------------------------- */

static void errors_are_read_elsewhere(void)
{
    char copy[PATH_MAX], option[2 * PATH_MAX + 16];
    make_storage(copy, option);
    baseline(0);
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){option, "--resident-experts=25", NULL});
    struct generation *g = start_generation(e, 0, 20);
    inject(e, "LOADER_READS_FAIL", 1);
    wait_quarantined(e, "loader.1", copy, "Input/output error");
    end_same(g, 0, "a device fails");
    CHECK(loader_counter(e, 1, "parts_failed_over") > 0, "nothing was read from the other copy");
    CHECK(loader_counter(e, 1, "quarantines") == 1, "quarantined more than once");
    baseline_compare(e, 1, "a device in quarantine");
    json_t *doc = engine_stats(e);
    CHECK(lookup_restarts(doc) == 0, "a process exited");
    json_decref(doc);

    inject(e, "NONE", 0);
    g = start_generation(e, 2, 20);
    replace(e, 1, NULL);
    check_no_quarantine(e);
    end_same(g, 2, "the device replaced");
    CHECK(loader_counter(e, 1, "quarantined") == 0 && loader_counter(e, 1, "bytes_read") > 0,
          "the device is not used again");
    engine_stop(e);
}

static void stall_is_read_elsewhere(void)
{
    char copy[PATH_MAX], option[2 * PATH_MAX + 16];
    make_storage(copy, option);
    baseline(0);
    struct engine *e = engine_new();
    engine_start(
        e, (const char *const[]){option, "--resident-experts=25", "--device-timeout=4000", NULL});
    pid_t other = engine_pid(e, "loader", 1, 0);
    struct generation *g = start_generation(e, 0, 20);
    inject(e, "LOADER_READS_STALL", 0);
    wait_quarantined(e, "loader.0", test_model(), "Timer expired");
    end_same(g, 0, "a device stalls");
    baseline_compare(e, 1, "a device in quarantine");
    CHECK(engine_restarts(e, "loader", 0) == 1, "%" PRIu64 " restarts of the stalled loader",
          engine_restarts(e, "loader", 0));
    CHECK(engine_pid(e, "loader", 1, 0) == other, "the other device's loader was restarted, too");
    /* A restart of the loader does not end the quarantine. */
    json_decref(engine_control(e, "restart", json_pack("{s:s}", "process", "loader.0")));
    wait_quarantined(e, "loader.0", test_model(), "Timer expired");
    inject(e, "NONE", 0);
    replace(e, 0, NULL);
    check_no_quarantine(e);
    baseline_compare(e, 2, "the device replaced");
    engine_stop(e);
}

/* A store with mirrored stripes, each expert in one stripe. */
static void mirror_is_read(void)
{
    char store[PATH_MAX], stripe[PATH_MAX + 32], stripes[2 * PATH_MAX], mirrors[3 * PATH_MAX];
    struct command c;
    snprintf(store, sizeof store, "%s/store", test_dir());
    snprintf(stripes, sizeof stripes, "--stripes=%s/a.bin,%s/b.bin", test_dir(), test_dir());
    snprintf(mirrors, sizeof mirrors, "--mirrors=%s/a.mirror,%s/b.mirror", test_dir(), test_dir());
    command_run(&c, NULL, FINISH_MS,
                (const char *const[]){"pack", "-m", test_model(), "-o", store, "--layout=spread",
                                      "--quiet", stripes, mirrors, NULL});
    CHECK(c.status == 0, "%.300s", c.err);
    command_free(&c);
    baseline(0);
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"-m", store, "--resident-experts=25", "--device-errors=2",
                                          "--device-timeout=4000", NULL});
    struct generation *g = start_generation(e, 0, 20);
    inject(e, "LOADER_READS_FAIL", 1);
    snprintf(stripe, sizeof stripe, "%s/b.bin", test_dir());
    wait_quarantined(e, "loader.1", stripe, "Input/output error");
    end_same(g, 0, "a stripe fails");
    inject(e, "NONE", 0);
    replace(e, 1, "pread");
    check_no_quarantine(e);
    g = start_generation(e, 1, 20);
    inject(e, "LOADER_READS_STALL", 1);
    wait_quarantined(e, "loader.1", stripe, "Timer expired");
    end_same(g, 1, "a stripe stalls");
    CHECK(loader_counter(e, 1, "bytes_read") > 0 && loader_counter(e, 1, "checksums_failed") == 0,
          "the mirror was not read");
    engine_stop(e);
}

static void expect_read_error(struct engine *e, unsigned prompt)
{
    struct text got;
    char storage[PATH_MAX + 64];
    snprintf(storage, sizeof storage, "cannot be read from loader.0's device %s", test_model());
    generation_finish(generation_start(e, test_prompt(prompt), baseline_tokens()), FINISH_MS, &got);
    CHECK(got.error.code == ERR_IO, "%s: %s", error_name(got.error.code), got.error.text);
    CHECK(strstr(got.error.text, "expert ") && strstr(got.error.text, " of layer ") &&
              strstr(got.error.text, storage) && !strchr(got.error.text, '\n'),
          "%s", got.error.text);
    test_note("%s", got.error.text);
    text_free(&got);
}

/* No other copy: sequences that need the device get an error, others continue. */
static void nothing_elsewhere(const char *point, const char *reason)
{
    baseline(0);
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"--resident-experts=100", "--device-timeout=4000",
                                          "--policy=preload=none,prefetch=none", NULL});
    baseline_compare(e, 0, "all is well");
    inject(e, point, 0);
    expect_read_error(e, 1);
    wait_quarantined(e, "loader.0", test_model(), reason);
    expect_read_error(e, 2); /* at once, without another stall */
    baseline_compare(e, 0, "what is in memory");
    inject(e, "NONE", 0);
    replace(e, 0, NULL);
    check_no_quarantine(e);
    baseline_compare(e, 1, "the device replaced");
    json_t *doc = engine_stats(e);
    CHECK(lookup_u64(lookup_process(doc, "compute", 0), "restarts") == 0 &&
              lookup_u64(lookup_process(doc, "cache", 0), "restarts") == 0,
          "other processes were restarted");
    json_decref(doc);
    engine_stop(e);
}

static void errors_without_a_copy(void)
{
    nothing_elsewhere("LOADER_READS_FAIL", "Input/output error");
}

/* Nothing says that the device is broken, but it serves no read either. */
static void waits_without_a_copy(void)
{
    nothing_elsewhere("LOADER_READS_WAIT", "Resource temporarily unavailable");
}

static void stall_without_a_copy(void)
{
    nothing_elsewhere("LOADER_READS_STALL", "Timer expired");
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        ROW(each_as_configured),        ROW(bad_storage_is_rejected),
        ROW(replaced_while_generating), ROW(errors_are_read_elsewhere),
        ROW(stall_is_read_elsewhere),   ROW(mirror_is_read),
        ROW(errors_without_a_copy),     ROW(waits_without_a_copy),
        ROW(stall_without_a_copy),
    };
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
