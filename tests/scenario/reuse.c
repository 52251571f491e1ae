/* SPDX-License-Identifier: Apache-2.0 */
/* Kept keys and values: a conversation has the same text with them and without, also when compute
 * is killed in between; they stay within the budget and yield to other sequences. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "tests/scenario/completions.h"

#define TURNS    8 /* of the long form, else turns() */
#define TOKENS   24
#define POINT_MS 60000

#define NO_CACHE "\"cache_prompt\":false"

static const char *const users[TURNS] = {"A story about the sea.",
                                         "And the ship?",
                                         "Who was the captain?",
                                         "What did he say to them?",
                                         "Was it a storm?",
                                         "How many men were there?",
                                         "Where did they go in the morning?",
                                         "Did they come home?"};

static unsigned turns(void)
{
    return test_amount(AMOUNT_reuse_turns);
}

/* ---- conversations over HTTP ---- */

struct conversation {
    json_t *messages;
    char *answers[TURNS];
    uint64_t prompt[TURNS], cached[TURNS];
};

static void say(struct conversation *c, const char *role, const char *text)
{
    json_array_append_new(c->messages, json_pack("{s:s, s:s}", "role", role, "content", text));
}

static char *chat_body(const struct conversation *c, const char *more)
{
    char *body, *messages = json_dumps(c->messages, JSON_COMPACT);
    CHECK(asprintf(&body,
                   "{\"messages\":%s,\"max_tokens\":%d,\"temperature\":0,\"ignore_eos\":true%s%s}",
                   messages, TOKENS, more[0] ? "," : "", more) > 0,
          "out of memory");
    free(messages);
    return body;
}

static void turn_start(struct conversation *c, struct http *h, unsigned port, const char *user,
                       const char *more)
{
    say(c, "user", user);
    char *body = chat_body(c, more);
    http_open(h, port, "/v1/chat/completions", NULL, body);
    free(body);
}

static void turn_end(struct conversation *c, struct http *h, unsigned i)
{
    http_finish(h, END_MS);
    CHECK(h->status == 200, "turn %u: status %d: %.300s", i, h->status, h->body ? h->body : "");
    json_t *doc = http_json(h);
    const json_t *choice = json_array_get(json_object_get(doc, "choices"), 0);
    c->answers[i] = strdup(lookup_text(choice, "message.content"));
    c->prompt[i] = lookup_u64(doc, "usage.prompt_tokens");
    const json_t *details = json_object_get(json_object_get(doc, "usage"), "prompt_tokens_details");
    CHECK(json_is_integer(json_object_get(details, "cached_tokens")), "no cached_tokens: %.300s",
          h->body);
    c->cached[i] = lookup_u64(details, "cached_tokens");
    say(c, "assistant", c->answers[i]);
    json_decref(doc);
    http_close(h);
}

static void conversation_open(struct conversation *c)
{
    *c = (struct conversation){.messages = json_array()};
    say(c, "system", "You write short stories.");
}

static void conversation_close(struct conversation *c)
{
    json_decref(c->messages);
    for (unsigned i = 0; i < turns(); i++)
        free(c->answers[i]);
}

static void converse(struct conversation *c, unsigned port, const char *more)
{
    struct http h;
    conversation_open(c);
    for (unsigned i = 0; i < turns(); i++) {
        turn_start(c, &h, port, users[i], more);
        turn_end(c, &h, i);
    }
}

static void same_text(const struct conversation *a, const struct conversation *b, const char *what)
{
    for (unsigned i = 0; i < turns(); i++)
        CHECK(strcmp(a->answers[i], b->answers[i]) == 0, "%s: the answer of turn %u differs", what,
              i);
}

/* Every turn after the first begins with the turn before it. */
static void reused(const struct conversation *c, const char *what)
{
    for (unsigned i = 1; i < turns(); i++)
        CHECK(c->cached[i] + 2 >= c->prompt[i - 1] && c->cached[i] < c->prompt[i],
              "%s: turn %u reused %llu of %llu tokens", what, i, (unsigned long long)c->cached[i],
              (unsigned long long)c->prompt[i]);
}

static void within_budget(struct engine *e)
{
    json_t *doc = engine_stats(e);
    uint64_t used = lookup_u64(doc, "memory.used_bytes_max");
    uint64_t budget = lookup_u64(doc, "memory.budget_bytes");
    CHECK(used <= budget, "%llu bytes used of a budget of %llu", (unsigned long long)used,
          (unsigned long long)budget);
    json_decref(doc);
}

/* ---- with and without, and with kills ---- */

