/* SPDX-License-Identifier: Apache-2.0 */
/* Models whose indexer chooses fewer positions than a text has: the same text in any chunks, when
 * compute is killed, when sequences run together, and when a prompt continues where an earlier one
 * ended or parted from it. Keys of the indexer are in what is reserved. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/json/lookup.h"
#include "tests/harness/harness.h"
#include "tests/scenario/continued.h"

#define TOKENS    90
#define KEYS_MAX  24
#define DOCTOR_MS 120000
/* Fewer positions than a prompt has, or blocks with such; and all of them. */
#define SOME        "index_top_k=32", "index_top_k=4096"
#define SOME_BLOCKS "index_top_k=4", "index_top_k=512"

#define MLA                                                                                        \
    "dense_layers=1", "dense_inner=128", "kv_heads=1", "kv_rank=32", "q_rank=32",                  \
        "mla_key_size=24", "mla_value_size=16", "rope_dims=8", "shared_inner=64", "index_heads=4", \
        "index_size=32"

#define BLOCKS                                                                                     \
    "dense_layers=1", "dense_inner=128", "kv_heads=2", "rope_dims=16", "shared_count=1",           \
        "norm_top_k=1", "index_heads=2", "index_size=32", "index_block=8"

/* Every second layer has attention, over pools of four positions; a table of n-grams. */
#define POOLS                                                                                      \
    "shared_inner=64", "conv_taps=4", "delta_size=16", "delta_k_heads=2", "delta_v_heads=4",       \
        "delta_inner=64", "attention_step=2", "streams=4", "stream_rank=16", "ngram_size=3",       \
        "ngram_heads=2", "ngram_taps=4", "ngram_width=16", "ngram_rows=1000", "index_block=4",     \
        "index_heads=4", "index_size=32"

/* The same of layers with MLA, by gates, beside Kimi delta attention; four streams. */
#define GATED_POOLS                                                                                \
    "dense_layers=1", "dense_inner=128", "kv_heads=1", "kv_rank=32", "q_rank=32",                  \
        "mla_key_size=16", "mla_value_size=16", "shared_inner=64", "conv_taps=4", "delta_size=16", \
        "decay_bound=-5", "attention_step=2", "streams=4", "stream_steps=20", "stream_eps=1e-6",   \
        "index_block=4", "index_heads=4", "index_size=32"

/* MLA with limits, and streams that are weighed; layer 2 takes the choice of layer 1. */
#define WEIGHED                                                                                    \
    "norm_top_k=1", "expert_scale=2.8", "expert_limits=0.4", "streams=4", "stream_magnitude=2",    \
        "stream_eps=1e-6", "index_every=2"

/* Two layers with a window alone, then one with entries of 4 positions, one of 128, one of 4; a
 * table of experts in the first one. */
#define SOME_ENTRIES "index_top_k=8", "index_top_k=512"
#define ENTRIES                                                                                    \
    "kv_heads=1", "head_size=32", "q_rank=32", "output_groups=2", "output_rank=32", "window=32",   \
        "rope_dims=8", "rope_theta=160000", "rope_theta_window=10000", "index_heads=4",            \
        "index_size=32", "gating=4", "norm_top_k=1", "shared_count=1", "table_layers=1",           \
        "streams=4", "stream_steps=20", "stream_eps=1e-6"

/* In every second layer a window, whose ring is shorter than the context, of larger latents. */
#define WINDOWS                                                                                    \
    MLA, "head_size=0", "heads_window=2", "kv_rank_window=64", "mla_key_size_window=40",           \
        "mla_value_size_window=24", "window=32", "full_every=2", "rope_theta_window=500"

/* Of glm-dsa, each layer has an indexer, or, by the rule for long contexts, the first three. Of
 * minimax-m3, each key head has a choice of its own. */
