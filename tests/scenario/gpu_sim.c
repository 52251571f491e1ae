/* SPDX-License-Identifier: Apache-2.0 */
/* The simulator equals the engine for experts on the GPU, too: over the recorded trace it has the
 * hits, copies and replaced experts that compute counted, for each policy, some numbers of slots,
 * and prompts in chunks; also with a part of the layers on a GPU, and on two. The GPU is memory of
 * the process (tests/harness/cuda).
 *
 * The order of uses decides, so what compute waits for has one order: all experts are in the arena,
 * or they are read one after the other, so slowly that compute waits for each of them. And a copy
 * to the GPU has happened when compute asks whether it has. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "lib/policy/gpu/places.h"
#include "lib/sim/sim.h"
#include "tests/scenario/continued.h"
#include "tests/scenario/gpu_engine.h"

#define END_MS  60000
#define TOKENS  6
#define LAYERS  4 /* of the model */
#define EXPERTS (LAYERS * 16)
#define TOP_K   4

static char model[PATH_MAX];
static const char *const prompts[] = {"The old man walked to the sea.", "It was a dark night."};

struct totals {
    uint64_t hits, uploads, evictions, on_cpu, background, ahead, timely, late, unused;
};

struct parts { /* as planned; used: slots at the end */
    uint32_t gpus, slots[2], end[2];
    uint64_t bytes, used, place_bytes[PRECISION__COUNT];
};

struct setting {
    const char *policy;
    uint32_t slots; /* at least; 0: all */
    uint32_t chunk;
    uint32_t resident; /* in the arena, %; below 100 reads in one order */
    const char *eviction;
    const char *gpus, *layers; /* --gpu, --gpu-layers; NULL: GPU 0, all */
    bool mixed;                /* precisions: of a store with two */
};

/* What all engines of a process need of the GPU without experts, and what the largest of these
 * takes. */
static struct {
    uint64_t fixed_bytes, slot_bytes;
} gpu;

static void note_layout(struct engine *e)
{
    static const char *const parts[] = {"context", "weights", "activations", "kv"};
    json_t *doc = engine_stats(e);
    gpu.fixed_bytes = 0;
    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        char path[64];
        snprintf(path, sizeof path, "gpu.plan.%s", parts[i]);
        gpu.fixed_bytes += lookup_u64(doc, path);
    }
    gpu.slot_bytes = lookup_u64(doc, "gpu.slot_bytes");
    json_decref(doc);
}

#define NO_PREFETCH "prediction=none,prefetch=none"

static const char *knobs_of(const struct setting *s)
{
    if (s->mixed) /* the first expert of a token in the best precision, the others in the other
                   * one */
        return NO_PREFETCH ",preload=none,eviction=lru,precision=hobbit,t1=0.05,t2=1";
    return s->resident == 100 ? NO_PREFETCH ",preload=all"
                              : NO_PREFETCH ",preload=none,eviction=lru";
}

static struct engine *start(const struct setting *s, const char *trace)
{
    struct engine *e = engine_new();
    char policy[64], eviction[64], budget[64], chunk[32], resident[32], traced[PATH_MAX + 16],
        knobs[96];
    uint64_t bytes = s->slots ? gpu.fixed_bytes + s->slots * gpu.slot_bytes : 0;
    snprintf(policy, sizeof policy, "--gpu-policy=%s", s->policy);
    snprintf(eviction, sizeof eviction, "--gpu-eviction=%s", s->eviction);
    snprintf(budget, sizeof budget, "--gpu-budget=%" PRIu64, bytes);
    snprintf(chunk, sizeof chunk, "--prefill-chunk=%u", s->chunk);
    snprintf(resident, sizeof resident, "--resident-experts=%u", s->resident);
    snprintf(traced, sizeof traced, "--trace=%s", trace);
    snprintf(knobs, sizeof knobs, "--policy=%s", knobs_of(s));
    engine_start(e, (const char *const[]){
                        "-m", model, s->gpus ? s->gpus : "--gpu=0", "--keep-kv=0", policy, eviction,
                        budget, chunk, resident, traced, knobs, "--queue-depth=1", "--ctx-size=256",
                        s->resident == 100 ? "--throttle=0" : "--throttle=4MiB", s->layers, NULL});
    if (s->resident == 100)
        engine_wait_counter(e, "cache", "resident_entries", EXPERTS, END_MS);
    return e;
}

