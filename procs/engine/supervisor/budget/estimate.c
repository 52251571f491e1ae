/* SPDX-License-Identifier: Apache-2.0 */
/* `sluice run --print-memory`: the ledger's memory estimate for a model, before any process of an
 * engine exists, as one JSON object: the minimum budget, and the budgets at which given shares of
 * the experts are resident. Used by doctor. */
#include <jansson.h>
#include <stdio.h>

#include "procs/engine/supervisor/supervisor.h"

static json_t *number(uint64_t value)
{
    return json_integer((json_int_t)value);
}

/* Budgets by percentage of resident experts. */
static json_t *budgets(const struct ledger_facts *facts)
{
    static const unsigned shares[] = {25, 50, 75, 100};
    json_t *all = json_object();
    for (size_t i = 0; i < sizeof shares / sizeof shares[0]; i++) {
        char name[8];
        snprintf(name, sizeof name, "%u", shares[i]);
        json_object_set_new(
            all, name,
            number(ledger_budget_for(facts, facts->expert_slot_bytes / 100 * shares[i])));
    }
    return all;
}

/* Dense bytes that one token reads: of an embedding that is not the output matrix, only a row. */
static uint64_t dense_read(const struct supervisor *s)
{
    const struct model_index *m = s->model;
    const uint32_t *globals = m->dense_entry[m->hparams.layers];
    uint32_t embedding = globals[DENSE_TOKEN_EMBD];
    if (embedding == ENTRY_NONE || globals[DENSE_OUTPUT] == ENTRY_NONE)
        return m->dense_bytes;
    return m->dense_bytes - model_index_entries(m)[embedding].slot_bytes;
}

static json_t *cgroup_headroom_json(void)
{
    uint64_t headroom = cgroup_available();
    return headroom == UINT64_MAX ? json_null() : number(headroom);
}

/* Type of the matrix "up" of an expert in the middle: mixes give the first layers other types. */
static const char *expert_type(const struct model_index *m)
{
    uint32_t layer = model_expert_layer(m, m->hparams.layers / 2);
    uint32_t entry = model_entry_expert(m, layer, 0);
    return tensor_type_info(model_index_entries(m)[entry].matrix[EXPERT_UP].type)->name;
}

/* What the preset auto would choose from at this budget. */
static json_t *choices(const struct supervisor *s, const struct ledger_plan *plan)
{
    double share = budget_share(s, plan->quota);
    return json_pack("{s:f, s:o}", "share", share, "candidates", auto_candidates_json(s, share));
}

/* The ledger with the smaller chunk where it may be chosen, as with a small budget. */
static int smallest(struct supervisor *s, struct ledger_facts *facts, uint64_t *min_budget,
                    struct error *error)
{
    const struct budget kept = s->budget;
    const uint64_t chunk = s->params.prefill_chunk;
    if (kept.chunk_chosen && chunk > PREFILL_CHUNK)
        s->params.prefill_chunk = PREFILL_CHUNK;
    int rc = budget_make(s, error);
    *facts = s->budget.facts;
    *min_budget = s->budget.plan.min_budget;
    s->budget = kept;
    s->params.prefill_chunk = chunk;
    return rc;
}

int memory_estimate_print(struct supervisor *s, struct error *error)
{
    const struct model_hparams *h = &s->model->hparams;
    struct ledger_facts small;
    uint64_t min_budget;
    if (smallest(s, &small, &min_budget, error) != 0 || budget_make(s, error) != 0)
        return -1;
    struct ledger_plan plan = s->budget.plan;
    json_t *o = json_object();
    json_object_set_new(o, "model", json_string(s->options.model));
    json_object_set_new(o, "arch", json_string(s->model->arch));
    json_object_set_new(o, "layers", json_integer(h->layers));
    json_object_set_new(o, "experts", json_integer(h->experts));
    json_object_set_new(o, "experts_used", json_integer(h->experts_used));
    uint32_t expert_layers = h->layers - h->dense_layers;
    json_object_set_new(o, "expert_layers", number(expert_layers));
    json_object_set_new(o, "expert_count", number((uint64_t)expert_layers * h->experts));
    json_object_set_new(o, "dense_bytes", number(s->model->dense_bytes));
    json_object_set_new(o, "dense_read_bytes", number(dense_read(s)));
    json_object_set_new(o, "hidden", json_integer(h->hidden));
    json_object_set_new(o, "expert_inner", json_integer(h->expert_inner));
    json_object_set_new(o, "expert_type", json_string(expert_type(s->model)));
    json_object_set_new(o, "expert_bytes", number(s->model->expert_bytes));
    json_object_set_new(o, "fixed_bytes", number(plan.fixed));
    json_object_set_new(o, "budget", number(s->budget.facts.budget));
    json_object_set_new(o, "min_budget", number(min_budget));
    json_object_set_new(o, "budgets", budgets(&small));
    json_t *gpu = gpu_stats(s);
    if (gpu)
        json_object_set_new(o, "gpu", gpu);
    json_t *choice = gpu_choice_stats(s);
    if (choice)
        json_object_set_new(o, "gpu_choice", choice);
    json_object_set_new(o, "available", number(budget_available()));
    json_object_set_new(o, "cgroup_headroom", cgroup_headroom_json());
    json_object_set_new(o, "threads", number(s->params.threads));
    json_object_set_new(o, "prefill_chunk", number(s->params.prefill_chunk));
    json_object_set_new(o, "ctx_size", number(s->params.ctx_size));
    json_object_set_new(o, "kv_type", json_string(s->params.kv_type));
    json_object_set_new(o, "kv_ring", number(kv_shape_for(s).ring));
    json_object_set_new(o, "kv_bytes", number(s->budget.facts.kv_bytes));
    json_object_set_new(o, "auto", choices(s, &plan));
    int rc =
        json_dumpf(o, stdout, JSON_INDENT(2)) == 0 && putchar('\n') == '\n' && fflush(stdout) == 0
            ? 0
            : error_set(error, ERR_FAILED, "cannot write to stdout");
    json_decref(o);
    return rc;
}
