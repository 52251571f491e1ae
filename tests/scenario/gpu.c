/* SPDX-License-Identifier: Apache-2.0 */
/* compute with --gpu, on a GPU that is memory of the process (tests/harness/cuda): the same text as
 * on the CPU, for models of several architectures, also when compute is killed; its memory is
 * planned, and a budget that holds no layer is rejected before anything starts; and what happens
 * without a driver. Parts of the layers: gpu_parts.c. */
#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "tests/scenario/gpu_engine.h"

#define LAYERS  2
#define EXPERTS (LAYERS * 16) /* of the models */

static const char *const qwen3moe[] = {"arch=qwen3moe", "layers=2", NULL};
static const char *const four_layers[] = {"arch=qwen3moe", "layers=4", NULL};
static const char *const gpt_oss[] = {
    "arch=gpt-oss",  "layers=2",        "window=64", "rope_scaling=2",
    "rope_factor=8", "rope_context=64", NULL};
static const char *const deepseek2[] = {"arch=deepseek2",
                                        "layers=2",
                                        "dense_layers=1",
                                        "dense_inner=128",
                                        "shared_count=1",
                                        "kv_heads=1",
                                        "head_size=0",
                                        "q_rank=64",
                                        "kv_rank=64",
                                        "mla_key_size=48",
                                        "mla_value_size=32",
                                        "rope_dims=16",
                                        NULL};

static const char *const in_token[] = {"COMPUTE_MID_TOKEN", NULL};
static const char *const around_states[] = {"COMPUTE_STATE_WRITTEN", "COMPUTE_PREFILL", NULL};

/* Compute is killed at each of the points; and with a quarter of the experts. */
static void same_text(const char *const keys[], const char *const points[], bool quarter)
{
    struct text want;
    const struct continued c = {.prompt = 0, .tokens = GPU_TOKENS, .want = &want};
    continued_make(gpu_model, keys);
    gpu_reference(&want);
    gpu_fake(true);
    struct engine *e = gpu_start((const char *const[]){"--gpu=0", "--keep-kv=0", NULL});
    continued_after(e, &c, 0, "on the GPU");
    gpu_check_memory(e);
    for (size_t i = 0; points[i]; i++)
        continued_at(e, &c, points[i], i == 0 ? 2 : 0);
    engine_stop(e);
    if (quarter) {
        e = gpu_start(
            (const char *const[]){"--gpu=auto", "--resident-experts=25", "--kv-type=f16", NULL});
        continued_after(e, &c, 5, "a quarter of the experts, compute killed");
        engine_stop(e);
    }
    text_free(&want);
    gpu_fake(false);
}

static void attention(void)
{
    same_text(qwen3moe, in_token, true);
}

static void delta_net(void)
{
    same_text(gpu_qwen35moe, around_states, true);
}

static void windows_and_sinks(void)
{
    same_text(gpt_oss, in_token, false);
}

static void latent_attention(void)
{
    same_text(deepseek2, in_token, false);
}

/* ---- keys, values and states that stay on the GPU ---- */

/* Prompts that begin with rows of an earlier one, also from a checkpoint of a state. */
static void kept_rows(void)
{
    const struct continued c = {.prompt = 0, .tokens = 4};
    const struct continued_turns t = {.start = gpu_start,
                                      .alone =
                                          (const char *const[]){"--gpu=off", "--keep-kv=0", NULL},
                                      .reusing = (const char *const[]){"--gpu=0", NULL},
                                      .rounds = 4,
                                      .reused_min = 16};
    continued_make(gpu_model, gpu_qwen35moe);
    gpu_fake(true);
    continued_turns(&t, &c);
    gpu_fake(false);
}

static uint64_t kv_copied(struct engine *e, bool up)
{
    return engine_counter(e, "compute", up ? "gpu_kv_uploaded_bytes" : "gpu_kv_downloaded_bytes");
}

/* Of each row that is computed its keys and values are copied to the host, as floats; to the GPU
 * nothing, until compute is killed. */
