/* SPDX-License-Identifier: Apache-2.0 */
/* Many sequences that begin with one prompt: it is in memory once, so that all of them find memory
 * where only one would have it alone; and where they begin together, it is computed once. The texts
 * are those that each has alone, also when compute is killed while they share, or the one that
 * computes for all is cancelled. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "ipc/engine/engine_client.h"
#include "lib/base/bytes.h"
#include "tests/scenario/continued.h"

#define MOST      16
#define FINISH_MS 300000
#define PROMPT    8192
#define TOKENS    120
#define CTX       "--ctx-size=4096"

static const char *const plain[] = {"arch=qwen3moe", "layers=3", "context=8192", NULL};
static const char *const qwen35moe[] = {
    "arch=qwen35moe",  "shared_inner=64", "rope_dims=8",    "conv_taps=4",      "delta_size=16",
    "delta_k_heads=2", "delta_v_heads=4", "delta_inner=64", "attention_step=2", NULL};
static const char *const gpt_oss[] = {
    "arch=gpt-oss",  "layers=4",        "window=64",    "rope_scaling=2",
    "rope_factor=8", "rope_context=64", "context=8192", NULL};

static char model[PATH_MAX];

/* Prompts that are equal, or that end differently. */
static bool equal;

static struct engine *start(const char *const options[])
{
    struct engine *e = engine_new();
    const char *args[16] = {CTX, "-m", model};
    size_t n = 3;
    for (size_t i = 0; options[i]; i++)
        args[n++] = options[i];
    engine_start(e, args);
    return e;
}

/* Some 300 tokens, and an end of its own. */
static struct generation *ask(struct engine *e, unsigned i)
{
    char prompt[PROMPT];
    size_t n = 0;
    for (unsigned part = 0; part < 3; part++)
        n += (size_t)snprintf(prompt + n, sizeof prompt - n, "%s ", test_prompt(2));
    snprintf(prompt + n, sizeof prompt - n, "Story %u.", equal ? 7 : i * 7);
    return generation_start_seeded(e, prompt, TOKENS, i % 2 ? 100 + i : 0);
}

static void wait_for_tokens(const struct generation *g, size_t tokens)
{
    uint64_t deadline = deadline_in(FINISH_MS);
    while (generation_tokens(g) < tokens && !generation_done(g))
        CHECK(deadline_tick(deadline), "no tokens");
}

/* What is shared now; the memory of all is within what is planned. */
static uint64_t shared_bytes(struct engine *e)
{
    uint64_t has = engine_counter(e, "compute", "kv_bytes"), planned = continued_most(e);
    CHECK(has <= planned, "%llu bytes of keys, values and states, %llu are planned",
          (unsigned long long)has, (unsigned long long)planned);
    return engine_counter(e, "compute", "kv_shared_bytes");
}

/* The first one computes the prompt. When the others began, compute is killed. */
static void share(const char *const shape[], unsigned count, struct text *alone)
{
    struct generation *g[MOST];
    char parallel[32];
    snprintf(parallel, sizeof parallel, "--parallel=%u", count);
    struct engine *e = start((const char *const[]){"--resident-experts=50", parallel, NULL});
    g[0] = ask(e, 0);
    wait_for_tokens(g[0], 1);
    for (unsigned i = 1; i < count; i++)
        g[i] = ask(e, i);
    for (unsigned i = 1; i < count; i++)
        wait_for_tokens(g[i], 1);
    uint64_t shared = shared_bytes(e);
    continued_kill(e, engine_pid(e, "compute", 0, 0));
    for (unsigned i = 0; i < count; i++) {
        struct text got;
        generation_finish(g[i], FINISH_MS, &got);
        text_check_same(&alone[i], &got, "with the prompt of others");
        text_free(&got);
    }
    shared_bytes(e);
    test_note("%llu bytes are shared by %u sequences", (unsigned long long)shared, count);
    CHECK(shared > 0, "nothing is shared");
    if (shape == plain) /* 200 tokens or more, by all but one that has ended, or has not begun */
        CHECK(shared >= continued_planned(e) / 4096 * 200 * (count - 2), "too few are shared");
    CHECK(shape != plain || engine_counter(e, "compute", "sequences_paused") == 0,
          "a sequence gave its memory up");
    engine_stop(e);
}