enum { DEEPSEEK32, GLM_DSA, MINIMAX_M3, QWEN4EXP, GLM5_NEXT, DEEPSEEK4, DOTS3NOTE, HY_V4 };
static const struct shape {
    const char *some, *all, *keys[KEYS_MAX];
} shapes[] = {[DEEPSEEK32] = {SOME, {"arch=deepseek32", "layers=3", MLA, NULL}},
              [GLM_DSA] = {SOME, {"arch=glm-dsa", "layers=5", "context=1048576", MLA, NULL}},
              [MINIMAX_M3] = {SOME_BLOCKS, {"arch=minimax-m3", "layers=3", BLOCKS, NULL}},
              [QWEN4EXP] = {SOME, {"arch=qwen4exp", "layers=4", POOLS, NULL}},
              [GLM5_NEXT] = {SOME, {"arch=glm5-next", "layers=4", GATED_POOLS, NULL}},
              [DEEPSEEK4] = {SOME_ENTRIES, {"arch=deepseek4", "layers=5", ENTRIES, NULL}},
              [DOTS3NOTE] = {SOME, {"arch=dots3note", "layers=4", WINDOWS, NULL}},
              [HY_V4] = {SOME, {"arch=hy_v4", "layers=4", MLA, WEIGHED, NULL}}};

static char model[PATH_MAX];

static void make(const struct shape *s, const char *chosen)
{
    const char *keys[KEYS_MAX + 1];
    size_t n = 0;
    for (; s->keys[n]; n++)
        keys[n] = s->keys[n];
    keys[n] = chosen;
    keys[n + 1] = NULL;
    continued_make(model, keys);
}

static struct engine *start(const char *const options[])
{
    struct engine *e = engine_new();
    const char *args[12] = {"-m", model, "--ctx-size=2048"};
    for (size_t i = 0; options[i]; i++)
        args[3 + i] = options[i];
    engine_start(e, args);
    return e;
}

static void reference(const char *prompt, struct text *out)
{
    struct engine *e = start((const char *const[]){"--prefill-chunk=1", "--keep-kv=0", NULL});
    engine_generate(e, prompt, TOKENS, out);
    engine_stop(e);
}

/* With a kill among the tokens of the answer; then two prompts together. */
static void combination(const struct continued *c, const char *chunk)
{
    struct engine *e =
        start((const char *const[]){"--resident-experts=25", chunk, "--parallel=4", NULL});
    continued_after(e, c, 20, chunk);
    struct generation *g[4];
    for (size_t i = 0; i < ARRAY_LEN(g); i++)
        g[i] = generation_start(e, test_prompt(i % 2 ? 1 : c->prompt), c->tokens);
    for (size_t i = 0; i < ARRAY_LEN(g); i++) {
        struct text got;
        generation_finish(g[i], CONTINUED_MS, &got);
        if (i % 2 == 0)
            text_check_same(c->want, &got, "together");
        text_free(&got);
    }
    engine_stop(e);
}

static void same_text(const struct shape *s)
{
    static const char *const chunk[] = {"--prefill-chunk=7", "--prefill-chunk=64"};
    struct text want, all;
    const struct continued c = {.prompt = 2, .tokens = TOKENS, .want = &want};
    make(s, s->some);
    reference(test_prompt(2), &want);
    for (size_t i = 0; i < ARRAY_LEN(chunk); i++)
        combination(&c, chunk[i]);
    make(s, s->all); /* the same weights */
    reference(test_prompt(2), &all);
    CHECK(strcmp(all.text, want.text) != 0, "the choice changes nothing");
    text_free(&want);
    text_free(&all);
}

static void deepseek32(void)
{
    same_text(&shapes[DEEPSEEK32]);
}

static void glm_dsa(void)
{
    same_text(&shapes[GLM_DSA]);
}

static void minimax_m3(void)
{
    same_text(&shapes[MINIMAX_M3]);
}

static void qwen4exp(void)
{
    same_text(&shapes[QWEN4EXP]);
}

static void glm5_next(void)
{
    same_text(&shapes[GLM5_NEXT]);
}

static void deepseek4(void)
{
    same_text(&shapes[DEEPSEEK4]);
}

static void dots3note(void)
{
    same_text(&shapes[DOTS3NOTE]);
}

static void hy_v4(void)
{
    same_text(&shapes[HY_V4]);
}

/* What a table of experts names is requested before the layers that use it; not without prefetch,
 * and not if it is in memory. */
static void tables_are_read_early(void)
{
    static const struct {
        const char *experts, *policy;
        bool early;
    } cases[] = {{"--resident-experts=25", "--policy=prefetch=idle", true},
                 {"--resident-experts=25", "--policy=prefetch=none", false}};
    make(&shapes[DEEPSEEK4], shapes[DEEPSEEK4].some);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct engine *e = start((const char *const[]){cases[i].experts, cases[i].policy, NULL});
        struct text text;
        engine_generate(e, test_prompt(2), TOKENS, &text);
        text_free(&text);
        uint64_t layers = engine_counter(e, "compute", "known_layers");
        uint64_t sent = engine_counter(e, "compute", "demands");
        test_note("%s: %" PRIu64 " layers known early, %" PRIu64 " demands", cases[i].policy,
                  layers, sent);
        CHECK((layers > TOKENS / 4) == cases[i].early, "%s: %" PRIu64, cases[i].policy, layers);
        engine_stop(e);
    }
}