static void copied_rows(void)
{
    struct text want, got;
    uint64_t row = LAYERS * 2 * 2 * 32 * sizeof(float); /* 2 heads of 32 */
    continued_make(gpu_model, qwen3moe);
    gpu_reference(&want);
    gpu_fake(true);
    struct engine *e = gpu_start((const char *const[]){"--gpu=0", NULL});
    CHECK(gpu_number(e, "kv_layers") == LAYERS, "not all layers");
    for (int turn = 0; turn < 2; turn++) { /* the second begins with rows of the first */
        engine_generate(e, test_prompt(0), GPU_TOKENS, &got);
        text_check_same(&want, &got, "on the GPU");
        text_free(&got);
        uint64_t rows = engine_counter(e, "compute", "tokens_prefill") +
                        engine_counter(e, "compute", "tokens_decode") - (turn + 1);
        CHECK(kv_copied(e, false) == rows * row,
              "%" PRIu64 " bytes of %" PRIu64 " rows to the host", kv_copied(e, false), rows);
        CHECK(kv_copied(e, true) == 0, "%" PRIu64 " bytes to the GPU", kv_copied(e, true));
    }
    CHECK(engine_counter(e, "compute", "tokens_reused") > 0, "no row was used again");
    const struct continued c = {.prompt = 0, .tokens = GPU_TOKENS, .want = &want};
    continued_after(e, &c, 3, "compute killed");
    CHECK(kv_copied(e, true) > 0, "a new compute has rows without a copy");
    engine_stop(e);
    text_free(&want);
    gpu_fake(false);
}

/* ---- experts on the GPU ---- */

struct uses {
    uint64_t hits, uploads, evictions, on_cpu, background, ahead, timely, late, unused;
};

static struct uses uses_of(struct engine *e)
{
    struct uses u = {.hits = engine_counter(e, "compute", "gpu_expert_hits"),
                     .uploads = engine_counter(e, "compute", "gpu_expert_uploads"),
                     .evictions = engine_counter(e, "compute", "gpu_expert_evictions"),
                     .on_cpu = engine_counter(e, "compute", "gpu_expert_on_cpu"),
                     .background = engine_counter(e, "compute", "gpu_expert_background"),
                     .ahead = engine_counter(e, "compute", "gpu_prefetches"),
                     .timely = engine_counter(e, "compute", "gpu_prefetches_timely"),
                     .late = engine_counter(e, "compute", "gpu_prefetches_late"),
                     .unused = engine_counter(e, "compute", "gpu_prefetches_unused")};
    test_note("%" PRIu64 " hits, %" PRIu64 " copied, %" PRIu64 " replaced, %" PRIu64
              " on the CPU, %" PRIu64 " copied later; %" PRIu64 " copied ahead: %" PRIu64
              " timely, %" PRIu64 " late, %" PRIu64 " unused",
              u.hits, u.uploads, u.evictions, u.on_cpu, u.background, u.ahead, u.timely, u.late,
              u.unused);
    return u;
}

/* Tokens that --gpu-policy auto counted with each policy. */
static void measured(struct engine *e, uint64_t tokens[3])
{
    tokens[0] = engine_counter(e, "compute", "gpu_centric_tokens");
    tokens[1] = engine_counter(e, "compute", "gpu_cooperative_tokens");
    tokens[2] = engine_counter(e, "compute", "gpu_prefetch_tokens");
    test_note("tokens measured: %" PRIu64 ", %" PRIu64 ", %" PRIu64, tokens[0], tokens[1],
              tokens[2]);
}

/* With slots for all experts each is copied once; with those of a token, they replace each
 * other. */
static void slots(void)
{
    struct text want;
    char option[64];
    uint64_t tokens[3];
    const struct continued c = {.prompt = 0, .tokens = GPU_TOKENS, .want = &want};
    continued_make(gpu_model, qwen3moe);
    gpu_reference(&want);
    gpu_fake(true);
    snprintf(option, sizeof option, "--gpu-budget=%" PRIu64, gpu_minimum(LAYERS));
    for (int few = 0; few < 2; few++) {
        struct engine *e = gpu_start(
            (const char *const[]){"--gpu=0", few ? "--gpu-policy=gpu-centric" : "--threads=1",
                                  few ? option : NULL, NULL});
        CHECK(gpu_number(e, "kv_layers") == (few ? 0 : LAYERS),
              "keys and values of the wrong layers");
        continued_after(e, &c, 0, few ? "slots for one token" : "slots for all experts");
        struct uses u = uses_of(e);
        CHECK(few ? u.evictions > 0
                  : u.evictions == 0 && u.hits > u.uploads && u.uploads <= EXPERTS,
              "other uses");
        CHECK(u.on_cpu == 0, "the CPU computed");
        measured(e, tokens);
        CHECK(tokens[0] + tokens[1] + tokens[2] == 0, "policies were measured without a need");
        engine_stop(e);
    }
    text_free(&want);
    gpu_fake(false);
}

