/* SPDX-License-Identifier: Apache-2.0 */
/* compute with parts of the layers on one or two GPUs that are memory of the process
 * (tests/harness/cuda), and the last ones on the CPU: the same text as on the CPU, also when
 * compute is killed, and each plan within its budget. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "tests/scenario/gpu_engine.h"
#include "tests/scenario/spoiled.h"

#define THREAD_BYTES (40 * KIB) /* at least: of the kernel, and of its stack */

static const char *const four_layers[] = {"arch=qwen3moe", "layers=4", NULL};

/* So many layers are on GPUs, and each GPU's plan is within its budget. */
static void check_layers(struct engine *e, uint64_t layers, uint64_t all, size_t gpus)
{
    static const char *const parts[] = {"weights", "activations", "kv", "experts"};
    json_t *doc = engine_stats(e), *gpu = json_object_get(doc, "gpu");
    const json_t *each = json_object_get(gpu, "each");
    uint64_t next = 0;
    CHECK(lookup_u64(gpu, "layers") == layers && lookup_u64(gpu, "layers_on_cpu") == all - layers,
          "%" PRIu64 " layers, %" PRIu64 " on the CPU", lookup_u64(gpu, "layers"),
          lookup_u64(gpu, "layers_on_cpu"));
    CHECK(json_array_size(each) == gpus, "%zu GPUs", json_array_size(each));
    for (size_t i = 0; i < gpus; i++) {
        const json_t *one = json_array_get(each, i), *plan = json_object_get(one, "plan");
        uint64_t bytes = 0;
        for (size_t p = 0; p < ARRAY_LEN(parts); p++)
            bytes += lookup_u64(plan, parts[p]);
        CHECK(bytes <= lookup_u64(one, "budget_bytes"), "%" PRIu64 " bytes are planned", bytes);
        CHECK(lookup_u64(one, "first_layer") == next && lookup_u64(one, "layers") > 0,
              "GPU %zu has %" PRIu64 " layers from %" PRIu64 " on", i, lookup_u64(one, "layers"),
              lookup_u64(one, "first_layer"));
        CHECK(lookup_u64(one, "slots_used") > 0, "GPU %zu has no expert", i);
        next += lookup_u64(one, "layers");
    }
    CHECK(next == layers, "%" PRIu64 " layers of %" PRIu64, next, layers);
    json_decref(doc);
}

/* The text with these options, and the layers on GPUs; compute is killed in the middle. */
static void part_of_layers(const char *const options[], const struct text *want, uint64_t layers,
                           uint64_t all, size_t gpus)
{
    const struct continued c = {.prompt = 0, .tokens = GPU_TOKENS, .want = want};
    struct engine *e = gpu_start(options);
    continued_after(e, &c, 3, options[1]);
    check_layers(e, layers > 0 ? layers : gpu_number(e, "layers"), all, gpus);
    CHECK(layers > 0 || gpu_number(e, "layers_on_cpu") > 0, "all layers fit");
    gpu_check_memory(e);
    if (gpu_number(e, "layers_on_cpu") > 0) {
        char *log = engine_log(e);
        CHECK(strstr(log, " layers are computed on the CPU"), "no line in the log");
        free(log);
    }
    engine_stop(e);
}

/* A budget for a half of the layers; a number of them; and a layer with a recurrent state apart
 * from one with attention. */
static void layers_on_the_cpu(void)
{
    struct text want;
    char option[64];
    continued_make(gpu_model, four_layers);
    gpu_reference(&want);
    gpu_fake(true);
    uint64_t all = gpu_minimum(4);
    snprintf(option, sizeof option, "--gpu-budget=%" PRIu64, (gpu_minimum_of_one() + all) / 2);
    part_of_layers((const char *const[]){"--gpu=auto", option, NULL}, &want, 0, 4, 1);
    snprintf(option, sizeof option, "--gpu-budget=%" PRIu64, all);
    part_of_layers((const char *const[]){option, "--gpu-layers=3", "--gpu=0", NULL}, &want, 3, 4,
                   1);
    snprintf(option, sizeof option, "--gpu-budget=%" PRIu64, all - 1);
    gpu_rejected_with("--gpu=0", option, "--gpu-layers=4", "is too small for this model", NULL);
    text_free(&want);
    gpu_fake(false);
    continued_make(gpu_model, gpu_qwen35moe);
    gpu_reference(&want);
    gpu_fake(true);
    part_of_layers((const char *const[]){"--gpu=0", "--gpu-layers=1", NULL}, &want, 1, 2, 1);
    text_free(&want);
    gpu_fake(false);
}

