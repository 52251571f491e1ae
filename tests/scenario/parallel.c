/* SPDX-License-Identifier: Apache-2.0 */
/* Several sequences in one pass: each greedy and each sampled text is the one that it has alone,
 * whatever runs beside it, with all experts or a quarter of them, when processes are killed, when
 * others are cancelled or fail, when the sequences do not fit into memory together, and whether
 * prefixes are kept, read from storage, or neither. On a model of each kind of mixer. */
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "tests/scenario/continued.h"
#include "tests/scenario/spoiled.h"

#define MOST      16
#define FINISH_MS 300000
#define PROMPT    4096
#define CTX       "--ctx-size=2048"
#define CHUNK     "--prefill-chunk=32" /* prompts take several passes, beside others */
#define WAIT_MS   120000

static char model[PATH_MAX]; /* "": the demo model */
static const char *context = CTX;

/* ---- what is generated ---- */

struct wish {
    char prompt[PROMPT];
    size_t tokens;
    uint64_t seed;
    struct text alone;
};

static struct wish wishes[MOST];
static unsigned wishes_count; /* that have a text alone */

/* Prompts of 10 to 300 tokens with different ends, answers of a fifth of the longest and more. */
static void make_wishes(void)
{
    unsigned longest = test_amount(AMOUNT_parallel_tokens);
    for (unsigned i = 0; i < MOST; i++) {
        snprintf(wishes[i].prompt, PROMPT, "%s %u", test_prompt((i * 2 + i / 3) % TEST_PROMPTS),
                 i * 7);
        wishes[i].tokens = longest / 5 + (i * 37 + 29) % 83 * longest / 102;
        wishes[i].seed = i % 2 ? 1000 + i : 0;
    }
}

static struct engine *start(const char *const options[])
{
    struct engine *e = engine_new();
    const char *args[16] = {context, CHUNK};
    size_t n = 2;
    if (model[0]) {
        args[n++] = "-m";
        args[n++] = model;
    }
    for (size_t i = 0; options[i]; i++)
        args[n++] = options[i];
    engine_start(e, args);
    return e;
}

/* The n-th of those that run together: the first one is long and sampled. */
static struct wish *wish_at(unsigned n)
{
    return &wishes[(n + 1) % wishes_count];
}

static struct generation *generate(struct engine *e, const struct wish *w)
{
    return generation_start_seeded(e, w->prompt, w->tokens, w->seed);
}

static struct generation *wish(struct engine *e, unsigned n)
{
    return generate(e, wish_at(n));
}

/* One after another, with all experts. */
static void generate_alone(unsigned count)
{
    struct engine *e = start((const char *const[]){"--resident-experts=100", "--parallel=1", NULL});
    wishes_count = count;
    for (unsigned i = 0; i < count; i++) {
        generation_finish(generate(e, &wishes[i]), FINISH_MS, &wishes[i].alone);
        CHECK(wishes[i].alone.error.code == ERR_NONE && wishes[i].alone.count == wishes[i].tokens,
              "sequence %u alone: %zu of %zu tokens: %s", i, wishes[i].alone.count,
              wishes[i].tokens, wishes[i].alone.error.text);
    }
    engine_stop(e);
}

static void finish(struct generation *const *g, unsigned count, const char *what)
{
    for (unsigned i = 0; i < count; i++) {
        struct text got;
        char which[128];
        generation_finish(g[i], FINISH_MS, &got);
        snprintf(which, sizeof which, "%s, sequence %u of %u", what, i, count);
        text_check_same(&wish_at(i)->alone, &got, which);
        text_free(&got);
    }
}

static void wait_for_tokens(const struct generation *g, size_t tokens)
{
    uint64_t deadline = deadline_in(FINISH_MS);
    while (generation_tokens(g) < tokens && !generation_done(g))
        CHECK(deadline_tick(deadline), "no tokens");
}

