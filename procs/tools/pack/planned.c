/* SPDX-License-Identifier: Apache-2.0 */
/* --plan: what `sluice plan --preset edgemoe`, `--preset mixed-two` and `--preset
 * mixed-two-resident-first` have chosen. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/model/store/base.h"
#include "lib/plan/plan.h"
#include "procs/tools/pack/pack.h"

/* The hash needs the norms and routers of a GGUF file; of a Hugging Face directory only the shape
 * is compared here. The engine compares the hash of the store. */
static int check_model(const struct pack *p, const struct plan *plan, struct error *error)
{
    uint8_t hash[PLAN_HASH_BYTES];
    const struct source *s = &p->source;
    if (s->is_hf)
        memcpy(hash, plan->model_hash, sizeof hash);
    else if (plan_model_hash(s->index, s->parts.fd, hash, error) != 0)
        return -1;
    return plan_matches(plan, s->index, hash, p->options.plan, error);
}

/* The directory of the store and of the model are often the same: then they can be moved
 * together. */
int pack_base(struct pack *p, struct error *error)
{
    struct store_manifest *m = &p->manifest;
    struct error why;
    const char *path = p->source.files[0].path, *name = strrchr(path, '/');
    const char *store = strrchr(p->dir, '/');
    sl_assert(path[0] == '/' && name && store);
    bool together =
        name - path == store - p->dir && memcmp(path, p->dir, (size_t)(name - path)) == 0;
    int n = together ? snprintf(m->base_path, sizeof m->base_path, "..%s", name)
                     : snprintf(m->base_path, sizeof m->base_path, "%s", path);
    if (n < 0 || n >= (int)sizeof m->base_path)
        return error_set(error, ERR_BAD_INPUT, "%.200s: the path is too long", path);
    uint32_t parts = p->source.index->part_count ? p->source.index->part_count : 1;
    if (store_base_hash(&p->source.parts, parts, m->base_hash, &why))
        return error_set(error, why.code, "%.200s: %.100s", path, why.text);
    m->chosen = p->chosen;
    return 0;
}

static bool has_two(const struct pack_options *o, const struct plan *plan)
{
    return !o->widths_only && (plan_mixed_high(plan) || plan_joint_high(plan));
}

/* Of a delta: the precision of each expert; with mixed-two's two, all precisions of all experts. */
static int take_chosen(struct pack *p, const struct plan *plan, struct error *error)
{
    if (has_two(&p->options, plan)) {
        p->options.precision_wanted[PRECISION_NATIVE] = false;
        return 0;
    }
    size_t cells = (size_t)plan->layers * plan->experts;
    p->options.precision_wanted[PRECISION_NATIVE] = false;
    p->chosen = malloc(cells);
    if (!p->chosen)
        return error_set(error, ERR_NO_MEMORY, "out of memory (precisions)");
    memcpy(p->chosen, plan_width(plan), cells);
    for (int i = PRECISION_NATIVE + 1; i < PRECISION__COUNT; i++)
        if (p->options.precision_wanted[i])
            return 0;
    return error_set(error, ERR_BAD_INPUT,
                     "--delta: every expert of %.200s keeps its precision: nothing to store",
                     p->options.plan);
}

static void want(struct pack_options *o, const struct plan *plan, const struct model_index *model,
                 const uint8_t *precision)
{
    for (uint64_t i = 0; precision && i < (uint64_t)plan->layers * plan->experts; i++)
        if (model_layer_has_experts(model, (uint32_t)(i / plan->experts)))
            o->precision_wanted[precision[i]] = true;
}

static int take(struct pack_options *o, const struct plan *plan, const struct model_index *model,
                struct error *error)
{
    const uint8_t *width = plan_width(plan);
    const double *s = plan->scalar;
    if (!width)
        return error_set(error, ERR_BAD_INPUT,
                         "%.200s has no precisions of the experts; run 'sluice plan --preset "
                         "edgemoe'",
                         o->plan);
    if (!o->given.precisions) {
        memset(o->precision_wanted, 0, sizeof o->precision_wanted);
        want(o, plan, model, width);
        if (has_two(o, plan)) {
            want(o, plan, model, plan_mixed_high(plan));
            want(o, plan, model, plan_mixed_low(plan));
            want(o, plan, model, plan_joint_high(plan));
            want(o, plan, model, plan_joint_low(plan));
        }
    }
    if (!o->given.method && plan_knows(plan, PLAN_edgemoe_method) && s[PLAN_edgemoe_method] > 0)
        o->method = (enum quant_method)s[PLAN_edgemoe_method];
    if (!o->given.dense && plan_knows(plan, PLAN_edgemoe_dense))
        o->dense = (enum precision)s[PLAN_edgemoe_dense];
    return 0;
}

int pack_take_plan(struct pack *p, struct error *error)
{
    struct plan *plan = plan_read(p->options.plan, error);
    if (!plan)
        return -1;
    int status = check_model(p, plan, error);
    if (status == 0)
        status = take(&p->options, plan, p->source.index, error);
    if (status == 0 && p->options.delta && !p->options.given.precisions)
        status = take_chosen(p, plan, error);
    free(plan);
    return status;
}
