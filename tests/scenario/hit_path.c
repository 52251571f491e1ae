/* SPDX-License-Identifier: Apache-2.0 */
/* The policies and the hit path: with everything resident, no message is sent and no system call
 * made; predictions reach their recall; demands overtake prefetches; a throttle limits the rate. */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "lib/base/clock.h"
#include "tests/harness/internal.h"
#include "tests/scenario/baseline.h"

#define FINISH_MS      120000
#define LATENCY_US     300
#define THREADS_MAX    64
#define TRACED_TOKENS  1024
#define KV_STEP_TOKENS 256
#define KV_REGIONS     16 /* of the demo model: keys and values of 8 layers */

/* Counters that grow with every message except QUOTA and POLL of the supervisor. */
static const char *const traffic[][2] = {{"compute", "demands"},
                                         {"cache", "demands"},
                                         {"cache", "loads_sent"},
                                         {"loader", "loads_taken"},
                                         {"loader", "reads_submitted"}};

/* Generates until no access misses. All experts are preloaded first: otherwise an expert that no
 * text has accessed yet could be predicted, and read, at any time. */
static void warm_up(struct engine *e)
{
    struct text got;
    engine_wait_counter(e, "cache", "resident_entries", 256, FINISH_MS);
    uint64_t before, after = 0;
    for (unsigned round = 0; round < 40; round++) {
        before = after;
        engine_generate(e, test_prompt(round % TEST_PROMPTS), baseline_tokens(), &got);
        text_free(&got);
        after =
            engine_counter(e, "compute", "misses") + engine_counter(e, "compute", "hits_inflight");
        if (after == before && round >= TEST_PROMPTS)
            return;
    }
    test_fail("accesses still miss after 40 generations although all experts fit");
}

static void nothing_sent(void)
{
    struct engine *e = engine_new();
    struct text got;
    engine_start(e, (const char *const[]){"--resident-experts=100", "--policy=preload=all", NULL});
    warm_up(e);
    uint64_t before[ARRAY_LEN(traffic)];
    for (size_t i = 0; i < ARRAY_LEN(traffic); i++)
        before[i] = engine_counter(e, traffic[i][0], traffic[i][1]);
    engine_generate(e, test_prompt(0), baseline_tokens(), &got);
    text_free(&got);
    for (size_t i = 0; i < ARRAY_LEN(traffic); i++) {
        uint64_t after = engine_counter(e, traffic[i][0], traffic[i][1]);
        CHECK(after == before[i], "%s.%s went from %" PRIu64 " to %" PRIu64, traffic[i][0],
              traffic[i][1], before[i], after);
    }
    engine_stop(e);
}

/* ---- system calls ---- */

struct calls {
    long tid;
    uint64_t futex, growth, other; /* growth: fallocate */
    char name[24];                 /* of one of the other calls */
};

/* CPU time of a thread in ticks. */
static uint64_t thread_time(pid_t pid, long tid)
{
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%d/task/%ld/stat", (int)pid, tid);
    FILE *f = fopen(path, "re");
    if (!f)
        return 0;
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = 0;
    const char *after = strrchr(text, ')');
    unsigned long user = 0, kernel = 0;
    if (!after || sscanf(after + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user,
                         &kernel) != 2)
        return 0;
    return user + kernel;
}

/* The worker threads: those that used CPU time during a generation. */
static size_t find_workers(struct engine *e, pid_t pid, long tids[THREADS_MAX])
{
    char path[64];
    struct {
        long tid;
        uint64_t time;
    } all[THREADS_MAX];
    size_t count = 0, workers = 0;
    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *dir = opendir(path);
    CHECK(dir, "no %s", path);
    for (struct dirent *entry; (entry = readdir(dir)) && count < THREADS_MAX;)
        if (isdigit((unsigned char)entry->d_name[0])) {
            all[count].tid = atol(entry->d_name);
            all[count].time = thread_time(pid, all[count].tid);
            count++;
        }
    closedir(dir);
    struct text got;
    for (unsigned i = 0; i < 4; i++) {
        engine_generate(e, test_prompt(0), baseline_tokens(), &got);
        text_free(&got);
    }
    uint64_t max = 0;
    for (size_t i = 0; i < count; i++) {
        all[i].time = thread_time(pid, all[i].tid) - all[i].time;
        max = all[i].time > max ? all[i].time : max;
    }
    for (size_t i = 0; i < count; i++)
        if (all[i].time * 2 > max)
            tids[workers++] = all[i].tid;
    CHECK(max > 0 && workers > 0, "no thread of compute used CPU time");
    return workers;
}

