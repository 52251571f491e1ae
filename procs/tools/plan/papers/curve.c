/* SPDX-License-Identifier: Apache-2.0 */
/* Compares replacing with skipping the same share of the accesses, those with the lowest gate
 * weights (HOBBIT, figure 5a).
 *
 * The threshold for a share follows from the routing (the sorted sums of larger weights of all
 * accesses); the losses are measured on 1/4 of the text. */
#include <math.h>
#include <stdlib.h>

#include "lib/model/limits.h"
#include "lib/offline/measure/routing_trace.h"
#include "lib/policy/access/precision.h"
#include "procs/tools/plan/planning.h"

#define POINTS 6
#define STEP   0.05 /* share of the accesses between points */

static int by_value(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* The sums of larger weights of all accesses of the text (lib/policy/access/precision.h),
 * ascending. The caller frees. */
static float *weights_before(const struct trace *t, size_t *count)
{
    uint32_t k = t->header.top_k;
    float *all = malloc((t->count + 1) * sizeof *all), weight[MODEL_TOP_K_MAX];
    *count = 0;
    for (uint64_t i = 0; all && i + k <= t->count; i++) {
        const struct trace_record *r = &t->records[i];
        if (r->kind != TRACE_EXPERT || r->rank != 0)
            continue;
        for (uint32_t j = 0; j < k; j++)
            weight[j] = r[j].weight;
        precision_weights_before(weight, 1, k, all + *count);
        *count += k;
    }
    if (all)
        qsort(all, *count, sizeof *all, by_value);
    return all;
}

static int point(struct planning *p, const struct serving *base, double threshold, json_t *rows,
                 struct error *error)
{
    struct measured low, skip;
    struct serving replaced = *base, skipped = *base;
    char a[64], b[64];
    replaced.policy.t1 = skipped.policy.t1 = skipped.policy.t2 = (float)threshold;
    replaced.policy.t2 = 1;
    if (planning_measure(p, &p->some, &replaced, &low, error) != 0 ||
        planning_measure(p, &p->some, &skipped, &skip, error) != 0)
        return -1;
    double accesses = (double)(low.report.need[0] + low.report.need[1] + low.report.skipped);
    double share = (double)low.report.need[1] / accesses;
    planning_note(p, "  %5.1f %%   %s | %s   (%.3f)", 100 * share, planning_loss(&low.loss, a),
                  planning_loss(&skip.loss, b), threshold);
    json_array_append_new(rows, json_pack("{s:f, s:f, s:f, s:f}", "share", share, "replaced",
                                          low.loss.value, "skipped", skip.loss.value, "threshold",
                                          threshold));
    return 0;
}

int plan_hobbit_curve(struct planning *p, const struct serving *base, struct error *error)
{
    struct trace trace;
    size_t count;
    if (offline_trace(p->model, &p->some, p->method, (uint32_t)p->threads, &trace, error) != 0)
        return -1;
    float *before = weights_before(&trace, &count);
    json_t *rows = json_array();
    int status = before ? 0 : error_set(error, ERR_NO_MEMORY, "out of memory (curve)");
    planning_note(p, "accesses  replaced by the low precision | skipped   (threshold)");
    for (int i = 1; i <= POINTS && status == 0; i++) {
        size_t at = (size_t)((1 - i * STEP) * (double)count);
        status = point(p, base, (double)before[at], rows, error);
    }
    json_object_set_new(p->report, "hobbit_curve", rows);
    free(before);
    trace_free(&trace);
    return status;
}
