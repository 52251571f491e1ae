/* SPDX-License-Identifier: Apache-2.0 */
/* One repetition of one variant: a private engine, warm-up, then prefill and decode as two
 * sequences with separate statistics. Tokens are forced: every variant computes the same ones. With
 * --interleave the variants of a repetition run concurrently instead: interleave.c. */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "lib/base/assert.h"
#include "lib/base/clock.h"
#include "lib/json/lookup.h"
#include "procs/clients/bench/bench.h"
#include "procs/clients/common/stream.h"
#include "procs/clients/common/token_stream.h"

#define SETTLE_POLL_NS  (NS_PER_S / 10)
#define SETTLE_LIMIT_NS (60 * NS_PER_S)

/* Tokens of a test. The first new token comes from the prompt's pass: a decode of n steps has n + 1
 * new ones. */
static size_t tokens_of(const struct bench *b, enum bench_test test, bool warmup)
{
    if (!test_wanted(b, test))
        return 0;
    int64_t decoded = warmup && b->warmup_tokens >= 0 ? b->warmup_tokens : b->tokens;
    return (size_t)(test == TEST_PREFILL ? b->prompt + 1 : decoded + 2);
}

static size_t tokens_needed(const struct bench *b, bool warmup)
{
    return tokens_of(b, TEST_PREFILL, warmup) + tokens_of(b, TEST_DECODE, warmup);
}

int stream_check(const struct bench *b, struct error *error)
{
    size_t measured = tokens_needed(b, false);
    size_t warm = b->warmup > 0 ? tokens_needed(b, true) : 0;
    size_t max = warm > measured ? warm : measured;
    if (b->text_ids && b->text_count < max)
        return error_set(error, ERR_BAD_INPUT, "%.200s has %zu tokens, but a repetition needs %zu",
                         b->text_path, b->text_count, max);
    return 0;
}

/* Tokens of a repetition: the same in every variant, different in every repetition and in the
 * warm-up. Those of a text start at offsets spread over it. */
static int make_tokens(const struct bench *b, uint64_t number, uint32_t vocab, struct tokens *t,
                       struct error *error)
{
    bool warmup = number >= (uint64_t)b->repetitions;
    size_t n = tokens_needed(b, warmup);
    for (int test = 0; test < TEST__COUNT; test++)
        t->count[test] = tokens_of(b, (enum bench_test)test, warmup);
    t->ids = malloc(n * sizeof *t->ids);
    if (!t->ids)
        return error_set(error, ERR_NO_MEMORY, "out of memory (%zu tokens)", n);
    if (!b->text_ids) {
        token_stream_fill((uint64_t)b->seed + number, b->stay, vocab, t->ids, n);
        return 0;
    }
    uint64_t rounds = (uint64_t)(b->repetitions + b->warmup);
    size_t first = (size_t)((double)(b->text_count - n) * (double)number / (double)rounds);
    memcpy(t->ids, b->text_ids + first, n * sizeof *t->ids);
    return 0;
}

/* The request of a test: a prompt, then forced tokens. */
static struct engine_submit request_of(const struct bench *b, const struct tokens *t,
                                       enum bench_test test)
{
    struct engine_submit submit;
    engine_submit_defaults(&submit);
    submit.prompt_ids = t->ids + (test == TEST_PREFILL ? 0 : t->count[TEST_PREFILL]);
    submit.prompt_ids_count = test == TEST_PREFILL ? (size_t)b->prompt : 1;
    submit.forced = submit.prompt_ids + submit.prompt_ids_count;
    submit.forced_count = t->count[test] - submit.prompt_ids_count;
    submit.max_tokens = (int64_t)submit.forced_count;
    submit.ignore_eos = true;
    submit.cache_prompt = false;
    submit.sampling.temperature = 0;
    return submit;
}

int sequence_start(const struct bench *b, struct session *s, const struct tokens *t,
                   enum bench_test test, uint64_t *id, struct error *error)
{
    struct engine_submit submit = request_of(b, t, test);
    return stream_submit(s, &submit, id, error);
}

int sequence_ended(struct stream_result *result, struct error *error)
{
    if (strcmp(result->finish, "length") == 0)
        return 0;
    bool cancelled = strcmp(result->finish, "cancelled") == 0;
    stream_result_free(result);
    return cancelled ? error_set(error, ERR_CANCELLED, "interrupted")
                     : error_set(error, ERR_FAILED, "a sequence ended before its last token");
}