static void count_calls(const char *file, struct calls *calls, size_t count)
{
    char line[512];
    FILE *f = fopen(file, "re");
    CHECK(f, "strace wrote nothing");
    while (fgets(line, sizeof line, f)) {
        char *at;
        long tid = strtol(line, &at, 10);
        at += strspn(at, " ");
        size_t n = strspn(at, "abcdefghijklmnopqrstuvwxyz_0123456789");
        for (size_t i = 0; i < count; i++) {
            if (calls[i].tid != tid || n == 0 || at[n] != '(')
                continue;
            if (n == 5 && strncmp(at, "futex", 5) == 0) {
                calls[i].futex++;
            } else if (n == 9 && strncmp(at, "fallocate", 9) == 0) {
                calls[i].growth++;
            } else { /* the first is the call that strace interrupted */
                calls[i].other++;
                snprintf(calls[i].name, sizeof calls[i].name, "%.*s", (int)n, at);
            }
        }
    }
    fclose(f);
}

static pid_t attach_strace(pid_t pid, const char *file, const long *tids, size_t count)
{
    static const char *const paths[] = {"/usr/bin/strace", "/bin/strace"};
    const char *program = NULL;
    for (size_t i = 0; i < ARRAY_LEN(paths) && !program; i++)
        if (access(paths[i], X_OK) == 0)
            program = paths[i];
    if (!program)
        test_skip("strace is not installed");
    char numbers[THREADS_MAX][16];
    const char *args[2 * THREADS_MAX + 8] = {program, "-qq", "-o", file};
    size_t n = 4;
    for (size_t i = 0; i < count; i++) {
        snprintf(numbers[i], sizeof numbers[i], "%ld", tids[i]);
        args[n++] = "-p";
        args[n++] = numbers[i];
    }
    pid_t strace = spawn_program(args, -1, STDERR_FILENO, STDERR_FILENO);
    uint64_t deadline = deadline_in(10000);
    char path[64], line[128];
    snprintf(path, sizeof path, "/proc/%d/task/%ld/status", (int)pid, tids[count - 1]);
    for (bool traced = false; !traced;) {
        FILE *f = fopen(path, "re");
        int tracer = 0;
        while (f && fgets(line, sizeof line, f))
            if (sscanf(line, "TracerPid: %d", &tracer) == 1)
                break;
        if (f)
            fclose(f);
        traced = tracer != 0;
        int status;
        if (!traced && waitpid(strace, &status, WNOHANG) == strace)
            test_skip("strace may not attach here");
        CHECK(traced || deadline_tick(deadline), "strace did not attach");
    }
    return strace;
}

/* System calls other than futex depend on time (the channel's watchdog, 20 times per second) or on
 * the number of sequences (admission), not on the number of tokens. Exception: the KV cache grows
 * in steps of 256 tokens, by one call per region (keys and values of each layer). */
static void no_system_calls(void)
{
    struct engine *e = engine_new();
    long tids[THREADS_MAX];
    char file[PATH_MAX];
    struct calls calls[THREADS_MAX] = {{0}};
    engine_start(e, (const char *const[]){"--resident-experts=100", "--threads=2",
                                          "--policy=preload=all", NULL});
    warm_up(e);
    pid_t pid = engine_pid(e, "compute", 0, 0);
    size_t count = find_workers(e, pid, tids);
    snprintf(file, sizeof file, "%s/strace", test_dir());
    pid_t strace = attach_strace(pid, file, tids, count);
    uint64_t started = clock_now_ns();
    struct text got;
    engine_generate(e, test_prompt(0), TRACED_TOKENS, &got);
    text_free(&got);
    kill(strace, SIGINT);
    waitpid(strace, NULL, 0);
    double allowed = 25.0 * (double)(clock_now_ns() - started) / (double)NS_PER_S + 30;
    for (size_t i = 0; i < count; i++)
        calls[i].tid = tids[i];
    count_calls(file, calls, count);
    for (size_t i = 0; i < count; i++) {
        test_note("worker %ld: %.2f futex calls and %.3f others per token (%.0f are periodic)%s%s",
                  calls[i].tid, (double)calls[i].futex / TRACED_TOKENS,
                  (double)calls[i].other / TRACED_TOKENS, allowed,
                  calls[i].other ? ", one is " : "", calls[i].name);
        CHECK(calls[i].growth <= KV_REGIONS * (TRACED_TOKENS / KV_STEP_TOKENS + 1),
              "%" PRIu64 " calls of fallocate", calls[i].growth);
        CHECK(calls[i].other < TRACED_TOKENS / 4 && (double)calls[i].other <= allowed,
              "%" PRIu64 " calls other than futex (%s ...)", calls[i].other, calls[i].name);
    }
    engine_stop(e);
}

