/* SPDX-License-Identifier: Apache-2.0 */
/* GPUs of NVIDIA, the module with the kernels, rates through its interface, budgets of the GPU for a model. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "lib/base/clock.h"
#include "lib/cuda/module.h"
#include "lib/json/lookup.h"
#include "lib/policy/residency/places.h"
#include "procs/tools/doctor/doctor.h"

#define GPUS_MAX 16
#define USE      "used with --gpu; never run on hardware"

/* libexec/GPU_MODULE, next to this program. */
static void module_path(char *out, size_t bytes)
{
    ssize_t n = readlink("/proc/self/exe", out, bytes - 1);
    out[n > 0 ? n : 0] = 0;
    char *slash = strrchr(out, '/');
    size_t at = slash ? (size_t)(slash + 1 - out) : 0;
    snprintf(out + at, bytes - at, GPU_MODULE);
}

static bool list_devices(struct findings *f)
{
    struct gpu_device device[GPUS_MAX];
    struct error error;
    int count = gpu_devices(device, GPUS_MAX, &error);
    if (count < 0) {
        finding(f, "gpu", "devices", json_integer(0), "none", "%s", error.text);
        return false;
    }
    finding(f, "gpu", "devices", json_integer(count), NULL, USE);
    for (int i = 0; i < count && i < GPUS_MAX; i++) {
        char number[16], text[16];
        snprintf(number, sizeof number, "%d", i);
        finding(f, "gpu", number, json_string(device[i].name), NULL,
                "%s, compute capability %" PRIu32 ".%" PRIu32,
                bytes_format(device[i].memory_bytes, text), device[i].major, device[i].minor);
    }
    return count > 0;
}

/* ---- rates ---- */

#define LONG_NS     (20 * NS_PER_MS) /* what is measured takes so long, or the largest size */
#define COPY_MIN    MIB
#define COPY_MAX    (256 * MIB)
#define SMALL_BYTES 4096
#define SMALL_TIMES 101
#define INPUTS      4096u
#define OUTPUTS_MIN 64u
#define OUTPUTS_MAX 65536u /* more than the caches of a GPU */

/* In bytes/s: copies to and from it, with pinned memory of the host and without; weights
 * of a product with one row (0: no kernels). */
static const enum tensor_type gpu_rate_types[GPU_RATE_TYPES] = {TENSOR_F16, TENSOR_Q8_0,
                                                                TENSOR_Q4_K, TENSOR_MXFP4};
struct gpu_rates {
    double context_s; /* until it can be used */
    uint64_t unused, total;
    double to_pinned, from_pinned, to_pageable, from_pageable;
    double small_s; /* a copy of 4 KiB to it, and the wait for it */
    double product[GPU_RATE_TYPES];
};
struct meter {
    const struct gpu_kernels *k;
    int status; /* the first failure */
};

static bool good(struct meter *m, int status)
{
    if (m->status == 0)
        m->status = status;
    return m->status == 0;
}

static uint64_t wait_since(struct meter *m, uint64_t since)
{
    good(m, m->k->wait(NULL));
    uint64_t ns = clock_now_ns() - since;
    return ns ? ns : 1;
}

/* ---- copies ---- */

static uint64_t copy_ns(struct meter *m, bool to_device, void *device, void *host, size_t bytes)
{
    uint64_t since = clock_now_ns();
    good(m, to_device ? m->k->upload(device, host, bytes, NULL)
                      : m->k->download(host, device, bytes, NULL));
    return wait_since(m, since);
}

/* Bytes per second of a copy that is long enough; the second of two at each size. */
static double copy_rate(struct meter *m, bool to_device, void *device, void *host, size_t most)
{
    uint64_t ns = 1;
    size_t bytes = COPY_MIN;
    for (;; bytes *= 2) {
        copy_ns(m, to_device, device, host, bytes);
        ns = copy_ns(m, to_device, device, host, bytes);
        if (m->status != 0 || ns >= LONG_NS || bytes * 2 > most)
            break;
    }
    return (double)bytes * 1e9 / (double)ns;
}

static int by_value(const void *a, const void *b)
{
    uint64_t x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return x < y ? -1 : x > y;
}

