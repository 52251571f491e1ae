/* SPDX-License-Identifier: Apache-2.0 */
/* Interleaved decoding: the engines of all variants run at once and decode in slices of a few
 * tokens, while the processes of the others are stopped (SIGSTOP). Changes of the machine's speed
 * then affect all variants alike, and ratios of short runs are meaningful.
 *
 *    open, warm up ──► stopped ◄──► running (its slice: time counts) ──► ended
 *
 * Times reported by an engine include the slices of the others. The time of a variant is therefore
 * the sum of its slices from the first new token on, and its stall time is unknown. Reads in flight
 * when an engine is stopped complete during another slice: a few chunks per slice, in every
 * variant. A stopped engine does not count late ticks against itself; with slices of at most
 * SLICE_LIMIT_NS no wait in it reaches its timeout. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/clock.h"
#include "lib/json/lookup.h"
#include "procs/clients/bench/bench.h"

#define PROCESSES_MAX  64
#define SLICE_LIMIT_NS (2 * NS_PER_S)

struct runner {
    struct session session;
    pid_t child[PROCESSES_MAX]; /* processes of the engine without its supervisor */
    size_t children;
    bool open, stopped, ended;
    uint64_t id, from, ran_ns;
    struct tokens tokens;
    struct stream_result result;
    json_t *before;
    json_t *slices; /* [tokens, ms] of each slice so far */
};

/* ---- stopping ---- */

static void find_children(struct runner *r, const json_t *snapshot)
{
    size_t n = lookup_processes(snapshot);
    r->children = 0;
    for (size_t i = 0; i < n && r->children < PROCESSES_MAX; i++) {
        pid_t pid = (pid_t)lookup_u64(lookup_row(snapshot, i), "pid");
        if (pid > 0 && pid != r->session.own)
            r->child[r->children++] = pid;
    }
}

/* True when pid is still a child of the engine: a restarted child has another pid, and its old pid
 * may belong to another program. */
static bool is_child_of(pid_t pid, pid_t parent)
{
    char path[64], line[512], *after;
    long ppid = 0;
    snprintf(path, sizeof path, "/proc/%ld/stat", (long)pid);
    FILE *f = fopen(path, "re");
    if (!f)
        return false;
    /* "PID (NAME) STATE PPID ...": the name may contain parentheses */
    if (fgets(line, sizeof line, f) && (after = strrchr(line, ')')) != NULL &&
        sscanf(after, ") %*c %ld", &ppid) != 1)
        ppid = 0;
    fclose(f);
    return ppid == (long)parent;
}

static void signal_children(const struct runner *r, int number)
{
    for (size_t i = 0; i < r->children; i++)
        if (is_child_of(r->child[i], r->session.own))
            kill(r->child[i], number);
}

/* The supervisor is stopped first and resumed last, so that it never finds its children stopped. */
static void stop(struct runner *r)
{
    if (r->session.own == 0 || r->stopped)
        return;
    kill(r->session.own, SIGSTOP);
    signal_children(r, SIGSTOP);
    r->stopped = true;
}

static void resume_runner(struct runner *r)
{
    if (!r->stopped)
        return;
    signal_children(r, SIGCONT);
    kill(r->session.own, SIGCONT);
    r->stopped = false;
}

/* ---- a repetition ---- */

static int open_runner(struct bench *b, struct runner *r, uint32_t number, int64_t repetition,
                       struct error *error)
{
    struct variant *variant = &b->variants[number];
    if (variant_open(b, variant, number, &r->session, error) != 0)
        return -1;
    r->open = true;
    find_children(r, b->snapshot);
    if (variant_warm_up(b, &r->session, error) != 0 ||
        repetition_tokens(b, repetition, 0, &r->tokens, error) != 0)
        return -1;
    stop(r);
    return 0;
}

static int prefill(struct bench *b, struct runner *r, const struct test *test, struct sample *out,
                   struct error *error)
{
    resume_runner(r);
    int rc = run_test(b, &r->session, &r->tokens, test, out, error);
    stop(r);
    return rc;
}

static void forget_decode(struct runner *r)
{
    stream_result_free(&r->result);
    json_decref(r->before);
    json_decref(r->slices);
    r->before = r->slices = NULL;
    r->from = r->ran_ns = 0;
    r->ended = false;
}

/* Runs until the first new token, from which decode time counts. Called once the contexts of all
 * variants are filled: a sequence that is not polled within the idle timeout is cancelled. */