static void same_text_at(const char *resident)
{
    struct conversation without, with;
    unsigned port;
    struct engine *e = gateway_start(&port, (const char *const[]){"--http=0", resident, NULL});
    converse(&without, port, NO_CACHE);
    CHECK(engine_counter(e, "compute", "tokens_reused") == 0, "tokens were reused");
    uint64_t computed = engine_counter(e, "compute", "tokens_prefill");
    converse(&with, port, "");
    same_text(&without, &with, "reuse");
    reused(&with, "reuse");
    uint64_t tokens = 0;
    for (unsigned i = 0; i < turns(); i++)
        tokens += with.cached[i];
    CHECK(engine_counter(e, "compute", "tokens_reused") == tokens, "wrong counter of tokens");
    CHECK(engine_counter(e, "compute", "sequences_reused") == turns() - 1, "wrong counter of uses");
    uint64_t then = engine_counter(e, "compute", "tokens_prefill") - computed;
    CHECK(then + tokens == computed, "%llu computed and %llu reused of %llu tokens",
          (unsigned long long)then, (unsigned long long)tokens, (unsigned long long)computed);
    within_budget(e);
    conversation_close(&without);
    conversation_close(&with);
    engine_stop(e);
}

static void same_text_all_resident(void)
{
    same_text_at("--resident-experts=100");
}

static void same_text_quarter_resident(void)
{
    same_text_at("--resident-experts=25");
}

static void kill_compute(struct engine *e)
{
    pid_t pid = engine_pid(e, "compute", 0, 0);
    CHECK(kill(pid, SIGKILL) == 0, "compute exited on its own");
    engine_pid(e, "compute", 0, pid);
}

/* A kill between two turns, when only the kept slot exists, or at any time of a turn. */
static void killed_at(const char *resident)
{
    struct conversation without, with;
    unsigned port, random = 1;
    struct engine *e = gateway_start(&port, (const char *const[]){"--http=0", resident, NULL});
    converse(&without, port, NO_CACHE);
    conversation_open(&with);
    for (unsigned i = 0; i < turns(); i++) {
        struct http h;
        turn_start(&with, &h, port, users[i], "");
        random = random * 1664525u + 1013904223u;
        uint64_t before = engine_counter(e, "compute", "accesses");
        uint64_t wait = (random >> 8) % 4000;
        uint64_t deadline = deadline_in(2000);
        while (i % 2 == 1 && engine_counter(e, "compute", "accesses") < before + wait &&
               deadline_tick(deadline)) {
        }
        if (i % 2 == 1)
            kill_compute(e);
        turn_end(&with, &h, i);
        if (i % 2 == 0)
            kill_compute(e);
    }
    same_text(&without, &with, "kills");
    reused(&with, "kills");
    within_budget(e);
    conversation_close(&without);
    conversation_close(&with);
    engine_stop(e);
}

static void killed_all_resident(void)
{
    killed_at("--resident-experts=100");
}

static void killed_quarter_resident(void)
{
    killed_at("--resident-experts=25");
}

/* Between any two stores that hand a slot over. */
static void killed_at_every_point(void)
{
    static const char *const points[] = {"COMPUTE_SLOT_CUT", "COMPUTE_SLOT_TAKEN",
                                         "COMPUTE_SLOT_LOGGED", "COMPUTE_SLOT_KEPT"};
    struct conversation without, with;
    unsigned port;
    struct engine *e = gateway_start(&port, (const char *const[]){"--http=0", NULL});
    converse(&without, port, NO_CACHE);
    conversation_open(&with);
    for (unsigned i = 0; i < turns(); i++) {
        struct http h;
        const char *point = points[i % ARRAY_LEN(points)];
        pid_t pid = engine_pid(e, "compute", 0, 0);
        json_decref(engine_control(e, "inject", json_pack("{s:s}", "point", point)));
        turn_start(&with, &h, port, users[i], "");
        uint64_t deadline = deadline_in(POINT_MS);
        while (process_state(pid) != 'T')
            CHECK(deadline_tick(deadline), "%s: compute did not reach the point", point);
        CHECK(kill(pid, SIGKILL) == 0, "%s: kill failed", point);
        engine_pid(e, "compute", 0, pid);
        turn_end(&with, &h, i);
    }
    same_text(&without, &with, "points");
    conversation_close(&without);
    conversation_close(&with);
    engine_stop(e);
}

/* ---- limits ---- */

