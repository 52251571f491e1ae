/* SPDX-License-Identifier: Apache-2.0 */
/* Invariant 1 with files whose experts are of several types, of a type other than the demo model's,
 * or of another architecture (layers without experts, shared experts, other routers): the same text
 * with a quarter of the experts, in chunks of any size, with the generic kernels, and when
 * processes are killed. The long form: combinations() in addition. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/model/arch/table.h"
#include "tests/harness/harness.h"

#define SYNTH_MS  60000
#define FINISH_MS 60000
#define KEYS_MAX  24
/* Per process: generations that may end before the kill. */
#define KILL_TRIES 10

static char model[PATH_MAX];
static struct text expected;

static unsigned tokens_of_text(void)
{
    return test_amount(AMOUNT_mixes_tokens);
}

/* 48 experts whose rows are super-blocks, on an engine that holds all of them. keys: of the shape,
 * up to KEYS_MAX. */
static void make(const char *mix, const char *const keys[])
{
    struct command c;
    const char *args[12 + KEYS_MAX] = {
        "synth",           "-q",         "-o",           model,    "tiny",
        "layers=3",        "hidden=256", "head_size=64", "--type", mix,
        "expert_inner=256"};
    for (size_t i = 0; keys && keys[i]; i++)
        args[11 + i] = keys[i];
    snprintf(model, sizeof model, "%s/%s.gguf", test_dir(), mix);
    command_run(&c, NULL, SYNTH_MS, args);
    CHECK(c.status == 0, "synth: %.300s", c.err);
    command_free(&c);
    struct engine *e = engine_new();
    engine_start(e,
                 (const char *const[]){"-m", model, "--resident-experts=100", "--threads=1", NULL});
    engine_generate(e, test_prompt(1), tokens_of_text(), &expected);
    engine_stop(e);
}

static void check(struct text *got, const char *what)
{
    text_check_same(&expected, got, what);
    text_free(got);
}

static struct engine *start_scarce(const char *option)
{
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"-m", model, "--resident-experts=25", option, NULL});
    return e;
}

static void same_text_on(struct engine *e, const char *option)
{
    struct text got;
    engine_generate(e, test_prompt(1), tokens_of_text(), &got);
    check(&got, option);
    CHECK(engine_counter(e, "cache", "evictions") > 0, "no evictions");
}

static void same_text(const char *option)
{
    struct engine *e = start_scarce(option);
    same_text_on(e, option);
    engine_stop(e);
}

/* False: the generation ended before the kill. */
static bool kill_one(struct engine *e, const char *service, unsigned tokens)
{
    struct text got;
    pid_t pid = engine_pid(e, service, 0, 0);
    struct generation *g = generation_start(e, test_prompt(1), tokens_of_text());
    uint64_t deadline = deadline_in(FINISH_MS);
    while (generation_tokens(g) < tokens && !generation_done(g))
        CHECK(deadline_tick(deadline), "no tokens");
    bool running = !generation_done(g);
    kill(pid, SIGKILL);
    engine_pid(e, service, 0, pid);
    generation_finish(g, FINISH_MS, &got);
    check(&got, service);
    return running;
}

/* The first text is without a kill. */
static void kills(void)
{
    static const char *const services[] = {"cache", "loader", "compute"};
    struct engine *e = start_scarce("--threads=2");
    unsigned tries = 0;
    same_text_on(e, "--threads=2");
    for (unsigned i = 0; i < ARRAY_LEN(services); i++) {
        unsigned end = tries + KILL_TRIES;
        while (!kill_one(e, services[i], 10 + 20 * i))
            CHECK(++tries < end, "no kill of %s hit a running generation", services[i]);
    }
    test_note("%zu kills hit a running generation, %u did not", ARRAY_LEN(services), tries);
    engine_stop(e);
}

/* ---- every combination, with --long ---- */

static void generate(struct engine *e, const char *what)
{
    struct text got;
    engine_generate(e, test_prompt(1), tokens_of_text(), &got);
    check(&got, what);
}