static int start_runner(struct bench *b, struct runner *r, const struct test *test,
                        struct error *error)
{
    resume_runner(r);
    forget_decode(r);
    r->slices = json_array();
    r->before = stats_with_cpu(&r->session);
    if (sequence_start(b, &r->session, &r->tokens, test, 0, &r->id, error) != 0)
        return -1;
    while (!r->ended && r->from == 0) {
        int state = stream_step(&r->session, r->id, &r->from, NULL, NULL, &r->result, error);
        if (state < 0)
            return -1;
        r->ended = state > 0;
    }
    stop(r);
    if (!r->ended)
        return 0;
    return sequence_ended(&r->result, error) != 0
               ? -1
               : error_set(error, ERR_BAD_INPUT,
                           "a decode test of %lld tokens ended before its first slice; raise -n",
                           (long long)b->tokens);
}

static int run_slice(const struct bench *b, struct runner *r, struct error *error)
{
    uint64_t from = r->from, target = from + (uint64_t)b->slice_tokens, start_ns = clock_now_ns();
    resume_runner(r);
    while (!r->ended && r->from < target && clock_now_ns() - start_ns < SLICE_LIMIT_NS) {
        int state = stream_step(&r->session, r->id, &r->from, NULL, NULL, &r->result, error);
        if (state < 0)
            return -1;
        r->ended = state > 0;
    }
    uint64_t took_ns = clock_now_ns() - start_ns;
    r->ran_ns += took_ns;
    json_array_append_new(
        r->slices, json_pack("[I, f]", (json_int_t)(r->from - from), (double)took_ns / NS_PER_MS));
    if (!r->ended)
        stop(r);
    return r->ended ? sequence_ended(&r->result, error) : 0;
}

static int take_sample(const struct bench *b, struct runner *r, const struct test *test,
                       struct sample *out, struct error *error)
{
    json_t *after = stats_with_cpu(&r->session);
    int rc = sample_take(out, &r->result, r->before, after, test, error);
    out->ms = (double)r->ran_ns / NS_PER_MS;
    out->tps = 1e3 * (double)b->tokens / out->ms;
    out->stall_ms = NAN;
    out->slices = json_incref(r->slices);
    json_decref(after);
    return rc;
}

/* Another variant is first in every round, so that none always follows the same one. */
static int decode(struct bench *b, struct runner *runners, uint32_t test, int64_t repetition,
                  struct error *error)
{
    uint32_t left = b->variant_count;
    for (uint32_t round = 0; left > 0; round++)
        for (uint32_t i = 0; i < b->variant_count; i++) {
            uint32_t number = (uint32_t)(((uint64_t)repetition + round + i) % b->variant_count);
            struct runner *r = &runners[number];
            if (r->ended)
                continue;
            if (run_slice(b, r, error) != 0)
                return -1;
            if (!r->ended)
                continue;
            if (take_sample(b, r, &b->test[test], &b->variants[number].samples[test][repetition],
                            error) != 0)
                return -1;
            stop(r); /* idle work must not run in the slices of others */
            left--;
        }
    return 0;
}

static void close_runner(struct runner *r)
{
    resume_runner(r);
    if (r->open)
        session_close(&r->session);
    forget_decode(r);
    tokens_free(&r->tokens);
}

/* One decode test of all variants. */
static int interleave_decode(struct bench *b, struct runner *runners, uint32_t test,
                             int64_t repetition, struct error *error)
{
    for (uint32_t i = 0; i < b->variant_count; i++) {
        resume_runner(&runners[i]);
        int rc = context_fill(b, &runners[i].session, &runners[i].tokens, &b->test[test], error);
        stop(&runners[i]);
        if (rc != 0)
            return -1;
    }
    for (uint32_t i = 0; i < b->variant_count; i++)
        if (start_runner(b, &runners[i], &b->test[test], error) != 0)
            return -1;
    return decode(b, runners, test, repetition, error);
}

static int one_test(struct bench *b, struct runner *runners, uint32_t test, int64_t repetition,
                    struct error *error)
{
    if (b->test[test].kind == TEST_DECODE)
        return interleave_decode(b, runners, test, repetition, error);
    for (uint32_t i = 0; i < b->variant_count; i++) {
        uint32_t number = (uint32_t)(((uint64_t)repetition + i) % b->variant_count);
        if (prefill(b, &runners[number], &b->test[test],
                    &b->variants[number].samples[test][repetition], error) != 0)
            return -1;
    }
    return 0;
}

int interleave_repetition(struct bench *b, int64_t repetition, struct error *error)
{
    struct runner *runners = calloc(b->variant_count, sizeof *runners);
    if (!runners)
        return error_set(error, ERR_NO_MEMORY, "out of memory (%u variants)", b->variant_count);
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < b->variant_count; i++) {
        uint32_t number = (uint32_t)(((uint64_t)repetition + i) % b->variant_count);
        rc = open_runner(b, &runners[number], number, repetition, error);
    }
    for (uint32_t test = 0; rc == 0 && test < b->test_count; test++)
        rc = one_test(b, runners, test, repetition, error);
    for (uint32_t i = 0; i < b->variant_count; i++)
        close_runner(&runners[i]);
    free(runners);
    return rc;
}