/* A sequence that needs the whole context takes the memory of a kept one. */
static void kept_memory_yields(void)
{
    struct text kept, got;
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"--ctx-size=320", "--budget=38MiB", NULL});
    engine_generate(e, test_prompt(1), 100, &kept);
    CHECK(engine_counter(e, "compute", "kv_kept_bytes") > 0, "nothing was kept");
    json_t *doc = engine_stats(e);
    uint64_t reserved = lookup_u64(doc, "memory.plan.kv_bytes");
    CHECK(lookup_u64(doc, "memory.plan.kv_spare_bytes") == 0, "experts do not need all memory");
    json_decref(doc);
    struct generation *g = generation_start(e, test_prompt(0), 300);
    bool yielded = false;
    while (!generation_done(g)) {
        doc = engine_stats(e);
        uint64_t all = lookup_counter(doc, "compute", "kv_bytes");
        yielded |= lookup_counter(doc, "compute", "kv_kept_bytes") == 0;
        CHECK(all <= reserved, "%llu bytes of keys and values, %llu reserved",
              (unsigned long long)all, (unsigned long long)reserved);
        json_decref(doc);
    }
    generation_finish(g, END_MS, &got);
    CHECK(got.count == 300 && yielded, "%zu tokens; yielded: %d", got.count, yielded);
    within_budget(e);
    text_free(&kept);
    text_free(&got);
    engine_stop(e);
}

static uint64_t cached_tokens(const struct text *t)
{
    return lookup_u64(t->stats, "cached_tokens");
}

static void bounded_by_keep_kv(void)
{
    static const struct {
        const char *option;
        uint64_t bytes;
    } limits[] = {{"--keep-kv=0", 0}, {"--keep-kv=256KiB", 256 * KIB}};
    for (size_t i = 0; i < ARRAY_LEN(limits); i++) {
        struct text first, second;
        struct engine *e = engine_new();
        engine_start(e, (const char *const[]){limits[i].option, NULL});
        engine_generate(e, test_prompt(2), 20, &first);
        uint64_t kept = engine_counter(e, "compute", "kv_kept_bytes");
        CHECK(kept <= limits[i].bytes && (kept > 0) == (limits[i].bytes > 0), "%s: %llu bytes kept",
              limits[i].option, (unsigned long long)kept);
        engine_generate(e, test_prompt(2), 20, &second);
        text_check_same(&first, &second, limits[i].option);
        CHECK((cached_tokens(&second) > 0) == (limits[i].bytes > 0), "%s: %llu tokens reused",
              limits[i].option, (unsigned long long)cached_tokens(&second));
        CHECK(cached_tokens(&second) < 280, "%s: more was reused than kept", limits[i].option);
        text_free(&first);
        text_free(&second);
        engine_stop(e);
    }
}

/* Prompts that share only a beginning, and one that is a part of the other. */
static void divergent_prompts(void)
{
    static const char *const ends[] = {" And then the wind turned.", " The old man was silent.", "",
                                       " And then the wind turned. It was cold."};
    struct text alone[ARRAY_LEN(ends)], got;
    char prompt[ARRAY_LEN(ends)][4096];
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"--keep-kv=0", "--resident-experts=25", NULL});
    for (size_t i = 0; i < ARRAY_LEN(ends); i++) {
        snprintf(prompt[i], sizeof prompt[i], "%s%s", test_prompt(1), ends[i]);
        engine_generate(e, prompt[i], 40, &alone[i]);
    }
    engine_stop(e);
    e = engine_new();
    engine_start(e, (const char *const[]){"--resident-experts=25", NULL});
    for (size_t i = 0; i < 3 * ARRAY_LEN(ends); i++) {
        size_t which = (i * 3 + i / 4) % ARRAY_LEN(ends);
        engine_generate(e, prompt[which], 40, &got);
        text_check_same(&alone[which], &got, "divergent prompts");
        CHECK(i == 0 || cached_tokens(&got) > 30, "only %llu tokens reused",
              (unsigned long long)cached_tokens(&got));
        text_free(&got);
    }
    for (size_t i = 0; i < ARRAY_LEN(ends); i++)
        text_free(&alone[i]);
    engine_stop(e);
}

/* ---- repl ---- */

#define REPL_TOKENS 40

struct saved { /* a conversation of repl, read back from /save */
    struct command run;
    json_t *doc;
    const json_t *turns;
    size_t count;
};