/* compute is killed after some tokens, wherever it is, or (point) when it stops itself within a
 * token. */
static bool generate_with_kill(struct engine *e, const char *point, const char *what)
{
    struct text got;
    pid_t pid = engine_pid(e, "compute", 0, 0);
    if (point)
        json_decref(engine_control(e, "inject", json_pack("{s:s}", "point", point)));
    struct generation *g = generation_start(e, test_prompt(1), tokens_of_text());
    uint64_t deadline = deadline_in(FINISH_MS);
    while (!generation_done(g) &&
           (point ? process_state(pid) != 'T' : generation_tokens(g) < tokens_of_text() / 4))
        CHECK(deadline_tick(deadline), "%s: compute did not get so far", what);
    bool landed = !generation_done(g);
    CHECK(kill(pid, SIGKILL) == 0, "%s: compute exited on its own", what);
    engine_pid(e, "compute", 0, pid);
    generation_finish(g, FINISH_MS, &got);
    check(&got, what);
    return landed;
}

/* Shares of the experts x threads x chunks x kills of compute: none, between tokens, within one. */
static void combinations(void)
{
    static const char *const resident[] = {"--resident-experts=100", "--resident-experts=50",
                                           "--resident-experts=25"};
    static const char *const threads[] = {"--threads=1", "--threads=2"};
    static const char *const chunks[] = {"--prefill-chunk=1", "--prefill-chunk=7",
                                         "--prefill-chunk=64"};
    unsigned between = 0, within = 0, count = 0;
    for (; count < ARRAY_LEN(resident) * ARRAY_LEN(threads) * ARRAY_LEN(chunks); count++) {
        const char *share = resident[count % 3], *thread = threads[count / 3 % 2],
                   *chunk = chunks[count / 6];
        char what[128];
        snprintf(what, sizeof what, "%s %s %s", share, thread, chunk);
        struct engine *e = engine_new();
        engine_start(e,
                     (const char *const[]){"-m", model, share, thread, chunk, "--keep-kv=0", NULL});
        generate(e, what);
        between += generate_with_kill(e, NULL, what);
        within += generate_with_kill(e, "COMPUTE_MID_TOKEN", what);
        engine_stop(e);
    }
    test_note("%u combinations; %u kills between tokens, %u within one", count, between, within);
    CHECK(between > 0 && within == count, "kills that hit nothing");
}

static void run(const char *mix, const char *const keys[])
{
    make(mix, keys);
    same_text("--prefill-chunk=7");
    same_text("--isa=generic"); /* the others: tests/unit/lib/kernels/bits_test.c */
    kills();
    if (test_long())
        combinations();
    text_free(&expected);
}

/* One of the checks; all with --long. */
static void sample(const char *option, const char *const keys[])
{
    if (test_long()) {
        run("Q4_K_M", keys);
        return;
    }
    make("Q4_K_M", keys);
    same_text(option);
    text_free(&expected);
}

static void q4_k_m(void)
{
    run("Q4_K_M", NULL);
}

static void mxfp4(void)
{
    run("MXFP4", NULL);
}

static void nvfp4(void)
{
    run("NVFP4", NULL);
}

/* Experts of a layer are more than twice as large as those of the next. */
static void layers_that_differ(void)
{
    run("Q8_0,IQ2_XXS,Q4_K_M", NULL);
}

static void qwen3moe(void)
{
    sample("--threads=2", (const char *const[]){"arch=qwen3moe", NULL});
}

static void qwen2moe(void)
{
    sample("--prefill-chunk=7", (const char *const[]){"arch=qwen2moe", "shared_inner=512", NULL});
}

static void olmoe(void)
{
    sample("--threads=2", (const char *const[]){"arch=olmoe", NULL});
}

static void llama(void)
{
    sample("--isa=generic", (const char *const[]){"arch=llama", "experts_used=2", NULL});
}

static void glm4moe(void)
{
    run("Q4_K_M",
        (const char *const[]){"arch=glm4moe", "layers=4", "dense_layers=1", "dense_inner=512",
                              "shared_count=1", "norm_top_k=1", "rope_dims=32", NULL});
}

