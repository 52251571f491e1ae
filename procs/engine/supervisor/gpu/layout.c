/* SPDX-License-Identifier: Apache-2.0 */
/* Decides before anything starts which layers each GPU computes, and how its memory is used
 * (lib/device/cuda/layout.h). The memory of each is a ledger of its own: nothing moves between it
 * and that of the host.
 *
 * By bytes: if all layers fit, they are divided in proportion to the budgets. If not, each GPU in
 * turn has those that fit, with slots for the experts of a token, and the CPU has the rest, which
 * are the last ones. What a budget then has left is for keys and values, and for more slots. By
 * times, where rates were measured (times.c): of all numbers of layers that fit, none included, the
 * one with the fastest token; of several GPUs also divided in proportion to their speed. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/base/log.h"
#include "lib/core/core.h"
#include "lib/device/cuda/cuda.h"
#include "lib/policy/gpu/policy.h"
#include "procs/engine/supervisor/gpu/gpu.h"
#include "procs/engine/supervisor/supervisor.h"

/* Private memory of the process for each GPU: an estimate, rounded up, which was not measured. */
#define HOST_BYTES        (384 * MIB)
#define EXPERT_HOST_BYTES 256 /* records of the policy that evicts experts from the GPU */
#define PLACE_HOST_BYTES  256 /* of a slot: its records, and an event */
/* Without --gpu-budget: that much of the GPU's memory, in hundredths. */
#define SHARE 90

static uint32_t layers_of(const struct gpu *g)
{
    return g->layout.end_layer - g->layout.first_layer;
}

static uint32_t model_layers(const struct supervisor *s)
{
    return s->model->hparams.layers;
}

/* ---- layers ---- */

/* The parts of the model in layers [first, end); of experts the minimum. */
static int lay_out_layers(struct supervisor *s, struct gpu *g, uint32_t first, uint32_t end,
                          struct error *error)
{
    struct kv_shape kv = kv_shape_for(s);
    g->layout = (struct gpu_layout){.number = g->number,
                                    .first_layer = first,
                                    .end_layer = end,
                                    .bytes[CUDA_CONTEXT] = g->context_bytes};
    if (first == end)
        return 0;
    gpu_layout_model(&g->layout, s->gpus.kernels, s->model, kv.type, kv.context, kv.ring, 1);
    struct device *device = cuda_device(s->gpus.kernels, NULL, &g->layout, error);
    if (!device)
        return -1;
    struct core_config config = {.model = s->model,
                                 .device = device,
                                 .first_layer = first,
                                 .layers = end - first,
                                 .threads = 1,
                                 .chunk = (uint32_t)s->params.prefill_chunk,
                                 .positions = kv.context,
                                 .prefill_order = prefill_order_of(PREFILL_ORDER_INDEX)};
    int rc = core_device_bytes(&config, &g->layout.bytes[CUDA_ACTIVATIONS], error);
    device->ops->destroy(device);
    return rc;
}

static bool fits(const struct gpu *g)
{
    return gpu_layout_bytes(&g->layout) <= g->budget;
}

/* In proportion to the shares, one for each GPU. */
static int divide(struct supervisor *s, uint32_t layers, const double *share, bool *all_fit,
                  struct error *error)
{
    double sum = 0, before = 0;
    *all_fit = true;
    for (uint32_t i = 0; i < s->gpus.count; i++)
        sum += share[i];
    for (uint32_t i = 0, first = 0, end; i < s->gpus.count; i++, first = end) {
        struct gpu *g = &s->gpus.gpu[i];
        before += share[i];
        end = (uint32_t)((double)layers * before / sum + 0.5);
        if (lay_out_layers(s, g, first, end, error) != 0)
            return -1;
        *all_fit &= fits(g) && end <= layers;
    }
    return 0;
}

static int divide_by_budget(struct supervisor *s, uint32_t layers, bool *all_fit,
                            struct error *error)
{
    double share[PROCS_GPUS_MAX];
    for (uint32_t i = 0; i < s->gpus.count; i++)
        share[i] = (double)s->gpus.gpu[i].budget;
    return divide(s, layers, share, all_fit, error);
}