/* Each of them when the one before has some tokens. */
static void start_all(struct engine *e, struct generation **g, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        if (i % 3 == 2)
            wait_for_tokens(g[i - 1], 1 + i % 4);
        g[i] = wish(e, i);
    }
}

static void run_all(struct engine *e, unsigned count, const char *what)
{
    struct generation *g[MOST];
    start_all(e, g, count);
    finish(g, count, what);
}

static uint64_t counted(struct engine *e, const char *counter)
{
    return engine_counter(e, "compute", counter);
}

static const char *parallel(unsigned count)
{
    static char option[32];
    snprintf(option, sizeof option, "--parallel=%u", count);
    return option;
}

/* ---- texts ---- */

/* More rows than passes, if sequences shared any. */
static void shared_passes(struct engine *e)
{
    uint64_t passes = engine_counter(e, "compute", "passes");
    uint64_t decoded = engine_counter(e, "compute", "tokens_decode");
    test_note("%llu passes for %llu tokens and their prompts", (unsigned long long)passes,
              (unsigned long long)decoded);
    CHECK(passes < decoded, "no pass had rows of several sequences");
}

static void together(const char *resident, unsigned count, const char *more)
{
    struct engine *e = start((const char *const[]){resident, parallel(count), more, NULL});
    run_all(e, count, resident);
    shared_passes(e);
    engine_stop(e);
}

/* ---- prefixes ---- */

enum prefixes { NOT_KEPT, KEPT, STORED, PREFIXES__COUNT };

static const char *const prefixes_names[] = {"without prefixes", "with kept prefixes",
                                             "with prefixes from storage"};
static char prefix_dir[PATH_MAX + 16]; /* the option */

static void new_prefix_dir(void)
{
    static unsigned number;
    char name[32], path[PATH_MAX];
    snprintf(name, sizeof name, "prefixes-%u", ++number);
    snprintf(prefix_dir, sizeof prefix_dir, "--prefix-dir=%s", path_in_dir(path, name));
}

/* STORED: what is kept is on storage only, where an engine with KEPT has written it. */
static struct engine *start_with(enum prefixes prefixes, const char *resident, unsigned count,
                                 const char *more)
{
    const char *option = prefixes == NOT_KEPT ? "--keep-kv=0"
                         : prefixes == KEPT   ? "--keep-kv=1GiB"
                                              : "--keep-kv=1";
    const char *dir = prefixes == NOT_KEPT || !prefix_dir[0] ? NULL : prefix_dir;
    return start((const char *const[]){resident, parallel(count), option, more ? more : dir,
                                       more ? dir : NULL, NULL});
}

/* Without any; with those that the same texts have left; with those of an engine before. Returns
 * how many were read from storage: with windows, what is stored of many sequences may lack the
 * checkpoint that a prompt needs. */
static uint64_t with_prefixes(const char *resident, unsigned count)
{
    new_prefix_dir();
    struct engine *e = start_with(NOT_KEPT, resident, count, NULL);
    run_all(e, count, prefixes_names[NOT_KEPT]);
    CHECK(counted(e, "tokens_reused") == 0, "rows were kept");
    engine_stop(e);
    e = start_with(KEPT, resident, count, NULL);
    run_all(e, count, "before any prefix");
    uint64_t before = counted(e, "tokens_reused");
    run_all(e, count, prefixes_names[KEPT]);
    CHECK(counted(e, "tokens_reused") > before, "nothing was reused");
    engine_wait_counter(e, "compute", "prefixes_stored", 1, WAIT_MS);
    engine_stop(e);
    e = start_with(STORED, resident, count, NULL);
    run_all(e, count, prefixes_names[STORED]);
    uint64_t read = counted(e, "prefixes_read");
    CHECK(counted(e, "prefixes_rejected") == 0, "a prefix was rejected");
    engine_stop(e);
    return read;
}

/* ---- kills and cancels ---- */

