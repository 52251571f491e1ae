/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens that the GPU computes alone, by launches of a graph: the same text as on the CPU, also of another sequence and when
 * compute is killed while a graph runs. The GPU is memory of the process (tests/harness/cuda). */
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

/* Until all tokens but the first, which the prompt gives, are launches: all experts are on the GPU. The last chunk of a prompt
 * can be one token, too. */
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

static void same_text(const char *const keys[])
{
    struct text want, other;
    const struct continued c = {.prompt = 0, .tokens = TOKENS, .want = &want};
    continued_make(model, keys);
    struct engine *e = start("--gpu=off", NULL);
    engine_generate(e, test_prompt(0), TOKENS, &want);
    engine_generate(e, test_prompt(1), TOKENS, &other);
    engine_stop(e);
    gpu_fake_prompt();
    e = start("--gpu=0", "--policy=preload=all");
    engine_wait_counter(e, "cache", "resident_entries", EXPERTS, END_MS);
    until_all_are_launches(e, &want);
    check_uses(e, &other);
    continued_at(e, &c, "COMPUTE_MID_TOKEN", 2);
    until_all_are_launches(e, &want);
    json_t *doc = engine_stats(e);
    CHECK(lookup_u64(doc, "gpu.slots_used") == EXPERTS, "not all slots are used");
    json_decref(doc);
    engine_stop(e);
    unsetenv("SLUICE_TEST_GPU");
    text_free(&want);
    text_free(&other);
}

/* A state in the long form only. */
static void graphs(void)
{
    same_text((const char *const[]){"arch=qwen3moe", "layers=2", NULL});
    if (test_long())
        same_text((const char *const[]){"arch=qwen35moe", "layers=2", "shared_inner=64",
                                        "rope_dims=8", "conv_taps=4", "delta_size=16",
                                        "delta_k_heads=2", "delta_v_heads=4", "delta_inner=64",
                                        "attention_step=2", NULL});
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {ROW(graphs)};
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
