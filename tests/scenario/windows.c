/* SPDX-License-Identifier: Apache-2.0 */
/* Models with windows: keys and values of these layers are in rings, many times shorter than the context. The text
 * is that of an engine whose chunk is so long that it has no rings: with any chunk, when compute is killed within
 * chunks and tokens, when a prompt continues where an earlier one ended, within the ring, or from a checkpoint. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "tests/harness/harness.h"

#define SYNTH_MS  60000
#define FINISH_MS 120000
#define TOKENS    150 /* more than a ring can be cut back by */
#define KEYS_MAX  12

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
    struct command c;
    const char *args[8 + KEYS_MAX] = {"synth", "-q", "-o", model, "tiny", "--type", "Q8_0"};
    for (size_t i = 0; s->keys[i]; i++)
        args[7 + i] = s->keys[i];
    snprintf(model, sizeof model, "%s/windows.gguf", test_dir());
    command_run(&c, NULL, SYNTH_MS, args);
    CHECK(c.status == 0, "synth: %.300s", c.err);
    command_free(&c);
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

static uint64_t planned(struct engine *e)
{
    json_t *doc = engine_stats(e);
    uint64_t bytes = lookup_u64(doc, "memory.plan.kv_bytes");
    json_decref(doc);
    return bytes;
}

/* Returns the bytes that are reserved for keys and values. */
static uint64_t reference(const char *prompt, struct text *out)
{
    struct engine *e = start((const char *const[]){NO_RINGS, "--keep-kv=0", NULL});
    engine_generate(e, prompt, TOKENS, out);
    uint64_t bytes = planned(e);
    engine_stop(e);
    return bytes;
}

static void kill_compute(struct engine *e, pid_t pid)
{
    CHECK(kill(pid, SIGKILL) == 0, "compute %d exited on its own", (int)pid);
    engine_pid(e, "compute", 0, pid);
}

/* ---- combinations ---- */

static void combination(const struct text *want, uint64_t whole, const char *resident,
                        const char *chunk, size_t kill_after)
{
    struct text got;
    struct engine *e = start((const char *const[]){resident, chunk, NULL});
    CHECK(planned(e) < whole, "%s: %llu bytes, without rings %llu", chunk,
          (unsigned long long)planned(e), (unsigned long long)whole);
    pid_t pid = engine_pid(e, "compute", 0, 0);
    struct generation *g = generation_start(e, test_prompt(2), TOKENS);
    uint64_t deadline = deadline_in(FINISH_MS);
    while (kill_after > 0 && generation_tokens(g) < kill_after && !generation_done(g))
        CHECK(deadline_tick(deadline), "%s: no tokens", chunk);
    if (kill_after > 0)
        kill_compute(e, pid);
    generation_finish(g, FINISH_MS, &got);
    text_check_same(want, &got, chunk);
    text_free(&got);
    engine_stop(e);
}

static void combinations(const struct shape *s)
{
    static const char *const resident[] = {"--resident-experts=100", "--resident-experts=25"};
    static const char *const chunk[] = {"--prefill-chunk=1", "--prefill-chunk=7",
                                        "--prefill-chunk=29", "--prefill-chunk=160"};
    struct text want;
    make(s);
    uint64_t whole = reference(test_prompt(2), &want);
    for (unsigned i = 0; i < 16; i++) /* of these, two in the short form */
        if (test_long() || i == 5 || i == 14)
            combination(&want, whole, resident[i % 2], chunk[i / 2 % 4], i < 8 ? 0 : 20);
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

static void kill_at(struct engine *e, const char *point, int passes, const struct text *want)
{
    struct text got;
    pid_t pid = engine_pid(e, "compute", 0, 0);
    json_decref(
        engine_control(e, "inject", json_pack("{s:s, s:i}", "point", point, "arg", passes)));
    struct generation *g = generation_start(e, test_prompt(2), TOKENS);
    uint64_t deadline = deadline_in(FINISH_MS);
    while (process_state(pid) != 'T')
        CHECK(deadline_tick(deadline), "%s: compute did not reach the point", point);
    kill_compute(e, pid);
    generation_finish(g, FINISH_MS, &got);
    text_check_same(want, &got, point);
    text_free(&got);
}

/* Within chunks and tokens, before a checkpoint is committed, and while a kept sequence changes hands: the prompt is the
 * same, so all but the first continue from the checkpoint near its end. */
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
    unsigned met = 0;
    make(&shapes[0]);
    reference(test_prompt(2), &want);
    struct engine *e =
        start((const char *const[]){"--resident-experts=25", "--prefill-chunk=16", NULL});
    for (unsigned i = 0; i < ARRAY_LEN(points); i++)
        if (i < 2 || test_sample(&met, 3))
            kill_at(e, points[i].point, points[i].passes, &want);
    CHECK(engine_counter(e, "compute", "sequences_reused") > 0, "nothing was reused");
    text_free(&want);
    engine_stop(e);
}

/* ---- a second turn ---- */

/* Prompts that share only a beginning, as when a template changes the end of a conversation; with the answer in
 * between, which is longer than what a ring can be cut back by. */
static void second_turns(const struct shape *s)
{
    static const char *const ends[] = {"", " And then the wind turned.", " The old man was silent.",
                                       " And then the wind turned. It was cold."};
    struct text alone[ARRAY_LEN(ends)], got;
    char prompt[ARRAY_LEN(ends)][4096];
    make(s);
    struct engine *e = start((const char *const[]){NO_RINGS, "--keep-kv=0", NULL});
    for (size_t i = 0; i < ARRAY_LEN(ends); i++) {
        snprintf(prompt[i], sizeof prompt[i], "%s%s", test_prompt(2), ends[i]);
        engine_generate(e, prompt[i], TOKENS, &alone[i]);
    }
    engine_stop(e);
    e = start((const char *const[]){"--resident-experts=50", "--prefill-chunk=16", NULL});
    for (size_t i = 0; i < 2 * ARRAY_LEN(ends); i++) {
        size_t which = (i * 3 + i / 4) % ARRAY_LEN(ends);
        engine_generate(e, prompt[which], TOKENS, &got);
        text_check_same(&alone[which], &got, "a second turn");
        uint64_t cached = lookup_u64(got.stats, "cached_tokens");
        CHECK(i == 0 || cached >= 128, "prompt %zu: only %llu tokens reused", i,
              (unsigned long long)cached);
        text_free(&got);
    }
    for (size_t i = 0; i < ARRAY_LEN(ends); i++)
        text_free(&alone[i]);
    engine_stop(e);
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
    uint64_t bytes = planned(e);
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
    };
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
