/* SPDX-License-Identifier: Apache-2.0 */
/* `sluice run --print-memory`: the ledger's memory estimate for a model, before any process of an
 * engine exists, as one JSON object: the minimum budget, and the budgets at which given shares of
 * the experts are resident. Used by doctor. */
#include <jansson.h>
#include <stdio.h>

#include "lib/model/index/capacity.h"
#include "procs/engine/supervisor/auto.h"
#include "procs/engine/supervisor/budget/budget.h"
#include "procs/engine/supervisor/gpu/gpu.h"
#include "procs/engine/supervisor/supervisor.h"

#define TRIES 8 /* of a budget that settles */

static json_t *number(uint64_t value)
{
    return json_integer((json_int_t)value);
}

/* Dense bytes that one token reads: of a table on storage, and of an embedding that is not the
 * output matrix, only rows. */
static uint64_t dense_read(const struct supervisor *s)
{
    const struct model_index *m = s->model;
    const uint32_t *globals = m->dense_entry[m->hparams.layers];
    uint32_t embedding = globals[DENSE_TOKEN_EMBD];
    uint64_t bytes = m->dense_bytes - (uint64_t)m->page_count * PAGE_BYTES;
    if (embedding == ENTRY_NONE || globals[DENSE_OUTPUT] == ENTRY_NONE)
        return bytes;
    return bytes - model_index_entries(m)[embedding].slot_bytes;
}

/* What one token reads of the keys and values of a sequence that has the whole context, and of the
 * keys of indexers; what these have of kv_bytes for one sequence; and the positions and entries of
 * the layers that read the most of them. */
static json_t *context_json(const struct supervisor *s)
{
    const struct model_hparams *h = &s->model->hparams;
    enum kv_type type = kv_type_find(s->params.kv_type);
    uint64_t context = s->params.ctx_size, keys = 0, rows = 0, all = 0, attended = 0, most = 0;
    for (uint32_t i = 0; i < h->layers; i++) {
        uint64_t own = 0;
        for (uint32_t side = 0; side < KV_SIDE_INDEX; side++) {
            rows += model_read_bytes(h, i, side, type, context);
            own += model_kv_bytes(h, i, side, type, KV_TILE) * context / KV_TILE;
        }
        uint64_t count = model_entries_read(h, i, context);
        uint64_t entries = count * (kv_tile_bytes(kv_index_type(type), h->head_size) / KV_TILE);
        most = count > most ? count : most;
        rows += entries;
        keys += model_read_bytes(h, i, KV_SIDE_INDEX, type, context) - entries;
        all += own;
        if (own > 0 && model_attended(h, i, context) > attended)
            attended = model_attended(h, i, context);
    }
    if (keys > 0 && most == 0) /* some layers may have no indexer */
        attended = model_chosen_tokens(h);
    return json_pack("{s:I, s:I, s:I, s:I, s:I}", "index_read_bytes", (json_int_t)keys,
                     "kv_read_bytes", (json_int_t)rows, "kv_all_bytes", (json_int_t)all, "attended",
                     (json_int_t)attended, "entries", (json_int_t)most);
}

static json_t *cgroup_headroom_json(void)
{
    uint64_t headroom = cgroup_available();
    return headroom == UINT64_MAX ? json_null() : number(headroom);
}

/* Type of the matrix "gate" of an expert in the middle: mixes give the first layers other types. */
static const char *expert_type(const struct model_index *m)
{
    uint32_t layer = model_expert_layer(m, m->hparams.layers / 2);
    uint32_t entry = model_entry_expert(m, layer, 0);
    return tensor_type_info(model_index_entries(m)[entry].matrix[EXPERT_GATE].type)->name;
}

/* What the preset auto would choose from at this budget. */
static json_t *choices(struct supervisor *s, const struct ledger_result *ledger)
{
    double share = budget_share(s, ledger->quota);
    return json_pack("{s:f, s:o}", "share", share, "candidates", auto_candidates_json(s, share));
}

uint32_t budget_sequences(const struct supervisor *s, unsigned *percent)
{
    const struct ledger_facts *f = &s->budget.facts;
    uint64_t least = 0;
    for (*percent = 100; *percent > 0; *percent -= 25) {
        least = ledger_budget_for(f, f->expert_slot_bytes / 100 * *percent);
        if (least <= s->budget.applied)
            break;
    }
    if (*percent == 0)
        least = ledger_budget_for(f, 0);
    return capacity_sequences(least, s->budget.applied, f->kv_bytes);
}

/* What an engine chooses by its budget, if it was not given. */
struct choice {
    uint64_t chunk, context;
};

/* The ledger with another budget, chunk and context. */
static int ledger_with(struct supervisor *s, uint64_t budget, const struct choice *choice,
                       struct ledger_facts *facts, uint64_t *min_budget, struct error *error)
{
    const struct budget kept = s->budget;
    const uint64_t own_budget = s->params.budget, own_chunk = s->params.prefill_chunk;
    const uint64_t own_context = s->params.ctx_size;
    s->params.budget = budget;
    s->params.prefill_chunk = choice->chunk;
    s->params.ctx_size = choice->context;
    s->budget.context_chosen = false;
    int rc = budget_make(s, error);
    *facts = s->budget.facts;
    *min_budget = s->budget.ledger.min_budget;
    s->budget = kept;
    s->params.budget = own_budget;
    s->params.prefill_chunk = own_chunk;
    s->params.ctx_size = own_context;
    return rc;
}

