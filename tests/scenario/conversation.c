/* SPDX-License-Identifier: Apache-2.0 */
/* Conversations as programs hold them: a system prompt with tools, short turns, two other clients
 * and requests for titles between them. On every kind of mixer a turn computes its new tokens only,
 * and the text is that without reuse. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "ipc/engine/engine_client.h"
#include "lib/base/bytes.h"
#include "tests/harness/harness.h"
#include "tests/scenario/continued.h"

#define CLIENTS  3u
#define QUESTION 60u
#define ANSWER   40u
#define TOKENS   4096u
#define SHARE    95u /* percent of what could be reused */

struct client {
    uint32_t log[TOKENS], count;         /* as it sends it the next time */
    uint32_t known[TOKENS], known_count; /* that the engine has computed */
};

/* The demo model has a short context. */
struct size {
    uint32_t turns, system; /* tokens of the system prompt, which all clients have */
    uint32_t end;           /* the control token that ends each message */
};

struct talk {
    struct rpc_client *engine;
    struct size size;
    struct client client[CLIENTS];
    bool rewrites;       /* the template writes answers in another way once they are history */
    uint64_t hash;       /* of all answers */
    uint64_t could, was; /* tokens of prompts: could be reused, were */
    uint64_t first_could, first_was; /* of the first prompts of the other clients */
};

static void put(struct client *c, uint32_t seed, uint32_t tokens, uint32_t end)
{
    for (uint32_t i = 0; i < tokens; i++)
        c->log[c->count++] = 3 + (seed * 7919 + i * (seed % 5 + 1)) % 240;
    c->log[c->count++] = end;
    c->log[c->count++] = 10;
    CHECK(c->count + ANSWER + 8 < TOKENS, "too many tokens");
}

/* Sends a prompt and reads the answer; returns how many tokens were reused. */
static uint64_t ask(struct talk *t, const uint32_t *log, uint32_t count, bool side,
                    uint32_t answer[ANSWER])
{
    struct engine_submit s;
    struct engine_next next;
    struct error error;
    uint64_t id, cached;
    uint32_t have = 0;
    engine_submit_defaults(&s);
    s.prompt_ids = log;
    s.prompt_ids_count = count;
    s.max_tokens = side ? 8 : ANSWER;
    s.ignore_eos = true;
    s.side = side;
    s.sampling.temperature = 0;
    CHECK(engine_submit(t->engine, &s, &id, &error) == 0, "%s", error.text);
    for (;;) {
        CHECK(engine_next(t->engine, id, have, 1000, &next, &error) == 0, "%s", error.text);
        for (size_t i = 0; i < next.count && have < ANSWER; i++)
            answer[have++] = next.ids[i];
        if (next.done)
            break;
        engine_next_free(&next);
    }
    CHECK(strcmp(next.finish, "length") == 0, "the answer ended with %s", next.finish);
    cached = lookup_u64(next.stats, "cached_tokens");
    engine_next_free(&next);
    return cached;
}

static uint32_t common(const uint32_t *a, uint32_t n, const uint32_t *b, uint32_t m)
{
    uint32_t i = 0;
    while (i < n && i < m && a[i] == b[i])
        i++;
    return i;
}

/* The longest prefix that any client's computed tokens have in common with a prompt. */
static uint32_t could_reuse(const struct talk *t, const struct client *c)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < CLIENTS; i++) {
        const struct client *o = &t->client[i];
        uint32_t n = common(c->log, c->count - 1, o->known, o->known_count);
        most = n > most ? n : most;
    }
    return most;
}

static void take_turn(struct talk *t, uint32_t number, uint32_t turn)
{
    struct client *c = &t->client[number];
    uint32_t answer[ANSWER];
    put(c, 100 * number + turn + 1, QUESTION, t->size.end);
    c->log[c->count++] = 20 + number; /* a role, and the answer follows */
    uint32_t could = could_reuse(t, c);
    uint64_t was = ask(t, c->log, c->count, false, answer);
    *(turn == 0 && number > 0 ? &t->first_could : &t->could) += could;
    *(turn == 0 && number > 0 ? &t->first_was : &t->was) += was;
    for (uint32_t i = 0; i < ANSWER; i++)
        t->hash = t->hash * 1000003 + answer[i];
    memcpy(c->known, c->log, c->count * sizeof *c->log);
    memcpy(c->known + c->count, answer, sizeof answer);
    c->known_count = c->count + ANSWER - 1; /* the last token has no row */
    for (uint32_t i = t->rewrites ? ANSWER / 2 : 0; i < ANSWER; i++)
        c->log[c->count++] = answer[i];
    c->log[c->count++] = t->size.end;
    c->log[c->count++] = 10;
}

