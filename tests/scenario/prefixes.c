/* SPDX-License-Identifier: Apache-2.0 */
/* The pool of prefixes: conversations that take turns, with short requests between them, compute
 * their new tokens only, and have the same text as without the pool. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ipc/engine/engine_client.h"
#include "lib/base/bytes.h"
#include "tests/harness/harness.h"
#include "tests/scenario/continued.h"

#define TURNS         5
#define CONVERSATIONS 2
#define TOKENS        12
#define SLACK         10 /* tokens at the end of a prompt that may be computed again */

static const char *const demo[] = {NULL};
static const char *const qwen35moe[] = {
    "arch=qwen35moe",  "shared_inner=64", "rope_dims=8",    "conv_taps=4",      "delta_size=16",
    "delta_k_heads=2", "delta_v_heads=4", "delta_inner=64", "attention_step=2", NULL};
static const char *const qwen4exp[] = {
    "arch=qwen4exp",   "shared_inner=64", "conv_taps=4",     "delta_size=16",
    "delta_k_heads=2", "delta_v_heads=4", "delta_inner=64",  "attention_step=2",
    "streams=4",       "stream_rank=16",  "ngram_size=3",    "ngram_heads=2",
    "ngram_taps=4",    "ngram_width=16",  "ngram_rows=1000", NULL};
static const char *const kimi_linear[] = {"arch=kimi-linear",
                                          "shared_inner=64",
                                          "dense_layers=1",
                                          "dense_inner=128",
                                          "conv_taps=4",
                                          "delta_size=16",
                                          "kv_heads=1",
                                          "kv_rank=32",
                                          "mla_key_size=24",
                                          "mla_value_size=16",
                                          "rope_dims=8",
                                          "attention_step=2",
                                          NULL};
static const char *const minimax_01[] = {"arch=minimax-01", "attention_step=2", "rope_dims=16",
                                         "normed_scale=1.5", NULL};
static const char *const jamba[] = {
    "arch=jamba", "dense_inner=128", "conv_taps=4",      "delta_size=8",    "step_rank=16",
    "layers=4",   "delta_inner=192", "attention_step=3", "experts_every=2", NULL};
static const char *const gpt_oss[] = {
    "arch=gpt-oss",  "layers=4",        "window=64",    "rope_scaling=2",
    "rope_factor=8", "rope_context=64", "context=8192", NULL};

/* Chunks, which end within turns. */
static const char *const llama4[] = {
    "arch=llama4", "layers=4",        "experts_used=1",   "expert_step=1", "shared_count=1",
    "window=64",   "query_scale=0.1", "query_context=32", "context=8192",  NULL};

static const char *const lines[TURNS] = {
    " Then the wind turned, and the ship was lost in the morning.",
    " The old man was silent, and they went down to the harbour.",
    " It was cold in the house, and nobody spoke about the sea.",
    " Many years later a letter came from the captain's daughter.", " So they left the town."};

static char model[PATH_MAX];

static struct engine *start(const char *const shape[], const char *const options[])
{
    struct engine *e = engine_new();
    const char *args[16] = {"--ctx-size=8192", "--checkpoint-tokens=128"};
    size_t n = 2;
    if (shape[0]) {
        args[n++] = "-m";
        args[n++] = model;
    }
    for (size_t i = 0; options[i]; i++)
        args[n++] = options[i];
    engine_start(e, args);
    return e;
}

/* Both begin alike, as with one system prompt. */
static void prompt_of(unsigned conversation, unsigned turn, char *out, size_t size)
{
    int n = snprintf(out, size, "%s Story %s.", test_prompt(2), conversation ? "one" : "seven");
    for (unsigned i = 0; i <= turn; i++)
        n += snprintf(out + n, size - (size_t)n, "%s", lines[(i + conversation) % TURNS]);
}

static void generate(struct engine *e, unsigned conversation, unsigned turn, struct text *out)
{
    char prompt[8192];
    prompt_of(conversation, turn, prompt, sizeof prompt);
    engine_generate(e, prompt, TOKENS, out);
}

static void ask_title(struct engine *e, unsigned number)
{
    struct text got;
    char prompt[256];
    snprintf(prompt, sizeof prompt, "%u words as a title:%s", 3 + number, lines[number % TURNS]);
    engine_generate(e, prompt, 4, &got);
    text_free(&got);
}

