/* SPDX-License-Identifier: Apache-2.0 */
/* Models with windows: keys and values of these layers are in rings, many times shorter than the
 * context. The text is that of an engine whose chunk is so long that it has no rings: with any
 * chunk, when compute is killed within chunks and tokens, when a prompt continues where an earlier
 * one ended, within the ring, or from a checkpoint. */
#include <stdio.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "tests/harness/harness.h"
#include "tests/scenario/continued.h"

#define TOKENS   150 /* more than a ring can be cut back by */
#define KEYS_MAX 12

#define NO_RINGS "--prefill-chunk=2048" /* a ring would be longer than the context */

static const struct shape {
    const char *keys[KEYS_MAX];
} shapes[] = {
    {{"arch=gpt-oss", "layers=4", "window=64", "rope_scaling=2", "rope_factor=8", "rope_context=64",
      NULL}},
    {{"arch=gemma4", "layers=3", "dense_inner=128", "window=100", "full_every=3",
      "head_size_window=32", "value_size_window=32", "rope_dims_window=32", "full_v=0",
      "rope_theta_window=1000", NULL}},
};

static char model[PATH_MAX];

static void make(const struct shape *s)
{
    continued_make(model, s->keys);
}

static struct engine *start(const char *const options[])
{
    struct engine *e = engine_new();
    const char *args[12] = {"-m", model, "--ctx-size=2048", "--checkpoint-tokens=128"};
    for (size_t i = 0; options[i]; i++)
        args[4 + i] = options[i];
    engine_start(e, args);
    return e;
}

/* Returns the bytes that are reserved for keys and values. */
static uint64_t reference(const char *prompt, struct text *out)
{
    struct engine *e = start((const char *const[]){NO_RINGS, "--keep-kv=0", NULL});
    engine_generate(e, prompt, TOKENS, out);
    uint64_t bytes = continued_planned(e);
    engine_stop(e);
    return bytes;
}

/* ---- combinations ---- */

static void combination(const struct continued *c, uint64_t whole, const char *resident,
                        const char *chunk, size_t kill_after)
{
    struct engine *e = start((const char *const[]){resident, chunk, NULL});
    CHECK(continued_planned(e) < whole, "%s: %llu bytes, without rings %llu", chunk,
          (unsigned long long)continued_planned(e), (unsigned long long)whole);
    continued_after(e, c, kill_after, chunk);
    engine_stop(e);
}

static void combinations(const struct shape *s)
{
    static const char *const resident[] = {"--resident-experts=100", "--resident-experts=25"};
    static const char *const chunk[] = {"--prefill-chunk=1", "--prefill-chunk=7",
                                        "--prefill-chunk=29", "--prefill-chunk=160"};
    struct text want;
    const struct continued c = {.prompt = 2, .tokens = TOKENS, .want = &want};
    unsigned met = 0;
    make(s);
    uint64_t whole = reference(test_prompt(2), &want);
    for (unsigned i = 0; i < 16; i++)
        if (test_sample(EVERY_window_combinations, &met))
            combination(&c, whole, resident[i % 2], chunk[i / 2 % 4], i < 8 ? 0 : 20);
    text_free(&want);
}

static void gpt_oss(void)
{
    combinations(&shapes[0]);
}

static void gemma4(void)
{
    combinations(&shapes[1]);
}

/* ---- kills at points of the code ---- */

/* Within chunks and tokens, before a checkpoint is committed, and while a kept sequence changes
 * hands: the prompt is the same, so all but the first continue from the checkpoint near its end. */
