/* SPDX-License-Identifier: Apache-2.0 */
/* stats, top, the page and the metrics show the GPU of compute, when it computes and when it is
 * lost, and nothing of one without --gpu. The GPU is memory of the process (tests/harness/cuda). */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "lib/json/lookup.h"
#include "tests/scenario/completions.h"

#define TOKENS 4

static char module_path[PATH_MAX];

/* A copy, as a test removes it. */
static void use_module(void)
{
    struct command c;
    path_in_dir(module_path, "module.so");
    command_run(&c, NULL, END_MS,
                (const char *const[]){"/bin/cp", SLUICE_FAKE_GPU, module_path, NULL});
    CHECK(c.status == 0, "%.300s", c.err);
    command_free(&c);
    setenv("SLUICE_TEST_GPU", module_path, 1);
}

static struct engine *start(unsigned *port, const char *gpu, const char *budget, const char *policy)
{
    struct engine *e =
        gateway_start(port, (const char *const[]){"--http=0", "--prefill-chunk=16",
                                                  "--ctx-size=256", gpu, budget, policy, NULL});
    free(completion_text(*port, test_prompt(0), TOKENS));
    return e;
}

/* What a command or a path answers has all texts, or none. */
static void check_texts(const char *what, const char *answer, const char *const texts[],
                        bool wanted)
{
    for (size_t i = 0; texts[i]; i++)
        CHECK((strstr(answer, texts[i]) != NULL) == wanted, "%s %s '%s': %s", what,
              wanted ? "lacks" : "has", texts[i], answer);
}

static void check_command(struct engine *e, const char *name, const char *option, const char *more,
                          const char *const texts[], bool wanted)
{
    struct command c;
    command_run(&c, NULL, END_MS,
                (const char *const[]){name, "--name", e->run, option, more, NULL});
    CHECK(c.status == 0, "%s: %.300s", name, c.err);
    check_texts(name, c.out, texts, wanted);
    command_free(&c);
}

static void check_page(unsigned port, const char *path, const char *const texts[], bool wanted)
{
    struct http h;
    http_call(&h, port, path, NULL, NULL, 200);
    check_texts(path, h.body, texts, wanted);
    http_close(&h);
}

/* A budget with slots for a quarter of the experts. */
static void few_slots(char option[64])
{
    unsigned port;
    struct engine *e = start(&port, "--gpu=0", NULL, NULL);
    json_t *doc = engine_stats(e), *bytes;
    const char *part;
    uint64_t budget = 0, experts = lookup_u64(doc, "gpu.plan.experts");
    json_object_foreach(json_object_get(json_object_get(doc, "gpu"), "plan"), part, bytes)
    {
        budget += (uint64_t)json_integer_value(bytes);
    }
    snprintf(option, 64, "--gpu-budget=%" PRIu64, budget - experts / 4 * 3);
    json_decref(doc);
    engine_stop(e);
}

struct numbers {
    uint64_t slots, used, hits, uploads, evictions, uploaded, ahead, timely, late, unused;
};

static struct numbers numbers_of(struct engine *e)
{
    json_t *doc = engine_stats(e);
    struct numbers n = {.slots = lookup_u64(doc, "gpu.slots"),
                        .used = lookup_u64(doc, "gpu.slots_used"),
                        .hits = lookup_counter(doc, "compute", "gpu_expert_hits"),
                        .uploads = lookup_counter(doc, "compute", "gpu_expert_uploads"),
                        .evictions = lookup_counter(doc, "compute", "gpu_expert_evictions"),
                        .uploaded = lookup_counter(doc, "compute", "gpu_uploaded_bytes"),
                        .ahead = lookup_counter(doc, "compute", "gpu_prefetches"),
                        .timely = lookup_counter(doc, "compute", "gpu_prefetches_timely"),
                        .late = lookup_counter(doc, "compute", "gpu_prefetches_late"),
                        .unused = lookup_counter(doc, "compute", "gpu_prefetches_unused")};
    uint64_t bytes = lookup_u64(doc, "gpu.slot_bytes");
    CHECK(n.slots > 0 && n.slots * bytes == lookup_u64(doc, "gpu.plan.experts"),
          "%" PRIu64 " slots of %" PRIu64 " bytes", n.slots, bytes);
    CHECK(n.hits > 0 && n.evictions > 0 && n.used == n.uploads + n.ahead - n.evictions &&
              n.used <= n.slots,
          "%" PRIu64 " hits, %" PRIu64 " uploads, %" PRIu64 " evictions, %" PRIu64 " of %" PRIu64
          " slots used",
          n.hits, n.uploads, n.evictions, n.used, n.slots);
    CHECK(n.timely + n.late + n.unused <= n.ahead,
          "%" PRIu64 " copied ahead: %" PRIu64 " timely, %" PRIu64 " late, %" PRIu64 " unused",
          n.ahead, n.timely, n.late, n.unused);
    CHECK(!json_is_true(json_object_get(json_object_get(doc, "gpu"), "lost")), "lost");
    json_decref(doc);
    return n;
}