static void within_plan(struct engine *e)
{
    json_t *doc = engine_stats(e);
    uint64_t planned =
        lookup_u64(doc, "memory.plan.kv_bytes") + lookup_u64(doc, "memory.plan.kv_spare_bytes");
    uint64_t has = lookup_counter(doc, "compute", "kv_bytes");
    CHECK(has <= planned, "%llu bytes of keys, values and states, %llu are planned",
          (unsigned long long)has, (unsigned long long)planned);
    uint64_t used = lookup_u64(doc, "memory.used_bytes_max");
    CHECK(used <= lookup_u64(doc, "memory.budget_bytes"), "%llu bytes used: beyond the budget",
          (unsigned long long)used);
    json_decref(doc);
}

/* The text of a turn, and that it computes what is new in it only. */
static void take_turn(struct engine *e, unsigned c, unsigned turn, const struct text *want,
                      uint64_t *known)
{
    struct text got;
    generate(e, c, turn, &got);
    text_check_same(want, &got, "conversations in turns");
    uint64_t cached = lookup_u64(got.stats, "cached_tokens");
    CHECK(cached + SLACK >= *known, "turn %u of conversation %u reused %llu of %llu tokens", turn,
          c, (unsigned long long)cached, (unsigned long long)*known);
    *known = lookup_u64(got.stats, "prompt_tokens");
    text_free(&got);
}

static void take_turns(const char *const shape[], const char *resident)
{
    struct text want[TURNS][CONVERSATIONS];
    uint64_t known[CONVERSATIONS] = {0};
    if (shape[0])
        continued_make(model, shape);
    struct engine *e = start(shape, (const char *const[]){"--keep-kv=0", NULL});
    for (unsigned i = 0; i < TURNS * CONVERSATIONS; i++)
        generate(e, i % CONVERSATIONS, i / CONVERSATIONS,
                 &want[i / CONVERSATIONS][i % CONVERSATIONS]);
    engine_stop(e);
    e = start(shape, (const char *const[]){resident, NULL});
    for (unsigned i = 0; i < TURNS * CONVERSATIONS; i++) {
        unsigned c = i % CONVERSATIONS, turn = i / CONVERSATIONS;
        take_turn(e, c, turn, &want[turn][c], &known[c]);
        ask_title(e, i);
        within_plan(e);
    }
    CHECK(engine_counter(e, "compute", "kv_kept_entries") >= CONVERSATIONS, "nothing is kept");
    CHECK(engine_counter(e, "compute", "sequences_copied") > 0,
          "what both begin with was not copied");
    for (unsigned i = 0; i < TURNS * CONVERSATIONS; i++)
        text_free(&want[i / CONVERSATIONS][i % CONVERSATIONS]);
    engine_stop(e);
}

static void in_turns(void)
{
    take_turns(demo, "--resident-experts=25");
}

static void in_turns_with_states(void)
{
    take_turns(qwen35moe, "--resident-experts=50");
}

static void in_turns_with_ngrams(void)
{
    take_turns(qwen4exp, "--resident-experts=50");
}

static void in_turns_with_latents(void)
{
    take_turns(kimi_linear, "--resident-experts=50");
}

static void in_turns_with_fixed_decays(void)
{
    take_turns(minimax_01, "--resident-experts=25");
}

static void in_turns_with_elements(void)
{
    take_turns(jamba, "--resident-experts=50");
}

static void in_turns_with_windows(void)
{
    take_turns(gpt_oss, "--resident-experts=50");
}

static void in_turns_with_chunks(void)
{
    take_turns(llama4, "--resident-experts=50");
}