/* What a plan has in all, and with slots for half of the experts. */
static void budgets_of_layout(uint64_t *half, uint64_t *all)
{
    static const char *const parts[] = {"context", "weights", "activations", "kv", "experts"};
    struct engine *e = gpu_start((const char *const[]){"--gpu=0", NULL});
    json_t *doc = engine_stats(e);
    *all = 0;
    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        char path[64];
        snprintf(path, sizeof path, "gpu.plan.%s", parts[i]);
        *all += lookup_u64(doc, path);
    }
    *half = *all - lookup_u64(doc, "gpu.plan.experts") / 2;
    json_decref(doc);
    engine_stop(e);
}

/* Slots for a token, for half of the experts, and for all: the CPU computes what is not there.
 * Compute is killed in one. */
static void cooperative(void)
{
    struct text want;
    char option[64];
    const struct continued c = {.prompt = 0, .tokens = 2 * GPU_TOKENS, .want = &want};
    continued_make(gpu_model, qwen3moe);
    struct engine *e = gpu_start((const char *const[]){"--gpu=off", NULL});
    engine_generate(e, test_prompt(0), 2 * GPU_TOKENS, &want);
    engine_stop(e);
    gpu_fake(true);
    uint64_t budgets[] = {gpu_minimum(LAYERS), 0, 0};
    budgets_of_layout(&budgets[1], &budgets[2]);
    for (size_t i = 0; i < ARRAY_LEN(budgets); i++) {
        snprintf(option, sizeof option, "--gpu-budget=%" PRIu64, budgets[i]);
        e = gpu_start((const char *const[]){"--gpu=0", "--gpu-policy=cooperative", option, NULL});
        continued_after(e, &c, i == 1 ? 5 : 0, "the CPU and the GPU");
        struct uses u = uses_of(e);
        CHECK(u.on_cpu > 0 || i == 2, "the CPU did not compute");
        CHECK(u.background <= u.on_cpu && (u.background > 0 || u.on_cpu == 0), "other copies");
        engine_stop(e);
    }
    text_free(&want);
    gpu_fake(false);
}

/* The text and the uses of a policy with a budget; compute is killed after so many tokens; 0:
 * not. */
static struct uses uses_with(const char *policy, uint64_t budget, const struct text *want,
                             size_t killed_after)
{
    char option[64], chosen[64];
    const struct continued c = {.prompt = 0, .tokens = 2 * GPU_TOKENS, .want = want};
    snprintf(option, sizeof option, "--gpu-budget=%" PRIu64, budget);
    snprintf(chosen, sizeof chosen, "--gpu-policy=%s", policy);
    struct engine *e = gpu_start((const char *const[]){"--gpu=0", chosen, option, NULL});
    continued_after(e, &c, killed_after, policy);
    struct uses u = uses_of(e);
    engine_stop(e);
    return u;
}

/* With slots for half of the experts fewer are copied when they are needed, as others were copied
 * before. Also with slots for a token alone, and when compute is killed, the text is the same. */
static void prefetching(void)
{
    struct text want;
    uint64_t half, all;
    continued_make(gpu_model, four_layers);
    struct engine *e = gpu_start((const char *const[]){"--gpu=off", NULL});
    engine_generate(e, test_prompt(0), 2 * GPU_TOKENS, &want);
    engine_stop(e);
    gpu_fake(true);
    budgets_of_layout(&half, &all);
    struct uses without = uses_with("gpu-centric", half, &want, 0),
                with = uses_with("prefetch", half, &want, 0);
    CHECK(without.ahead == 0 && with.ahead > 0, "%" PRIu64 " and %" PRIu64 " copied ahead",
          without.ahead, with.ahead);
    CHECK(with.uploads < without.uploads, "%" PRIu64 " copied on demand, %" PRIu64 " without it",
          with.uploads, without.uploads);
    CHECK(with.timely + with.late > 0 && with.timely + with.late + with.unused <= with.ahead,
          "other uses");
    CHECK(with.hits + with.uploads == without.hits + without.uploads, "other accesses");
    uses_with("prefetch", gpu_minimum(4), &want, 0);
    uses_with("prefetch", half, &want, 5);
    text_free(&want);
    gpu_fake(false);
}