static void measure_copies(struct meter *m, void *device, size_t most, struct gpu_rates *out)
{
    uint64_t small[SMALL_TIMES];
    void *pinned = NULL, *pageable = malloc(most);
    if (!pageable || !good(m, m->k->host_allocate(most, &pinned))) {
        free(pageable);
        return;
    }
    memset(pageable, 1, most);
    memset(pinned, 1, most);
    out->to_pageable = copy_rate(m, true, device, pageable, most);
    out->from_pageable = copy_rate(m, false, device, pageable, most);
    out->to_pinned = copy_rate(m, true, device, pinned, most);
    out->from_pinned = copy_rate(m, false, device, pinned, most);
    for (size_t i = 0; i < SMALL_TIMES; i++)
        small[i] = copy_ns(m, true, device, pinned, SMALL_BYTES);
    qsort(small, SMALL_TIMES, sizeof *small, by_value);
    out->small_s = (double)small[SMALL_TIMES / 2] / 1e9;
    good(m, m->k->host_release(pinned));
    free(pageable);
}

/* ---- products ---- */

/* Bytes of weights per second of a product with one row, which decode consists of. Zeros: the time does not depend on
 * values. x and y: at the start of the memory, the weights after them. */
static double product_rate(struct meter *m, enum tensor_type type, uint8_t *memory, size_t most)
{
    uint64_t row, ns = 1;
    uint32_t n = OUTPUTS_MIN;
    size_t x_bytes = INPUTS * sizeof(float), head = x_bytes + OUTPUTS_MAX * sizeof(float);
    if (m->k->alignment(type) == 0 || !tensor_type_row_bytes((uint32_t)type, INPUTS, &row))
        return 0;
    for (;; n *= 2) {
        const struct kernel_matrix w = {
            .data = memory + head, .row_bytes = row, .k = INPUTS, .n = n, .type = type};
        for (int i = 0; i < 2; i++) {
            uint64_t since = clock_now_ns();
            good(m, m->k->matmul(&w, 0, n, memory, x_bytes, 1, (float *)(void *)(memory + x_bytes),
                                 n, NULL));
            ns = wait_since(m, since);
        }
        if (m->status != 0 || ns >= LONG_NS || n * 2 > OUTPUTS_MAX || head + row * n * 2 > most)
            break;
    }
    return (double)(row * n) * 1e9 / (double)ns;
}

/* 0, or the first status of a failure. Takes at most COPY_MAX of the GPU. */
static int gpu_measure(const struct gpu_kernels *k, int number, struct gpu_rates *out)
{
    struct meter m = {.k = k};
    size_t unused = 0, total = 0, most = COPY_MAX;
    void *device = NULL;
    *out = (struct gpu_rates){0};
    uint64_t since = clock_now_ns();
    if (!good(&m, k->select(number)) || !good(&m, k->memory(&unused, &total)))
        return m.status;
    out->context_s = (double)(clock_now_ns() - since) / 1e9;
    out->unused = unused;
    out->total = total;
    while (most > unused / 2 && most > 2 * COPY_MIN)
        most /= 2;
    if (!good(&m, k->allocate(most, &device)))
        return m.status;
    measure_copies(&m, device, most, out);
    good(&m, k->clear(device, most, NULL));
    for (size_t i = 0; i < GPU_RATE_TYPES && m.status == 0; i++)
        out->product[i] = product_rate(&m, gpu_rate_types[i], device, most);
    good(&m, k->release(device));
    return m.status;
}

/* ---- findings ---- */

static void rate(struct findings *f, const char *name, double bytes_per_s, const char *meaning)
{
    char text[16], line[32];
    snprintf(line, sizeof line, "%s/s", bytes_format((uint64_t)bytes_per_s, text));
    finding(f, "gpu", name, json_real(bytes_per_s), line, "%s", meaning);
}

