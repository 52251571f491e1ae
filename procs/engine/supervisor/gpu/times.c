/* SPDX-License-Identifier: Apache-2.0 */
/* Time of a token with the division of the layers that is planned, by rates that were measured
 * before (lib/rates). Nothing is measured at a start. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "lib/base/log.h"
#include "lib/policy/gpu/policy.h"
#include "lib/sim/routing.h"
#include "lib/tensor/tensor_type.h"
#include "lib/tunings/tunings.h"
#include "procs/engine/supervisor/gpu/gpu.h"
#include "procs/engine/supervisor/supervisor.h"

static bool find_cpu(const struct supervisor *s, const struct rates *r, struct gpu_times *t)
{
    struct rates_cpu cpu = {.threads = (uint32_t)s->params.threads};
    _Static_assert(sizeof cpu.name >= TUNINGS_CPU_BYTES, "a name of a CPU");
    tunings_cpu(cpu.name);
    rates_key(s->model, s->params.isa, cpu.type);
    const struct rates_cpu *found = rates_find_cpu(r, &cpu);
    if (found)
        t->cpu = found->rate;
    return found != NULL;
}

static bool find_gpu(const struct supervisor *s, const struct rates *r, uint32_t i,
                     struct gpu_times *t)
{
    struct rates_gpu gpu = {.number = s->gpus.gpu[i].number,
                            .interface = s->gpus.kernels->interface};
    snprintf(gpu.name, sizeof gpu.name, "%s", s->gpus.gpu[i].name);
    const struct cost_gpu *found = rates_find_gpu(r, &gpu);
    if (found)
        t->gpu[i] = *found;
    return found != NULL;
}

static bool find_rates(const struct supervisor *s, struct gpu_times *t)
{
    struct error error = {0};
    struct rates *r = malloc(sizeof *r);
    bool read = r && rates_read(r, &error) == 0, known = read && find_cpu(s, r, t);
    for (uint32_t i = 0; known && i < s->gpus.count; i++)
        known = find_gpu(s, r, i, t);
    if (!known && s->params.gpu_layers == 0)
        log_info("the layers of GPUs are chosen by bytes%s%s, as times were not measured; sluice "
                 "doctor -m %.200s --gpu %s --threads %" PRIu64 " measures",
                 read ? "" : ": ", read ? "" : error.text, s->options.model,
                 gpu_required(s) ? s->params.gpu : "0", s->params.threads);
    free(r);
    return known;
}

int gpu_times_open(struct supervisor *s, struct gpu_times *t, struct error *error)
{
    const struct model_hparams *h = &s->model->hparams;
    struct kv_shape kv = kv_shape_for(s);
    *t = (struct gpu_times){.known = false};
    t->known = find_rates(s, t);
    if (!t->known)
        return 0;
    double *hits = calloc((size_t)h->experts + 1, sizeof *hits);
    int rc = hits ? sim_hits(hparams_expert_layers(h), h->experts, h->experts_used, hits, error)
                  : error_set(error, ERR_NO_MEMORY, "out of memory (times of layers)");
    if (rc == 0)
        rc = rates_model(s->model, kv.type, kv.context, kv.ring, hits, &t->model, error);
    free(hits);
    t->model.cost.policy = gpu_policy_of(s->params.gpu_policy, s->params.deterministic);
    return rc;
}

void gpu_times_close(struct gpu_times *t)
{
    rates_model_free(&t->model);
}

static struct cost_part part_of(const struct supervisor *s, const struct gpu_times *t, uint32_t i)
{
    const struct gpu_layout *layout = &s->gpus.gpu[i].layout;
    return (struct cost_part){.gpu = &t->gpu[i],
                              .first = layout->first_layer,
                              .end = layout->end_layer,
                              .kv_layers = layout->kv_layers,
                              .slots = gpu_layout_slots(layout)};
}

double gpu_times_token(const struct supervisor *s, const struct gpu_times *t)
{
    struct cost_part part[PROCS_GPUS_MAX + 1];
    uint32_t n = s->gpus.count;
    for (uint32_t i = 0; i < n; i++)
        part[i] = part_of(s, t, i);
    part[n] =
        (struct cost_part){.first = n > 0 ? part[n - 1].end : 0, .end = s->model->hparams.layers};
    return cost_of_token(&t->model.cost, &t->cpu, part, n + 1);
}

double gpu_times_layer(const struct supervisor *s, const struct gpu_times *t, uint32_t gpu)
{
    struct cost_part part = part_of(s, t, gpu);
    struct cost c = cost_of_part(&t->model.cost, &t->cpu, &part);
    return part.end > part.first ? cost_sum(&c) / (part.end - part.first) : 0;
}