static uint64_t submit_long(struct rpc_client *client)
{
    struct engine_submit s;
    struct error error;
    uint64_t id;
    engine_submit_defaults(&s);
    s.prompt = test_prompt(2);
    s.prompt_bytes = strlen(s.prompt);
    s.max_tokens = 700;
    s.ignore_eos = true;
    CHECK(engine_submit(client, &s, &id, &error) == 0, "%s", error.text);
    return id;
}

/* False: it ended before. */
static bool was_cancelled(struct rpc_client *client, uint64_t id)
{
    struct engine_next next;
    struct error error;
    uint64_t from = 0;
    bool cancelled = false;
    for (bool done = false; !done;) {
        CHECK(engine_next(client, id, from, 10000, &next, &error) == 0, "%s", error.text);
        done = next.done;
        cancelled = done && strcmp(next.finish, "cancelled") == 0;
        from = next.next;
        engine_next_free(&next);
    }
    return cancelled;
}

static unsigned running(struct generation *const *g, unsigned count)
{
    unsigned n = 0;
    for (unsigned i = 0; i < count; i++)
        n += !generation_done(g[i]);
    return n;
}

/* Others are cancelled, and each process is killed, while they run. Nobody polls those that are
 * cancelled until the end, which may be more than the idle timeout later. */
static void among_kills(enum prefixes prefixes, const char *resident, unsigned count)
{
    static const char *const services[] = {"compute", "cache", "loader", "compute"};
    struct generation *g[MOST];
    struct error error;
    struct engine *e = start_with(prefixes, resident, 5, "--idle-timeout=3600000");
    if (prefixes == KEPT && test_long())
        run_all(e, count, "before the kills");
    struct rpc_client *client = engine_client_open(e->run, &error);
    CHECK(client, "%s", error.text);
    unsigned hit = 0;
    uint64_t first = submit_long(client);
    g[0] = wish(e, 0);
    wait_for_tokens(g[0], 1);
    CHECK(engine_cancel(client, first, &error) == 0, "%s", error.text);
    for (unsigned i = 1; i < count; i++)
        g[i] = wish(e, i);
    uint64_t second = submit_long(client);
    for (unsigned i = 0; i < ARRAY_LEN(services); i++) {
        pid_t pid = engine_pid(e, services[i], 0, 0);
        wait_for_tokens(g[i % count], 2 + 4 * i);
        hit += running(g, count) > 1;
        CHECK(kill(pid, SIGKILL) == 0, "%s exited on its own", services[i]);
        engine_pid(e, services[i], 0, pid);
    }
    CHECK(engine_cancel(client, second, &error) == 0, "%s", error.text);
    finish(g, count, prefixes_names[prefixes]);
    CHECK(was_cancelled(client, first), "the first one ended before it was cancelled");
    test_note("%u of %zu kills hit several sequences; cancelled later: %u", hit,
              ARRAY_LEN(services), was_cancelled(client, second));
    CHECK(hit > 0, "no kill hit several sequences");
    rpc_client_close(client);
    engine_stop(e);
}

/* ---- the kinds of models ---- */

/* What the short form has of one model only, in turn. */
static void more_texts(unsigned count)
{
    unsigned met = 0;
    if (test_sample(EVERY_parallel_more, &met))
        together("--resident-experts=100", 2, "--threads=1");
    if (test_sample(EVERY_parallel_more, &met))
        together("--resident-experts=100", 5, "--threads=2");
    if (test_sample(EVERY_parallel_more, &met))
        together("--resident-experts=25", count, "--prediction=none");
    if (test_sample(EVERY_parallel_more, &met)) {
        uint64_t read = with_prefixes("--resident-experts=25", count);
        CHECK(model[0] || read > 0, "no prefix was read from storage");
        among_kills(STORED, "--resident-experts=25", count);
    }
}