/* The host part is given what the GPU's layers computed, but the first of these is to blame. */
static void not_finite_on_the_gpu(void)
{
    char made[PATH_MAX];
    struct text got;
    continued_make(made, four_layers);
    spoiled_model(gpu_model, made, "blk.1.attn_output.weight", false);
    gpu_fake(true);
    struct engine *e = gpu_start((const char *const[]){"--gpu=0", "--gpu-layers=3", NULL});
    generation_finish(generation_start(e, test_prompt(0), GPU_TOKENS), GPU_END_MS, &got);
    CHECK(got.error.code == ERR_NOT_FINITE && strstr(got.error.text, "layer 1:"), "%s: %s",
          error_name(got.error.code), got.error.text);
    text_free(&got);
    engine_stop(e);
    gpu_fake(false);
}

/* The second has half the memory of the first; in the other order, and each with memory for a
 * layer, the CPU has the rest. */
static void two_gpus(void)
{
    struct text want;
    char option[64];
    continued_make(gpu_model, four_layers);
    gpu_reference(&want);
    gpu_fake(true);
    part_of_layers((const char *const[]){"--gpu=0,1", "--gpu-policy=prefetch", NULL}, &want, 4, 4,
                   2);
    snprintf(option, sizeof option, "--gpu-budget=%" PRIu64, gpu_minimum_of_one());
    part_of_layers((const char *const[]){"--gpu=1,0", option, NULL}, &want, 0, 4, 2);
    text_free(&want);
    gpu_fake(false);
}

/* Before the start: all that is neither experts nor dense weights, as in the ledger. */
static uint64_t planned_bytes(const char *const options[])
{
    const char *args[16] = {"run", "-m", gpu_model, "--prefill-chunk=16", "--print-memory"};
    for (size_t i = 0; options[i]; i++)
        args[5 + i] = options[i];
    json_t *doc = command_json(GPU_END_MS, args);
    uint64_t bytes = lookup_u64(doc, "fixed_bytes");
    json_decref(doc);
    return bytes;
}

/* What that is now, and the threads of compute. */
static uint64_t ledger_bytes(struct engine *e, uint64_t *threads)
{
    static const char *const parts[] = {"segments", "kv", "private", "text", "kernel"};
    json_t *doc = engine_stats(e);
    uint64_t sum = 0;
    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        char path[64];
        snprintf(path, sizeof path, "memory.plan.%s_bytes", parts[i]);
        sum += lookup_u64(doc, path);
    }
    *threads = lookup_u64(lookup_process(doc, "compute", 0), "threads");
    json_decref(doc);
    return sum;
}

/* auto, with two GPUs and layers on the CPU: each has threads of its own, which the plan of the
 * host's memory counts. */
static void policies_of_parts(void)
{
    struct text want;
    char option[64];
    continued_make(gpu_model, four_layers);
    struct engine *e = gpu_start((const char *const[]){"--gpu=off", NULL});
    engine_generate(e, test_prompt(0), GPU_TRIAL + 2, &want);
    engine_stop(e);
    gpu_fake(true);
    snprintf(option, sizeof option, "--gpu-budget=%" PRIu64,
             gpu_minimum_of_one() + (gpu_minimum(4) - gpu_minimum_of_one()) / 3);
    /* No kept prefixes, as in deterministic engines: their slots take memory. */
    const char *options[] = {"--gpu=0,1",   "--gpu-policy=auto", option, "--gpu-layers=3",
                             "--threads=3", "--keep-kv=0",       NULL};
    const struct continued c = {.prompt = 0, .tokens = GPU_TRIAL + 2, .want = &want};
    uint64_t planned = planned_bytes(options), threads;
    options[1] = "--gpu-policy=gpu-centric";
    uint64_t without = planned_bytes(options);
    options[1] = "--deterministic=on";
    CHECK(planned_bytes(options) == without,
          "a deterministic engine has threads that it does not use");
    options[1] = "--gpu-policy=auto";
    e = gpu_start(options);
    continued_after(e, &c, 0, "policies in turns");
    check_layers(e, 3, 4, 2);
    CHECK(gpu_number(e, "trials") == 1, "%" PRIu64 " trials", gpu_number(e, "trials"));
    CHECK(engine_counter(e, "compute", "gpu_expert_on_cpu") > 0 &&
              engine_counter(e, "compute", "gpu_prefetches") > 0,
          "a policy was not used");
    uint64_t bytes = ledger_bytes(e, &threads);
    test_note("%" PRIu64 " bytes, %" PRIu64 " planned, with threads of the CPU alone %" PRIu64
              "; %" PRIu64 " threads",
              bytes, planned, without, threads);
    CHECK(bytes <= planned, "more than planned");
    CHECK(threads >= 3 * 3 && planned >= without + 2 * 3 * THREAD_BYTES, "threads are not planned");
    engine_stop(e);
    text_free(&want);
    gpu_fake(false);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {ROW(layers_on_the_cpu), ROW(not_finite_on_the_gpu),
                                             ROW(two_gpus), ROW(policies_of_parts)};
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
