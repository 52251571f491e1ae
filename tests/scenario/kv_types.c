/* SPDX-License-Identifier: Apache-2.0 */
/* Every type of the KV cache: one text for any chunk, thread count and kill, within the bytes that
 * the ledger reserved before the start; kept rows serve the next prompt. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/tensor/kv_type.h"
#include "tests/harness/harness.h"

#define TOKENS  60
#define CONTEXT 512
#define WAIT_MS 120000

static struct engine *start(const char *type, const char *first, const char *second)
{
    char option[32], context[32];
    struct engine *e = engine_new();
    snprintf(option, sizeof option, "--kv-type=%s", type);
    snprintf(context, sizeof context, "--ctx-size=%d", CONTEXT);
    engine_start(e, (const char *const[]){option, context, first, second, NULL});
    return e;
}

/* The texts of a type with the default options. */
static void texts_of(const char *type, struct text text[TEST_PROMPTS])
{
    struct engine *e = start(type, "--prefill-chunk=256", "--resident-experts=100");
    for (unsigned i = 0; i < TEST_PROMPTS; i++)
        engine_generate(e, test_prompt(i), TOKENS, &text[i]);
    engine_stop(e);
}

static void texts_free(struct text text[TEST_PROMPTS])
{
    for (unsigned i = 0; i < TEST_PROMPTS; i++)
        text_free(&text[i]);
}

static void check_texts(struct engine *e, const struct text want[TEST_PROMPTS], const char *what)
{
    for (unsigned i = 0; i < TEST_PROMPTS; i++) {
        struct text got;
        engine_generate(e, test_prompt(i), TOKENS, &got);
        text_check_same(&want[i], &got, what);
        text_free(&got);
    }
}

static void one_text(const char *type)
{
    static const char *const options[][2] = {{"--prefill-chunk=1", "--threads=2"},
                                             {"--prefill-chunk=7", "--threads=1"},
                                             {"--prefill-chunk=64", "--threads=2"},
                                             {"--prefill-chunk=64", "--isa=generic"},
                                             {"--prefill-chunk=7", "--isa=avx2"}};
    struct text want[TEST_PROMPTS];
    texts_of(type, want);
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        struct engine *e = start(type, options[i][0], options[i][1]);
        check_texts(e, want, options[i][1]);
        engine_stop(e);
    }
    texts_free(want);
}

/* compute is killed in the middle of each text, once per prompt. */
static void killed(const char *type)
{
    struct text want[TEST_PROMPTS];
    texts_of(type, want);
    struct engine *e = start(type, "--prefill-chunk=64", "--resident-experts=25");
    for (unsigned i = 0; i < TEST_PROMPTS; i++) {
        struct text got;
        pid_t pid = engine_pid(e, "compute", 0, 0);
        struct generation *g = generation_start(e, test_prompt(i), TOKENS);
        uint64_t deadline = deadline_in(WAIT_MS);
        while (generation_tokens(g) < 10 + 15 * i)
            CHECK(deadline_tick(deadline), "no tokens");
        CHECK(kill(pid, SIGKILL) == 0, "kill failed");
        generation_finish(g, WAIT_MS, &got);
        text_check_same(&want[i], &got, "killed");
        text_free(&got);
        engine_pid(e, "compute", 0, pid);
    }
    CHECK(engine_restarts(e, "compute", 0) == TEST_PROMPTS, "not killed %d times", TEST_PROMPTS);
    texts_free(want);
    engine_stop(e);
}

static uint64_t reserved_bytes(struct engine *e)
{
    json_t *doc = engine_stats(e);
    uint64_t bytes = lookup_u64(doc, "memory.plan.kv_bytes");
    json_decref(doc);
    return bytes;
}

/* What `run` states without a start. */
static uint64_t stated_bytes(const char *type)
{
    char option[32], context[32];
    struct command c;
    snprintf(option, sizeof option, "--kv-type=%s", type);
    snprintf(context, sizeof context, "--ctx-size=%d", CONTEXT);
    command_run(
        &c, NULL, WAIT_MS,
        (const char *const[]){"run", "-m", test_model(), option, context, "--print-memory", NULL});
    CHECK(c.status == 0, "status %d: %.300s", c.status, c.err);
    json_t *doc = json_loads(c.out, JSON_ALLOW_NUL, NULL);
    CHECK(doc, "not JSON: %.200s", c.out);
    uint64_t bytes = lookup_u64(doc, "kv_bytes");
    json_decref(doc);
    command_free(&c);
    return bytes;
}

