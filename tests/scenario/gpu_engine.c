/* SPDX-License-Identifier: Apache-2.0 */
/* Starts engines on an invented GPU, and checks its memory. */
#include "tests/scenario/gpu_engine.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"

char gpu_model[PATH_MAX];

const char *const gpu_qwen35moe[] = {"arch=qwen35moe",
                                     "layers=2",
                                     "shared_inner=64",
                                     "rope_dims=8",
                                     "conv_taps=4",
                                     "delta_size=16",
                                     "delta_k_heads=2",
                                     "delta_v_heads=4",
                                     "delta_inner=64",
                                     "attention_step=2",
                                     NULL};
void gpu_fake(bool on)
{
    if (on)
        setenv("SLUICE_TEST_GPU", SLUICE_FAKE_GPU, 1);
    else
        unsetenv("SLUICE_TEST_GPU");
}

void gpu_fake_copy(char path[PATH_MAX])
{
    struct command c;
    path_in_dir(path, "module.so");
    command_run(&c, NULL, GPU_END_MS,
                (const char *const[]){"/bin/cp", SLUICE_FAKE_GPU, path, NULL});
    CHECK(c.status == 0, "%.300s", c.err);
    command_free(&c);
    setenv("SLUICE_TEST_GPU", path, 1);
}

void gpu_fake_file(const char *name, const char *text)
{
    char file[PATH_MAX];
    FILE *made = fopen(path_in_dir(file, name), "we");
    CHECK(made && fputs(text, made) >= 0 && fclose(made) == 0, "cannot make %s", file);
}

void gpu_fake_prompt(void)
{
    char path[PATH_MAX];
    gpu_fake_copy(path);
    gpu_fake_file("prompt", "");
}

struct engine *gpu_start(const char *const options[])
{
    struct engine *e = engine_new();
    /* A simulated GPU has a thread per block: on busy processors a pass takes seconds. */
    const char *args[16] = {"-m", gpu_model, "--checkpoint-tokens=32", "--prefill-chunk=16",
                            "--heartbeat-timeout=60000"};
    for (size_t i = 0; options[i]; i++)
        args[5 + i] = options[i];
    engine_start(e, args);
    return e;
}

void gpu_reference(struct text *out)
{
    struct engine *e = gpu_start((const char *const[]){"--gpu=off", NULL});
    engine_generate(e, test_prompt(0), GPU_TOKENS, out);
    json_t *doc = engine_stats(e);
    CHECK(!json_object_get(doc, "gpu"), "a GPU without --gpu");
    json_decref(doc);
    engine_stop(e);
}

void gpu_check_memory(struct engine *e)
{
    static const char *const parts[] = {"weights", "activations", "kv", "experts"};
    json_t *doc = engine_stats(e);
    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        char planned[64], counter[64];
        snprintf(planned, sizeof planned, "gpu.plan.%s", parts[i]);
        snprintf(counter, sizeof counter, "counters.gpu_%s_bytes", parts[i]);
        uint64_t plan = lookup_u64(doc, planned),
                 used = lookup_u64(lookup_process(doc, "compute", 0), counter);
        CHECK(plan > 0 && used == plan, "%s: %" PRIu64 " bytes planned, %" PRIu64 " used", parts[i],
              plan, used);
    }
    json_decref(doc);
    CHECK(engine_counter(e, "compute", "gpu_uploaded_bytes") > 0, "nothing was uploaded");
    CHECK(engine_counter(e, "compute", "gpu_downloaded_bytes") > 0, "nothing was downloaded");
}

uint64_t gpu_number(struct engine *e, const char *name)
{
    char path[64];
    snprintf(path, sizeof path, "gpu.%s", name);
    json_t *doc = engine_stats(e);
    uint64_t value = lookup_u64(doc, path);
    json_decref(doc);
    return value;
}

uint64_t gpu_rejected_with(const char *gpu, const char *budget, const char *layers,
                           const char *text, const char *after)
{
    struct command c;
    uint64_t number = 0;
    command_run(&c, NULL, GPU_END_MS,
                (const char *const[]){"run", "--name=gpu-rejected", "--log-level=error",
                                      "--prefill-chunk=16", "-m", gpu_model, gpu, budget, layers,
                                      NULL});
    CHECK(c.status == 2 && strstr(c.err, text) && command_lines(c.err) == 1,
          "%s %s: status %d, '%.600s' without '%s'", gpu, budget, c.status, c.err, text);
    test_note("%.*s", (int)strcspn(c.err, "\n"), c.err);
    const char *at = after ? strstr(c.err, after) : NULL;
    if (after)
        CHECK(at && sscanf(at + strlen(after), "%" SCNu64, &number) == 1, "no number after '%s'",
              after);
    command_free(&c);
    return number;
}

uint64_t gpu_rejected(const char *gpu, const char *budget, const char *text, const char *after)
{
    return gpu_rejected_with(gpu, budget, NULL, text, after);
}

uint64_t gpu_minimum(uint32_t layers)
{
    char after[32];
    snprintf(after, sizeof after, "%u layers need ", layers);
    return gpu_rejected("--gpu=0", "--gpu-budget=64KiB", "is too small for this model", after);
}

uint64_t gpu_minimum_of_one(void)
{
    return gpu_rejected("--gpu=0", "--gpu-budget=64KiB", "is too small for this model", "minimum ");
}
