/* SPDX-License-Identifier: Apache-2.0 */
/* Tests how many layers GPUs get by stored rates of the machine: files of rates with which all, few
 * or none are the fastest, and files that cannot be used. The text is always the same. The GPUs are
 * memory of the process (tests/harness/cuda); the rates are those of no machine. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "lib/cuda/cuda.h"
#include "lib/rates/rates.h"
#include "lib/tunings/tunings.h"
#include "tests/scenario/gpu_engine.h"

#define LAYERS   4
#define EXPERTS  16 /* of a layer */
#define TOP_K    4
#define KEY      "Q8_0 64x128, 4 layers of 16, auto" /* of four_layers */
#define MEASURES "sluice doctor -m "

static const char *const four_layers[] = {"arch=qwen3moe", "layers=4", NULL};
static struct text want;

static const struct cost_gpu fast = {
    .product = {1e12, 1e12, 1e12, 1e12}, .pinned = 1e12, .pageable = 1e12, .wait_s = 1e-9};

/* Of CPUs with 2 threads and GPUs of the tests. */
static struct rates rates_of(double cpu, const struct cost_gpu gpu[2])
{
    struct rates r = {.cpus = 1, .gpus = 2};
    r.cpu[0] =
        (struct rates_cpu){.threads = 2, .type = KEY, .rate = {.dense = cpu, .experts = cpu}};
    tunings_cpu(r.cpu[0].name);
    for (uint32_t i = 0; i < 2; i++)
        r.gpu[i] = (struct rates_gpu){.name = "memory of the process",
                                      .number = i,
                                      .interface = GPU_INTERFACE,
                                      .rate = gpu[i]};
    return r;
}

static void put_rates(const struct rates *r)
{
    struct error error;
    CHECK(rates_write(r, &error) == 0, "%s", error.text);
}

static void put_equal(double cpu, const struct cost_gpu *gpu)
{
    const struct cost_gpu both[2] = {*gpu, *gpu};
    struct rates r = rates_of(cpu, both);
    put_rates(&r);
}

static void put_text(const char *text)
{
    char path[PATH_MAX];
    path_in_dir(path, "sluice");
    CHECK(mkdir(path, 0700) == 0 || access(path, W_OK) == 0, "cannot make %s", path);
    FILE *f = fopen(path_in_dir(path, "sluice/rates.json"), "we");
    CHECK(f && fputs(text, f) >= 0 && fclose(f) == 0, "cannot write %s", path);
}

struct chosen {
    uint64_t layers, most, slots, first;
    double token_s, most_s, cpu_s;
    char by[16], log[8192];
};

static void take_numbers(struct engine *e, struct chosen *out)
{
    json_t *doc = engine_stats(e);
    const json_t *choice = json_object_get(doc, "gpu_choice");
    const json_t *each = json_object_get(json_object_get(doc, "gpu"), "each");
    *out = (struct chosen){.layers = lookup_u64(choice, "layers"),
                           .most = lookup_u64(choice, "most"),
                           .slots = lookup_u64(doc, "gpu.slots"),
                           .first = lookup_u64(json_array_get(each, 0), "layers"),
                           .token_s = json_number_value(json_object_get(choice, "token_s")),
                           .most_s = json_number_value(json_object_get(choice, "most_s")),
                           .cpu_s = json_number_value(json_object_get(choice, "cpu_s"))};
    snprintf(out->by, sizeof out->by, "%s", lookup_text(choice, "by"));
    CHECK(lookup_u64(doc, "gpu.layers") == out->layers, "%" PRIu64 " layers on GPUs",
          lookup_u64(doc, "gpu.layers"));
    CHECK((json_object_get(doc, "gpu") != NULL) == (out->layers > 0), "other GPUs");
    json_decref(doc);
    char *log = engine_log(e);
    snprintf(out->log, sizeof out->log, "%s", log);
    free(log);
}

static void check_stats(struct engine *e, const char *line)
{
    struct command c;
    command_run(&c, NULL, GPU_END_MS, (const char *const[]){"stats", "--name", e->run, NULL});
    CHECK(c.status == 0 && strstr(c.out, "\nGPU layers ") && strstr(c.out, line),
          "no line '%s': %.3000s", line, c.out);
    command_free(&c);
}