static void take_parts(const json_t *doc, struct parts *out)
{
    const json_t *each = json_object_get(json_object_get(doc, "gpu"), "each");
    *out = (struct parts){
        .gpus = (uint32_t)json_array_size(each),
        .bytes = lookup_u64(doc, "gpu.plan.experts"),
        .used = lookup_u64(doc, "gpu.slots_used"),
        .place_bytes = {[PRECISION_NATIVE] = lookup_u64(doc, "gpu.precision_bytes.native"),
                        [PRECISION_INT2] = lookup_u64(doc, "gpu.precision_bytes.int2")}};
    CHECK(out->gpus >= 1 && out->gpus <= 2, "%u GPUs", out->gpus);
    for (uint32_t i = 0; i < out->gpus; i++) {
        const json_t *one = json_array_get(each, i);
        out->slots[i] = (uint32_t)lookup_u64(one, "slots");
        out->end[i] = (uint32_t)(lookup_u64(one, "first_layer") + lookup_u64(one, "layers"));
    }
}

/* *capacity, *slots, *parts: as planned. */
static struct totals run_engine(const struct setting *s, const char *trace, uint64_t *capacity,
                                uint64_t *slots, struct parts *parts)
{
    struct engine *e = start(s, trace);
    for (size_t i = 0; i < ARRAY_LEN(prompts); i++) {
        struct text text;
        engine_generate(e, prompts[i], TOKENS, &text);
        text_free(&text);
    }
    json_t *doc = engine_stats(e);
    *capacity = lookup_u64(doc, "directory.experts_payload_max");
    *slots = lookup_u64(doc, "gpu.slots");
    take_parts(doc, parts);
    json_decref(doc);
    if (s->slots == 0 && !s->layers)
        note_layout(e);
    if (s->mixed) /* places for the largest ones */
        parts->slots[0] = (uint32_t)(parts->bytes / gpu.slot_bytes);
    struct totals t = {.hits = engine_counter(e, "compute", "gpu_expert_hits"),
                       .uploads = engine_counter(e, "compute", "gpu_expert_uploads"),
                       .evictions = engine_counter(e, "compute", "gpu_expert_evictions"),
                       .on_cpu = engine_counter(e, "compute", "gpu_expert_on_cpu"),
                       .background = engine_counter(e, "compute", "gpu_expert_background"),
                       .ahead = engine_counter(e, "compute", "gpu_prefetches"),
                       .timely = engine_counter(e, "compute", "gpu_prefetches_timely"),
                       .late = engine_counter(e, "compute", "gpu_prefetches_late"),
                       .unused = engine_counter(e, "compute", "gpu_prefetches_unused")};
    uint64_t lost = engine_counter(e, "recorder", "records_dropped");
    uint64_t misses = engine_counter(e, "compute", "misses");
    CHECK((misses > 0) == (s->resident < 100), "%" PRIu64 " accesses were not in the arena",
          misses);
    uint64_t low = engine_counter(e, "compute", "low_precision_accesses");
    CHECK((low > 200) == s->mixed, "%" PRIu64 " accesses in the lower precision", low);
    engine_stop(e);
    if (lost > 0)
        test_skip("the recorder fell behind by %" PRIu64 " records", lost);
    return t;
}

static enum eviction eviction_of(const struct setting *s)
{
    enum eviction e;
    CHECK(places_eviction_find(s->eviction, &e), "no eviction '%s'", s->eviction);
    return e;
}

static struct sim_gpu gpu_of(const struct setting *s, const struct parts *parts, uint32_t i)
{
    return (struct sim_gpu){
        .places = parts->slots[i],
        .bytes = s->mixed ? parts->bytes : 0,
        .place_bytes = {[PRECISION_NATIVE] = parts->place_bytes[PRECISION_NATIVE],
                        [PRECISION_INT2] = parts->place_bytes[PRECISION_INT2]},
        .policy = gpu_policy_find(s->policy),
        .eviction = eviction_of(s),
        .bytes_per_s = INFINITY,
        .expert_ns = 1e3,
        .end_layer = parts->end[i]};
}

static struct totals simulate(const struct setting *s, const char *path, uint64_t capacity,
                              const struct parts *parts, uint64_t *elsewhere)
{
    struct sim_gpu second = gpu_of(s, parts, parts->gpus - 1);
    struct trace trace;
    struct error error;
    struct sim_result r;
    struct sim_config config = {.capacity = capacity,
                                .storage = {.bytes_per_s = 1e9, .latency_ns = 1e5, .depth = 1},
                                .compute = {.layer_ns = 1e4, .expert_ns = 1e4, .batch = 1},
                                .gpu = gpu_of(s, parts, 0)};
    config.gpu.next = parts->gpus > 1 ? &second : NULL;
    CHECK(knobs_resolve("default", NULL, knobs_of(s), &config.knobs, &error) == 0, "%s",
          error.text);
    CHECK(trace_read(path, &trace, &error) == 0, "%s", error.text);
    CHECK(sim_run(&trace, 0, 0, &config, false, &r, &error) == 0, "%s", error.text);
    trace_free(&trace);
    struct totals t = {0};
    *elsewhere = 0;
    for (int p = 0; p < SIM_PHASES; p++) {
        *elsewhere += r.phase[p].cpu_layer_uses;
        t.hits += r.phase[p].gpu_hits;
        t.uploads += r.phase[p].gpu_uploads;
        t.evictions += r.phase[p].gpu_evictions;
        t.on_cpu += r.phase[p].gpu_on_cpu;
        t.background += r.phase[p].gpu_background;
        t.ahead += r.phase[p].gpu_prefetches;
        t.timely += r.phase[p].gpu_prefetches_timely;
        t.late += r.phase[p].gpu_prefetches_late;
        t.unused += r.phase[p].gpu_prefetches_unused;
    }
    return t;
}