/* By default each policy is measured, and one is chosen; the text is the CPU's. */
static void automatic(void)
{
    struct text want;
    char option[64];
    uint64_t half, all, tokens[3];
    const struct continued c = {.prompt = 0, .tokens = GPU_TRIAL + 2, .want = &want};
    continued_make(gpu_model, qwen3moe);
    struct engine *e = gpu_start((const char *const[]){"--gpu=off", NULL});
    engine_generate(e, test_prompt(0), GPU_TRIAL + 2, &want);
    engine_stop(e);
    gpu_fake(true);
    budgets_of_layout(&half, &all);
    snprintf(option, sizeof option, "--gpu-budget=%" PRIu64, half);
    e = gpu_start((const char *const[]){"--gpu=0", option, NULL});
    continued_after(e, &c, 0, "policies in turns");
    measured(e, tokens);
    CHECK(tokens[0] > 0 && tokens[0] == tokens[1] && tokens[0] == tokens[2], "not measured");
    json_t *doc = engine_stats(e);
    const char *name = lookup_text(doc, "gpu.policy");
    test_note("chosen: %s", name);
    CHECK(lookup_u64(doc, "gpu.trials") == 1, "%" PRIu64 " trials", lookup_u64(doc, "gpu.trials"));
    const json_t *one =
        json_object_get(json_object_get(json_object_get(doc, "gpu"), "measured"), name);
    CHECK(one && lookup_u64(one, "tokens") == tokens[0] &&
              json_number_value(json_object_get(one, "token_us")) > 0,
          "no time of %s", name);
    json_decref(doc);
    struct uses u = uses_of(e);
    CHECK(u.on_cpu > 0 && u.ahead > 0, "a policy was not used");
    engine_stop(e);
    text_free(&want);
    gpu_fake(false);
}

/* ---- a GPU that is lost ---- */

/* Until compute is on the CPU. */
static void wait_lost(struct engine *e)
{
    engine_wait_counter(e, "compute", "gpu_lost", 1, GPU_END_MS);
    char *log = engine_log(e);
    CHECK(strstr(log, "the GPU is lost, continuing on the CPU"), "no line in the log");
    free(log);
}

/* Its module is gone when compute is restarted. */
static void cannot_be_opened_again(void)
{
    char path[PATH_MAX];
    struct text want;
    const struct continued c = {.prompt = 0, .tokens = GPU_TOKENS, .want = &want};
    continued_make(gpu_model, qwen3moe);
    gpu_reference(&want);
    gpu_fake_copy(path);
    struct engine *e = gpu_start((const char *const[]){"--gpu=0", NULL});
    CHECK(unlink(path) == 0, "cannot remove %s", path);
    continued_after(e, &c, 5, "compute killed, and no module");
    wait_lost(e);
    engine_stop(e);
    text_free(&want);
    gpu_fake(false);
}

/* Operations of a GPU fail from the middle of a text on: compute is restarted with it, and then
 * without. Of several GPUs one is enough. */
static void fails_with(const char *option, const char *number, const struct text *want)
{
    char path[PATH_MAX], file[PATH_MAX];
    struct text got;
    gpu_fake_copy(path);
    unlink(path_in_dir(file, "fails"));
    struct engine *e = gpu_start((const char *const[]){option, NULL});
    struct generation *g = generation_start(e, test_prompt(0), GPU_TOKENS);
    uint64_t deadline = deadline_in(CONTINUED_MS);
    while (generation_tokens(g) < 3)
        CHECK(deadline_tick(deadline), "no tokens");
    gpu_fake_file("fails", number);
    generation_finish(g, CONTINUED_MS, &got);
    text_check_same(want, &got, option);
    wait_lost(e);
    char *log = engine_log(e);
    CHECK(strstr(log, "compute ended 2 times, the last time with"), "another reason");
    free(log);
    engine_stop(e);
    text_free(&got);
}

static void fails_again_and_again(void)
{
    struct text want;
    continued_make(gpu_model, qwen3moe);
    gpu_reference(&want);
    fails_with("--gpu=0", "", &want);
    fails_with("--gpu=0,1", "1", &want);
    text_free(&want);
    gpu_fake(false);
}

/* Another process took its memory between the plan and compute's start: with --gpu auto the engine
 * starts on the CPU, with a number it does not start. */
static void taken_by_others(void)
{
    char path[PATH_MAX];
    struct command c;
    struct text want, got;
    continued_make(gpu_model, qwen3moe);
    gpu_reference(&want);
    gpu_fake_copy(path);
    gpu_fake_file("busy", "");
    struct engine *e = gpu_start((const char *const[]){"--gpu=auto", NULL});
    wait_lost(e);
    engine_generate(e, test_prompt(0), GPU_TOKENS, &got);
    text_check_same(&want, &got, "a GPU without memory");
    engine_stop(e);
    command_run(&c, NULL, GPU_END_MS,
                (const char *const[]){"run", "--name=gpu-busy", "--log-level=none", "-m", gpu_model,
                                      "--gpu=0", NULL});
    CHECK(c.status == 2 && strstr(c.err, "lower --gpu-budget"), "status %d, '%.600s'", c.status,
          c.err);
    command_free(&c);
    text_free(&want);
    text_free(&got);
    gpu_fake(false);
}