/* An engine with these options and the text of the CPU. */
static void choose(const char *gpu, const char *budget, const char *more, struct chosen *out)
{
    struct text text;
    struct engine *e = gpu_start(
        (const char *const[]){gpu, budget, "--threads=2", "--gpu-policy=gpu-centric", more, NULL});
    engine_generate(e, test_prompt(0), GPU_TOKENS, &text);
    text_check_same(&want, &text, gpu);
    text_free(&text);
    take_numbers(e, out);
    if (out->layers < LAYERS)
        check_stats(e, out->layers == 0 ? " by measured times: the CPU computes all\n"
                                        : " from the first one on, by measured times; the CPU ");
    engine_stop(e);
    test_note("by %s: %" PRIu64 " of %" PRIu64 " layers, %" PRIu64 " slots; %g s, %g s, %g s",
              out->by, out->layers, out->most, out->slots, out->token_s, out->most_s, out->cpu_s);
}

/* A budget for all layers with their keys and values, and slots for half of their experts. */
static void half_of_the_experts(char budget[64])
{
    static const char *const parts[] = {"plan.weights", "plan.activations", "plan.kv",
                                        "plan.experts"};
    struct chosen c;
    uint64_t bytes = 0;
    struct engine *e = gpu_start((const char *const[]){"--gpu=0", NULL});
    for (size_t i = 0; i < ARRAY_LEN(parts); i++)
        bytes += gpu_number(e, parts[i]);
    snprintf(budget, 64, "--gpu-budget=%" PRIu64,
             bytes - gpu_number(e, "slot_bytes") * LAYERS * EXPERTS / 2);
    engine_stop(e);
    choose("--gpu=0", budget, NULL, &c);
    CHECK(c.layers == LAYERS && c.slots == LAYERS * EXPERTS / 2,
          "%" PRIu64 " layers, %" PRIu64 " slots", c.layers, c.slots);
}

static void check_chosen(const struct chosen *c, const char *by, uint64_t layers)
{
    bool known = c->token_s > 0;
    CHECK(strcmp(c->by, by) == 0 && c->layers == layers && c->most == LAYERS,
          "by %s, %" PRIu64 " layers", c->by, c->layers);
    CHECK(known == (strcmp(by, "bytes") != 0), "%g s", c->token_s);
    CHECK(!known || (c->token_s <= c->most_s && c->token_s <= c->cpu_s), "not the fastest");
    CHECK(known != (strstr(c->log, MEASURES) != NULL), "another log: %.2000s", c->log);
    CHECK(!known || strstr(c->log, " layers on GPUs, by "), "another log: %.2000s", c->log);
}

/* A fast GPU has all layers. With slow copies it has those whose experts all have slots. With long
 * waits the CPU has all. A number of layers that is stated stays. */
static void by_times(void)
{
    struct cost_gpu slow_copies = fast, slow_waits = fast;
    struct chosen c;
    char budget[64];
    half_of_the_experts(budget);
    put_equal(1e6, &fast);
    choose("--gpu=0", budget, NULL, &c);
    check_chosen(&c, "times", LAYERS);
    slow_copies.pinned = 1e4;
    put_equal(1e6, &slow_copies);
    choose("--gpu=0", budget, NULL, &c);
    CHECK(c.layers > 0 && c.layers < LAYERS && c.slots == c.layers * EXPERTS,
          "%" PRIu64 " layers, %" PRIu64 " slots", c.layers, c.slots);
    check_chosen(&c, "times", c.layers);
    choose("--gpu=0", budget, "--gpu-layers=4", &c);
    CHECK(strcmp(c.by, "option") == 0 && c.layers == LAYERS && c.token_s > 0 && c.cpu_s > 0,
          "by %s, %" PRIu64 " layers", c.by, c.layers);
    slow_waits.wait_s = 1;
    put_equal(1e6, &slow_waits);
    choose("--gpu=0", budget, NULL, &c);
    check_chosen(&c, "times", 0);
}

/* Two GPUs with equal budgets have equal numbers of layers by bytes, but 3 and 1 if one is three
 * times as fast. */