/* The same numbers everywhere. */
static void computing(void)
{
    unsigned port;
    char option[64], slots[64], uploads[96], metric[4][96], page[64], top[64];
    use_module();
    few_slots(option);
    struct engine *e = start(&port, "--gpu=0", option, NULL);
    struct numbers n = numbers_of(e);
    snprintf(slots, sizeof slots, " %" PRIu64 "/%" PRIu64 "  used, each of ", n.used, n.slots);
    snprintf(uploads, sizeof uploads, " %" PRIu64 "  experts copied to the GPU", n.uploads);
    check_command(e, "stats", NULL, NULL,
                  (const char *const[]){"\nGPU 0 ", "memory of the process", "\nGPU plan ",
                                        "weights ", "\nGPU expert slots ", slots, "\nGPU hit rate ",
                                        uploads, "\nGPU policy ", " gpu-centric  for experts",
                                        "\nGPU evictions ", "\nto the GPU ", "\nfrom the GPU ",
                                        "\nGPU busy ", NULL},
                  true);
    snprintf(top, sizeof top, " slots %" PRIu64 "/%" PRIu64 "  ", n.used, n.slots);
    check_command(e, "top", "--once", "--interval=0.1",
                  (const char *const[]){"\nGPU 0 ", top, NULL}, true);
    snprintf(page, sizeof page, "<td>%" PRIu64 " of %" PRIu64 " used</td>", n.used, n.slots);
    check_page(port, "/",
               (const char *const[]){"<th>GPU 0</th><td>memory of the process</td>",
                                     "<th>GPU policy</th><td>gpu-centric</td>", page, NULL},
               true);
    snprintf(metric[0], sizeof metric[0], "\nsluice_gpu_expert_slots{gpu=\"0\"} %" PRIu64 "\n",
             n.slots);
    snprintf(metric[1], sizeof metric[1],
             "\nsluice_gpu_expert_uses_total{gpu=\"0\",result=\"upload\"} %" PRIu64 "\n",
             n.uploads);
    snprintf(metric[2], sizeof metric[2],
             "\nsluice_gpu_expert_uses_total{gpu=\"0\",result=\"hit\"} %" PRIu64 "\n", n.hits);
    snprintf(metric[3], sizeof metric[3],
             "\nsluice_gpu_copied_bytes_total{gpu=\"0\",direction=\"to\"} %" PRIu64 "\n",
             n.uploaded);
    check_page(
        port, "/metrics",
        (const char *const[]){metric[0], metric[1], metric[2], metric[3],
                              "\nsluice_gpu_info{gpu=\"0\",name=\"memory of the process\"} 1\n",
                              "\nsluice_gpu_memory_part_bytes{gpu=\"0\",part=\"weights\"} ",
                              "\nsluice_gpu_lost{gpu=\"0\"} 0\n", NULL},
        true);
    engine_stop(e);
}

