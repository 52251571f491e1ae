/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the planners: measurement, output, extension of the plan, capacity. */
#include "procs/tools/plan/planning.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "lib/base/clock.h"
#include "lib/tensor/precision.h"

#define PROGRESS_NS (3 * NS_PER_S)
/* Memory of the engine in addition to dense weights and experts: processes, libraries, KV cache,
 * the reserve of the ledger. An estimate; `sluice run --print-memory` reports the exact minimum
 * budget. */
#define ENGINE_BYTES (20 * MIB)

void planning_note(const struct planning *p, const char *fmt, ...)
{
    FILE *out = p->json ? stderr : stdout;
    va_list args;
    va_start(args, fmt);
    vfprintf(out, fmt, args);
    va_end(args);
    fputc('\n', out);
    fflush(out);
}

void planning_progress(struct planning *p, const char *what, uint64_t done, uint64_t of)
{
    uint64_t now = clock_now_ns();
    if (now - p->progress_ns < PROGRESS_NS)
        return;
    p->progress_ns = now;
    fprintf(stderr, "sluice plan: %s %llu of %llu\n", what, (unsigned long long)done,
            (unsigned long long)of);
}

const char *planning_loss(const struct offline_interval *loss, char buf[64])
{
    snprintf(buf, 64, "%.2f %% (%.2f .. %.2f)", 100 * loss->value, 100 * loss->low,
             100 * loss->high);
    return buf;
}

int planning_add(struct planning *p, uint64_t arrays, struct error *error)
{
    struct plan *more = plan_extended(p->plan, arrays, p->plan->cells, error);
    if (!more)
        return -1;
    free(p->plan);
    p->plan = more;
    return 0;
}

static void steps_done(void *arg, const struct offline_progress *progress)
{
    planning_progress(arg, "step", progress->done, progress->of);
}

struct offline_evaluation planning_evaluation(struct planning *p, const struct offline_text *text)
{
    return (struct offline_evaluation){.model = p->model,
                                       .text = text,
                                       .threads = (uint32_t)p->threads,
                                       .dense = p->dense,
                                       .progress = steps_done,
                                       .arg = p};
}

void planning_take_dense(struct planning *p)
{
    if (!p->dense_given && plan_knows(p->plan, PLAN_edgemoe_dense))
        p->dense = (enum precision)p->plan->scalar[PLAN_edgemoe_dense];
}

int planning_measure(struct planning *p, const struct offline_text *text, const struct serving *s,
                     struct measured *out, struct error *error)
{
    struct offline_evaluation e = planning_evaluation(p, text);
    const struct offline_losses *native = text == &p->text ? &p->native : &p->native_some;
    struct offline_losses losses;
    if (serving_evaluate(&e, s, &losses, &out->report, error) != 0)
        return -1;
    out->loss = offline_loss_interval(native->nll, losses.nll, losses.windows, losses.scored, 0.95);
    offline_losses_free(&losses);
    return 0;
}

uint64_t planning_one_expert(const struct planning *p, enum precision precision)
{
    uint32_t layer = model_expert_layer(offline_index(p->model), 0);
    return offline_expert_bytes(p->model, layer, 0, precision, p->method);
}

uint64_t planning_expert_bytes(const struct planning *p, struct error *error)
{
    const struct model_index *m = offline_index(p->model);
    char min_budget[16], given[16];
    uint64_t min = (m->hparams.experts_used + 1ull) * hparams_expert_layers(&m->hparams) *
                   planning_one_expert(p, PRECISION_NATIVE);
    if (p->experts_percent > 0)
        return (uint64_t)(p->experts_percent / 100 * (double)p->native_bytes);
    uint64_t rest = offline_index_at(p->model, p->dense)->dense_bytes + ENGINE_BYTES;
    if (p->budget_bytes >= rest + min)
        return p->budget_bytes - rest < p->native_bytes ? p->budget_bytes - rest : p->native_bytes;
    if (p->budget_bytes == 0)
        error_set(error, ERR_BAD_INPUT, "use --budget BYTES or --resident-experts PCT%%");
    else
        error_set(error, ERR_BUDGET_TOO_SMALL,
                  "--budget %s is too small: minimum %s for the dense weights, the engine and the "
                  "experts of one token",
                  bytes_format(p->budget_bytes, given), bytes_format(rest + min, min_budget));
    return 0;
}