static void by_speed(void)
{
    struct cost_gpu gpu[2] = {fast, fast};
    struct chosen c;
    char budget[64];
    snprintf(budget, sizeof budget, "--gpu-budget=%" PRIu64, gpu_minimum(LAYERS));
    choose("--gpu=0,1", budget, NULL, &c);
    check_chosen(&c, "bytes", LAYERS);
    CHECK(c.first == LAYERS / 2, "%" PRIu64 " layers on the first GPU", c.first);
    for (int i = 0; i < COST_TYPES; i++)
        gpu[0].product[i] = 3e9, gpu[1].product[i] = 1e9;
    struct rates r = rates_of(1e3, gpu);
    put_rates(&r);
    choose("--gpu=0,1", budget, NULL, &c);
    check_chosen(&c, "times", LAYERS);
    CHECK(c.first == 3 && c.slots > 2 * TOP_K,
          "%" PRIu64 " layers on the first GPU, %" PRIu64 " slots", c.first, c.slots);
}

/* Before a start: a line in the log, and all that fit. */
static void check_bytes(const char *what, const char *threads, const char *line)
{
    struct command c;
    command_run(&c, NULL, GPU_END_MS,
                (const char *const[]){"run", "-m", gpu_model, "--gpu=0", threads,
                                      "--prefill-chunk=16", "--print-memory", NULL});
    CHECK(c.status == 0, "%s: %.300s", what, c.err);
    json_t *doc = json_loads(c.out, JSON_ALLOW_NUL, NULL);
    CHECK(strcmp(lookup_text(doc, "gpu_choice.by"), "bytes") == 0 &&
              lookup_u64(doc, "gpu_choice.layers") == LAYERS,
          "%s: another choice: %.2000s", what, c.out);
    json_decref(doc);
    const char *at = strstr(c.err, MEASURES);
    CHECK(at && !strstr(at + 1, MEASURES), "%s: not one line: %.2000s", what, c.err);
    CHECK((strstr(c.err, "rates.json is ignored") != NULL) == (line != NULL) &&
              (!line || strstr(c.err, line)),
          "%s: another log: %.2000s", what, c.err);
    command_free(&c);
}

/* Rates of another GPU, CPU, number of threads, type or module; of another version; and what is no
 * file of rates: none of them would leave a layer to the GPU. */
static void not_used(void)
{
    struct cost_gpu slow = fast;
    struct error error;
    slow.wait_s = 1;
    const struct cost_gpu both[2] = {slow, slow};
    const struct rates good = rates_of(1e6, both);
    struct rates r = good;
    check_bytes("no file", "--threads=2", NULL);
    snprintf(r.gpu[0].name, sizeof r.gpu[0].name, "another");
    put_rates(&r);
    check_bytes("another GPU", "--threads=2", NULL);
    r = good;
    r.gpu[0].interface++;
    put_rates(&r);
    check_bytes("another module", "--threads=2", NULL);
    r = good;
    r.cpu[0].threads++;
    put_rates(&r);
    check_bytes("other threads", "--threads=2", NULL);
    put_rates(&good);
    check_bytes("other threads of the engine", "--threads=1", NULL);
    r = good;
    snprintf(r.cpu[0].type, sizeof r.cpu[0].type, "Q4_K 64x128, 4 layers of 16, auto");
    put_rates(&r);
    check_bytes("another type", "--threads=2", NULL);
    put_rates(&good);
    check_bytes("another instruction set", "--isa=generic", NULL);
    char *text = rates_format(&good, &error), *version = strstr(text, "\"version\": 1");
    version[strlen("\"version\": ")] = '0';
    put_text(text);
    check_bytes("an old file", "--threads=2", "'version' is missing or wrong");
    text[strlen(text) / 2] = 0;
    put_text(text);
    free(text);
    check_bytes("half a file", "--threads=2", "rates.json is ignored");
    struct chosen c;
    choose("--gpu=0", NULL, NULL, &c);
    check_chosen(&c, "bytes", LAYERS);
}

static void with_model(void (*test)(void))
{
    continued_make(gpu_model, four_layers);
    gpu_reference(&want);
    gpu_fake(true);
    test();
    gpu_fake(false);
    text_free(&want);
}

static void measured(void)
{
    with_model(by_times);
}

static void two_gpus(void)
{
    with_model(by_speed);
}

static void rates_not_used(void)
{
    with_model(not_used);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {ROW(measured), ROW(two_gpus), ROW(rates_not_used)};
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
