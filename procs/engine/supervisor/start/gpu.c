/* SPDX-License-Identifier: Apache-2.0 */
/* The GPU of compute (--gpu): whether there is one, and what it gets of its memory (lib/device/cuda/plan.h), before
 * anything starts. Its memory is a ledger of its own: nothing moves between it and that of the host. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/base/log.h"
#include "lib/core/core.h"
#include "lib/cuda/module.h"
#include "lib/device/cuda/cuda.h"
#include "lib/policy/gpu/policy.h"
#include "procs/engine/supervisor/supervisor.h"

#define GPUS_MAX 64
/* Before it can be measured, rounded up: what the driver has for a process on the GPU, and private memory of the process.
 * Estimates, as no GPU has run this. */
#define CONTEXT_BYTES     (640 * MIB)
#define HOST_BYTES        (384 * MIB)
#define EXPERT_HOST_BYTES 192 /* records of the policy that evicts experts from the GPU */
/* Without --gpu-budget: that much of the GPU's memory, in hundredths. */
#define SHARE 90

/* In tests, the file of a module that needs no driver: its GPU is memory of the process. */
static const char *test_module(const struct supervisor *s)
{
    return s->test ? getenv("SLUICE_TEST_GPU") : NULL;
}

static bool take_number(const char *text, uint32_t *number)
{
    char *end;
    unsigned long value = strtoul(text, &end, 10);
    *number = (uint32_t)value;
    return text[0] >= '0' && text[0] <= '9' && *end == 0 && value < GPUS_MAX;
}

static int find_device(struct supervisor *s, struct error *error)
{
    struct gpu_device device[GPUS_MAX];
    struct error why;
    int count = gpu_devices(device, GPUS_MAX, &why);
    if (count < 0)
        return error_set(error, ERR_BAD_INPUT, "--gpu %s: %.250s", s->params.gpu, why.text);
    if (s->gpu.number >= (uint32_t)count)
        return error_set(error, ERR_BAD_INPUT, "--gpu %s: this machine has %d GPUs, from 0 on",
                         s->params.gpu, count);
    s->gpu.memory = device[s->gpu.number].memory_bytes;
    s->gpu.host_bytes = HOST_BYTES;
    s->gpu.plan.bytes[CUDA_CONTEXT] = CONTEXT_BYTES;
    snprintf(s->gpu.name, sizeof s->gpu.name, "%s", device[s->gpu.number].name);
    return 0;
}

static int find_module(struct supervisor *s, const char *test, struct error *error)
{
    struct error why;
    if (test)
        snprintf(s->gpu.module, sizeof s->gpu.module, "%s", test);
    else
        snprintf(s->gpu.module, sizeof s->gpu.module, "%.1000s/" GPU_MODULE, s->programs);
    s->gpu.kernels = gpu_module_open(s->gpu.module, &why);
    if (!s->gpu.kernels)
        return error_set(error, ERR_BAD_INPUT, "--gpu %s: %.300s", s->params.gpu, why.text);
    size_t unused, total;
    if (test && s->gpu.kernels->memory(&unused, &total) == 0) {
        s->gpu.memory = total;
        snprintf(s->gpu.name, sizeof s->gpu.name, "memory of the process");
    }
    return 0;
}

static bool is_required(const struct supervisor *s)
{
    return strcmp(s->params.gpu, "auto") != 0;
}

/* auto: without a GPU that can be used, compute is on the CPU. */
static int without(struct supervisor *s, struct error *error)
{
    s->gpu.on = false;
    if (is_required(s))
        return -1;
    log_info("computing on the CPU: %s", error->text);
    *error = (struct error){0};
    return 0;
}

int gpu_find(struct supervisor *s, struct error *error)
{
    const char *wanted = s->params.gpu, *test = test_module(s);
    enum eviction eviction;
    if (!places_eviction_find(s->params.gpu_eviction, &eviction))
        return error_set(error, ERR_BAD_INPUT,
                         "--gpu-eviction: '%.40s' is not one of " PLACES_EVICTIONS,
                         s->params.gpu_eviction);
    if (strcmp(wanted, "off") == 0)
        return 0;
    if (strchr(wanted, ','))
        return error_set(error, ERR_BAD_INPUT,
                         "--gpu %.40s: one GPU is supported: state its number", wanted);
    if (is_required(s) && !take_number(wanted, &s->gpu.number))
        return error_set(error, ERR_BAD_INPUT, "--gpu: '%.40s' is not auto, off or a number",
                         wanted);
    s->gpu.on = true;
    if ((!test && find_device(s, error) != 0) || find_module(s, test, error) != 0)
        return without(s, error);
    return 0;
}

/* ---- memory ---- */