/* All layers that fit, from `first` on: the more, the more memory. */
static int fill_one(struct supervisor *s, struct gpu *g, uint32_t first, uint32_t end,
                    struct error *error)
{
    uint32_t most = first;
    while (most < end) {
        uint32_t middle = most + (end - most + 1) / 2;
        if (lay_out_layers(s, g, first, middle, error) != 0)
            return -1;
        if (fits(g))
            most = middle;
        else
            end = middle - 1;
    }
    return lay_out_layers(s, g, first, most, error);
}

static int fill(struct supervisor *s, uint32_t layers, struct error *error)
{
    for (uint32_t i = 0, first = 0; i < s->gpus.count; i++) {
        if (fill_one(s, &s->gpus.gpu[i], first, layers, error) != 0)
            return -1;
        first = s->gpus.gpu[i].layout.end_layer;
    }
    return 0;
}

/* "context 640 MiB, weights 1.2 GiB, ..." */
static void parts_text(const struct gpu_layout *layout, char *text, size_t bytes)
{
    char one[16];
    size_t at = 0;
    text[0] = 0;
    for (int i = 0; i < CUDA_PART__COUNT && at < bytes; i++)
        at += (size_t)snprintf(text + at, bytes - at, "%s%s %s", i ? ", " : "",
                               cuda_part_name((enum cuda_part)i),
                               bytes_format(layout->bytes[i], one));
}

/* Not so many layers. */
static int too_small(struct supervisor *s, uint32_t layers, struct error *error)
{
    struct gpu *g = &s->gpus.gpu[0];
    char parts[160], budget[16];
    const char *whose = s->params.gpu_budget ? "--gpu-budget" : "the GPU's memory:";
    if (lay_out_layers(s, g, 0, 1, error) != 0)
        return -1;
    uint64_t one = gpu_layout_bytes(&g->layout);
    if (lay_out_layers(s, g, 0, layers, error) != 0)
        return -1;
    parts_text(&g->layout, parts, sizeof parts);
    return error_set(error, ERR_BUDGET_TOO_SMALL,
                     "%s %s is too small for this model: minimum %" PRIu64
                     " bytes for one layer; %u layers need %" PRIu64
                     " bytes (%s); a smaller --ctx-size or --prefill-chunk lowers it",
                     whose, bytes_format(g->budget, budget), one, layers,
                     gpu_layout_bytes(&g->layout), parts);
}

/* GPUs without layers are left out. */
static void keep_used(struct supervisor *s)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < s->gpus.count; i++) {
        struct gpu *g = &s->gpus.gpu[i];
        if (layers_of(g) == 0)
            log_info("GPU %u (%.100s) is not used: all layers are elsewhere, or none fits",
                     g->number, g->name);
        else
            s->gpus.gpu[kept++] = *g;
    }
    s->gpus.count = kept;
}

/* ---- what is left ---- */

/* For keys, values and states, */
static void add_kv(const struct supervisor *s, struct gpu *g)
{
    struct kv_shape kv = kv_shape_for(s);
    uint64_t rest = g->budget - gpu_layout_bytes(&g->layout);
    gpu_layout_kv(&g->layout, s->model, kv.type, kv.context, kv.ring,
                  g->layout.bytes[CUDA_KV] + rest);
}

/* and then for experts, up to all, in all precisions. */
static void add_experts(struct gpu *g)
{
    uint64_t *experts = &g->layout.bytes[CUDA_EXPERTS];
    uint64_t rest = g->budget - gpu_layout_bytes(&g->layout);
    uint64_t used = gpu_layout_experts(&g->layout, *experts + rest);
    if (g->layout.slot_bytes > 0 && used > *experts)
        *experts = used;
}

