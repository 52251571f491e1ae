/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens that the GPU computes alone, by launches of a graph: the same text as on the CPU, also of
 * another sequence and when compute is killed while a graph runs. The GPU is memory of the process
 * (tests/harness/cuda). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "tests/scenario/continued.h"
#include "tests/scenario/gpu_engine.h"

#define END_MS  60000
#define TOKENS  6
#define LAYERS  2
#define EXPERTS (LAYERS * 16) /* of the models */
#define TOP_K   4
#define PART    14 /* of the largest experts, in a smaller budget */

static char model[PATH_MAX];

static struct engine *start(const char *gpu, const char *policy)
{
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"-m", model, "--prefill-chunk=16", "--keep-kv=0", gpu,
                                          policy, NULL});
    return e;
}

static uint64_t counted(struct engine *e, const char *name)
{
    return engine_counter(e, "compute", name);
}

/* A text, as it is without a GPU; how many launches of a graph it had. */
static uint64_t launches_of(struct engine *e, unsigned prompt, const struct text *want)
{
    struct text got;
    uint64_t before = counted(e, "gpu_graph_launches");
    engine_generate(e, test_prompt(prompt), TOKENS, &got);
    text_check_same(want, &got, "by launches of a graph");
    text_free(&got);
    return counted(e, "gpu_graph_launches") - before;
}

/* Until all tokens but the first, which the prompt gives, are launches: all experts are on the GPU.
 * The last chunk of a prompt can be one token, too. */
static void until_all_are_launches(struct engine *e, const struct text *want)
{
    uint64_t deadline = deadline_in(CONTINUED_MS);
    size_t texts = 1;
    for (; launches_of(e, 0, want) < TOKENS - 1; texts++)
        CHECK(deadline_tick(deadline), "not all tokens are launches of a graph");
    test_note("in text %zu", texts);
}

/* Of another sequence. Uses of experts are accesses and hits, here and of the arena. */
static void check_uses(struct engine *e, const struct text *other)
{
    static const char *const names[] = {"accesses", "hits", "gpu_expert_hits",
                                        "gpu_expert_uploads"};
    uint64_t n[ARRAY_LEN(names)];
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        n[i] = counted(e, names[i]);
    CHECK(launches_of(e, 1, other) >= TOKENS - 1, "another sequence needs another graph");
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        n[i] = counted(e, names[i]) - n[i];
    CHECK(n[0] >= (TOKENS - 1) * LAYERS * TOP_K && n[1] == n[0] && n[2] + n[3] == n[0],
          "%" PRIu64 " accesses, %" PRIu64 " hits, %" PRIu64 " and %" PRIu64 " on the GPU", n[0],
          n[1], n[2], n[3]);
}

/* The same text, and more experts than the largest ones that there is memory for. */
static void with_part(const char *budget, const struct text *want)
{
    struct text got;
    struct engine *e = start("--gpu=0", budget);
    engine_generate(e, test_prompt(0), TOKENS, &got);
    text_check_same(want, &got, "with slots for a part of the experts");
    text_free(&got);
    CHECK(counted(e, "gpu_expert_evictions") > 0, "no expert was replaced");
    CHECK(gpu_number(e, "slots_used") > PART, "%" PRIu64 " experts in the memory of %d",
          gpu_number(e, "slots_used"), PART);
    engine_stop(e);
}

/* With space for so many of the largest experts. */
static void budget_of(struct engine *e, uint64_t experts, char option[64])
{
    uint64_t fixed = gpu_number(e, "plan.weights") + gpu_number(e, "plan.activations") +
                     gpu_number(e, "plan.kv") + gpu_number(e, "plan.context");
    snprintf(option, 64, "--gpu-budget=%" PRIu64, fixed + experts * gpu_number(e, "slot_bytes"));
}

/* All experts take the sum of their sizes, not each the size of the largest. */
static void check_sizes(struct engine *e, char budget[64])
{
    uint64_t slot = gpu_number(e, "slot_bytes"), experts = gpu_number(e, "plan.experts");
    CHECK(experts < EXPERTS * slot && experts > EXPERTS * slot / 2,
          "%" PRIu64 " bytes for experts of at most %" PRIu64, experts, slot);
    CHECK(gpu_number(e, "slots") == EXPERTS, "%" PRIu64 " slots", gpu_number(e, "slots"));
    budget_of(e, PART, budget);
}

