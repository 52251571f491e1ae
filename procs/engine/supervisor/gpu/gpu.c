/* SPDX-License-Identifier: Apache-2.0 */
/* The GPUs of compute (--gpu): whether they are there, and the module with their kernels, before
 * anything starts. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/base/log.h"
#include "lib/cuda/module.h"
#include "lib/policy/gpu/places.h"
#include "procs/engine/supervisor/gpu/gpu.h"
#include "procs/engine/supervisor/supervisor.h"

#define NUMBERS_MAX 64
/* What the driver has for a process on the GPU, before it can be measured: an estimate (an H200 had
 * 527 MiB). */
#define CONTEXT_BYTES (640 * MIB)

const char *gpu_test_module(const struct supervisor *s)
{
    return s->test ? getenv("SLUICE_TEST_GPU") : NULL;
}

bool gpu_required(const struct supervisor *s)
{
    return strcmp(s->params.gpu, "auto") != 0;
}

/* auto: without a GPU that can be used, compute is on the CPU. */
int gpu_without(struct supervisor *s, struct error *error)
{
    s->gpus.count = 0;
    s->gpus.host_bytes = 0;
    s->gpus.choice = (struct gpu_choice){0};
    if (gpu_required(s))
        return -1;
    log_info("computing on the CPU: %s", error->text);
    *error = (struct error){0};
    return 0;
}

/* ---- "auto", a number, or several ---- */

static int add_number(struct supervisor *s, uint32_t number, struct error *error)
{
    struct gpus *g = &s->gpus;
    if (g->count == PROCS_GPUS_MAX)
        return error_set(error, ERR_BAD_INPUT, "--gpu %.40s: at most %d GPUs", s->params.gpu,
                         PROCS_GPUS_MAX);
    for (uint32_t i = 0; i < g->count; i++)
        if (g->gpu[i].number == number)
            return error_set(error, ERR_BAD_INPUT, "--gpu %.40s: GPU %u is stated twice",
                             s->params.gpu, number);
    g->gpu[g->count++].number = number;
    return 0;
}

static int take_numbers(struct supervisor *s, struct error *error)
{
    const char *at = s->params.gpu;
    for (;;) {
        char *end;
        unsigned long number = strtoul(at, &end, 10);
        if (at[0] < '0' || at[0] > '9' || number >= NUMBERS_MAX || (*end != 0 && *end != ','))
            return error_set(error, ERR_BAD_INPUT,
                             "--gpu: '%.40s' is not auto, off or a number, or several: 0,1",
                             s->params.gpu);
        if (add_number(s, (uint32_t)number, error) != 0)
            return -1;
        if (*end == 0)
            return 0;
        at = end + 1;
    }
}

/* ---- on this machine ---- */

static int find_devices(struct supervisor *s, struct error *error)
{
    struct gpu_device device[NUMBERS_MAX];
    struct error why;
    int count = gpu_devices(device, NUMBERS_MAX, &why);
    if (count < 0)
        return error_set(error, ERR_BAD_INPUT, "--gpu %s: %.250s", s->params.gpu, why.text);
    for (uint32_t i = 0; i < s->gpus.count; i++) {
        struct gpu *g = &s->gpus.gpu[i];
        if (g->number >= (uint32_t)count)
            return error_set(error, ERR_BAD_INPUT, "--gpu %s: this machine has %d GPUs, from 0 on",
                             s->params.gpu, count);
        g->memory = device[g->number].memory_bytes;
        g->context_bytes = CONTEXT_BYTES;
        snprintf(g->name, sizeof g->name, "%s", device[g->number].name);
    }
    return 0;
}

/* In tests: memory of the process. */
static int find_test_devices(struct supervisor *s, struct error *error)
{
    for (uint32_t i = 0; i < s->gpus.count; i++) {
        struct gpu *g = &s->gpus.gpu[i];
        size_t unused, total;
        if (s->gpus.kernels->select((int)g->number) != 0 ||
            s->gpus.kernels->memory(&unused, &total) != 0)
            return error_set(error, ERR_BAD_INPUT, "--gpu %s: there is no GPU %u", s->params.gpu,
                             g->number);
        g->memory = total;
        snprintf(g->name, sizeof g->name, "memory of the process");
    }
    return 0;
}

static int find_module(struct supervisor *s, const char *test, struct error *error)
{
    struct error why;
    if (test)
        snprintf(s->gpus.module, sizeof s->gpus.module, "%s", test);
    else
        snprintf(s->gpus.module, sizeof s->gpus.module, "%.1000s/" GPU_MODULE, s->programs);
    s->gpus.kernels = gpu_module_open(s->gpus.module, &why);
    return s->gpus.kernels
               ? 0
               : error_set(error, ERR_BAD_INPUT, "--gpu %s: %.300s", s->params.gpu, why.text);
}

int gpu_find(struct supervisor *s, struct error *error)
{
    const char *test = gpu_test_module(s);
    enum eviction eviction;
    if (!places_eviction_find(s->params.gpu_eviction, &eviction))
        return error_set(error, ERR_BAD_INPUT,
                         "--gpu-eviction: '%.40s' is not one of" PLACES_EVICTIONS,
                         s->params.gpu_eviction);
    if (strcmp(s->params.gpu, "off") == 0)
        return s->params.gpu_layers == 0
                   ? 0
                   : error_set(error, ERR_BAD_INPUT,
                               "--gpu-layers %" PRIu64 ": no GPU without --gpu",
                               s->params.gpu_layers);
    if (!gpu_required(s))
        s->gpus.count = 1; /* the first one */
    else if (take_numbers(s, error) != 0)
        return -1;
    if ((!test && find_devices(s, error) != 0) || find_module(s, test, error) != 0 ||
        (test && find_test_devices(s, error) != 0))
        return gpu_without(s, error);
    return 0;
}