/* Of all GPUs with layers. */
static void add_rest(struct supervisor *s)
{
    for (uint32_t i = 0; i < s->gpus.count; i++)
        if (layers_of(&s->gpus.gpu[i]) > 0) {
            add_kv(s, &s->gpus.gpu[i]);
            add_experts(&s->gpus.gpu[i]);
        }
}

static uint32_t layers_laid_out(const struct supervisor *s)
{
    return s->gpus.gpu[s->gpus.count - 1].layout.end_layer;
}

static int lay_out_by_bytes(struct supervisor *s, uint32_t layers, struct error *error)
{
    bool all_fit;
    if (divide_by_budget(s, layers, &all_fit, error) != 0)
        return -1;
    if (s->gpus.count == 1 && layers == model_layers(s))
        s->gpus.whole_bytes = gpu_layout_bytes(&s->gpus.gpu[0].layout);
    if (!all_fit && fill(s, layers, error) != 0)
        return -1;
    add_rest(s);
    return 0;
}

/* ---- by times ---- */

/* What is planned now, if a token takes less time than with `best`. */
static void take_faster(struct supervisor *s, const struct gpu_times *t, struct gpus *best)
{
    struct gpu_choice *choice = &s->gpus.choice;
    double token_s = gpu_times_token(s, t);
    if (token_s >= best->choice.token_s)
        return;
    choice->token_s = token_s;
    choice->layers = layers_laid_out(s);
    *best = s->gpus;
}

/* The same layers in proportion to the speed that each GPU has with those that it has now. */
static int try_by_speed(struct supervisor *s, const struct gpu_times *t, uint32_t layers,
                        struct gpus *best, struct error *error)
{
    double share[PROCS_GPUS_MAX], sum = 0;
    bool all_fit;
    for (uint32_t i = 0; i < s->gpus.count; i++) {
        double layer_s = gpu_times_layer(s, t, i);
        share[i] = layer_s > 0 ? 1 / layer_s : 0;
        sum += share[i];
    }
    if (s->gpus.count == 1 || !(sum > 0))
        return 0;
    if (divide(s, layers, share, &all_fit, error) != 0)
        return -1;
    if (all_fit) {
        add_rest(s);
        take_faster(s, t, best);
    }
    return 0;
}

static int try_layers(struct supervisor *s, const struct gpu_times *t, uint32_t layers,
                      struct gpus *best, struct error *error)
{
    if (lay_out_by_bytes(s, layers, error) != 0)
        return -1;
    if (layers_laid_out(s) < layers)
        return 0;
    take_faster(s, t, best);
    return try_by_speed(s, t, layers, best, error);
}

static int choose_by_times(struct supervisor *s, const struct gpu_times *t, bool stated,
                           struct error *error)
{
    struct gpu_choice *choice = &s->gpus.choice;
    uint32_t most = choice->most, count = s->gpus.count;
    choice->token_s = choice->most_s = gpu_times_token(s, t);
    s->gpus.count = 0;
    choice->cpu_s = gpu_times_token(s, t);
    s->gpus.count = count;
    choice->by = stated ? GPU_BY_OPTION : GPU_BY_TIMES;
    struct gpus best = s->gpus;
    if (try_by_speed(s, t, most, &best, error) != 0)
        return -1;
    for (uint32_t n = most; !stated && n > 0; n--)
        if (try_layers(s, t, n - 1, &best, error) != 0)
            return -1;
    s->gpus = best;
    return 0;
}

static void log_choice(const struct supervisor *s)
{
    const struct gpu_choice *c = &s->gpus.choice;
    if (c->token_s > 0)
        log_info("%u of %u layers on GPUs, %s: a token takes about %.1f ms, with %u layers by "
                 "bytes %.1f ms, on the CPU alone %.1f ms",
                 c->layers, model_layers(s),
                 c->by == GPU_BY_OPTION ? "by --gpu-layers" : "by measured times", c->token_s * 1e3,
                 c->most, c->most_s * 1e3, c->cpu_s * 1e3);
}