static int sequence(const struct bench *b, struct session *s, const struct tokens *t,
                    enum bench_test test, struct stream_result *result, struct error *error)
{
    struct engine_submit submit = request_of(b, t, test);
    if (stream_run(s, &submit, NULL, NULL, result, error) != 0)
        return -1;
    return sequence_ended(result, error);
}

static double real(const json_t *stats, const char *key)
{
    return json_number_value(json_object_get(stats, key));
}

static void fill_sample(struct sample *out, const json_t *stats, enum bench_test test)
{
    double prefill_tps = real(stats, "prefill_tps"), decode_tps = real(stats, "decode_tps");
    double prompt = real(stats, "prompt_tokens"), tokens = real(stats, "tokens");
    double steps = tokens > 1 ? tokens - 1 : 0;
    *out = (struct sample){
        .tps = test == TEST_PREFILL ? prefill_tps : decode_tps,
        .ms = 1e3 * ((prefill_tps > 0 ? prompt / prefill_tps : 0) +
                     (decode_tps > 0 ? steps / decode_tps : 0)),
        .stall_ms = real(stats, "stall_ms"),
        .tokens = prompt + steps,
        .bytes_read = real(stats, "bytes_read"),
        .hits = real(stats, "hits"),
        .hits_inflight = real(stats, "hits_inflight"),
        .misses = real(stats, "misses"),
        .skipped = real(stats, "skipped"),
        .low_precision = real(stats, "low_precision_accesses"),
        .peak_memory = real(stats, "peak_memory_bytes"),
        .arena = real(stats, "arena_bytes"),
        .restarts = real(stats, "restarts"),
    };
    snprintf(out->preset, sizeof out->preset, "%s", lookup_text(stats, "preset"));
}

static uint64_t counter_of(const json_t *counters, const char *name)
{
    return (uint64_t)json_integer_value(json_object_get(counters, name));
}

/* Growth of every counter, summed over the processes of a service; too small for a process that
 * restarted meanwhile (see "restarts"). New reference. */
static json_t *counters_grown(const json_t *before, const json_t *after)
{
    json_t *all = json_object();
    for (size_t i = 0; i < lookup_processes(after); i++) {
        json_t *row = (json_t *)(uintptr_t)lookup_row(after, i);
        const char *service = lookup_text(row, "service"), *name;
        const json_t *then = json_object_get(lookup_row(before, i), "counters");
        json_t *now = json_object_get(row, "counters"), *value;
        json_t *of = json_object_get(all, service);
        if (!of)
            json_object_set_new(all, service, of = json_object());
        json_object_foreach(now, name, value)
        {
            uint64_t x = counter_of(then, name), y = (uint64_t)json_integer_value(value);
            if (y > x)
                json_object_set_new(of, name,
                                    json_integer((json_int_t)(counter_of(of, name) + y - x)));
        }
    }
    return all;
}

void sample_take(struct sample *out, const struct stream_result *result, const json_t *before,
                 const json_t *after, enum bench_test test)
{
    fill_sample(out, result->stats, test);
    out->counters = counters_grown(before, after);
}

/* Runs one measured sequence, with the growth of all counters. */
static int measured(const struct bench *b, struct session *s, const struct tokens *t,
                    enum bench_test test, struct sample *out, struct error *error)
{
    struct stream_result result;
    json_t *before = session_stats(s);
    int rc = sequence(b, s, t, test, &result, error);
    if (rc == 0) {
        json_t *after = session_stats(s);
        sample_take(out, &result, before, after, test);
        json_decref(after);
        stream_result_free(&result);
    }
    json_decref(before);
    return rc;
}

int run_test(const struct bench *b, struct session *s, const struct tokens *t, enum bench_test test,
             struct sample *out, struct error *error)
{
    struct stream_result result;
    if (!test_wanted(b, test))
        return 0;
    if (out)
        return measured(b, s, t, test, out, error);
    if (sequence(b, s, t, test, &result, error) != 0)
        return -1;
    stream_result_free(&result);
    return 0;
}

/* Drops the file from the page cache. */
static void drop_cache(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
}

int variant_open(struct bench *b, const struct variant *variant, uint32_t number, struct session *s,
                 struct error *error)
{
    char run[RUN_NAME_MAX + 1];
    snprintf(run, sizeof run, "bench-%ld-%u", (long)getpid(), number + 1);
    struct session_request request = {.command = "bench",
                                      .run = run,
                                      .model = b->model,
                                      .params = variant->params,
                                      .verbose = b->verbose};
    if (b->cold)
        drop_cache(b->model);
    if (session_open(s, &request, error) != 0)
        return -1;
    json_decref(b->snapshot);
    b->snapshot = session_stats(s);
    return 0;
}