/* Every combination: each kind of prefix, and kills with each. */
static void all_texts(void)
{
    static const char *const resident[] = {"--resident-experts=100", "--resident-experts=25"};
    static const unsigned counts[] = {1, 2, 5, MOST};
    for (size_t r = 0; r < ARRAY_LEN(resident); r++) {
        uint64_t read = 0;
        for (size_t i = 0; i < ARRAY_LEN(counts); i++)
            read += with_prefixes(resident[r], counts[i]);
        CHECK(read > 0, "no prefix was read from storage");
        for (int p = 0; p < PREFIXES__COUNT; p++)
            among_kills((enum prefixes)p, resident[r], MOST);
    }
}

/* keys: of synth, up to a NULL. */
static void kind(const char *const keys[])
{
    unsigned count = (unsigned)test_amount(AMOUNT_parallel_sequences);
    model[0] = '\0';
    prefix_dir[0] = '\0';
    if (keys)
        continued_make(model, keys);
    make_wishes();
    generate_alone(count);
    together("--resident-experts=25", count, NULL);
    among_kills(KEPT, "--resident-experts=25", count);
    if (test_long() || !keys)
        more_texts(count);
    if (test_long())
        all_texts();
    for (unsigned i = 0; i < count; i++)
        text_free(&wishes[i].alone);
}

static void demo(void)
{
    kind(NULL);
}

static void qwen3moe(void)
{
    kind((const char *const[]){"arch=qwen3moe", "layers=3", NULL});
}

static void qwen35moe(void)
{
    kind((const char *const[]){"arch=qwen35moe", "layers=3", "shared_inner=64", "rope_dims=16",
                               "conv_taps=4", "delta_size=16", "delta_k_heads=2", "delta_v_heads=4",
                               "delta_inner=64", "attention_step=3", NULL});
}

/* Two numbers of query heads, gates, limits. */
static void step35(void)
{
    kind((const char *const[]){"arch=step35", "heads_window=6", "dense_layers=1", "dense_inner=64",
                               "shared_inner=64", "norm_top_k=1", "window=32", "full_every=2",
                               "rope_theta_window=1000", "expert_limits=0.4", "dense_limits=0.3",
                               NULL});
}

static void granitehybrid(void)
{
    kind((const char *const[]){"arch=granitehybrid", "shared_inner=64", "conv_taps=4",
                               "delta_size=16", "delta_k_heads=2", "delta_v_heads=4",
                               "delta_inner=128", "attention_step=3", NULL});
}

static void nemotron(void)
{
    kind((const char *const[]){"arch=nemotron_h_moe", "pattern=ME*E", "shared_inner=64",
                               "conv_taps=4", "delta_size=16", "delta_k_heads=2", "delta_v_heads=4",
                               "delta_inner=128", "expert_width=64", NULL});
}

/* Mamba-1, and experts in every second layer. */
static void jamba(void)
{
    kind((const char *const[]){"arch=jamba", "layers=4", "dense_inner=128", "conv_taps=4",
                               "delta_size=8", "step_rank=16", "delta_inner=192",
                               "attention_step=3", "experts_every=2", NULL});
}

/* Kimi delta attention beside MLA, whose residual is a bank; experts in a latent. */
static void kimi_k3(void)
{
    kind((const char *const[]){"arch=kimi-k3", "dense_layers=1", "dense_inner=128",
                               "shared_inner=64", "conv_taps=4", "delta_size=16",
                               "attention_step=3", "kv_heads=1", "q_rank=32", "kv_rank=32",
                               "mla_key_size=24", "mla_value_size=16", "rope_dims=8",
                               "expert_width=32", "bank_block=2", "cap_gate=4", "cap_up=25", NULL});
}

/* Streams, and n-grams of several sequences. */
static void qwen4exp(void)
{
    kind((const char *const[]){"arch=qwen4exp", "shared_inner=64", "conv_taps=4", "delta_size=16",
                               "delta_k_heads=2", "delta_v_heads=4", "delta_inner=64",
                               "attention_step=2", "streams=4", "stream_rank=16", "ngram_size=3",
                               "ngram_heads=2", "ngram_taps=4", "ngram_width=16", "ngram_rows=1000",
                               NULL});
}

