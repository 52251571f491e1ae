/* SPDX-License-Identifier: Apache-2.0 */
/* Makes models whose sequences have a state, and compares their texts after kills and in continued
 * prompts. */
#include "tests/scenario/continued.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/bytes.h"

#define TOOL_MS  60000
#define KEYS_MAX 24

void continued_make(char path[PATH_MAX], const char *const keys[])
{
    struct command c;
    /* Routing for which texts of these models are long enough for what they test. */
    const char *args[10 + KEYS_MAX] = {"synth",  "-q",   "-o",       path,          "tiny",
                                       "--type", "Q8_0", "skew=0.3", "locality=0.4"};
    for (size_t i = 0; keys[i]; i++) {
        CHECK(i < KEYS_MAX, "too many keys");
        args[9 + i] = keys[i];
    }
    snprintf(path, PATH_MAX, "%s/continued.gguf", test_dir());
    command_run(&c, NULL, TOOL_MS, args);
    CHECK(c.status == 0, "synth: %.300s", c.err);
    command_free(&c);
}

void continued_inspect(const char *path, const char *want)
{
    struct command c;
    command_run(&c, NULL, TOOL_MS, (const char *const[]){"inspect", path, NULL});
    CHECK(c.status == 0 && strstr(c.out, want), "no '%s' in: %.2000s", want, c.out);
    command_free(&c);
}

uint64_t continued_most(struct engine *e)
{
    json_t *doc = engine_stats(e);
    uint64_t bytes =
        lookup_u64(doc, "memory.plan.kv_bytes") + lookup_u64(doc, "memory.plan.kv_spare_bytes");
    json_decref(doc);
    return bytes;
}

uint64_t continued_planned(struct engine *e)
{
    json_t *doc = engine_stats(e);
    uint64_t bytes = lookup_u64(doc, "memory.plan.kv_bytes");
    json_decref(doc);
    return bytes;
}

void continued_kill(struct engine *e, pid_t pid)
{
    CHECK(kill(pid, SIGKILL) == 0, "compute %d exited on its own", (int)pid);
    engine_pid(e, "compute", 0, pid);
}

static void finish(struct generation *g, const struct continued *c, const char *what)
{
    struct text got;
    generation_finish(g, CONTINUED_MS, &got);
    text_check_same(c->want, &got, what);
    text_free(&got);
}

void continued_after(struct engine *e, const struct continued *c, size_t tokens, const char *what)
{
    pid_t pid = engine_pid(e, "compute", 0, 0);
    struct generation *g = generation_start(e, test_prompt(c->prompt), c->tokens);
    uint64_t deadline = deadline_in(CONTINUED_MS);
    while (generation_tokens(g) < tokens && !generation_done(g))
        CHECK(deadline_tick(deadline), "%s: no tokens", what);
    if (tokens > 0)
        continued_kill(e, pid);
    finish(g, c, what);
}

void continued_at(struct engine *e, const struct continued *c, const char *point, int passes)
{
    pid_t pid = engine_pid(e, "compute", 0, 0);
    json_decref(
        engine_control(e, "inject", json_pack("{s:s, s:i}", "point", point, "arg", passes)));
    struct generation *g = generation_start(e, test_prompt(c->prompt), c->tokens);
    uint64_t deadline = deadline_in(CONTINUED_MS);
    while (process_state(pid) != 'T')
        CHECK(deadline_tick(deadline), "%s: compute did not reach the point", point);
    continued_kill(e, pid);
    finish(g, c, point);
}

void continued_turns(const struct continued_turns *t, const struct continued *c)
{
    static const char *const ends[] = {"", " And then the wind turned.", " The old man was silent.",
                                       " And then the wind turned. It was cold."};
    struct text alone[ARRAY_LEN(ends)], got;
    char prompt[ARRAY_LEN(ends)][4096];
    struct engine *e = t->start(t->alone);
    for (size_t i = 0; i < ARRAY_LEN(ends); i++) {
        snprintf(prompt[i], sizeof prompt[i], "%s%s", test_prompt(c->prompt), ends[i]);
        engine_generate(e, prompt[i], c->tokens, &alone[i]);
    }
    engine_stop(e);
    e = t->start(t->reusing);
    for (size_t i = 0; i < t->rounds; i++) {
        size_t which = (i * 3 + i / 4) % ARRAY_LEN(ends);
        engine_generate(e, prompt[which], c->tokens, &got);
        text_check_same(&alone[which], &got, "a second turn");
        uint64_t cached = lookup_u64(got.stats, "cached_tokens");
        CHECK(i == 0 || cached >= t->reused_min, "prompt %zu: only %llu tokens reused", i,
              (unsigned long long)cached);
        text_free(&got);
    }
    for (size_t i = 0; i < ARRAY_LEN(ends); i++)
        text_free(&alone[i]);
    engine_stop(e);
}