static void dots1(void)
{
    sample("--threads=2",
           (const char *const[]){"arch=dots1", "layers=4", "dense_layers=1", "dense_inner=512",
                                 "shared_count=2", "norm_top_k=1", "expert_scale=2.5", NULL});
}

static void ernie4_5_moe(void)
{
    sample("--prefill-chunk=7",
           (const char *const[]){"arch=ernie4_5-moe", "layers=5", "dense_layers=2",
                                 "dense_inner=512", "shared_count=2", "shared_inner=512", NULL});
}

/* Recurrent layers: their state survives kills, too. */
#define DELTA_KEYS                                                                                 \
    "shared_inner=256", "rope_dims=16", "conv_taps=4", "delta_size=32", "delta_k_heads=2",         \
        "delta_v_heads=4", "delta_inner=128"

static void qwen35moe(void)
{
    run("Q4_K_M", (const char *const[]){"arch=qwen35moe", DELTA_KEYS, "attention_step=3", NULL});
}

static void qwen3next(void)
{
    sample("--prefill-chunk=7",
           (const char *const[]){"arch=qwen3next", DELTA_KEYS, "attention_step=2", NULL});
}

static void lfm2moe(void)
{
    run("Q4_K_M",
        (const char *const[]){"arch=lfm2moe", "layers=5", "dense_layers=2", "dense_inner=512",
                              "conv_taps=3", "attention_step=2", NULL});
}

static void minimax_m2(void)
{
    sample("--isa=generic", (const char *const[]){"arch=minimax-m2", "rope_dims=32", NULL});
}

/* Networks with gpt-oss's activation; up to 2048 tokens. */
static void minimax_m3(void)
{
    run("Q4_K_M", (const char *const[]){"arch=minimax-m3", "layers=4", "dense_layers=1",
                                        "dense_inner=512", "shared_count=1", "norm_top_k=1",
                                        "expert_scale=2", "rope_dims=32", NULL});
}

static void bailingmoe2(void)
{
    sample("--prefill-chunk=7",
           (const char *const[]){"arch=bailingmoe2", "layers=4", "dense_layers=1",
                                 "dense_inner=512", "shared_count=1", "norm_top_k=1", "groups=4",
                                 "groups_used=2", NULL});
}

/* Its experts are requested before attention. */
static void smallthinker(void)
{
    run("Q4_K_M",
        (const char *const[]){"arch=smallthinker", "layers=5", "window=64", "gating=2", NULL});
}

static void granitemoe(void)
{
    sample("--threads=2",
           (const char *const[]){"arch=granitemoe", "embedding_scale=12", "residual_scale=0.22",
                                 "score_scale=0.125", "logit_divisor=6", "shared_inner=512", NULL});
}

/* Router and experts read the input of the layer, and a dense network is beside them. */
static void arctic(void)
{
    run("Q4_K_M", (const char *const[]){"arch=arctic", "layers=3", "experts_used=2", NULL});
}

/* Mamba-2 in two of three layers. */
static void granitehybrid(void)
{
    run("Q4_K_M", (const char *const[]){"arch=granitehybrid", "conv_taps=4", "delta_size=32",
                                        "delta_k_heads=2", "delta_v_heads=8", "delta_inner=512",
                                        "attention_step=3", "shared_inner=256",
                                        "embedding_scale=12", "residual_scale=0.22", NULL});
}

/* Layers of one part: Mamba-2, experts of two matrices, attention; and experts in a latent. */
static void nemotron_h_moe(void)
{
    run("Q4_K_M", (const char *const[]){"arch=nemotron_h_moe", "pattern=ME*EE", "conv_taps=4",
                                        "delta_size=32", "delta_k_heads=2", "delta_v_heads=8",
                                        "delta_inner=512", "shared_inner=256", "gating=2",
                                        "expert_scale=2.5", NULL});
    run("Q8_0", (const char *const[]){"arch=nemotron_h_moe", "pattern=ME*EE", "conv_taps=4",
                                      "delta_size=32", "delta_k_heads=2", "delta_v_heads=8",
                                      "delta_inner=512", "shared_inner=256", "gating=2",
                                      "expert_width=256", NULL});
}