/* Lightning attention beside attention of which half a head is rotated. */
static void minimax_01(void)
{
    kind((const char *const[]){"arch=minimax-01", "attention_step=3", "rope_dims=16",
                               "normed_scale=1.5", NULL});
}

/* Experts that are known before attention, beside a dense network. */
static void arctic(void)
{
    kind((const char *const[]){"arch=arctic", "experts_used=2", NULL});
}

static void lfm2moe(void)
{
    kind((const char *const[]){"arch=lfm2moe", "dense_layers=1", "dense_inner=128", "conv_taps=3",
                               "attention_step=2", NULL});
}

static void gpt_oss(void)
{
    kind((const char *const[]){"arch=gpt-oss", "layers=4", "window=16", "rope_scaling=2",
                               "rope_factor=8", "rope_context=64", NULL});
}

static void llama4(void)
{
    kind((const char *const[]){"arch=llama4", "layers=4", "experts_used=1", "expert_step=1",
                               "shared_count=1", "window=64", "query_scale=0.1", "query_context=16",
                               NULL});
}

static void gemma4(void)
{
    kind((const char *const[]){"arch=gemma4", "dense_inner=128", "window=48", "full_every=3",
                               "head_size_window=32", "value_size_window=32", "rope_dims_window=32",
                               "full_v=0", "rope_theta_window=1000", NULL});
}

static void deepseek2(void)
{
    kind((const char *const[]){"arch=deepseek2", "layers=3", "dense_layers=1", "dense_inner=128",
                               "shared_count=1", "kv_heads=1", "head_size=0", "q_rank=64",
                               "kv_rank=64", "mla_key_size=48", "mla_value_size=32", "rope_dims=16",
                               NULL});
}

/* ---- memory ---- */

/* The keys and values of all are several times those of the largest one: some give theirs up and
 * compute them again. */
static void memory_for_one(void)
{
    enum { COUNT = 6 };
    struct generation *g[COUNT];
    model[0] = '\0';
    context = "--ctx-size=1024";
    make_wishes();
    for (unsigned i = 0; i < COUNT; i++) {
        snprintf(wishes[i].prompt, PROMPT, "%u %s", i, test_prompt(2)); /* nothing to share */
        wishes[i].tokens = 420 + i;
    }
    generate_alone(COUNT);
    struct engine *e = start((const char *const[]){"--resident-experts=50", "--parallel=6", NULL});
    for (unsigned i = 0; i < COUNT; i++)
        g[i] = wish(e, i);
    finish(g, COUNT, "without memory for all");
    uint64_t paused = engine_counter(e, "compute", "sequences_paused");
    test_note("%llu sequences gave their memory up", (unsigned long long)paused);
    shared_passes(e);
    CHECK(paused > 0, "none gave its memory up: the case tests nothing");
    uint64_t prompts = 0, counted = engine_counter(e, "compute", "tokens_prefill") +
                                    engine_counter(e, "compute", "tokens_reused");
    for (unsigned i = 0; i < COUNT; i++)
        prompts += lookup_u64(wishes[i].alone.stats, "prompt_tokens");
    CHECK(counted <= prompts, "%llu tokens of prompts are counted of %llu",
          (unsigned long long)counted, (unsigned long long)prompts);
    CHECK(engine_counter(e, "compute", "tokens_repeated") > 0, "nothing was computed again");
    context = CTX;
    engine_stop(e);
    for (unsigned i = 0; i < COUNT; i++)
        text_free(&wishes[i].alone);
}

/* ---- failures ---- */

#define SPOILED_TOKEN 7

static uint64_t submit_spoiled(struct rpc_client *client)
{
    static const uint32_t prompt[] = {20, 21, 22, SPOILED_TOKEN, 23};
    struct engine_submit s;
    struct error error;
    uint64_t id;
    engine_submit_defaults(&s);
    s.prompt_ids = prompt;
    s.prompt_ids_count = ARRAY_LEN(prompt);
    s.max_tokens = 20;
    CHECK(engine_submit(client, &s, &id, &error) == 0, "%s", error.text);
    return id;
}