/* Returns how many tokens the prompts have together. */
static uint64_t generate_alone(unsigned count, struct text *alone)
{
    struct engine *e =
        start((const char *const[]){"--resident-experts=100", "--parallel=1", "--keep-kv=0", NULL});
    for (unsigned i = 0; i < count; i++)
        generation_finish(ask(e, i), FINISH_MS, &alone[i]);
    uint64_t tokens = engine_counter(e, "compute", "tokens_prefill");
    engine_stop(e);
    return tokens;
}

static void one_prompt(const char *const shape[], unsigned count)
{
    struct text alone[MOST];
    equal = false;
    continued_make(model, shape);
    generate_alone(count, alone);
    share(shape, count, alone);
    for (unsigned i = 0; i < count; i++)
        text_free(&alone[i]);
}

/* ---- all at once ---- */

/* The one that arrived first: requests are numbered from 1 on. */
static void cancel_first(struct engine *e)
{
    struct error error;
    struct rpc_client *client = engine_client_open(e->run, &error);
    CHECK(client && engine_cancel(client, 1, &error) == 0, "%s", error.text);
    rpc_client_close(client);
}

static bool was_cancelled(const struct text *t)
{
    return t->error.code == ERR_CANCELLED || strcmp(t->finish, "cancelled") == 0;
}

enum how { UNDISTURBED, KILLED, CANCELLED };

/* Passes of few rows, so that the prompt of the first one is still computed when the others arrive;
 * then that one is cancelled, or compute is killed. */
static void begin_together(unsigned count, const struct text *alone, uint64_t tokens, enum how how)
{
    struct generation *g[MOST];
    struct text got;
    char parallel[32];
    snprintf(parallel, sizeof parallel, "--parallel=%u", count);
    struct engine *e =
        start((const char *const[]){"--resident-experts=50", "--prefill-chunk=16", parallel, NULL});
    for (unsigned i = 0; i < count; i++)
        g[i] = ask(e, i);
    engine_wait_counter(e, "compute", "sequences_followed", count / 2, FINISH_MS);
    if (how == KILLED)
        continued_kill(e, engine_pid(e, "compute", 0, 0));
    if (how == CANCELLED)
        cancel_first(e);
    unsigned cancelled = 0;
    for (unsigned i = 0; i < count; i++) {
        generation_finish(g[i], FINISH_MS, &got);
        if (how == CANCELLED && was_cancelled(&got))
            cancelled++;
        else
            text_check_same(&alone[i], &got, "together");
        text_free(&got);
    }
    CHECK(cancelled == (how == CANCELLED), "%u were cancelled", cancelled);
    uint64_t computed = engine_counter(e, "compute", "tokens_prefill");
    test_note("%llu prompt tokens are computed of %llu; %llu sequences waited for others",
              (unsigned long long)computed, (unsigned long long)tokens,
              (unsigned long long)engine_counter(e, "compute", "sequences_followed"));
    /* Fewer than 64 are not waited for. */
    CHECK(computed <= tokens / count + 64 * count, "the prompt is computed more than once");
    engine_stop(e);
}

static void together(const char *const shape[], unsigned count, bool same)
{
    struct text alone[MOST];
    equal = same;
    continued_make(model, shape);
    uint64_t tokens = generate_alone(count, alone);
    begin_together(count, alone, tokens, UNDISTURBED);
    begin_together(count, alone, tokens, KILLED);
    if (shape == plain)
        begin_together(count, alone, tokens, CANCELLED);
    for (unsigned i = 0; i < count; i++)
        text_free(&alone[i]);
}

static void four_at_once(void)
{
    together(plain, 4, true);
}

static void sixteen_at_once(void)
{
    together(plain, MOST, true);
}

static void alike_at_once(void)
{
    together(plain, 4, false);
}

static void at_once_with_states(void)
{
    together(qwen35moe, 4, true);
}

static void at_once_with_windows(void)
{
    together(gpt_oss, 4, true);
}

static void sixteen(void)
{
    one_prompt(plain, MOST);
}

static void with_states(void)
{
    one_prompt(qwen35moe, 4);
}

static void with_windows(void)
{
    one_prompt(gpt_oss, 4);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {ROW(sixteen),
                                             ROW(with_states),
                                             ROW(with_windows),
                                             ROW(four_at_once),
                                             ROW(sixteen_at_once),
                                             ROW(alike_at_once),
                                             ROW(at_once_with_states),
                                             ROW(at_once_with_windows)};
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