/* Streams and n-grams, whose table has rows that are no multiple of a block of K types. */
static void qwen4exp(void)
{
    run("Q4_K_M", (const char *const[]){"arch=qwen4exp", "shared_inner=256", "conv_taps=4",
                                        "delta_size=32", "delta_k_heads=2", "delta_v_heads=6",
                                        "delta_inner=192", "attention_step=3", "streams=4",
                                        "stream_rank=32", "ngram_size=3", "ngram_heads=2",
                                        "ngram_taps=4", "ngram_width=32", "ngram_rows=4000", NULL});
}

/* Lightning attention in two of three layers; parts add to their normed inputs. */
static void minimax_01(void)
{
    run("Q4_K_M", (const char *const[]){"arch=minimax-01", "layers=4", "attention_step=3",
                                        "rope_dims=32", "normed_scale=1.5", NULL});
}

/* Mamba-1 in two of three layers, and experts in every second one; several blocks of channels. */
static void jamba(void)
{
    run("Q4_K_M", (const char *const[]){"arch=jamba", "layers=6", "dense_inner=256", "conv_taps=4",
                                        "delta_size=16", "step_rank=256", "delta_inner=512",
                                        "attention_step=3", "experts_every=2", NULL});
}

/* Kimi delta attention in two of three layers, else MLA without rotation. */
static void kimi_linear(void)
{
    run("Q4_K_M",
        (const char *const[]){"arch=kimi-linear", "layers=4", "dense_layers=1", "dense_inner=512",
                              "shared_count=1", "conv_taps=4", "delta_size=64", "attention_step=3",
                              "kv_heads=1", "head_size=0", "kv_rank=256", "mla_key_size=96",
                              "mla_value_size=64", "rope_dims=32", NULL});
}

/* With queries of one matrix, as the larger model. */
static void bailingmoe3(void)
{
    sample("--threads=2",
           (const char *const[]){
               "arch=bailingmoe3", "layers=4", "dense_layers=1", "dense_inner=512",
               "shared_count=1", "conv_taps=4", "delta_size=64", "attention_step=3", "kv_heads=1",
               "head_size=0", "kv_rank=256", "mla_key_size=96", "mla_value_size=64", "rope_dims=32",
               "decay_bound=-5", "groups=4", "groups_used=2", NULL});
}

static void hunyuan_moe(void)
{
    sample("--isa=generic", (const char *const[]){"arch=hunyuan-moe", "shared_count=1", NULL});
}

static void phimoe(void)
{
    sample("--prefill-chunk=7", (const char *const[]){"arch=phimoe", "experts_used=2", NULL});
}

static void dbrx(void)
{
    sample("--threads=2", (const char *const[]){"arch=dbrx", "clamp_qkv=1", NULL});
}

/* Windows, sinks, biases of experts, YaRN; the prompt is longer than a window. */
static void gpt_oss(void)
{
    run("MXFP4", (const char *const[]){"arch=gpt-oss", "layers=4", "window=16", "rope_scaling=yarn",
                                       "rope_factor=8", "rope_context=64", NULL});
}

/* MLA with queries in two factors, and a YaRN. */
#define MLA_KEYS                                                                                   \
    "kv_heads=1", "head_size=0", "q_rank=256", "kv_rank=256", "mla_key_size=160",                  \
        "mla_value_size=64", "rope_dims=32", "rope_scaling=yarn", "rope_context=64",               \
        "shared_count=1", "norm_top_k=1"
#define MLA_DENSE_KEYS                                                                             \
    MLA_KEYS, "layers=4", "dense_layers=1", "dense_inner=512", "gating=2", "expert_scale=2.5",     \
        "rope_factor=40", "rope_log_multiplier=0.1"