/* The same with the command, whose copies take time: what is copied in the background depends on
 * it. */
static struct totals command(const struct setting *s, const char *path, uint64_t capacity,
                             const struct parts *parts)
{
    static const char *const phases[] = {"decode", "prefill"};
    struct command c;
    char budget[32], places[32], layers[32];
    bool two = parts->gpus > 1;
    if (s->resident == 100) /* no limit is planned then */
        snprintf(budget, sizeof budget, "100%%");
    else
        snprintf(budget, sizeof budget, "%" PRIu64, capacity);
    snprintf(places, sizeof places, two ? "%u,%u" : "%u", parts->slots[0], parts->slots[1]);
    if (s->mixed)
        snprintf(places, sizeof places, "%" PRIu64, parts->bytes);
    snprintf(layers, sizeof layers, two ? "%u,%u" : "%u", parts->end[0],
             parts->end[1] - parts->end[0]);
    command_run(&c, NULL, END_MS,
                (const char *const[]){"sim",
                                      path,
                                      "--presets",
                                      "default",
                                      "--policy",
                                      knobs_of(s),
                                      "--budgets",
                                      budget,
                                      "--queue-depth",
                                      "1",
                                      "--calibrate",
                                      "0",
                                      s->mixed ? "--gpu-budget" : "--gpu-slots",
                                      places,
                                      "--gpu-layers",
                                      layers,
                                      "--gpu-policy",
                                      s->policy,
                                      "--gpu-eviction",
                                      s->eviction,
                                      "--output",
                                      "json",
                                      NULL});
    CHECK(c.status == 0, "sluice sim: %.300s", c.err);
    json_t *doc = json_loads(c.out, JSON_ALLOW_NUL, NULL);
    const json_t *result = json_array_get(json_object_get(doc, "results"), 0);
    struct totals t = {0};
    for (size_t p = 0; p < ARRAY_LEN(phases); p++) {
        const json_t *phase = json_object_get(result, phases[p]);
        t.hits += lookup_u64(phase, "gpu_hits");
        t.uploads += lookup_u64(phase, "gpu_uploads");
        t.evictions += lookup_u64(phase, "gpu_evictions");
        t.on_cpu += lookup_u64(phase, "gpu_on_cpu");
        t.background += lookup_u64(phase, "gpu_background");
    }
    CHECK(s->mixed || lookup_u64(doc, "gpu.slots") == parts->slots[0] + parts->slots[1],
          "other slots: %.300s", c.out);
    json_decref(doc);
    command_free(&c);
    return t;
}

static void note(const char *what, const struct totals *t)
{
    test_note("%s: %" PRIu64 " hits, %" PRIu64 " copied, %" PRIu64 " replaced, %" PRIu64
              " on the CPU, %" PRIu64 " copied later; %" PRIu64 " ahead, %" PRIu64 "/%" PRIu64
              "/%" PRIu64 " timely, late, unused",
              what, t->hits, t->uploads, t->evictions, t->on_cpu, t->background, t->ahead,
              t->timely, t->late, t->unused);
}

