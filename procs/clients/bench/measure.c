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
#include "lib/synthetic/token_stream.h"
#include "procs/clients/bench/bench.h"
#include "procs/clients/common/cpu_time.h"
#include "procs/clients/common/stream.h"

#define SETTLE_POLL_NS  (NS_PER_S / 10)
#define SETTLE_LIMIT_NS (60 * NS_PER_S)

/* Tokens of a test without its context. The first new token comes from the prompt's pass: a decode
 * of n steps has n + 1 new ones. */
static size_t tokens_of(const struct bench *b, enum test_kind kind, bool warmup)
{
    if ((kind == TEST_PREFILL ? b->prompt : b->tokens) == 0)
        return 0;
    int64_t decoded = warmup && b->warmup_tokens >= 0 ? b->warmup_tokens : b->tokens;
    return (size_t)(kind == TEST_PREFILL ? b->prompt + 1 : decoded + 2);
}

/* Warm-up rounds have no context. */
static size_t tokens_needed(const struct bench *b, bool warmup)
{
    return (warmup ? 0 : (size_t)tests_deepest(b)) + tokens_of(b, TEST_PREFILL, warmup) +
           tokens_of(b, TEST_DECODE, warmup) * b->sequences_max;
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
    t->free = b->free;
    for (int kind = 0; kind < TEST__COUNT; kind++)
        t->count[kind] = tokens_of(b, (enum test_kind)kind, warmup);
    t->context = n - t->count[TEST_PREFILL] - t->count[TEST_DECODE] * b->sequences_max;
    t->ids = malloc(n * sizeof *t->ids);
    t->request = malloc(n * sizeof *t->request);
    if (!t->ids || !t->request)
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

void tokens_free(struct tokens *t)
{
    free(t->ids);
    free(t->request);
    t->ids = t->request = NULL;
}

/* A request of the first `prompt` tokens in t->request, then `forced` forced ones. With a context
 * it uses the keys and values that the sequence before it left, and leaves its own. */
static struct engine_submit request_of(const struct tokens *t, const struct test *test,
                                       size_t prompt, size_t forced)
{
    struct engine_submit submit;
    engine_submit_defaults(&submit);
    submit.prompt_ids = t->request;
    submit.prompt_ids_count = prompt;
    submit.forced = t->request + prompt;
    submit.forced_count = forced;
    submit.max_tokens = (int64_t)forced;
    submit.ignore_eos = true;
    submit.cache_prompt = test->depth > 0;
    submit.sampling.temperature = 0;
    return submit;
}

/* Context, a prompt, then forced tokens. number: of the sequences that decode together. */
static struct engine_submit test_request(const struct bench *b, const struct tokens *t,
                                         const struct test *test, uint32_t number)
{
    size_t depth = (size_t)test->depth, count = t->count[test->kind];
    size_t at = t->context + (test->kind == TEST_PREFILL ? 0 : t->count[TEST_PREFILL]);
    at += number * count;
    size_t prompt = test->kind == TEST_PREFILL ? (size_t)b->prompt : 1;
    sl_assert(depth <= t->context);
    memcpy(t->request, t->ids, depth * sizeof *t->ids);
    memcpy(t->request + depth, t->ids + at, count * sizeof *t->ids);
    struct engine_submit submit = request_of(t, test, depth + prompt, count - prompt);
    if (test->kind == TEST_DECODE && b->grammar.kind != GRAMMAR_NONE) {
        if (!t->free)
            submit.grammar = b->grammar;
        submit.forced = NULL;
        submit.forced_count = 0;
    }
    return submit;
}

int sequence_start(const struct bench *b, struct session *s, const struct tokens *t,
                   const struct test *test, uint32_t number, uint64_t *id, struct error *error)
{
    struct engine_submit submit = test_request(b, t, test, number);
    return stream_submit(s, &submit, id, error);
}

int sequence_ended(struct stream_result *result, struct error *error)
{
    if (strcmp(result->finish, "length") == 0)
        return 0;
    bool cancelled = strcmp(result->finish, "cancelled") == 0;
    stream_result_free(result);
    return cancelled ? error_set(error, ERR_CANCELLED,
                                 session_stop ? "interrupted" : "the engine cancelled a sequence")
                     : error_set(error, ERR_FAILED,
                                 "a sequence ended before its last token (a grammar must leave "
                                 "room for all)");
}

static int sequence(struct session *s, struct engine_submit *submit, struct stream_result *result,
                    struct error *error)
{
    if (stream_run(s, submit, NULL, NULL, result, error) != 0)
        return -1;
    return sequence_ended(result, error);
}

int context_fill(const struct bench *b, struct session *s, const struct tokens *t,
                 const struct test *test, struct error *error)
{
    struct stream_result result;
    if (test->depth == 0)
        return 0;
    struct engine_submit submit = test_request(b, t, test, 0);
    submit = request_of(t, test, (size_t)test->depth, 1);
    if (sequence(s, &submit, &result, error) != 0)
        return -1;
    stream_result_free(&result);
    return 0;
}

static double real(const json_t *stats, const char *key)
{
    return json_number_value(json_object_get(stats, key));
}

static void fill_sample(struct sample *out, const json_t *stats, enum test_kind kind)
{
    double prefill_tps = real(stats, "prefill_tps"), decode_tps = real(stats, "decode_tps");
    double prompt = real(stats, "prompt_tokens") - real(stats, "cached_tokens");
    double tokens = real(stats, "tokens");
    double steps = tokens > 1 ? tokens - 1 : 0;
    *out = (struct sample){
        .tps = kind == TEST_PREFILL ? prefill_tps : decode_tps,
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

json_t *stats_with_cpu(struct session *s)
{
    json_t *doc = session_stats(s);
    for (size_t i = 0; i < lookup_processes(doc); i++) {
        const json_t *row = lookup_row(doc, i);
        uint64_t ns = cpu_time_ns((pid_t)json_integer_value(json_object_get(row, "pid")));
        json_object_set_new(json_object_get(row, "counters"), "cpu_ns",
                            json_integer((json_int_t)ns));
    }
    return doc;
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

/* Compute continues on the CPU, whose speed is another one. */
static bool lost_gpu(const json_t *stats)
{
    for (size_t i = 0; i < lookup_processes(stats); i++)
        if (counter_of(json_object_get(lookup_row(stats, i), "counters"), "gpu_lost") != 0)
            return true;
    return false;
}

int sample_take(struct sample *out, const struct stream_result *result, const json_t *before,
                const json_t *after, const struct test *test, struct error *error)
{
    uint64_t kept = lookup_u64(result->stats, "cached_tokens");
    fill_sample(out, result->stats, test->kind);
    out->counters = counters_grown(before, after);
    uint64_t cpu = counter_of(json_object_get(out->counters, "compute"), "cpu_ns");
    out->cpu_tps = cpu > 0 ? out->tokens * (double)NS_PER_S / (double)cpu : 0;
    if (lost_gpu(after))
        return error_set(error, ERR_FAILED,
                         "the GPU is lost, and compute continues on the CPU (--verbose shows why)");
    /* the speed of decode is right in any case: its time begins at the first new token */
    if (test->kind == TEST_DECODE || kept == (uint64_t)test->depth)
        return 0;
    return error_set(error, ERR_FAILED,
                     "-d: the engine kept %" PRIu64 " of %" PRId64 " tokens of the context (preset "
                     "%.40s, --keep-kv); its prefill speed is not known",
                     kept, test->depth, out->preset);
}

/* Runs one measured sequence, with the growth of all counters. */
static int measured(struct session *s, struct engine_submit *submit, const struct test *test,
                    struct sample *out, struct error *error)
{
    struct stream_result result;
    json_t *before = stats_with_cpu(s);
    int rc = sequence(s, submit, &result, error);
    if (rc == 0) {
        json_t *after = stats_with_cpu(s);
        rc = sample_take(out, &result, before, after, test, error);
        json_decref(after);
        stream_result_free(&result);
    }
    json_decref(before);
    return rc;
}

int run_test(const struct bench *b, struct session *s, const struct tokens *t,
             const struct test *test, struct sample *out, struct error *error)
{
    struct stream_result result;
    if (t->count[test->kind] == 0)
        return 0;
    if (context_fill(b, s, t, test, error) != 0)
        return -1;
    if (test->kind == TEST_DECODE && b->sequences > 1)
        return run_together(b, s, t, test, out, error);
    struct engine_submit submit = test_request(b, t, test, 0);
    if (out)
        return measured(s, &submit, test, out, error);
    if (sequence(s, &submit, &result, error) != 0)
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
    b->sequences = (uint32_t)variant->params.parallel;
    b->free = variant->free;
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
        struct tokens t = {.ids = NULL};
        int rc = repetition_tokens(b, 0, w, &t, error);
        for (int kind = 0; rc == 0 && kind < TEST__COUNT; kind++) {
            struct test test = {.kind = (enum test_kind)kind};
            rc = run_test(b, s, &t, &test, NULL, error);
        }
        tokens_free(&t);
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
    for (uint32_t i = 0; rc == 0 && i < b->test_count; i++)
        rc = run_test(b, &session, &t, &b->test[i], &variant->samples[i][repetition], error);
    tokens_free(&t);
    session_close(&session);
    return rc;
}

static void report_repetition(const struct bench *b, uint32_t number, int64_t repetition)
{
    const struct variant *variant = &b->variants[number];
    fprintf(stderr,
            "bench: repetition %" PRId64 " of %" PRId64 ", variant %u of %u (%s):", repetition + 1,
            b->repetitions, number + 1, b->variant_count, variant->label);
    for (uint32_t i = 0; i < b->test_count; i++) {
        char name[TEST_NAME_BYTES];
        test_name(b, &b->test[i], name);
        fprintf(stderr, "%s %s %.2f t/s", i ? "," : "", name, variant->samples[i][repetition].tps);
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