static void deepseek2(void)
{
    run("Q4_K_M",
        (const char *const[]){"arch=deepseek2", MLA_DENSE_KEYS, "groups=4", "groups_used=2", NULL});
}

static void deepseek32(void)
{
    sample("--threads=2", (const char *const[]){"arch=deepseek32", MLA_DENSE_KEYS, "groups=4",
                                                "groups_used=2", "index_top_k=1024", NULL});
}

static void glm_dsa(void)
{
    sample("--isa=generic",
           (const char *const[]){"arch=glm-dsa", MLA_DENSE_KEYS, "index_top_k=1024", NULL});
}

/* Queries grow with their position, beyond rope_context. */
static void mistral4(void)
{
    sample("--prefill-chunk=7", (const char *const[]){"arch=mistral4", MLA_KEYS, "rope_factor=128",
                                                      "query_scale=0.1", "query_context=64", NULL});
}

static void qwen3vlmoe(void)
{
    sample("--threads=2", (const char *const[]){"arch=qwen3vlmoe", NULL});
}

/* Window layers have their own base of rotations, and no YaRN. */
static void mellum(void)
{
    sample("--prefill-chunk=7",
           (const char *const[]){"arch=mellum", "layers=4", "window=64", "full_every=2",
                                 "rope_scaling=yarn", "rope_factor=16", "rope_context=64",
                                 "rope_theta_window=1000", NULL});
}

/* Window layers rotate a part of each head, the others do not. */
static void maple(void)
{
    sample("--threads=2", (const char *const[]){"arch=maple", "layers=4", "window=48",
                                                "full_every=2", "rope_dims=16", NULL});
}

static void bailingmoe(void)
{
    sample("--isa=generic",
           (const char *const[]){"arch=bailingmoe", "shared_count=2", "norm_top_k=1", NULL});
}

static void deepseek(void)
{
    sample("--threads=2", (const char *const[]){"arch=deepseek", "layers=4", "dense_layers=1",
                                                "dense_inner=512", "shared_count=2", NULL});
}

/* Window layers rotate, the others do not. */
static void exaone_moe(void)
{
    sample("--prefill-chunk=7",
           (const char *const[]){"arch=exaone-moe", "layers=5", "dense_layers=1", "dense_inner=512",
                                 "shared_count=1", "norm_top_k=1", "expert_scale=2.5", "window=64",
                                 NULL});
}

static void hy_v3(void)
{
    sample("--isa=generic",
           (const char *const[]){"arch=hy_v3", "layers=4", "dense_layers=1", "dense_inner=512",
                                 "shared_inner=256", "norm_top_k=1", "expert_scale=2.8", NULL});
}

/* Two numbers of query heads, a gate of each, half of a head rotated in full layers, limits. */
static void step35(void)
{
    sample("--prefill-chunk=7",
           (const char *const[]){"arch=step35", "layers=5", "heads_window=6", "dense_layers=1",
                                 "dense_inner=512", "shared_inner=256", "norm_top_k=1",
                                 "expert_scale=3", "window=64", "full_every=2", "expert_limits=0.4",
                                 "rope_theta_window=1000", "dense_limits=0.3", NULL});
}

static void laguna(void)
{
    sample("--threads=2", (const char *const[]){"arch=laguna", "layers=5", "heads_window=6",
                                                "dense_layers=1", "dense_inner=512", "norm_top_k=1",
                                                "window=64", "rope_scaling=yarn", "rope_factor=32",
                                                "rope_context=64", "gate_form=2", NULL});
}

static void afmoe(void)
{
    sample("--isa=generic",
           (const char *const[]){"arch=afmoe", "layers=5", "dense_layers=2", "dense_inner=512",
                                 "shared_count=1", "norm_top_k=1", "expert_scale=2.8", "window=64",
                                 NULL});
}

/* Window layers rotate, the others do not; gate and up of the shared expert are one matrix. */
static void granite_swa(void)
{
    sample("--prefill-chunk=7",
           (const char *const[]){"arch=granite_swa", "layers=4", "shared_inner=256", "window=48",
                                 "full_every=2", "no_rope_full=1", "embedding_scale=12",
                                 "residual_scale=0.22", "score_scale=0.125", "logit_divisor=6",
                                 NULL});
}

