/* SPDX-License-Identifier: Apache-2.0 */
/* --plan: what `sluice plan --preset edgemoe` has chosen. */
#include <stdlib.h>
#include <string.h>

#include "lib/plan/plan.h"
#include "procs/tools/pack/pack.h"

/* The hash needs the norms and routers of a GGUF file; of a Hugging Face directory only the shape is
 * compared here. The engine compares the hash of the store. */
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

static int take(struct pack_options *o, const struct plan *plan, uint32_t dense_layers,
                struct error *error)
{
    uint64_t first = (uint64_t)dense_layers * plan->experts;
    const uint8_t *width = plan_width(plan);
    const double *s = plan->scalar;
    if (!width)
        return error_set(error, ERR_BAD_INPUT,
                         "%.200s has no precisions of the experts; run 'sluice plan --preset "
                         "edgemoe'",
                         o->plan);
    if (!o->given.precisions) {
        memset(o->precision_wanted, 0, sizeof o->precision_wanted);
        for (uint64_t i = first; i < (uint64_t)plan->layers * plan->experts; i++)
            o->precision_wanted[width[i]] = true;
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
        status = take(&p->options, plan, p->source.index->hparams.dense_layers, error);
    free(plan);
    return status;
}