int repetition_tokens(const struct bench *b, int64_t repetition, int64_t warmup, struct tokens *t,
                      struct error *error)
{
    uint32_t vocab = (uint32_t)lookup_u64(b->snapshot, "model.vocab");
    if (vocab == 0)
        return error_set(error, ERR_FAILED,
                         "the engine does not report the size of the vocabulary");
    uint64_t number = (uint64_t)(warmup > 0 ? b->repetitions - 1 + warmup : repetition);
    return make_tokens(b, number, vocab, t, error);
}

static bool reads_between(const json_t *before, const json_t *after)
{
    json_t *grown = counters_grown(before, after);
    bool any = counter_of(json_object_get(grown, "loader"), "bytes_read") > 0;
    json_decref(grown);
    return any;
}

/* Some presets keep loading experts into free capacity after a sequence. Those reads belong to no
 * test, so wait for them, at most SETTLE_LIMIT_NS. */
static void settle(struct session *s)
{
    const struct timespec interval = {.tv_nsec = SETTLE_POLL_NS};
    json_t *before = session_stats(s);
    bool reading = true;
    for (uint64_t start_ns = clock_now_ns();
         reading && clock_now_ns() - start_ns < SETTLE_LIMIT_NS;) {
        nanosleep(&interval, NULL);
        json_t *after = session_stats(s);
        reading = reads_between(before, after);
        json_decref(before);
        before = after;
    }
    json_decref(before);
    if (reading)
        fprintf(stderr,
                "bench: the engine still reads one minute after the warm-up; measuring anyway\n");
}

int variant_warm_up(const struct bench *b, struct session *s, struct error *error)
{
    for (int64_t w = b->warmup; w > 0; w--) {
        struct tokens t;
        if (repetition_tokens(b, 0, w, &t, error) != 0)
            return -1;
        int rc = run_test(b, s, &t, TEST_PREFILL, NULL, error);
        if (rc == 0)
            rc = run_test(b, s, &t, TEST_DECODE, NULL, error);
        free(t.ids);
        if (rc != 0)
            return -1;
    }
    if (b->warmup > 0)
        settle(s);
    return 0;
}

static int run_variant(struct bench *b, struct variant *variant, uint32_t number,
                       int64_t repetition, struct error *error)
{
    struct session session;
    struct tokens t = {.ids = NULL};
    if (variant_open(b, variant, number, &session, error) != 0)
        return -1;
    int rc = variant_warm_up(b, &session, error);
    if (rc == 0)
        rc = repetition_tokens(b, repetition, 0, &t, error);
    for (int test = 0; rc == 0 && test < TEST__COUNT; test++)
        if (test_wanted(b, (enum bench_test)test))
            rc = run_test(b, &session, &t, (enum bench_test)test,
                          &variant->samples[test][repetition], error);
    free(t.ids);
    session_close(&session);
    return rc;
}

static void report_repetition(const struct bench *b, uint32_t number, int64_t repetition)
{
    const struct variant *variant = &b->variants[number];
    fprintf(stderr,
            "bench: repetition %" PRId64 " of %" PRId64 ", variant %u of %u (%s):", repetition + 1,
            b->repetitions, number + 1, b->variant_count, variant->label);
    for (int test = 0; test < TEST__COUNT; test++) {
        char name[32];
        if (!test_wanted(b, (enum bench_test)test))
            continue;
        test_name(b, (enum bench_test)test, name);
        fprintf(stderr, " %s %.2f t/s", name, variant->samples[test][repetition].tps);
    }
    fprintf(stderr, "\n");
}

int measure_all(struct bench *b, struct error *error)
{
    uint32_t *order = b->order;
    for (int64_t r = 0; r < b->repetitions; r++) {
        if (b->slice_tokens > 0 && interleave_repetition(b, r, error) != 0)
            return -1;
        for (uint32_t i = 0; i < b->variant_count; i++) {
            /* Another variant is first in every repetition, so that changes of the machine affect
             * all alike. */
            uint32_t number = (uint32_t)(((uint64_t)r + i) % b->variant_count);
            if (b->slice_tokens == 0 && run_variant(b, &b->variants[number], number, r, error) != 0)
                return -1;
            *order++ = number;
            report_repetition(b, number, r);
        }
    }
    return 0;
}