static int choose_layers(struct supervisor *s, struct error *error)
{
    bool stated = s->params.gpu_layers > 0;
    uint32_t wanted = stated ? (uint32_t)s->params.gpu_layers : model_layers(s);
    if (lay_out_by_bytes(s, wanted, error) != 0)
        return -1;
    uint32_t have = layers_laid_out(s);
    if (have == 0 || (stated && have < wanted))
        return too_small(s, wanted, error);
    s->gpus.choice = (struct gpu_choice){.by = stated ? GPU_BY_OPTION : GPU_BY_BYTES,
                                         .layers = have,
                                         .most = have,
                                         .budget = s->gpus.gpu[0].budget,
                                         .memory = s->gpus.gpu[0].memory};
    struct gpu_times t;
    int rc = gpu_times_open(s, &t, error);
    if (rc == 0 && t.known)
        rc = choose_by_times(s, &t, stated, error);
    gpu_times_close(&t);
    if (rc == 0)
        log_choice(s);
    keep_used(s);
    return rc;
}

/* ---- memory ---- */

static int set_budget(const struct supervisor *s, struct gpu *g, struct error *error)
{
    char have[16];
    g->budget = s->params.gpu_budget ? s->params.gpu_budget : g->memory / 100 * SHARE;
    return g->budget <= g->memory
               ? 0
               : error_set(error, ERR_BAD_INPUT, "--gpu-budget %" PRIu64 ": GPU %u has %s",
                           g->budget, g->number, bytes_format(g->memory, have));
}

static uint64_t host_bytes_of(const struct supervisor *s, const struct gpu *g)
{
    uint64_t bytes = gpu_test_module(s) ? gpu_layout_bytes(&g->layout) : HOST_BYTES;
    return bytes + places_ring(g->layout.slot_bytes) * PLACES_PIECE +
           (uint64_t)gpu_layout_places(&g->layout) * PLACE_HOST_BYTES +
           (uint64_t)PRECISION__COUNT * g->layout.layers * g->layout.experts * EXPERT_HOST_BYTES;
}

static int reserve_memory(struct supervisor *s, struct error *error)
{
    for (uint32_t i = 0; i < s->gpus.count; i++)
        if (set_budget(s, &s->gpus.gpu[i], error) != 0)
            return -1;
    if (choose_layers(s, error) != 0)
        return -1;
    for (uint32_t i = 0; i < s->gpus.count; i++)
        s->gpus.host_bytes += host_bytes_of(s, &s->gpus.gpu[i]);
    return 0;
}

uint32_t gpu_thread_groups(const struct supervisor *s)
{
    const struct gpus *g = &s->gpus;
    enum gpu_policy policy =
        gpu_policy_of(s->params.gpu_policy, s->params.deterministic); /* auto: none of them */
    bool cooperates = policy == GPU_COOPERATIVE || policy == GPU_POLICY__COUNT;
    bool layers_left = g->count == 0 || g->gpu[g->count - 1].layout.end_layer < model_layers(s);
    return (cooperates ? g->count : 0) + layers_left;
}

int gpu_lay_out(struct supervisor *s, struct error *error)
{
    char parts[200];
    uint32_t all = model_layers(s), end = 0;
    if (s->params.gpu_layers > all)
        return error_set(error, ERR_BAD_INPUT, "--gpu-layers %" PRIu64 ": the model has %u",
                         s->params.gpu_layers, all);
    if (s->gpus.count == 0)
        return 0;
    if (reserve_memory(s, error) != 0)
        return gpu_without(s, error);
    for (uint32_t i = 0; i < s->gpus.count; i++) {
        const struct gpu *g = &s->gpus.gpu[i];
        end = g->layout.end_layer;
        parts_text(&g->layout, parts, sizeof parts);
        log_info("GPU %" PRIu32 " (%.100s): %u of %u layers, from %u on: %s", g->number, g->name,
                 layers_of(g), all, g->layout.first_layer, parts);
    }
    if (end < all)
        log_info("the last %u of %u layers are computed on the CPU", all - end, all);
    return 0;
}