/* Prompts that part from an earlier one within its text, so that its rows are cut back. */
static void take_turns(const struct shape *s)
{
    const struct continued_turns turns = {
        .start = start,
        .alone = (const char *const[]){"--prefill-chunk=64", "--keep-kv=0", NULL},
        .reusing = (const char *const[]){"--resident-experts=50", "--prefill-chunk=16", NULL},
        .rounds = 6,
        .reused_min = 64};
    make(s, s->some);
    continued_turns(&turns, &(const struct continued){.prompt = 2, .tokens = TOKENS});
}

static void second_turns(void)
{
    take_turns(&shapes[GLM_DSA]);
}

static void second_turns_in_blocks(void)
{
    take_turns(&shapes[MINIMAX_M3]);
}

/* To a checkpoint, which may be within a pool. */
static void second_turns_with_pools(void)
{
    take_turns(&shapes[QWEN4EXP]);
}

static void second_turns_with_gates(void)
{
    take_turns(&shapes[GLM5_NEXT]);
}

/* Within entries, whose rows are in the state. */
static void second_turns_with_entries(void)
{
    take_turns(&shapes[DEEPSEEK4]);
}

/* Within a window, of which a checkpoint has a copy. */
static void second_turns_with_windows(void)
{
    take_turns(&shapes[DOTS3NOTE]);
}

static void second_turns_with_weights(void)
{
    take_turns(&shapes[HY_V4]);
}

/* 3 layers of 40 elements, and of 32 of the indexer's keys, in F16; 3 of two heads of keys and of
 * values, and 2 of 32 of the indexer's; 2 of 32 elements, and of 32 of the indexer's by fours; 5 of
 * 32 elements, 2 with a quarter of 64, and one with half a byte; 2 of 72 elements and a window, 2
 * of 40 and 32; 4 of 40 elements, and 3 of them of 32. */
static void inspected(void)
{
    make(&shapes[DEEPSEEK32], shapes[DEEPSEEK32].some);
    continued_inspect(model, "(432 bytes)  per token");
    make(&shapes[MINIMAX_M3], shapes[MINIMAX_M3].some);
    continued_inspect(model, "(896 bytes)  per token");
    make(&shapes[GLM5_NEXT], shapes[GLM5_NEXT].some);
    continued_inspect(model, "(160 bytes)  per token");
    make(&shapes[DEEPSEEK4], shapes[DEEPSEEK4].some);
    continued_inspect(model, "(384 bytes)  per token, 320 B of it in layers with a window");
    make(&shapes[DOTS3NOTE], shapes[DOTS3NOTE].some);
    continued_inspect(model, "(576 bytes)  per token, 288 B of it in layers with a window");
    make(&shapes[HY_V4], shapes[HY_V4].some);
    continued_inspect(model, "(512 bytes)  per token");
}

static json_t *doctor_of(const struct shape *s, const char *chosen)
{
    struct command c;
    make(s, chosen);
    command_run(&c, NULL, DOCTOR_MS,
                (const char *const[]){"doctor", "-m", model, "--no-device", "--json", "--ctx-size",
                                      "1024", NULL});
    json_t *doc = c.status == 0 ? json_loads(c.out, JSON_ALLOW_NUL, NULL) : NULL;
    CHECK(doc, "status %d: %.400s", c.status, c.err);
    command_free(&c);
    return doc;
}

/* What doctor's line about a full context says. */
static const char *full_context_of(const json_t *doc)
{
    const json_t *lines = json_object_get(doc, "lines");
    for (size_t i = 0; i < json_array_size(lines); i++) {
        const json_t *line = json_array_get(lines, i);
        if (strcmp(lookup_text(line, "name"), "full context") == 0)
            return lookup_text(line, "meaning");
    }
    return "";
}

/* 3 layers with rows of 40 and keys of 32 elements in F16: after 1024 tokens, 32 rows and all keys
 * are read; or all rows and no keys, if as many are chosen. With pools, 2 layers with rows of 32,
 * a key of four tokens, and the rest. Of hy_v4, 4 layers with such rows, and 3 with keys. */