/* The parts of the model; of experts the minimum. */
static int plan_model(struct supervisor *s, struct error *error)
{
    struct cuda_plan *plan = &s->gpu.plan;
    struct kv_shape kv = kv_shape_for(s);
    cuda_plan_model(plan, s->model, kv.type, kv.context, kv.ring, 1);
    struct device *device = cuda_device(s->gpu.kernels, NULL, plan, error);
    if (!device)
        return -1;
    struct core_config config = {.model = s->model,
                                 .device = device,
                                 .threads = 1,
                                 .chunk = (uint32_t)s->params.prefill_chunk,
                                 .prefill_order = prefill_order_of(PREFILL_ORDER_INDEX)};
    int rc = core_device_bytes(&config, &plan->bytes[CUDA_ACTIVATIONS], error);
    device->ops->destroy(device);
    return rc;
}

/* "context 640 MiB, weights 1.2 GiB, ..." */
static void parts_text(const struct cuda_plan *plan, char *text, size_t bytes)
{
    char one[16];
    size_t at = 0;
    text[0] = 0;
    for (int i = 0; i < CUDA_PART__COUNT && at < bytes; i++)
        at +=
            (size_t)snprintf(text + at, bytes - at, "%s%s %s", i ? ", " : "",
                             cuda_part_name((enum cuda_part)i), bytes_format(plan->bytes[i], one));
}

static int too_small(const struct supervisor *s, struct error *error)
{
    char parts[200], budget[16];
    const char *whose = s->params.gpu_budget ? "--gpu-budget" : "the GPU's memory:";
    parts_text(&s->gpu.plan, parts, sizeof parts);
    return error_set(error, ERR_BUDGET_TOO_SMALL,
                     "%s %s is too small for this model: minimum %" PRIu64
                     " bytes (%s); a smaller --ctx-size or --prefill-chunk lowers it",
                     whose, bytes_format(s->gpu.budget, budget), cuda_plan_bytes(&s->gpu.plan),
                     parts);
}

/* What is left is for keys, values and states, */
static void add_kv(struct supervisor *s)
{
    struct cuda_plan *plan = &s->gpu.plan;
    struct kv_shape kv = kv_shape_for(s);
    uint64_t rest = s->gpu.budget - cuda_plan_bytes(plan);
    cuda_plan_kv(plan, s->model, kv.type, kv.context, kv.ring, plan->bytes[CUDA_KV] + rest);
}

/* and then for experts, up to all. */
static void add_experts(struct supervisor *s)
{
    struct cuda_plan *plan = &s->gpu.plan;
    uint64_t *experts = &plan->bytes[CUDA_EXPERTS];
    uint64_t rest = s->gpu.budget - cuda_plan_bytes(plan);
    uint64_t all = (s->model->entry_count - s->model->dense_count) * plan->slot_bytes;
    uint64_t most = *experts + rest < all ? *experts + rest : all;
    uint64_t whole = most / plan->slot_bytes * plan->slot_bytes;
    *experts = whole > *experts ? whole : *experts;
}

static int plan_memory(struct supervisor *s, struct error *error)
{
    char have[16];
    s->gpu.budget = s->params.gpu_budget ? s->params.gpu_budget : s->gpu.memory / 100 * SHARE;
    if (s->gpu.budget > s->gpu.memory)
        return error_set(error, ERR_BAD_INPUT, "--gpu-budget %" PRIu64 ": the GPU has %s",
                         s->gpu.budget, bytes_format(s->gpu.memory, have));
    if (plan_model(s, error) != 0)
        return -1;
    if (cuda_plan_bytes(&s->gpu.plan) > s->gpu.budget)
        return too_small(s, error);
    add_kv(s);
    add_experts(s);
    if (test_module(s))
        s->gpu.host_bytes = cuda_plan_bytes(&s->gpu.plan);
    s->gpu.host_bytes += places_ring(s->gpu.plan.slot_bytes) * PLACES_PIECE;
    s->gpu.host_bytes +=
        (uint64_t)PRECISION__COUNT * s->gpu.plan.layers * s->gpu.plan.experts * EXPERT_HOST_BYTES;
    return 0;
}

int gpu_plan(struct supervisor *s, struct error *error)
{
    char parts[200];
    if (!s->gpu.on)
        return 0;
    if (plan_memory(s, error) != 0) {
        s->gpu.host_bytes = 0;
        return without(s, error);
    }
    parts_text(&s->gpu.plan, parts, sizeof parts);
    log_info("GPU %" PRIu32 " (%.100s): %s", s->gpu.number, s->gpu.name, parts);
    return 0;
}

_Static_assert((int)CUDA_PART__COUNT <= PROCS_GPU_PARTS, "the process table has all parts");