static void report_rates(struct findings *f, const struct gpu_rates *r)
{
    char text[48], memory[16], name[48];
    snprintf(text, sizeof text, "%.0f ms", r->context_s * 1e3);
    finding(f, "gpu", "context_s", json_real(r->context_s), text,
            "until it can be used; %s of its memory are unused then",
            bytes_format(r->unused, memory));
    rate(f, "to_pinned", r->to_pinned, "copies to it from pinned memory: uploads of experts");
    rate(f, "to_pageable", r->to_pageable, "from other memory: dense weights at the start");
    rate(f, "from_pinned", r->from_pinned, "copies from it to pinned memory");
    rate(f, "from_pageable", r->from_pageable, "to other memory");
    snprintf(text, sizeof text, "%.1f us", r->small_s * 1e6);
    finding(f, "gpu", "small_copy_s", json_real(r->small_s), text, "a copy of 4 KiB, and the wait");
    for (size_t i = 0; i < GPU_RATE_TYPES; i++) {
        snprintf(name, sizeof name, "product_%s", tensor_type_info(gpu_rate_types[i])->name);
        rate(f, name, r->product[i], "weights of a product with one row, as in decode");
    }
}

/* What a budget has to be for a share of the experts. */
static void report_share(struct findings *f, const char *name, uint64_t bytes, uint64_t memory,
                         const char *meaning)
{
    char text[16];
    finding(f, "gpu", name, json_integer((json_int_t)bytes), bytes_format(bytes, text),
            "--gpu-budget with %s%s", meaning, bytes > memory ? "; more than the GPU has" : "");
}

static void report_budgets(struct findings *f, const json_t *estimate, struct gpu_seen *seen)
{
    const json_t *gpu = json_object_get(estimate, "gpu");
    uint64_t experts = lookup_u64(estimate, "expert_count"), fixed = 0;
    uint64_t memory = lookup_u64(gpu, "memory_bytes"), slot = lookup_u64(gpu, "slot_bytes");
    uint64_t slots = lookup_u64(gpu, "slots"), budget = lookup_u64(gpu, "budget_bytes");
    uint64_t layers = lookup_u64(gpu, "layers"), on_cpu = lookup_u64(gpu, "layers_on_cpu");
    const char *part;
    char text[16];
    json_t *bytes;
    if (on_cpu > 0) {
        if (lookup_u64(gpu, "whole_bytes") > 0) /* one GPU, without --gpu-layers */
            report_share(f, "budget_dense", lookup_u64(gpu, "whole_bytes"), memory,
                         "all dense weights, and the experts of a token");
        finding(f, "gpu", "budget", json_integer((json_int_t)budget), bytes_format(budget, text),
                "holds %" PRIu64 " of %" PRIu64 " layers; the CPU computes the others", layers,
                layers + on_cpu);
        return;
    }
    seen->slots = slots;
    seen->budget = budget;
    json_object_foreach(json_object_get(gpu, "plan"), part, bytes)
    {
        if (strcmp(part, "experts") != 0)
            fixed += (uint64_t)json_integer_value(bytes);
    }
    report_share(f, "budget_dense", fixed, memory,
                 "all dense weights, keys and values, and no experts; a token needs some");
    report_share(f, "budget_50", fixed + experts / 2 * slot, memory, "half of the experts");
    report_share(f, "budget_all", fixed + experts * slot, memory, "all experts");
    finding(f, "gpu", "budget", json_integer((json_int_t)budget), bytes_format(budget, text),
            "%s: %" PRIu64 " of %" PRIu64 " experts (%.0f %%)%s",
            slots < experts ? "holds all dense weights" : "holds the model", slots, experts,
            experts ? 100.0 * (double)slots / (double)experts : 0.0,
            slots < experts ? "; the others are copied when they are used" : "");
}

/* The plan is the supervisor's. */
static void advise_budget(struct findings *f, const char *model, const struct params *params,
                          struct gpu_seen *seen)
{
    struct params with = *params;
    struct error error;
    if (strcmp(with.gpu, "off") == 0)
        snprintf(with.gpu, sizeof with.gpu, "auto");
    with.gpu[strcspn(with.gpu, ",")] = 0;                     /* a budget is of one */
    snprintf(with.log_level, sizeof with.log_level, "error"); /* not the plan in its log */
    json_t *estimate = model_memory_estimate(model, &with, &error);
    if (json_object_get(estimate, "gpu"))
        report_budgets(f, estimate, seen);
    else
        finding(f, "gpu", "budget", json_null(), "none",
                "the model cannot be computed on this GPU: `sluice run --gpu 0` states why");
    json_decref(estimate);
}

/* In tests, the file of a module that needs no driver. */
static const char *test_module(void)
{
    const char *test = getenv("SLUICE_TEST");
    return test && strcmp(test, "1") == 0 ? getenv("SLUICE_TEST_GPU") : NULL;
}