/* Compute is killed when a prefix was copied, and its owner is not stored yet. */
static void killed_with(const char *const shape[])
{
    struct text want[CONVERSATIONS], got;
    if (shape[0])
        continued_make(model, shape);
    struct engine *e = start(shape, (const char *const[]){"--keep-kv=0", NULL});
    for (unsigned c = 0; c < CONVERSATIONS; c++)
        generate(e, c, 2, &want[c]);
    engine_stop(e);
    e = start(shape, (const char *const[]){NULL});
    generate(e, 0, 2, &got);
    text_check_same(&want[0], &got, "the first one");
    text_free(&got);
    char prompt[8192];
    prompt_of(1, 2, prompt, sizeof prompt);
    struct text first;
    generate(e, 1, 0, &first); /* a model with a state has a checkpoint at the branch from now on */
    text_free(&first);
    prompt_of(1, 2, prompt, sizeof prompt);
    prompt[strlen(test_prompt(2)) + 2] = 'x'; /* a third one */
    pid_t pid = engine_pid(e, "compute", 0, 0);
    json_decref(engine_control(e, "inject", json_pack("{s:s}", "point", "COMPUTE_SLOT_COPIED")));
    struct generation *g = generation_start(e, prompt, TOKENS);
    uint64_t deadline = deadline_in(CONTINUED_MS);
    while (process_state(pid) != 'T')
        CHECK(deadline_tick(deadline), "no prefix was copied");
    continued_kill(e, pid);
    generation_finish(g, CONTINUED_MS, &got);
    CHECK(lookup_u64(got.stats, "cached_tokens") > 0, "the successor did not copy it");
    text_free(&got);
    for (unsigned c = 0; c < CONVERSATIONS; c++) { /* what was copied from is as it was */
        generate(e, c, 2, &got);
        text_check_same(&want[c], &got, "after the kill");
        CHECK(lookup_u64(got.stats, "cached_tokens") > 0, "nothing was reused");
        text_free(&got);
        text_free(&want[c]);
    }
    within_plan(e);
    engine_stop(e);
}

static void killed_while_copied(void)
{
    killed_with(demo);
}

static void killed_while_a_state_is_copied(void)
{
    killed_with(qwen35moe);
}

/* Requests of many lengths, some cancelled, leave no more memory than one conversation does. */
static void short_requests(void)
{
    unsigned count = test_long() ? 1000 : 60;
    struct engine *e = start(demo, (const char *const[]){NULL});
    uint64_t most = 0;
    for (unsigned i = 0; i < count; i++) {
        struct text got;
        char prompt[512];
        snprintf(prompt, sizeof prompt, "Number %u.%s%s", i * 7 % 31, lines[i % TURNS],
                 i % 3 ? lines[(i + 1) % TURNS] : "");
        struct generation *g = generation_start(e, prompt, 1 + i % 9);
        generation_finish(g, CONTINUED_MS, &got);
        text_free(&got);
        within_plan(e);
        uint64_t used = engine_counter(e, "supervisor", "used_bytes");
        most = used > most ? used : most;
    }
    CHECK(engine_counter(e, "compute", "kv_kept_entries") > 1, "nothing is kept");
    engine_stop(e);
}

static uint64_t submit(struct rpc_client *client, uint32_t tokens, bool side)
{
    static const uint32_t prompt[] = {20, 21, 22, 23};
    struct engine_submit s;
    struct error error;
    uint64_t id;
    engine_submit_defaults(&s);
    s.prompt_ids = prompt;
    s.prompt_ids_count = ARRAY_LEN(prompt);
    s.max_tokens = tokens;
    s.ignore_eos = true;
    s.side = side;
    CHECK(engine_submit(client, &s, &id, &error) == 0, "%s", error.text);
    return id;
}

/* How many requests end before it starts. */
static uint64_t place_of(struct rpc_client *client, uint64_t id)
{
    struct engine_next next;
    struct error error;
    CHECK(engine_next(client, id, 0, 0, &next, &error) == 0, "%s", error.text);
    CHECK(next.progress.known && next.count == 0, "it does not wait");
    uint64_t place = next.progress.queue;
    engine_next_free(&next);
    return place;
}

/* A request for a title lets a conversation pass that arrived later. */
static void titles_let_conversations_pass(void)
{
    struct error error;
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"--parallel=1", NULL});
    struct rpc_client *client = engine_client_open(e->run, &error);
    CHECK(client, "%s", error.text);
    uint64_t id[] = {submit(client, 1900, false), submit(client, 4, true), submit(client, 4, true),
                     submit(client, 4, false)};
    CHECK(place_of(client, id[3]) == 1, "it waits for others than the one that runs");
    CHECK(place_of(client, id[1]) == 2 && place_of(client, id[2]) == 3, "a title does not wait");
    for (size_t i = 0; i < ARRAY_LEN(id); i++)
        CHECK(engine_cancel(client, id[i], &error) == 0, "%s", error.text);
    rpc_client_close(client);
    engine_stop(e);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        ROW(in_turns),
        ROW(in_turns_with_states),
        ROW(in_turns_with_latents),
        ROW(in_turns_with_ngrams),
        ROW(in_turns_with_fixed_decays),
        ROW(in_turns_with_elements),
        ROW(in_turns_with_windows),
        ROW(in_turns_with_chunks),
        ROW(killed_while_copied),
        ROW(killed_while_a_state_is_copied),
        ROW(short_requests),
        ROW(titles_let_conversations_pass),
    };
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