static void check_failed(struct rpc_client *client, uint64_t id)
{
    struct engine_next next;
    struct error error;
    CHECK(engine_next(client, id, 0, 60000, &next, &error) == 0, "%s", error.text);
    CHECK(next.done && next.failure.code == ERR_NOT_FINITE, "done %d, error '%s'", next.done,
          next.failure.text);
    engine_next_free(&next);
}

/* A prompt whose rows are not finite ends with its error, and the others of its passes continue. */
static void one_fails(void)
{
    char made[PATH_MAX];
    struct generation *g[4];
    struct error error;
    uint64_t bad[3];
    continued_make(made, (const char *const[]){"arch=qwen3moe", "layers=3", "tied=0", NULL});
    spoiled_token(model, made, SPOILED_TOKEN);
    make_wishes();
    for (unsigned i = 0; i < ARRAY_LEN(g); i++) { /* a long or sampled text may have any token */
        wishes[i].seed = 0;
        wishes[i].tokens = 60 + 5 * i;
    }
    generate_alone(ARRAY_LEN(g));
    struct engine *e = start((const char *const[]){"--resident-experts=25", "--parallel=5", NULL});
    struct rpc_client *client = engine_client_open(e->run, &error);
    CHECK(client, "%s", error.text);
    for (unsigned i = 0; i < ARRAY_LEN(g); i++) {
        g[i] = wish(e, i);
        if (i < ARRAY_LEN(bad))
            bad[i] = submit_spoiled(client);
    }
    finish(g, ARRAY_LEN(g), "beside one that fails");
    for (unsigned i = 0; i < ARRAY_LEN(bad); i++)
        check_failed(client, bad[i]);
    CHECK(engine_restarts(e, "compute", 0) == 0, "compute was restarted");
    rpc_client_close(client);
    engine_stop(e);
    for (unsigned i = 0; i < ARRAY_LEN(g); i++)
        text_free(&wishes[i].alone);
}

/* ---- presets ---- */

/* A change waits for the end of those that run, and those that wait run under it. */
static void preset_change(void)
{
    struct text got;
    model[0] = '\0';
    make_wishes();
    generate_alone(3);
    struct engine *e = start((const char *const[]){"--resident-experts=25", "--parallel=3", NULL});
    struct generation *g[3] = {wish(e, 0), wish(e, 1)};
    wait_for_tokens(g[0], 1);
    json_decref(engine_control(e, "preset", json_pack("{s:s}", "preset", "lod")));
    g[2] = wish(e, 2);
    for (unsigned i = 0; i < 2; i++) {
        generation_finish(g[i], FINISH_MS, &got);
        text_check_same(&wish_at(i)->alone, &got, "before the change");
        CHECK(strcmp(lookup_text(got.stats, "preset"), "default") == 0, "preset %s",
              lookup_text(got.stats, "preset"));
        text_free(&got);
    }
    generation_finish(g[2], FINISH_MS, &got);
    CHECK(strcmp(lookup_text(got.stats, "preset"), "lod") == 0, "preset %s",
          lookup_text(got.stats, "preset"));
    text_free(&got);
    engine_stop(e);
    for (unsigned i = 0; i < 3; i++)
        text_free(&wishes[i].alone);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        ROW(demo),     ROW(qwen3moe),       ROW(qwen35moe), ROW(lfm2moe),       ROW(granitehybrid),
        ROW(nemotron), ROW(jamba),          ROW(kimi_k3),   ROW(qwen4exp),      ROW(step35),
        ROW(gpt_oss),  ROW(llama4),         ROW(gemma4),    ROW(deepseek2),     ROW(minimax_01),
        ROW(arctic),   ROW(memory_for_one), ROW(one_fails), ROW(preset_change),
    };
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