/* ---- options ---- */

static void budget(void)
{
    struct text got;
    char option[64];
    continued_make(gpu_model, qwen3moe);
    gpu_fake(true);
    uint64_t minimum =
        gpu_rejected("--gpu=0", "--gpu-budget=64KiB",
                     "--gpu-budget 64.0 KiB is too small for this model", "minimum ");
    snprintf(option, sizeof option, "--gpu-budget=%" PRIu64, minimum - 1);
    uint64_t again = gpu_rejected("--gpu=0", option, "is too small for this model", "minimum ");
    CHECK(again == minimum && minimum < gpu_minimum(LAYERS), "%" PRIu64 ", then %" PRIu64, minimum,
          again);
    snprintf(option, sizeof option, "--gpu-budget=%" PRIu64, minimum);
    struct engine *e = engine_new();
    engine_start(
        e, (const char *const[]){"-m", gpu_model, "--prefill-chunk=16", "--gpu=0", option, NULL});
    engine_generate(e, test_prompt(0), 4, &got);
    text_free(&got);
    gpu_check_memory(e);
    CHECK(gpu_number(e, "layers") == 1, "another number of layers");
    engine_stop(e);
    gpu_fake(false);
}

static void bad_values(void)
{
    continued_make(gpu_model, qwen3moe);
    gpu_fake(true);
    gpu_rejected("--gpu=first", "--gpu-budget=0", "--gpu: 'first' is not auto, off or a number",
                 NULL);
    gpu_rejected("--gpu=0,", "--gpu-budget=0", "--gpu: '0,' is not auto, off or a number", NULL);
    gpu_rejected("--gpu=0,0", "--gpu-budget=0", "--gpu 0,0: GPU 0 is stated twice", NULL);
    gpu_rejected("--gpu=0,9", "--gpu-budget=0", "--gpu 0,9: there is no GPU 9", NULL);
    gpu_rejected("--gpu=0,1,2,3,4", "--gpu-budget=0", "--gpu 0,1,2,3,4: at most 4 GPUs", NULL);
    gpu_rejected("--gpu=0,1", "--gpu-budget=40GiB", ": GPU 1 has 32.0 GiB", NULL);
    gpu_rejected("--gpu=off", "--gpu-layers=1", "--gpu-layers 1: no GPU without --gpu", NULL);
    gpu_rejected("--gpu=0", "--gpu-layers=3", "--gpu-layers 3: the model has 2", NULL);
    gpu_rejected("--gpu=auto", "--gpu-layers=3", "--gpu-layers 3: the model has 2", NULL);
    gpu_rejected("--gpu=0", "--gpu-policy=fastest", "gpu-policy", NULL);
    gpu_rejected("--gpu=0", "--gpu-eviction=nonsense", "'nonsense' is not one of fifo lru", NULL);
    gpu_rejected("--gpu=off", "--gpu-eviction=learned",
                 "--gpu-eviction: 'learned' is not one of fifo lru", NULL);
    setenv("SLUICE_TEST_GPU", "/nowhere/module.so", 1);
    gpu_rejected("--gpu=0", "--gpu-budget=0", "--gpu 0: no CUDA module: /nowhere/module.so", NULL);
    gpu_fake(false);
}

static void no_driver(void)
{
    struct text want, got;
    if (dlopen("libcuda.so.1", RTLD_NOW))
        test_skip("this machine has a driver");
    continued_make(gpu_model, qwen3moe);
    gpu_rejected("--gpu=0", "--gpu-budget=0", "--gpu 0: no NVIDIA driver: libcuda.so.1 not found",
                 NULL);
    gpu_reference(&want);
    struct engine *e = gpu_start((const char *const[]){"--gpu=auto", NULL});
    engine_generate(e, test_prompt(0), GPU_TOKENS, &got);
    text_check_same(&want, &got, "auto");
    char *log = engine_log(e);
    CHECK(strstr(log, "computing on the CPU: --gpu auto: no NVIDIA driver"), "no line in the log");
    free(log);
    text_free(&want);
    text_free(&got);
    engine_stop(e);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {ROW(attention),
                                             ROW(delta_net),
                                             ROW(windows_and_sinks),
                                             ROW(latent_attention),
                                             ROW(kept_rows),
                                             ROW(copied_rows),
                                             ROW(slots),
                                             ROW(cooperative),
                                             ROW(prefetching),
                                             ROW(automatic),
                                             ROW(cannot_be_opened_again),
                                             ROW(fails_again_and_again),
                                             ROW(taken_by_others),
                                             ROW(budget),
                                             ROW(bad_values),
                                             ROW(no_driver)};
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