/* ---- policies ---- */

static void recall(void)
{
    struct engine *e = engine_new();
    struct text got;
    engine_start(e,
                 (const char *const[]){"--resident-experts=50", "--prediction=next-layer", NULL});
    for (unsigned i = 0; i < TEST_PROMPTS; i++) {
        engine_generate(e, test_prompt(i), baseline_tokens(), &got);
        text_free(&got);
    }
    uint64_t hits = engine_counter(e, "predictor", "recall_hits");
    uint64_t accesses = engine_counter(e, "predictor", "recall_accesses");
    uint64_t hints = engine_counter(e, "cache", "hints");
    test_note("recall %.1f %% of %" PRIu64 " accesses, %" PRIu64 " hints",
              accesses ? 100.0 * (double)hits / (double)accesses : 0.0, accesses, hints);
    CHECK(hints > 0 && accesses > 1000, "%" PRIu64 " hints, %" PRIu64 " accesses with a prediction",
          hints, accesses);
    CHECK((double)hits >= 0.60 * (double)accesses, "recall is below 60 %%");
    engine_stop(e);
}

/* Many predictions and little capacity cause constant prefetching. A demand waits for at most two
 * chunks of prefetches. */
static void demand_overtakes(void)
{
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"--resident-experts=25", "--policy=predict_k=16",
                                          "--io-size=16KiB", "--queue-depth=4", NULL});
    for (unsigned i = 0; i < TEST_PROMPTS; i++)
        baseline_compare(e, i, "saturating prefetch");
    uint64_t prefetches = engine_counter(e, "cache", "prefetches");
    json_t *doc = engine_stats(e);
    const json_t *loader = lookup_process(doc, "loader", 0);
    uint64_t waited = lookup_u64(loader, "counters.demand_waited_chunks_max");
    uint64_t median = lookup_u64(loader, "demand_to_submission.p50_us");
    uint64_t samples = lookup_u64(loader, "demand_to_submission.count");
    json_decref(doc);
    test_note("%" PRIu64 " prefetches; a demand waited for %" PRIu64
              " chunks at most; demand to submission: median %" PRIu64 " us of %" PRIu64 " samples",
              prefetches, waited, median, samples);
    CHECK(prefetches > 100, "only %" PRIu64 " prefetches: nothing was saturated", prefetches);
    CHECK(waited <= 2, "a demand waited for %" PRIu64 " chunks", waited);
    engine_stop(e);
}

/* Time from DEMAND to the first read's submission, while computing. The engine keeps the last few
 * hundred samples, so each round has its own median; the best of three counts, because other
 * processes may use the CPUs. Always reported; checked by the long form only, which runs on an idle
 * machine. */
static void demand_latency(void)
{
    struct engine *e = engine_new();
    uint64_t best = UINT64_MAX, samples = 0;
    struct load load;
    char what[80];
    baseline(0);
    engine_start(e, (const char *const[]){"--resident-experts=25", "--threads=0", NULL});
    load_start(&load, e);
    for (unsigned i = 0; i < 3 && best > LATENCY_US; i++) {
        baseline_compare(e, i, "demand latency");
        json_t *doc = engine_stats(e);
        const json_t *loader = lookup_process(doc, "loader", 0);
        uint64_t median = lookup_u64(loader, "demand_to_submission.p50_us");
        samples = lookup_u64(loader, "demand_to_submission.count");
        test_note("demand to submission: median %" PRIu64 " us, p99 %" PRIu64 " us", median,
                  lookup_u64(loader, "demand_to_submission.p99_us"));
        json_decref(doc);
        best = median < best ? median : best;
    }
    CHECK(samples > 100, "%" PRIu64 " samples", samples);
    snprintf(what, sizeof what, "the median is %" PRIu64 " us", best);
    if (test_long())
        load_judge(&load, e, best <= LATENCY_US, what);
    engine_stop(e);
}

/* --throttle is in effect from the first read. */
static void throttled_from_the_start(void)
{
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"--resident-experts=12.5", "--throttle=40MB", NULL});
    json_t *doc = engine_stats(e);
    json_t *rates = json_object_get(json_object_get(doc, "directory"), "throttle_bytes_per_s");
    CHECK(json_integer_value(json_array_get(rates, 0)) == 40000000, "--throttle is not in effect");
    CHECK(lookup_counter(doc, "loader", "throttle_ns") > 0,
          "the dense weights were read without a throttle");
    json_decref(doc);
    engine_stop(e);
}