static void ask_title(struct talk *t, uint32_t seed)
{
    struct client title = {.count = 0};
    uint32_t answer[ANSWER];
    put(&title, 1000 + seed, 50 + seed % 40, t->size.end);
    ask(t, title.log, title.count, true, answer);
}

/* All turns on an engine; the sums are in *t. */
static void hold(struct engine *e, struct talk *t)
{
    struct error error;
    t->engine = engine_client_open(e->run, &error);
    CHECK(t->engine, "%s", error.text);
    for (uint32_t i = 0; i < CLIENTS; i++)
        put(&t->client[i], 77, t->size.system, t->size.end);
    for (uint32_t turn = 0; turn < t->size.turns; turn++)
        for (uint32_t i = 0; i < CLIENTS; i++) {
            take_turn(t, i, turn);
            ask_title(t, turn * CLIENTS + i);
        }
    rpc_client_close(t->engine);
}

static char model[PATH_MAX];

static struct engine *start(bool made, const char *keep)
{
    struct engine *e = engine_new();
    const char *args[8] = {"--ctx-size=16384", "--resident-experts=100", keep};
    if (made) {
        args[3] = "-m";
        args[4] = model;
    }
    engine_start(e, args);
    return e;
}

static void compare(bool made, bool rewrites)
{
    static struct talk alone, t;
    const struct size size =
        made ? (struct size){.turns = test_long() ? 10 : 3, .system = 700, .end = 262}
             : (struct size){.turns = test_long() ? 4 : 3, .system = 150, .end = 0};
    memset(&alone, 0, sizeof alone);
    memset(&t, 0, sizeof t);
    alone.size = t.size = size;
    alone.rewrites = t.rewrites = rewrites;
    struct engine *e = start(made, "--keep-kv=0");
    hold(e, &alone);
    engine_stop(e);
    e = start(made, "--keep-kv=1GiB");
    hold(e, &t);
    test_note("%" PRIu64 " of %" PRIu64 " tokens, of first prompts %" PRIu64 " of %" PRIu64, t.was,
              t.could, t.first_was, t.first_could);
    CHECK(alone.hash == t.hash, "the answers differ");
    CHECK(alone.was == 0, "tokens were reused without memory for them");
    CHECK(t.was * 100 >= t.could * SHARE, "%" PRIu64 " of %" PRIu64 " tokens were reused", t.was,
          t.could);
    CHECK(t.first_was * 100 >= t.first_could * SHARE,
          "%" PRIu64 " of %" PRIu64 " tokens of a common system prompt were reused", t.first_was,
          t.first_could);
    engine_stop(e);
}

static void kind(const char *const shape[])
{
    continued_make(model, shape);
    compare(true, false);
    compare(true, true);
}

static void demo(void)
{
    compare(false, false);
    compare(false, true);
}

static void qwen35moe(void)
{
    kind((const char *const[]){"arch=qwen35moe", "layers=3", "shared_inner=64", "rope_dims=16",
                               "conv_taps=4", "delta_size=16", "delta_k_heads=2", "delta_v_heads=4",
                               "delta_inner=64", "attention_step=3", "context=16384", NULL});
}

static void lfm2moe(void)
{
    kind((const char *const[]){"arch=lfm2moe", "dense_layers=1", "dense_inner=128", "conv_taps=3",
                               "attention_step=2", "context=16384", NULL});
}

static void gpt_oss(void)
{
    kind((const char *const[]){"arch=gpt-oss", "layers=4", "window=128", "rope_scaling=2",
                               "rope_factor=8", "rope_context=64", "context=16384", NULL});
}

static void llama4(void)
{
    kind((const char *const[]){"arch=llama4", "layers=4", "experts_used=1", "expert_step=1",
                               "shared_count=1", "window=128", "query_scale=0.1",
                               "query_context=64", "context=16384", NULL});
}

static void gemma4(void)
{
    kind((const char *const[]){"arch=gemma4", "dense_inner=128", "window=128", "full_every=3",
                               "head_size_window=32", "value_size_window=32", "rope_dims_window=32",
                               "full_v=0", "rope_theta_window=1000", "context=16384", NULL});
}

static void deepseek2(void)
{
    kind((const char *const[]){"arch=deepseek2", "layers=3", "dense_layers=1", "dense_inner=128",
                               "shared_count=1", "kv_heads=1", "head_size=0", "q_rank=64",
                               "kv_rank=64", "mla_key_size=48", "mla_value_size=32", "rope_dims=16",
                               "context=16384", NULL});
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        ROW(demo),   ROW(qwen35moe), ROW(lfm2moe),   ROW(gpt_oss),
        ROW(llama4), ROW(gemma4),    ROW(deepseek2),
    };
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
