/* SPDX-License-Identifier: Apache-2.0 */
/* GPUs of NVIDIA, the module with the kernels, rates through its interface. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "lib/base/clock.h"
#include "lib/cuda/module.h"
#include "lib/json/lookup.h"
#include "lib/policy/gpu/places.h"
#include "procs/tools/doctor/doctor.h"

#define GPUS_MAX 16
#define USE      "used with --gpu (docs/gpu.md)"

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

/* In bytes/s: copies to and from it, with pinned memory of the host and without; and cost.h's. */
struct gpu_rates {
    double context_s; /* until it can be used */
    uint64_t unused, total;
    double from_pinned, from_pageable;
    struct cost_gpu cost;
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
    out->cost.pageable = copy_rate(m, true, device, pageable, most);
    out->from_pageable = copy_rate(m, false, device, pageable, most);
    out->cost.pinned = copy_rate(m, true, device, pinned, most);
    out->from_pinned = copy_rate(m, false, device, pinned, most);
    for (size_t i = 0; i < SMALL_TIMES; i++)
        small[i] = copy_ns(m, true, device, pinned, SMALL_BYTES);
    qsort(small, SMALL_TIMES, sizeof *small, by_value);
    out->cost.wait_s = (double)small[SMALL_TIMES / 2] / 1e9;
    good(m, m->k->host_release(pinned));
    free(pageable);
}

/* ---- products ---- */

/* Bytes of weights, as a file has them, per second of a product with one row, which decode consists
 * of. Zeros in any layout: the time does not depend on values. x and y: at the start of the memory,
 * the weights after them. */
static double product_rate(struct meter *m, enum tensor_type type, uint8_t *memory, size_t most)
{
    uint64_t row, ns = 1;
    uint32_t n = OUTPUTS_MIN;
    size_t x_bytes = INPUTS * sizeof(float), head = x_bytes + OUTPUTS_MAX * sizeof(float);
    uint64_t there = m->k->row_bytes(type, INPUTS);
    if (there == 0 || !tensor_type_row_bytes((uint32_t)type, INPUTS, &row))
        return 0;
    for (;; n *= 2) {
        const struct kernel_matrix w = {
            .data = memory + head, .row_bytes = there, .k = INPUTS, .n = n, .type = type};
        for (int i = 0; i < 2; i++) {
            uint64_t since = clock_now_ns();
            good(m, m->k->matmul(&w, 0, n, memory, x_bytes, 1, (float *)(void *)(memory + x_bytes),
                                 n, NULL));
            ns = wait_since(m, since);
        }
        if (m->status != 0 || ns >= LONG_NS || n * 2 > OUTPUTS_MAX || head + there * n * 2 > most)
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
    for (size_t i = 0; i < COST_TYPES && m.status == 0; i++)
        out->cost.product[i] = product_rate(&m, cost_types[i], device, most);
    good(&m, k->release(device));
    return m.status;
}

/* ---- findings ---- */

static void rate(struct findings *f, const char *section, const char *name, double bytes_per_s,
                 const char *meaning)
{
    char text[16], line[32];
    snprintf(line, sizeof line, "%s/s", bytes_format((uint64_t)bytes_per_s, text));
    finding(f, section, name, json_real(bytes_per_s), line, "%s", meaning);
}

static void report_rates(struct findings *f, const char *section, const struct gpu_rates *r)
{
    char text[48], memory[16], name[48];
    snprintf(text, sizeof text, "%.0f ms", r->context_s * 1e3);
    finding(f, section, "context_s", json_real(r->context_s), text,
            "until it can be used; %s of its memory are unused then",
            bytes_format(r->unused, memory));
    rate(f, section, "to_pinned", r->cost.pinned,
         "copies to it from pinned memory: uploads of experts");
    rate(f, section, "to_pageable", r->cost.pageable,
         "from other memory: dense weights at the start");
    rate(f, section, "from_pinned", r->from_pinned, "copies from it to pinned memory");
    rate(f, section, "from_pageable", r->from_pageable, "to other memory");
    snprintf(text, sizeof text, "%.1f us", r->cost.wait_s * 1e6);
    finding(f, section, "small_copy_s", json_real(r->cost.wait_s), text,
            "a copy of 4 KiB, and the wait");
    for (size_t i = 0; i < COST_TYPES; i++) {
        snprintf(name, sizeof name, "product_%s", tensor_type_info(cost_types[i])->name);
        rate(f, section, name, r->cost.product[i],
             "weights of a product with one row, as in decode");
    }
}

/* In tests, the file of a module that needs no driver. */
static const char *test_module(void)
{
    const char *test = getenv("SLUICE_TEST");
    return test && strcmp(test, "1") == 0 ? getenv("SLUICE_TEST_GPU") : NULL;
}

/* The numbers of --gpu; off and auto: the first. The engine rejects what is none. */
static uint32_t take_numbers(const char *text, uint32_t number[DOCTOR_GPUS_MAX])
{
    uint32_t count = 0;
    number[0] = 0;
    for (const char *at = text; at && *at >= '0' && *at <= '9' && count < DOCTOR_GPUS_MAX;) {
        number[count++] = (uint32_t)strtoul(at, NULL, 10);
        at = strchr(at, ',');
        at += at != NULL;
    }
    return count > 0 ? count : 1;
}

/* One GPU, in a section of its own but the first. */
static void examine_one(struct findings *f, const struct gpu_kernels *kernels, uint32_t number,
                        bool first, struct gpu_seen *seen)
{
    char section[16] = "gpu";
    struct gpu_rates rates;
    struct rates_gpu *to = &seen->gpu[seen->count];
    if (!first)
        snprintf(section, sizeof section, "gpu %u", number);
    progress(f, "measuring GPU %u", number);
    int status = gpu_measure(kernels, (int)number, &rates);
    if (status != 0) {
        finding(f, section, "measured", json_false(), NULL, "%s (%d)", kernels->text(status),
                status);
        return;
    }
    report_rates(f, section, &rates);
    *to = (struct rates_gpu){.number = number, .interface = kernels->interface, .rate = rates.cost};
    struct gpu_device device[GPUS_MAX];
    struct error error;
    int count = test_module() ? 0 : gpu_devices(device, GPUS_MAX, &error);
    snprintf(to->name, sizeof to->name, "%s",
             test_module()                              ? "memory of the process"
             : (int)number < count && number < GPUS_MAX ? device[number].name
                                                        : "");
    seen->count++;
}

void gpu_examine(struct findings *f, const struct params *params, struct gpu_seen *seen)
{
    char path[4096];
    uint32_t number[DOCTOR_GPUS_MAX], count = take_numbers(params->gpu, number);
    *seen = (struct gpu_seen){0};
    struct error error;
    bool there = list_devices(f) || test_module();
    if (test_module())
        snprintf(path, sizeof path, "%s", test_module());
    else
        module_path(path, sizeof path);
    const struct gpu_kernels *kernels = gpu_module_open(path, &error);
    finding(f, "gpu", "kernels", json_boolean(kernels != NULL), NULL, "%s",
            kernels ? USE : error.text);
    for (uint32_t i = 0; there && kernels && i < count; i++)
        examine_one(f, kernels, number[i], i == 0, seen);
}