void gpu_examine(struct findings *f, const char *model, const struct params *params,
                 struct gpu_seen *seen)
{
    char path[4096];
    *seen = (struct gpu_seen){0};
    struct error error;
    struct gpu_rates rates;
    bool there = list_devices(f) || test_module();
    if (test_module())
        snprintf(path, sizeof path, "%s", test_module());
    else
        module_path(path, sizeof path);
    const struct gpu_kernels *kernels = gpu_module_open(path, &error);
    finding(f, "gpu", "kernels", json_boolean(kernels != NULL), NULL, "%s",
            kernels ? USE : error.text);
    if (!there || !kernels)
        return;
    int status = gpu_measure(kernels, (int)strtol(params->gpu, NULL, 10), &rates);
    if (status != 0) {
        finding(f, "gpu", "measured", json_false(), NULL, "%s (%d)", kernels->text(status), status);
        return;
    }
    report_rates(f, &rates);
    seen->copies_per_s = rates.to_pinned;
    memcpy(seen->product, rates.product, sizeof seen->product);
    if (model)
        advise_budget(f, model, params, seen);
}

/* ---- speed of a model ---- */

double gpu_weights_rate(const struct gpu_seen *seen, enum tensor_type type)
{
    double slowest = 0;
    for (size_t i = 0; i < GPU_RATE_TYPES; i++) {
        if (gpu_rate_types[i] == type && seen->product[i] > 0)
            return seen->product[i];
        if (seen->product[i] > 0 && (slowest == 0 || seen->product[i] < slowest))
            slowest = seen->product[i];
    }
    return slowest;
}

static void report_estimate(struct findings *f, const struct gpu_estimate *g, uint64_t slots,
                            json_t *all)
{
    const struct estimate *e = &g->with;
    const char *policy = gpu_policy_name(g->policy);
    char name[32], text[64];
    snprintf(name, sizeof name, "estimate %.0f %%", 100 * e->share);
    snprintf(text, sizeof text, "%.1f, prefill %.0f", e->decode_tps, e->prefill_tps);
    if (e->decode_tps <= 0)
        finding(f, "gpu", name, json_real(0), "unknown",
                "reads were not measured, or a token needs more experts than that share");
    else
        finding(f, "gpu", name, json_real(e->decode_tps), text,
                "tokens/s with that share of the experts in the arena and %" PRIu64
                " slots, --gpu-policy %s; decode: %.2f ms compute, %.2f ms waiting for reads, %.2f "
                "ms for copies to the GPU, %.2f ms for messages; %.0f %% of the uses have a slot",
                slots, policy, e->compute_s * 1e3, (e->stall_s - g->copy_s) * 1e3, g->copy_s * 1e3,
                e->load_s * 1e3, 100 * g->hits);
    json_array_append_new(all, json_pack("{s:f, s:s, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "share",
                                         e->share, "policy", policy, "hits", g->hits, "compute_s",
                                         e->compute_s, "stall_s", e->stall_s, "copy_s", g->copy_s,
                                         "load_s", e->load_s, "decode_tps", e->decode_tps,
                                         "prefill_tps", e->prefill_tps));
}

int gpu_estimate_report(struct findings *f, const struct gpu_seen *seen, enum tensor_type type,
                        const struct model_facts *m, const struct host_facts *a,
                        const struct params *params, struct error *error)
{
    struct gpu_estimate estimates[ESTIMATE_SHARES];
    struct gpu_facts facts = {.slots = seen->slots,
                              .copies_per_s = seen->copies_per_s,
                              .weights_per_s = gpu_weights_rate(seen, type),
                              .policy = gpu_policy_find(params->gpu_policy),
                              .eviction = EVICTION_LRU};
    if (facts.slots < m->experts_used || !(facts.copies_per_s > 0) || !(facts.weights_per_s > 0))
        return 0;
    (void)places_eviction_find(params->gpu_eviction,
                               &facts.eviction); /* the engine rejects others */
    if (estimate_gpu(m, a, &facts, estimates, error) != 0)
        return -1;
    json_t *all = json_array();
    for (size_t i = 0; i < ESTIMATE_SHARES; i++)
        report_estimate(f, &estimates[i], seen->slots, all);
    finding_quiet(f, "gpu", "estimates", all);
    return 0;
}