static void compare(const struct setting *s)
{
    char path[PATH_MAX];
    uint64_t capacity, slots, elsewhere;
    struct parts parts;
    path_in_dir(path, "gpu.trace");
    unlink(path);
    struct totals real = run_engine(s, path, &capacity, &slots, &parts);
    uint32_t end = parts.end[parts.gpus - 1];
    uint32_t there = end * (EXPERTS / LAYERS) * (s->mixed ? 2 : 1);
    CHECK(s->slots ? slots >= s->slots && slots < there : slots == there, "%" PRIu64 " slots",
          slots);
    CHECK(parts.used <= slots, "%" PRIu64 " of %" PRIu64 " slots", parts.used, slots);
    struct totals modelled = simulate(s, path, capacity, &parts, &elsewhere);
    CHECK((end < LAYERS) == (elsewhere > 0) && end == LAYERS - (s->layers != NULL),
          "%" PRIu64 " uses in layers of the CPU; GPUs have %u layers", elsewhere, end);
    test_note("%s, %s, %" PRIu64 " slots, chunks of %u, %u %% in the arena", s->policy, s->eviction,
              slots, s->chunk, s->resident);
    note("engine", &real);
    note("sim", &modelled);
    CHECK(real.hits + real.uploads + real.on_cpu > 200, "too few uses to compare");
    CHECK((real.evictions > 0) == (slots < there), "other evictions");
    if (s->mixed && s->slots) /* than with slots of one size */
        CHECK(parts.used > s->slots, "%" PRIu64 " experts are on the GPU", parts.used);
    CHECK(memcmp(&real, &modelled, sizeof real) == 0, "the simulator counts other uses");
    bool ahead = strcmp(s->policy, "prefetch") == 0 && s->slots != TOP_K;
    CHECK((real.ahead > 0) == ahead, "%" PRIu64 " copied ahead", real.ahead);
    struct totals printed = command(s, path, capacity, &parts);
    note("sluice sim", &printed);
    if (strcmp(s->policy, "gpu-centric") == 0 && !s->mixed) /* sizes are those of the file */
        CHECK(memcmp(&real, &printed, sizeof real) == 0, "sluice sim prints other uses");
    CHECK(printed.hits + printed.uploads + printed.on_cpu == real.hits + real.uploads + real.on_cpu,
          "sluice sim prints more or fewer uses");
}

/* The first one, whose plan the others use, and in the short form others in turn. */
static void compare_all(const struct setting *settings, size_t count)
{
    static unsigned met;
    for (size_t i = 0; i < count; i++)
        if (i == 0 || test_sample(EVERY_gpu_settings, &met))
            compare(&settings[i]);
}

static void policy(const char *name, const char *eviction)
{
    const struct setting settings[] = {
        {name, 0, 16, 100, "lru", NULL, NULL, false}, /* first: the plan of the others */
        {name, EXPERTS / 4 + 1, 1, 50, eviction, NULL, NULL, false},
        {name, EXPERTS / 2, 16, 100, "lru", NULL, NULL, false},
        {name, TOP_K, 16, 100, "lru", NULL, NULL, false},
    };
    continued_make(model, (const char *const[]){"arch=qwen3moe", "layers=4", NULL});
    gpu_fake_prompt();
    compare_all(settings, ARRAY_LEN(settings));
    unsetenv("SLUICE_TEST_GPU");
}

static void gpu_centric(void)
{
    policy("gpu-centric", "lru");
}

static void cooperative(void)
{
    policy("cooperative", "lru");
}

static void prefetch(void)
{
    policy("prefetch", "hobbit");
}

/* Three of four layers, on a GPU and on two, the last one on the CPU. */
static void parts_of_the_layers(void)
{
    const struct setting settings[] = {
        {"gpu-centric", 0, 16, 100, "lru", NULL, NULL, false}, /* first: the plan of the others */
        {"gpu-centric", EXPERTS / 4, 16, 100, "lru", "--gpu=0", "--gpu-layers=3", false},
        {"prefetch", TOP_K + 1, 16, 100, "lru", "--gpu=0,1", "--gpu-layers=3", false},
        {"cooperative", 0, 16, 100, "lru", "--gpu=0,1", "--gpu-layers=3", false},
    };
    continued_make(model, (const char *const[]){"arch=qwen3moe", "layers=4", NULL});
    gpu_fake_prompt();
    compare_all(settings, ARRAY_LEN(settings));
    unsetenv("SLUICE_TEST_GPU");
}

static void pack(const char *native)
{
    struct command c;
    path_in_dir(model, "store");
    command_run(&c, NULL, END_MS,
                (const char *const[]){"pack", "--quiet", "-m", native, "-o", model, "--precisions",
                                      "native,int2", "--method=channel", NULL});
    CHECK(c.status == 0, "sluice pack: status %d: %.300s", c.status, c.err);
    command_free(&c);
}

/* Two precisions, each with slots of its size. */
static void precisions(void)
{
    const struct setting settings[] = {
        {"gpu-centric", 0, 1, 20, "lru", NULL, NULL, true},
        {"gpu-centric", EXPERTS / 3, 1, 20, "lru", NULL, NULL, true},
        {"gpu-centric", EXPERTS / 4, 1, 20, "hobbit", NULL, NULL, true},
        {"cooperative", EXPERTS / 4, 1, 20, "lru", NULL, NULL, true},
    };
    char native[PATH_MAX];
    continued_make(native, (const char *const[]){"arch=qwen3moe", "layers=4", NULL});
    pack(native);
    gpu_fake_prompt();
    compare_all(settings, ARRAY_LEN(settings));
    unsetenv("SLUICE_TEST_GPU");
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {ROW(gpu_centric), ROW(cooperative), ROW(prefetch),
                                             ROW(parts_of_the_layers), ROW(precisions)};
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