/* What --gpu-policy prefetch counts; without it, no line has it. */
static void copied_ahead(void)
{
    static const char *const names[] = {"timely", "late", "unused"};
    char option[64], line[3][64], row[3][96], metric[3][96];
    unsigned port;
    use_module();
    few_slots(option);
    struct engine *e = start(&port, "--gpu=0", option, NULL);
    CHECK(numbers_of(e).ahead == 0, "copied ahead without the policy");
    check_command(e, "stats", NULL, NULL, (const char *const[]){"GPU prefetches", NULL}, false);
    engine_stop(e);
    e = start(&port, "--gpu=0", option, "--gpu-policy=prefetch");
    struct numbers n = numbers_of(e);
    const uint64_t counts[] = {n.timely, n.late, n.unused};
    CHECK(n.ahead > 0 && n.timely + n.late > 0, "nothing was copied ahead");
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        char label[32];
        snprintf(label, sizeof label, "GPU prefetches %s", names[i]);
        snprintf(line[i], sizeof line[i], "\n%-22s %12" PRIu64 "  ", label, counts[i]);
        snprintf(row[i], sizeof row[i], "<th>%s</th><td>%" PRIu64 "</td>", label, counts[i]);
        snprintf(metric[i], sizeof metric[i],
                 "\nsluice_gpu_prefetch_total{gpu=\"0\",result=\"%s\"} %" PRIu64 "\n", names[i],
                 counts[i]);
    }
    check_command(e, "stats", NULL, NULL, (const char *const[]){line[0], line[1], line[2], NULL},
                  true);
    check_command(e, "top", "--once", "--interval=0.1",
                  (const char *const[]){" prefetch slots ", " ahead ", NULL}, true);
    check_page(port, "/", (const char *const[]){row[0], row[1], row[2], NULL}, true);
    check_page(port, "/", (const char *const[]){"<th>GPU policy</th><td>prefetch</td>", NULL},
               true);
    check_page(port, "/metrics",
               (const char *const[]){metric[0], metric[1], metric[2],
                                     "\nsluice_gpu_policy{gpu=\"0\"} 2\n",
                                     "\nsluice_gpu_policy_trials_total{gpu=\"0\"} 0\n",
                                     "{gpu=\"0\",policy=\"cooperative\"} 0\n", NULL},
               true);
    engine_stop(e);
}

/* Its module is gone when compute is restarted. */
static void lost(void)
{
    unsigned port;
    use_module();
    struct engine *e = start(&port, "--gpu=0", NULL, NULL);
    CHECK(unlink(module_path) == 0, "cannot remove %s", module_path);
    pid_t pid = engine_pid(e, "compute", 0, 0);
    kill(pid, SIGKILL);
    engine_wait_counter(e, "compute", "gpu_lost", 1, END_MS);
    json_t *doc = engine_stats(e);
    CHECK(json_is_true(json_object_get(json_object_get(doc, "gpu"), "lost")) &&
              lookup_u64(doc, "gpu.slots_used") == 0,
          "not lost in the snapshot");
    json_decref(doc);
    check_command(e, "stats", NULL, NULL,
                  (const char *const[]){"\nGPU 0 ",
                                        " lost  memory of the process; computing on "
                                        "the CPU until the engine is started again",
                                        NULL},
                  true);
    check_command(e, "stats", NULL, NULL, (const char *const[]){"GPU expert slots", NULL}, false);
    check_command(e, "top", "--once", "--interval=0.1",
                  (const char *const[]){"\nGPU 0 lost: computing on the CPU", NULL}, true);
    check_page(port, "/",
               (const char *const[]){"<th>GPU lost</th><td>computing on the CPU</td>", NULL}, true);
    check_page(port, "/metrics", (const char *const[]){"\nsluice_gpu_lost{gpu=\"0\"} 1\n", NULL},
               true);
    engine_stop(e);
}

static void without(void)
{
    unsigned port;
    struct engine *e = start(&port, "--gpu=off", NULL, NULL);
    static const char *const none[] = {"GPU", NULL}, *const metrics[] = {"sluice_gpu", NULL};
    check_command(e, "stats", NULL, NULL, none, false);
    check_command(e, "top", "--once", "--interval=0.1", none, false);
    check_page(port, "/", (const char *const[]){"<th>GPU", NULL}, false);
    check_page(port, "/metrics", metrics, false);
    engine_stop(e);
}