void gpu_publish(const struct supervisor *s, struct procs_gpu *out)
{
    if (!s->gpu.on)
        return;
    *out = (struct procs_gpu){.on = 1,
                              .required = is_required(s),
                              .number = s->gpu.number,
                              .positions = s->gpu.plan.positions,
                              .layers = s->gpu.plan.layers,
                              .kv_layers = s->gpu.plan.kv_layers,
                              .experts = s->gpu.plan.experts,
                              .top_k = s->gpu.plan.top_k,
                              .slot_bytes = s->gpu.plan.slot_bytes};
    memcpy(out->bytes, s->gpu.plan.bytes, sizeof s->gpu.plan.bytes);
    snprintf(out->module, sizeof out->module, "%s", s->gpu.module);
}

/* A slot is taken by an upload, and again by what evicts its expert. */
static uint64_t slots_used(const struct proc_row *compute)
{
    uint64_t uploads = counter_get(compute, CTR_COMPUTE_gpu_expert_uploads) +
                       counter_get(compute, CTR_COMPUTE_gpu_expert_background) +
                       counter_get(compute, CTR_COMPUTE_gpu_prefetches),
             evictions = counter_get(compute, CTR_COMPUTE_gpu_expert_evictions);
    return uploads > evictions ? uploads - evictions : 0; /* read one after the other */
}

static void put_slots(struct supervisor *s, json_t *object)
{
    const struct cuda_plan *plan = &s->gpu.plan;
    /* before it is started, for --print-memory: none */
    const struct proc_row *compute =
        s->children_count > 0 ? child_of(s, SERVICE_COMPUTE, 0)->row : NULL;
    bool lost = compute && counter_get(compute, CTR_COMPUTE_gpu_lost) != 0;
    uint64_t slots = plan->slot_bytes ? plan->bytes[CUDA_EXPERTS] / plan->slot_bytes : 0;
    json_object_set_new(object, "slots", json_integer((json_int_t)slots));
    json_object_set_new(object, "slots_used",
                        json_integer(lost || !compute ? 0 : (json_int_t)slots_used(compute)));
    json_object_set_new(object, "slot_bytes", json_integer((json_int_t)plan->slot_bytes));
    json_object_set_new(object, "lost", json_boolean(lost));
}

/* What compute does now, and what it measured for that. */
static void put_policy(struct supervisor *s, json_t *object)
{
    static const struct {
        unsigned tokens, token_ns;
    } counters[] = {
        [GPU_CENTRIC] = {CTR_COMPUTE_gpu_centric_tokens, CTR_COMPUTE_gpu_centric_token_ns},
        [GPU_COOPERATIVE] = {CTR_COMPUTE_gpu_cooperative_tokens,
                             CTR_COMPUTE_gpu_cooperative_token_ns},
        [GPU_PREFETCH] = {CTR_COMPUTE_gpu_prefetch_tokens, CTR_COMPUTE_gpu_prefetch_token_ns}};
    if (s->children_count == 0)
        return;
    const struct proc_row *row = child_of(s, SERVICE_COMPUTE, 0)->row;
    json_t *all = json_object();
    uint64_t policy = counter_get(row, CTR_COMPUTE_gpu_policy);
    for (int i = 0; i < GPU_POLICY__COUNT; i++)
        json_object_set_new(all, gpu_policy_name((enum gpu_policy)i),
                            json_pack("{s:I, s:f}", "tokens",
                                      (json_int_t)counter_get(row, counters[i].tokens), "token_us",
                                      (double)counter_get(row, counters[i].token_ns) / 1e3));
    json_object_set_new(
        object, "policy",
        json_string(policy < GPU_POLICY__COUNT ? gpu_policy_name((enum gpu_policy)policy) : "?"));
    json_object_set_new(object, "trials",
                        json_integer((json_int_t)counter_get(row, CTR_COMPUTE_gpu_trials)));
    json_object_set_new(object, "measured", all);
    json_object_set_new(object, "eviction", json_string(s->params.gpu_eviction));
}

json_t *gpu_stats(struct supervisor *s)
{
    if (!s->gpu.on)
        return NULL;
    json_t *object = json_object(), *plan = json_object();
    for (int i = 0; i < CUDA_PART__COUNT; i++)
        json_object_set_new(plan, cuda_part_name((enum cuda_part)i),
                            json_integer((json_int_t)s->gpu.plan.bytes[i]));
    json_object_set_new(object, "number", json_integer(s->gpu.number));
    json_object_set_new(object, "name", json_string(s->gpu.name));
    json_object_set_new(object, "memory_bytes", json_integer((json_int_t)s->gpu.memory));
    json_object_set_new(object, "budget_bytes", json_integer((json_int_t)s->gpu.budget));
    json_object_set_new(object, "plan", plan);
    json_object_set_new(object, "kv_layers", json_integer(s->gpu.plan.kv_layers));
    put_slots(s, object);
    put_policy(s, object);
    return object;
}