static void mimo2(void)
{
    sample("--threads=2",
           (const char *const[]){"arch=mimo2", "layers=4", "dense_layers=1", "dense_inner=512",
                                 "window=48", "full_every=2", "kv_heads_window=4", "value_size=32",
                                 "rope_dims=16", "rope_theta_window=1000", "value_scale=0.707",
                                 "joined_qkv=1", NULL});
}

/* Chunks and queries that grow; experts in every second layer, with weights of their inputs. */
static void llama4(void)
{
    run("Q4_K_M",
        (const char *const[]){"arch=llama4", "layers=4", "experts_used=1", "expert_step=2",
                              "experts=24", "dense_inner=512", "shared_count=1", "window=64",
                              "query_scale=0.1", "query_context=16", NULL});
}

static void cohere2moe(void)
{
    sample("--prefill-chunk=7",
           (const char *const[]){"arch=cohere2moe", "layers=5", "dense_layers=1", "dense_inner=512",
                                 "shared_count=1", "norm_top_k=1", "window=48", "logit_scale=0.25",
                                 "norm=1", NULL});
}

static void gemma4(void)
{
    run("Q4_K_M",
        (const char *const[]){"arch=gemma4", "dense_inner=512", "window=48", "full_every=3",
                              "head_size_window=32", "value_size_window=32", "rope_dims_window=32",
                              "full_v=0", "rope_theta_window=1000", NULL});
}

static void every_architecture(void);

static const struct test_case cases[] = {ROW(every_architecture),
                                         ROW(q4_k_m),
                                         ROW(mxfp4),
                                         ROW(nvfp4),
                                         ROW(layers_that_differ),
                                         ROW(qwen3moe),
                                         ROW(qwen2moe),
                                         ROW(olmoe),
                                         ROW(llama),
                                         ROW(glm4moe),
                                         ROW(dots1),
                                         ROW(ernie4_5_moe),
                                         ROW(minimax_m2),
                                         ROW(minimax_m3),
                                         ROW(minimax_01),
                                         ROW(bailingmoe2),
                                         ROW(smallthinker),
                                         ROW(granitemoe),
                                         ROW(arctic),
                                         ROW(granitehybrid),
                                         ROW(nemotron_h_moe),
                                         ROW(qwen4exp),
                                         ROW(jamba),
                                         ROW(kimi_linear),
                                         ROW(bailingmoe3),
                                         ROW(hunyuan_moe),
                                         ROW(phimoe),
                                         ROW(dbrx),
                                         ROW(gpt_oss),
                                         ROW(deepseek2),
                                         ROW(deepseek32),
                                         ROW(glm_dsa),
                                         ROW(qwen35moe),
                                         ROW(qwen3next),
                                         ROW(lfm2moe),
                                         ROW(qwen3vlmoe),
                                         ROW(mellum),
                                         ROW(maple),
                                         ROW(bailingmoe),
                                         ROW(deepseek),
                                         ROW(exaone_moe),
                                         ROW(hy_v3),
                                         ROW(step35),
                                         ROW(laguna),
                                         ROW(afmoe),
                                         ROW(mistral4),
                                         ROW(granite_swa),
                                         ROW(mimo2),
                                         ROW(llama4),
                                         ROW(cohere2moe),
                                         ROW(gemma4)};

/* Every architecture has a row: its name with _ for -. */
static void every_architecture(void)
{
    for (int id = 0; id < ARCH_COUNT; id++) {
        char name[64];
        bool found = false;
        snprintf(name, sizeof name, "%s", arch_list[id]->name);
        for (char *p = name; *p; p++)
            *p = *p == '-' ? '_' : *p;
        for (size_t i = 0; i < ARRAY_LEN(cases) && !found; i++)
            found = strcmp(cases[i].name, name) == 0;
        CHECK(found, "no case of %s", name);
    }
}

int main(int argc, char **argv)
{
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