/* Runs `turns` turns of repl, greedy and beyond the end of text. */
static void repl_run(struct engine *e, unsigned turns, const char *tokens, struct saved *out)
{
    char path[PATH_MAX], input[16384];
    snprintf(path, sizeof path, "%s/conversation.%u", test_dir(), turns);
    int n = snprintf(input, sizeof input, "/set ignore_eos on\n");
    for (unsigned i = 0; i < turns; i++)
        n += snprintf(input + n, sizeof input - (size_t)n,
                      "Chapter %u. %s It was a long way from the harbour to the house, and the "
                      "evening was cold and dark.\n",
                      i + 1, users[i % TURNS]);
    snprintf(input + n, sizeof input - (size_t)n, "/save --force %s\n", path);
    command_run(&out->run, input, 3 * END_MS,
                (const char *const[]){"repl", "--name", e->run, "--temp", "0", "-n", tokens, NULL});
    CHECK(out->run.status == 0, "repl: status %d: %.300s", out->run.status, out->run.err);
    out->doc = json_load_file(path, 0, NULL);
    out->turns = json_object_get(out->doc, "turns");
    out->count = json_array_size(out->turns);
    CHECK(out->count == turns, "%zu turns were saved", out->count);
}

static void saved_free(struct saved *s)
{
    json_decref(s->doc);
    command_free(&s->run);
}

/* The last answer is that of one prompt with the turns from `first` on. */
static void check_last(struct engine *e, const struct saved *s, size_t first, size_t tokens)
{
    struct text got;
    char prompt[16384];
    int n = 0;
    for (size_t i = first; i < s->count; i++) {
        const json_t *turn = json_array_get(s->turns, i);
        n += snprintf(prompt + n, sizeof prompt - (size_t)n, "%s%s%s", lookup_text(turn, "prompt"),
                      i + 1 < s->count ? lookup_text(turn, "answer") : "",
                      i + 1 < s->count ? "\n" : "");
    }
    engine_generate(e, prompt, tokens, &got);
    const char *answer = lookup_text(json_array_get(s->turns, s->count - 1), "answer");
    CHECK(strcmp(answer, got.text) == 0, "repl answers '%.100s', one prompt of %d bytes '%.100s'",
          answer, n, got.text);
    text_free(&got);
}

static void repl_remembers_all(void)
{
    struct saved s;
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"--keep-kv=0", NULL});
    repl_run(e, turns(), "40", &s);
    check_last(e, &s, 0, REPL_TOKENS);
    CHECK(!strstr(s.run.err, "no longer sent"), "turns were left out: %.300s", s.run.err);
    saved_free(&s);
    engine_stop(e);
    e = engine_new(); /* the same with reuse */
    engine_start(e, (const char *const[]){"--resident-experts=25", NULL});
    repl_run(e, turns(), "40", &s);
    check_last(e, &s, 0, REPL_TOKENS);
    CHECK(engine_counter(e, "compute", "sequences_reused") >= turns() - 1, "nothing was reused");
    saved_free(&s);
    engine_stop(e);
}

static void repl_answers_to_the_end(void)
{
    struct saved s;
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"--ctx-size=400", NULL});
    repl_run(e, 1, "0", &s);
    CHECK(strstr(s.run.err, "the context of 400 tokens is full: the response ends here") &&
              strstr(s.run.err, "context 400 of 400"),
          "no line about the context: %.300s", s.run.err);
    const char *prompt = strstr(s.run.err, "prompt of ");
    unsigned tokens = 0;
    CHECK(prompt && sscanf(prompt, "prompt of %u", &tokens) == 1, "no rates: %.300s", s.run.err);
    check_last(e, &s, 0, 400 - tokens);
    saved_free(&s);
    engine_stop(e);
}

static void repl_leaves_out_the_oldest(void)
{
    struct saved s;
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"--ctx-size=400", NULL});
    repl_run(e, 12, "40", &s);
    size_t first = 0, of = 0;
    unsigned lines = 0;
    for (const char *at = s.run.err; (at = strstr(at, "is full: the oldest ")); at++, lines++)
        CHECK(sscanf(at, "is full: the oldest %zu of %zu turns", &first, &of) == 2, "%.80s", at);
    CHECK(lines > 0 && lines < 8, "%u lines about turns left out: %.300s", lines, s.run.err);
    check_last(e, &s, first, REPL_TOKENS);
    saved_free(&s);
    engine_stop(e);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        ROW(same_text_all_resident),  ROW(same_text_quarter_resident), ROW(killed_all_resident),
        ROW(killed_quarter_resident), ROW(killed_at_every_point),      ROW(kept_memory_yields),
        ROW(bounded_by_keep_kv),      ROW(divergent_prompts),          ROW(repl_remembers_all),
        ROW(repl_answers_to_the_end), ROW(repl_leaves_out_the_oldest),
    };
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