static void killed_at_every_point(void)
{
    static const struct {
        const char *point;
        int passes;
    } points[] = {
        {"COMPUTE_PREFILL", 20},      {"COMPUTE_WINDOW_RESTORED", 0}, {"COMPUTE_SLOT_CUT", 0},
        {"COMPUTE_SLOT_TAKEN", 0},    {"COMPUTE_MID_TOKEN", 90},      {"COMPUTE_STATE_WRITTEN", 0},
        {"COMPUTE_STATE_WRITTEN", 1}, {"COMPUTE_STATE_WRITTEN", 120}, {"COMPUTE_SLOT_LOGGED", 0},
        {"COMPUTE_SLOT_KEPT", 0},     {"COMPUTE_WINDOW_RESTORED", 0}};
    struct text want;
    const struct continued c = {.prompt = 2, .tokens = TOKENS, .want = &want};
    unsigned met = 0;
    make(&shapes[0]);
    reference(test_prompt(2), &want);
    struct engine *e =
        start((const char *const[]){"--resident-experts=25", "--prefill-chunk=16", NULL});
    for (unsigned i = 0; i < ARRAY_LEN(points); i++)
        if (i < 2 || test_sample(EVERY_window_points, &met))
            continued_at(e, &c, points[i].point, points[i].passes);
    CHECK(engine_counter(e, "compute", "sequences_reused") > 0, "nothing was reused");
    text_free(&want);
    engine_stop(e);
}

/* ---- a second turn ---- */

/* The answer in between is longer than what a ring can be cut back by. */
static void second_turns(const struct shape *s)
{
    const struct continued_turns turns = {
        .start = start,
        .alone = (const char *const[]){NO_RINGS, "--keep-kv=0", NULL},
        .reusing = (const char *const[]){"--resident-experts=50", "--prefill-chunk=16", NULL},
        .rounds = 8,
        .reused_min = 128};
    make(s);
    continued_turns(&turns, &(const struct continued){.prompt = 2, .tokens = TOKENS});
}

static void gpt_oss_second_turns(void)
{
    second_turns(&shapes[0]);
}

static void gemma4_second_turns(void)
{
    second_turns(&shapes[1]);
}

/* The conversation with its answer as the next prompt: all of it is in the ring. */
static void a_turn_that_extends(void)
{
    struct text first, got, want;
    char prompt[8192];
    make(&shapes[0]);
    struct engine *e = start((const char *const[]){"--prefill-chunk=16", NULL});
    engine_generate(e, test_prompt(2), TOKENS, &first);
    snprintf(prompt, sizeof prompt, "%s%s Then", test_prompt(2), first.text);
    engine_generate(e, prompt, TOKENS, &got);
    uint64_t cached = lookup_u64(got.stats, "cached_tokens");
    engine_stop(e);
    reference(prompt, &want);
    text_check_same(&want, &got, "a turn that extends");
    CHECK(cached > 128, "%llu tokens reused", (unsigned long long)cached);
    text_free(&first);
    text_free(&got);
    text_free(&want);
}

/* ---- memory ---- */

/* What is reserved and used does not grow with the context, but in layers without a window. */
static void memory_is_bounded(void)
{
    struct text got, want;
    make(&shapes[0]);
    uint64_t whole = reference(test_prompt(2), &want);
    struct engine *e = start((const char *const[]){"--prefill-chunk=32", NULL});
    uint64_t bytes = continued_planned(e);
    engine_generate(e, test_prompt(2), TOKENS, &got);
    text_check_same(&want, &got, "memory");
    uint64_t used = engine_counter(e, "compute", "kv_bytes");
    uint64_t states = engine_counter(e, "compute", "state_bytes");
    engine_stop(e);
    test_note("%llu bytes reserved, %llu without rings; %llu used, of them %llu checkpoints",
              (unsigned long long)bytes, (unsigned long long)whole, (unsigned long long)used,
              (unsigned long long)states);
    /* half of the layers: a ring of 128 and four checkpoints of 128 positions instead of 2048 */
    CHECK(bytes == whole / 2 + whole / 2 * 5 / 16, "%llu bytes of %llu", (unsigned long long)bytes,
          (unsigned long long)whole);
    CHECK(states > 0 && used <= bytes, "%llu bytes used", (unsigned long long)used);
    text_free(&got);
    text_free(&want);
}

/* Keys and values in F16 of 2 of 4 layers have a window. */
static void inspected(void)
{
    make(&shapes[0]);
    continued_inspect(model, "(1024 bytes)  per token, 512 B of it in layers with a window\n");
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        ROW(gpt_oss),
        ROW(gemma4),
        ROW(killed_at_every_point),
        ROW(gpt_oss_second_turns),
        ROW(gemma4_second_turns),
        ROW(a_turn_that_extends),
        ROW(memory_is_bounded),
        ROW(inspected),
    };
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