static void doctor(void)
{
    static const struct {
        int shape;
        const char *chosen;
        uint64_t keys, rows, attended, bytes;
        const char *reads;
    } cases[] = {
        {DEEPSEEK32, "index_top_k=32", 3 * 1024 * 64, 3 * 32 * 80, 32, 432,
         " reads 192.0 KiB of the indexers' keys, and 7.5 KiB of keys and values of the 32 "
         "tokens that they choose"},
        {HY_V4, "index_top_k=32", 3 * 1024 * 64, 4 * 32 * 80, 32, 512,
         " reads 192.0 KiB of the indexers' keys, and 10.0 KiB of keys and values of the 32 "
         "tokens that they choose"},
        {DEEPSEEK32, "index_top_k=4096", 0, 3 * 1024 * 80, 1024, 432,
         " reads 240.0 KiB of keys and values"},
        {GLM5_NEXT, "index_top_k=32", 2 * 1024 * 64 / 4, 2 * 35 * 64, 35, 160,
         " reads 32.0 KiB of the indexers' keys, and 4.4 KiB of keys and values of the 35 "
         "tokens that they choose"}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        json_t *doc = doctor_of(&shapes[cases[i].shape], cases[i].chosen);
        uint64_t keys = lookup_u64(doc, "model.context.reads.index_read_bytes");
        uint64_t rows = lookup_u64(doc, "model.context.reads.kv_read_bytes");
        uint64_t attended = lookup_u64(doc, "model.context.reads.attended");
        CHECK(keys == cases[i].keys && rows == cases[i].rows && attended == cases[i].attended,
              "case %zu: %" PRIu64 " bytes of keys, %" PRIu64 " of rows, %" PRIu64 " positions", i,
              keys, rows, attended);
        CHECK(lookup_u64(doc, "model.context.measured_tokens") == 1024, "case %zu: %" PRIu64, i,
              lookup_u64(doc, "model.context.measured_tokens"));
        CHECK(lookup_u64(doc, "model.kv_cache") >= 1024 * cases[i].bytes,
              "keys of the indexer: %" PRIu64, lookup_u64(doc, "model.kv_cache"));
        const char *text = full_context_of(doc), *end = strstr(text, cases[i].reads);
        CHECK(end && end[strlen(cases[i].reads)] == 0, "case %zu: %s", i, text);
        json_decref(doc);
    }
}

/* Of entries and their keys, with a table of experts: a sequence of the model's shape is
 * computed. */
static void doctor_of_entries(void)
{
    struct command c;
    make(&shapes[DEEPSEEK4], shapes[DEEPSEEK4].some);
    command_run(&c, NULL, DOCTOR_MS,
                (const char *const[]){"doctor", "-m", model, "--no-device", "--json", "--ctx-size",
                                      "1024", NULL});
    json_t *doc = c.status == 0 ? json_loads(c.out, JSON_ALLOW_NUL, NULL) : NULL;
    CHECK(doc, "status %d: %.400s", c.status, c.err);
    uint64_t keys = lookup_u64(doc, "model.context.reads.index_read_bytes");
    uint64_t rows = lookup_u64(doc, "model.context.reads.kv_read_bytes");
    CHECK(keys == 2 * 256 * 64, "%" PRIu64 " bytes of keys", keys);
    CHECK(rows == 5 * 32 * 64 + (8 + 8 + 8) * 64, "%" PRIu64 " bytes of rows", rows);
    const char *end = strstr(full_context_of(doc), " of 32 tokens and 8 entries");
    CHECK(lookup_u64(doc, "model.context.reads.attended") == 32 &&
              lookup_u64(doc, "model.context.reads.entries") == 8 && end,
          "%s", full_context_of(doc));
    json_decref(doc);
    command_free(&c);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        ROW(deepseek32),
        ROW(glm_dsa),
        ROW(minimax_m3),
        ROW(qwen4exp),
        ROW(glm5_next),
        ROW(deepseek4),
        ROW(dots3note),
        ROW(hy_v4),
        ROW(tables_are_read_early),
        ROW(second_turns),
        ROW(second_turns_in_blocks),
        ROW(second_turns_with_pools),
        ROW(second_turns_with_gates),
        ROW(second_turns_with_entries),
        ROW(second_turns_with_windows),
        ROW(second_turns_with_weights),
        ROW(inspected),
        ROW(doctor),
        ROW(doctor_of_entries),
    };
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