/* The ledger reserves what the table and `run --print-memory` state, and a sequence as long as the
 * context uses that. */
static void within_ledger(const char *type)
{
    const struct kv_type_info *info = kv_type_info((uint32_t)kv_type_find(type));
    uint64_t stated = stated_bytes(type);
    struct engine *e = start(type, "--prefill-chunk=64", "--resident-experts=50");
    json_t *doc = engine_stats(e);
    uint64_t layers = lookup_u64(doc, "model.layers");
    json_decref(doc);
    uint64_t reserved = reserved_bytes(e), f16 = 0, largest = 0;
    struct text got;
    struct generation *g = generation_start(e, test_prompt(0), CONTEXT - 32);
    while (!generation_done(g)) {
        uint64_t bytes = engine_counter(e, "compute", "kv_bytes");
        largest = bytes > largest ? bytes : largest;
    }
    generation_finish(g, WAIT_MS, &got);
    CHECK(got.count == CONTEXT - 32, "%zu tokens", got.count);
    CHECK(stated == reserved, "%llu bytes stated, %llu reserved", (unsigned long long)stated,
          (unsigned long long)reserved);
    CHECK(largest == reserved, "%llu bytes used, %llu reserved", (unsigned long long)largest,
          (unsigned long long)reserved);
    text_free(&got);
    engine_stop(e);
    e = start("f16", "--prefill-chunk=64", "--resident-experts=50");
    f16 = reserved_bytes(e);
    engine_stop(e);
    uint64_t want = f16 * info->block_bytes / info->block / 2;
    CHECK(reserved >= want && reserved <= want + 2 * layers * PAGE_BYTES,
          "%s reserves %llu bytes, f16 %llu", type, (unsigned long long)reserved,
          (unsigned long long)f16);
}

/* The second prompt begins with the first one's tokens. */
static void kept(const char *type)
{
    struct text first, again;
    struct engine *e = start(type, "--prefill-chunk=64", "--threads=2");
    engine_generate(e, test_prompt(2), TOKENS, &first);
    engine_generate(e, test_prompt(2), TOKENS, &again);
    text_check_same(&first, &again, "kept");
    CHECK(lookup_u64(again.stats, "cached_tokens") > 100, "%llu tokens reused",
          (unsigned long long)lookup_u64(again.stats, "cached_tokens"));
    text_free(&first);
    text_free(&again);
    engine_stop(e);
}

#define CASES(type)                                                                                \
    static void type##_one_text(void)                                                              \
    {                                                                                              \
        one_text(#type);                                                                           \
    }                                                                                              \
    static void type##_killed(void)                                                                \
    {                                                                                              \
        killed(#type);                                                                             \
    }                                                                                              \
    static void type##_within_ledger(void)                                                         \
    {                                                                                              \
        within_ledger(#type);                                                                      \
    }                                                                                              \
    static void type##_kept(void)                                                                  \
    {                                                                                              \
        kept(#type);                                                                               \
    }

CASES(f16)
CASES(q8_0)
CASES(q4_0)

/* One line, exit 2, in every program that takes the parameter. */
static void unknown_type(void)
{
    static const char *const programs[] = {"run", "generate", "bench", "doctor", "repl", "eval"};
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) {
        struct command c;
        command_run(&c, "", WAIT_MS,
                    (const char *const[]){programs[i], "-m", test_model(), "--kv-type=q5_0", NULL});
        CHECK(c.status == 2 && command_lines(c.err) == 1 && strstr(c.err, "f16"),
              "%s: status %d: %.300s", programs[i], c.status, c.err);
        command_free(&c);
    }
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        ROW(f16_one_text),  ROW(f16_killed),  ROW(f16_within_ledger),  ROW(f16_kept),
        ROW(q8_0_one_text), ROW(q8_0_killed), ROW(q8_0_within_ledger), ROW(q8_0_kept),
        ROW(q4_0_one_text), ROW(q4_0_killed), ROW(q4_0_within_ledger), ROW(q4_0_kept),
        ROW(unknown_type),
    };
    return test_main(argc, argv, cases, sizeof cases / sizeof *cases);
}