/* ctl throttle 20 MB/s: measured while in effect, +- 20 %. */
static void throttle(void)
{
    const double rate = 20e6;
    struct engine *e = engine_new();
    struct text got;
    baseline(0);
    engine_start(e, (const char *const[]){"--resident-experts=12.5", "--prediction=none",
                                          "--threads=0", NULL});
    json_decref(engine_control(
        e, "throttle", json_pack("{s:i, s:I}", "loader", 0, "bytes_per_s", (json_int_t)rate)));
    struct generation *g = generation_start(e, test_prompt(0), baseline_tokens());
    uint64_t deadline = deadline_in(FINISH_MS);
    while (generation_tokens(g) < 5)
        CHECK(deadline_tick(deadline), "no tokens under a throttle of 20 MB/s");
    uint64_t bytes = engine_counter(e, "loader", "bytes_read"), from = clock_now_ns();
    deadline_reach(deadline_in(4000)); /* the test measures a rate over a fixed time */
    CHECK(!generation_done(g), "the generation ended while the rate was measured");
    double seconds = (double)(clock_now_ns() - from) / (double)NS_PER_S;
    double measured = (double)(engine_counter(e, "loader", "bytes_read") - bytes) / seconds;
    test_note("throttled to 20 MB/s: %.1f MB/s", measured / 1e6);
    json_decref(
        engine_control(e, "throttle", json_pack("{s:i, s:i}", "loader", 0, "bytes_per_s", 0)));
    generation_finish(g, FINISH_MS, &got);
    text_check_same(baseline(0), &got, "throttled");
    text_free(&got);
    CHECK(measured >= 0.8 * rate && measured <= 1.2 * rate, "%.1f MB/s instead of 20 MB/s",
          measured / 1e6);
    engine_stop(e);
}

/* ctl restart and replace: the text continues. */
static void restart_and_replace(void)
{
    struct engine *e = engine_new();
    struct text got;
    baseline(0);
    engine_start(e, (const char *const[]){"--resident-experts=25", NULL});
    struct generation *g = generation_start(e, test_prompt(0), baseline_tokens());
    static const char *const processes[] = {"loader.0", "cache", "predictor", "compute"};
    for (size_t i = 0; i < ARRAY_LEN(processes); i++)
        json_decref(engine_control(e, "restart", json_pack("{s:s}", "process", processes[i])));
    json_decref(
        engine_control(e, "replace", json_pack("{s:i, s:s}", "loader", 0, "backend", "pread")));
    generation_finish(g, FINISH_MS, &got);
    text_check_same(baseline(0), &got, "restarted by request");
    text_free(&got);
    CHECK(engine_counter(e, "loader", "backend") == 2,
          "the loader does not use pread after replace");
    baseline_compare(e, 1, "another backend");
    engine_stop(e);
}

/* Time slice of a process's first thread; 0: not reported by the kernel (before Linux 6.12). */
static uint64_t timeslice_ns(pid_t pid)
{
    struct {
        uint32_t bytes, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime_ns, deadline_ns, period_ns;
    } attr;
    CHECK(syscall(SYS_sched_getattr, pid, &attr, sizeof attr, 0) == 0, "sched_getattr: %s",
          strerror(errno));
    return attr.runtime_ns;
}

/* Processes that load experts have shorter time slices than compute, so they preempt it. */
static void short_timeslices(void)
{
    static const char *const services[] = {"loader", "cache", "predictor"};
    struct engine *e = engine_new();
    if (timeslice_ns(0) == 0)
        test_skip("the kernel does not report time slices");
    engine_start(e, (const char *const[]){"--resident-experts=50", "--threads=0", NULL});
    uint64_t usual = timeslice_ns(engine_pid(e, "compute", 0, 0));
    for (size_t i = 0; i < ARRAY_LEN(services); i++) {
        uint64_t ns = timeslice_ns(engine_pid(e, services[i], 0, 0));
        CHECK(ns < usual, "%s: time slice of %" PRIu64 " ns, compute has %" PRIu64, services[i], ns,
              usual);
    }
    engine_stop(e);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        ROW(nothing_sent),     ROW(no_system_calls),          ROW(recall),
        ROW(demand_overtakes), ROW(demand_latency),           ROW(short_timeslices),
        ROW(throttle),         ROW(throttled_from_the_start), ROW(restart_and_replace),
    };
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