static void same_text(const char *const keys[], bool sizes)
{
    char budget[64];
    struct text want, other;
    const struct continued c = {.prompt = 0, .tokens = TOKENS, .want = &want};
    continued_make(model, keys);
    struct engine *e = start("--gpu=off", NULL);
    engine_generate(e, test_prompt(0), TOKENS, &want);
    engine_generate(e, test_prompt(1), TOKENS, &other);
    engine_stop(e);
    gpu_fake_prompt();
    e = start("--gpu=0", NULL); /* which loads all experts */
    engine_wait_counter(e, "cache", "resident_entries", EXPERTS, END_MS);
    until_all_are_launches(e, &want);
    check_uses(e, &other);
    continued_at(e, &c, "COMPUTE_MID_TOKEN", 2);
    until_all_are_launches(e, &want);
    json_t *doc = engine_stats(e);
    CHECK(lookup_u64(doc, "gpu.slots_used") == EXPERTS, "not all slots are used");
    json_decref(doc);
    if (sizes)
        check_sizes(e, budget);
    engine_stop(e);
    if (sizes)
        with_part(budget, &want);
    unsetenv("SLUICE_TEST_GPU");
    text_free(&want);
    text_free(&other);
}

/* A state in the long form only. */
static void graphs(void)
{
    same_text((const char *const[]){"arch=qwen3moe", "layers=2", NULL}, false);
    if (test_long())
        same_text((const char *const[]){"arch=qwen35moe", "layers=2", "shared_inner=64",
                                        "rope_dims=8", "conv_taps=4", "delta_size=16",
                                        "delta_k_heads=2", "delta_v_heads=4", "delta_inner=64",
                                        "attention_step=2", NULL},
                  false);
}

/* Layers whose experts have different sizes. */
static void sizes(void)
{
    same_text((const char *const[]){"--type", "Q8_0,Q4_0", "arch=qwen3moe", "layers=2", NULL},
              true);
}

static struct engine *start_lower(const char *gpu, const char *budget)
{
    struct engine *e = engine_new();
    engine_start(e,
                 (const char *const[]){"-m", model, "--prefill-chunk=16", "--keep-kv=0",
                                       "--preset=iq2", "--policy=preload=all", gpu, budget, NULL});
    engine_wait_counter(e, "cache", "resident_entries", EXPERTS, END_MS);
    return e;
}

/* A GPU that has slots for all experts of the precision that serves, but not for all of the other
 * one. */
static void lower_precision(void)
{
    char native[PATH_MAX], budget[64];
    struct command c;
    struct text want;
    continued_make(native, (const char *const[]){"arch=qwen3moe", "layers=2", NULL});
    path_in_dir(model, "store");
    command_run(&c, NULL, END_MS,
                (const char *const[]){"pack", "--quiet", "-m", native, "-o", model, "--precisions",
                                      "native,int2", "--method=channel", NULL});
    CHECK(c.status == 0, "sluice pack: status %d: %.300s", c.status, c.err);
    command_free(&c);
    struct engine *e = start_lower("--gpu=off", NULL);
    engine_generate(e, test_prompt(0), TOKENS, &want);
    engine_stop(e);
    gpu_fake_prompt();
    e = start_lower("--gpu=0", NULL);
    budget_of(e, PART, budget);
    engine_stop(e);
    e = start_lower("--gpu=0", budget);
    CHECK(gpu_number(e, "slots") < EXPERTS, "slots for all experts");
    until_all_are_launches(e, &want);
    CHECK(gpu_number(e, "slots_used") == EXPERTS, "%" PRIu64 " experts on the GPU",
          gpu_number(e, "slots_used"));
    engine_stop(e);
    unsetenv("SLUICE_TEST_GPU");
    text_free(&want);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {ROW(graphs), ROW(sizes), ROW(lower_precision)};
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