/* What an engine with this budget takes. */
static struct choice choice_with(struct supervisor *s, uint64_t budget)
{
    const uint64_t own = s->params.budget;
    struct choice choice = {s->params.prefill_chunk, s->params.ctx_size};
    s->params.budget = budget;
    if (s->budget.context_chosen)
        choice.context = budget_context(s);
    if (s->budget.chunk_max > 0)
        choice.chunk = budget_chunk(s);
    s->params.budget = own;
    return choice;
}

/* The budget that has `bytes` for experts, where chunk and context grow with it: they need less
 * than the budget has more of, so that it settles. 0 with *error. */
static uint64_t budget_with(struct supervisor *s, const struct ledger_facts *small,
                            struct choice choice, uint64_t bytes, struct error *error)
{
    uint64_t budget = ledger_budget_for(small, bytes), min_budget;
    for (int i = 0; i < TRIES; i++) {
        struct choice next = choice_with(s, budget);
        struct ledger_facts facts;
        if (next.chunk <= choice.chunk && next.context <= choice.context)
            break;
        choice.chunk = next.chunk > choice.chunk ? next.chunk : choice.chunk;
        choice.context = next.context > choice.context ? next.context : choice.context;
        if (ledger_with(s, budget, &choice, &facts, &min_budget, error) != 0)
            return 0;
        budget = ledger_budget_for(&facts, bytes);
    }
    return budget;
}

/* Budgets by percentage of resident experts; `small`: facts with the choices of a small budget.
 * NULL with *error. */
static json_t *budgets(struct supervisor *s, const struct ledger_facts *small,
                       const struct choice *choice, struct error *error)
{
    static const unsigned shares[] = {25, 50, 75, 100};
    json_t *all = json_object();
    for (size_t i = 0; i < ARRAY_LEN(shares); i++) {
        char name[8];
        uint64_t bytes = small->expert_slot_bytes / 100 * shares[i];
        uint64_t budget = budget_with(s, small, *choice, bytes, error);
        if (budget == 0) {
            json_decref(all);
            return NULL;
        }
        snprintf(name, sizeof name, "%u", shares[i]);
        json_object_set_new(all, name, number(budget));
    }
    return all;
}

/* The facts with which shares of the experts are stated, and the minimum of a start: an engine that
 * chooses its context starts with a smaller one where the budget has no more. */
static int budget_low(struct supervisor *s, const struct choice *low, struct ledger_facts *small,
                      uint64_t *min_budget, struct error *error)
{
    struct choice smallest = *low;
    struct ledger_facts facts;
    if (ledger_with(s, s->params.budget, low, small, min_budget, error) != 0)
        return -1;
    if (!s->budget.context_chosen)
        return 0;
    smallest.context = budget_context_smallest(s);
    return ledger_with(s, s->params.budget, &smallest, &facts, min_budget, error);
}

int memory_estimate_print(struct supervisor *s, struct error *error)
{
    const struct model_hparams *h = &s->model->hparams;
    struct ledger_facts small;
    uint64_t min_budget;
    struct choice low = {s->params.prefill_chunk, s->params.ctx_size};
    if (s->budget.chunk_max > 0 && low.chunk > PREFILL_CHUNK)
        low.chunk = PREFILL_CHUNK;
    if (s->budget.context_chosen)
        low.context = budget_context_low(s);
    if (budget_low(s, &low, &small, &min_budget, error) != 0)
        return -1;
    json_t *all_budgets = budgets(s, &small, &low, error);
    if (!all_budgets || budget_make(s, error) != 0) {
        json_decref(all_budgets);
        return -1;
    }
    struct ledger_result ledger = s->budget.ledger;
    json_t *o = json_object();
    json_object_set_new(o, "model", json_string(s->options.model));
    json_object_set_new(o, "arch", json_string(s->model->arch));
    json_object_set_new(o, "layers", json_integer(h->layers));
    json_object_set_new(o, "experts", json_integer(h->experts));
    json_object_set_new(o, "experts_used", json_integer(h->experts_used));
    uint32_t expert_layers = hparams_expert_layers(h);
    json_object_set_new(o, "expert_layers", number(expert_layers));
    json_object_set_new(o, "table_layers", json_integer(h->table_layers));
    json_object_set_new(o, "expert_count", number((uint64_t)expert_layers * h->experts));
    json_object_set_new(o, "dense_bytes", number(s->model->dense_bytes));
    json_object_set_new(o, "dense_read_bytes", number(dense_read(s)));
    json_object_set_new(o, "hidden", json_integer(h->hidden));
    json_object_set_new(o, "expert_inner", json_integer(h->expert_inner));
    json_object_set_new(o, "expert_type", json_string(expert_type(s->model)));
    json_object_set_new(o, "expert_bytes", number(s->model->expert_bytes));
    json_object_set_new(o, "fixed_bytes", number(ledger.fixed));
    json_object_set_new(o, "budget", number(s->budget.facts.budget));
    json_object_set_new(o, "min_budget", number(min_budget));
    json_object_set_new(o, "budgets", all_budgets);
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
    json_object_set_new(o, "context", context_json(s));
    json_object_set_new(o, "auto", choices(s, &ledger));
    int rc =
        json_dumpf(o, stdout, JSON_INDENT(2)) == 0 && putchar('\n') == '\n' && fflush(stdout) == 0
            ? 0
            : error_set(error, ERR_FAILED, "cannot write to stdout");
    json_decref(o);
    return rc;
}