static json_t *doctor_json(const char *more)
{
    struct command c;
    command_run(&c, NULL, 2 * END_MS,
                (const char *const[]){"doctor", "-m", test_model(), "--no-device", "--json",
                                      "--prefill-chunk=16", "--threads=2", "--gpu=0,1", more,
                                      NULL});
    json_t *doc = json_loads(c.out, JSON_ALLOW_NUL, NULL);
    CHECK(c.status == 0 && doc, "status %d: %.300s", c.status, c.err);
    command_free(&c);
    return doc;
}

static double real_of(const json_t *doc, const char *name)
{
    return json_number_value(json_object_get(doc, name));
}

/* What doctor measures of both GPUs, and stores; and budgets that a start accepts: with the larger
 * one all experts have slots. */
static void doctor(void)
{
    static const char *const rates[] = {"context_s",    "to_pinned",     "to_pageable",
                                        "from_pinned",  "from_pageable", "small_copy_s",
                                        "product_Q8_0", "product_Q4_K"};
    char option[64], layers[64];
    use_module();
    json_t *doc = doctor_json(NULL), *gpu = json_object_get(doc, "gpu");
    for (size_t i = 0; i < ARRAY_LEN(rates); i++)
        CHECK(real_of(gpu, rates[i]) > 0 && real_of(json_object_get(doc, "gpu 1"), rates[i]) > 0,
              "no %s", rates[i]);
    CHECK(json_is_true(json_object_get(gpu, "rates")) &&
              strcmp(lookup_text(gpu, "choice.by"), "times") == 0 &&
              lookup_u64(gpu, "choice.layers") == lookup_u64(gpu, "layers"),
          "rates were not stored, or not used");
    uint64_t dense = lookup_u64(gpu, "budget_dense"), half = lookup_u64(gpu, "budget_50"),
             all = lookup_u64(gpu, "budget_all");
    CHECK(dense > 0 && dense < half && half < all, "%" PRIu64 ", %" PRIu64 ", %" PRIu64, dense,
          half, all);
    snprintf(option, sizeof option, "--gpu-budget=%" PRIu64, all);
    snprintf(layers, sizeof layers, "--gpu-layers=%" PRIu64,
             lookup_u64(doc, "model.memory_estimate.layers"));
    json_decref(doc);
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"--gpu=0", option, layers, "--prefill-chunk=16", NULL});
    doc = engine_stats(e);
    uint64_t experts = lookup_u64(doc, "model.layers") * lookup_u64(doc, "model.experts");
    CHECK(lookup_u64(doc, "gpu.slots") == experts, "%" PRIu64 " slots of %" PRIu64 " experts",
          lookup_u64(doc, "gpu.slots"), experts);
    uint64_t fixed = lookup_u64(doc, "gpu.budget_bytes") - lookup_u64(doc, "gpu.plan.experts");
    CHECK(fixed == dense, "%" PRIu64 " bytes without experts", fixed);
    json_decref(doc);
    engine_stop(e);
}

/* The speed with a part of the layers, on two GPUs: within a factor, what the choice of layers has
 * for it. */
static void doctor_parts(void)
{
    use_module();
    json_t *doc = doctor_json("--gpu-layers=2"), *gpu = json_object_get(doc, "gpu");
    const json_t *estimates = json_object_get(gpu, "estimates"),
                 *one = json_array_get(estimates, 3);
    double tps = real_of(one, "decode_tps"),
           token_s = real_of(json_object_get(gpu, "choice"), "token_s");
    CHECK(lookup_u64(gpu, "layers") == 2 && strcmp(lookup_text(gpu, "choice.by"), "option") == 0,
          "other layers");
    CHECK(json_is_integer(json_object_get(gpu, "layers_chosen")), "nothing is advised");
    CHECK(json_is_integer(json_object_get(gpu, "budget_all")), "the option is taken for what fits");
    CHECK(json_array_size(estimates) == 4 && tps > 0 && real_of(one, "share") == 1,
          "no estimate with GPUs");
    test_note("%g s by doctor's simulation, %g s by the choice", 1 / tps, token_s);
    CHECK(1 / tps < 2 * token_s && 1 / tps > token_s / 2, "%g s, not %g s", 1 / tps, token_s);
    json_decref(doc);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {ROW(computing), ROW(copied_ahead), ROW(lost),
                                             ROW(without),   ROW(doctor),       ROW(doctor_parts)};
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
