/* From gate rows to hints, and how good they were. */
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "lib/model/limits.h"
#include "lib/tensor/tensor_type.h"
#include "lib/tensor/tier.h"
#include "procs/engine/predictor/predictor.h"

static const struct model_hparams *hparams(const struct predictor *p)
{
    return &p->child.model->hparams;
}

int hints_system(struct predictor *p, uint32_t system, struct error *error)
{
    const struct model_hparams *hp = hparams(p);
    const struct model_index *m = p->child.model;
    uint64_t bytes[TIER__COUNT];
    struct knobs knobs;
    for (int t = 0; t < TIER__COUNT; t++)
        bytes[t] = m->tier_entries[t] ? m->tier_slot_bytes[t] / m->tier_entries[t] : 0;
    if (child_knobs(&p->child, system, &knobs, error) != 0 ||
        knobs_precision(&knobs, m->tier_mask, bytes, &p->precision, error) != 0)
        return -1;
    p->system = system;
    p->knobs = knobs;
    p->predict = prediction_named(knobs.prediction);
    uint32_t want = knobs.guesses ? (uint32_t)knobs.guesses : hp->experts_used;
    if (p->predict->lists && knobs.guesses == 0)
        want = hp->experts;
    want = want < hp->experts ? want : hp->experts;
    p->want = want < MSG_HINTS_MAX ? want : MSG_HINTS_MAX;
    p->chosen_layer = UINT32_MAX;
    return 0;
}

int hints_open(struct predictor *p, struct error *error)
{
    const struct model_hparams *hp = hparams(p);
    p->ops = kernel_ops_select(p->child.params->isa);
    if (!p->ops)
        return error_set(error, ERR_BAD_INPUT, "--isa %s is not to be had here",
                         p->child.params->isa);
    p->tables = (struct path_tables){.layers = hp->layers, .experts = hp->experts};
    if (p->child.plan) {
        p->tables.prev1 = plan_prev1(p->child.plan);
        p->tables.pair_first = plan_pair_first(p->child.plan);
        p->tables.pair_cells =
            (const struct path_cell *)(const void *)plan_pair_cells(p->child.plan);
        p->tables.frequency = plan_frequency(p->child.plan);
    }
    if (hints_system(p, atomic_load(&p->child.procs.head->system_now), error) != 0)
        return -1;
    p->recall = recall_create(hp->layers, hp->experts, error);
    if (!p->recall)
        return -1;
    p->values = calloc(p->child.gates.head->width, sizeof *p->values);
    p->input = aligned_alloc(64, kernel_activation_bytes(TENSOR_F32, hp->hidden));
    p->logits = calloc(hp->experts, sizeof *p->logits);
    p->scratch = calloc(hp->experts, sizeof *p->scratch);
    p->guesses = calloc(hp->experts, sizeof *p->guesses);
    if (!p->scratch || !p->values || !p->input || !p->logits || !p->guesses)
        return error_set(error, ERR_NO_MEMORY, "no memory for predictions");
    uses_reader_start(&p->child.uses, &p->uses);
    return 0;
}

/* The router of a layer; false when it is not READY (then there is no hint). Dense entries carry
 * the cache's own pin: once READY they stay. */
static bool router_of(const struct predictor *p, uint32_t layer, struct kernel_matrix *w)
{
    const struct model_index *m = p->child.model;
    uint32_t entry = model_entry_dense(m, layer, DENSE_ROUTER);
    sl_assert(entry != ENTRY_NONE);
    struct directory_entry *d = &p->child.directory.entries[entry];
    const struct model_extent *x = &model_index_entries(m)[entry].extent[0];
    const struct model_tensor *t = &model_index_tensors(m)[x->tensor];
    if (entry_state_of(entry_look(&d->word)) != ENTRY_READY)
        return false;
    uint64_t at = atomic_load_explicit(&d->arena_offset, memory_order_relaxed);
    *w = (struct kernel_matrix){.data = (const char *)p->child.arena.base + at + x->slot_offset +
                                        x->head_bytes,
                                .row_bytes = t->row_bytes,
                                .k = (uint32_t)t->ne[0],
                                .n = (uint32_t)t->ne[1],
                                .type = (enum tensor_type)t->type};
    return w->type == TENSOR_F32;
}

static uint32_t run_prediction(struct predictor *p, uint32_t layer, const float *logits,
                               const uint16_t *chosen2)
{
    const struct model_hparams *hp = hparams(p);
    struct prediction_input in = {.layer = layer,
                                  .experts = hp->experts,
                                  .top_k = hp->experts_used,
                                  .want = p->want,
                                  .logits = logits,
                                  .chosen1 = p->chosen[0],
                                  .chosen1_count = p->chosen_count[0],
                                  .chosen2 = chosen2,
                                  .chosen2_count = chosen2 ? p->chosen_count[1] : 0,
                                  .tables = &p->tables,
                                  .scratch = p->scratch};
    return prediction_run(p->predict, &in, p->guesses);
}

static uint32_t guess_from_input(struct predictor *p, uint32_t layer, const struct gates_read *row)
{
    struct kernel_matrix w;
    if (row->count != hparams(p)->hidden || !router_of(p, layer, &w))
        return 0;
    p->ops->activation(w.type, p->values, w.k, p->input);
    p->ops->matmul(&w, 0, w.n, p->input, kernel_activation_bytes(w.type, w.k), 1, p->logits, w.n);
    return run_prediction(p, layer, p->logits, NULL);
}

/* The chosen experts of the layer that has just been routed become those of "the layer before". */
static uint32_t guess_from_routes(struct predictor *p, uint32_t layer, const struct gates_read *row)
{
    uint32_t k = hparams(p)->experts_used;
    if (row->count != k)
        return 0;
    /* What stands at 0 is of layer - 2 only if no row was missed. */
    bool follows = layer >= 2 && p->chosen_layer == layer - 2 &&
                   p->chosen_position == row->position && p->chosen_sequence == row->sequence;
    memcpy(p->chosen[1], p->chosen[0], sizeof p->chosen[1]);
    p->chosen_count[1] = p->chosen_count[0];
    p->chosen_count[0] = 0;
    for (uint32_t i = 0; i < k; i++)
        if (p->values[i] >= 0 && p->values[i] < (float)hparams(p)->experts)
            p->chosen[0][p->chosen_count[0]++] = (uint16_t)p->values[i];
    p->chosen_layer = layer - 1;
    p->chosen_position = row->position;
    p->chosen_sequence = row->sequence;
    return run_prediction(p, layer, NULL, follows ? p->chosen[1] : NULL);
}

static int by_count(const void *a, const void *b)
{
    const struct guess *x = a, *y = b;
    if (x->probability != y->probability)
        return x->probability > y->probability ? -1 : 1;
    return x->expert < y->expert ? -1 : x->expert > y->expert;
}

/* Predicted token counts of a chunk: everything that some token will probably need. */
static uint32_t guess_from_counts(struct predictor *p, const struct gates_read *row)
{
    uint32_t n = 0, experts = hparams(p)->experts;
    for (uint32_t e = 0; e < row->count && e < experts; e++)
        if (p->values[e] > 0)
            p->guesses[n++] = (struct guess){e, p->values[e]};
    qsort(p->guesses, n, sizeof *p->guesses, by_count);
    return n < MSG_HINTS_MAX ? n : MSG_HINTS_MAX;
}

/* The tier compute would ask for if the guesses were right and nothing were there (HOBBIT §3.3: by
 * the same scores); ENTRY_NONE when it would leave the expert out. */
static uint32_t entry_to_hint(const struct predictor *p, uint32_t layer, const struct guess *guess,
                              float before)
{
    const struct model_index *m = p->child.model;
    const uint8_t *width = p->child.plan ? plan_width(p->child.plan) : NULL;
    struct precision_input in = {.weight_before = before, .width = TIER_NATIVE, .predicted = true};
    struct precision_choice choice;
    if (width)
        in.width = (enum tier)width[(size_t)layer * m->hparams.experts + guess->expert];
    precision_choose(&p->precision, &in, &choice);
    if (choice.need == NEED_SKIP)
        return ENTRY_NONE;
    uint32_t entry = model_entry_expert_tier(m, layer, guess->expert, choice.ask);
    return entry == ENTRY_NONE ? model_entry_expert(m, layer, guess->expert) : entry;
}

/* Sum of the probabilities of the likeliest top-k. */
static float top_sum(const struct predictor *p, uint32_t n)
{
    float sum = 0;
    for (uint32_t i = 0; i < n && i < hparams(p)->experts_used; i++)
        sum += p->guesses[i].probability;
    return sum > 0 ? sum : 1;
}

static void send_hint(struct predictor *p, const struct gates_read *row, uint32_t from,
                      uint32_t layer, uint32_t n)
{
    struct msg_hint *h = &p->hint;
    struct proc_row *counters = p->child.row;
    *h = (struct msg_hint){.sent_ns = clock_now_ns(),
                           .sequence = row->sequence,
                           .position = row->position,
                           .layer = (uint16_t)layer,
                           .from_layer = (uint16_t)from,
                           .prefill = row->kind == GATES_COUNTS};
    /* Counts of a chunk's tokens say nothing about ranks. */
    float sum = top_sum(p, n), before = 0;
    for (uint32_t i = 0; i < n; i++) {
        float share = h->prefill ? 0 : p->guesses[i].probability / sum;
        uint32_t entry = entry_to_hint(p, layer, &p->guesses[i], before < 1 ? before : 1);
        before += share;
        if (entry != ENTRY_NONE)
            h->guesses[h->count++] = (struct msg_guess){
                .entry = entry,
                .probability = prediction_chance(p->predict, p->guesses[i].probability,
                                                 hparams(p)->experts_used)};
    }
    if (h->count == 0)
        return;
    n = h->count;
    counter_add(counters, CTR_PREDICTOR_hints_sent, 1);
    counter_add(counters, CTR_PREDICTOR_guesses, n);
    if (edge_send(p->cache, h, MSG_HINT) != 0)
        counter_add(counters, CTR_PREDICTOR_messages_lost, 1);
}

/* HOBBIT §3.3: the layer after next is looked at only when everything guessed for the next is
 * there. */
static bool all_resident(const struct predictor *p)
{
    const struct msg_hint *h = &p->hint;
    for (uint32_t i = 0; i < h->count; i++)
        if (entry_state_of(entry_look(&p->child.directory.entries[h->guesses[i].entry].word)) !=
            ENTRY_READY)
            return false;
    return true;
}

static void note_guesses(struct predictor *p, const struct gates_read *row, uint32_t layer,
                         uint32_t n)
{
    uint32_t experts[MSG_HINTS_MAX];
    for (uint32_t i = 0; i < n; i++)
        experts[i] = p->guesses[i].expert;
    recall_guess(p->recall, row->sequence, row->position, layer, experts, n);
}

/* One target layer. The guesses written to p->guesses; their number. */
static uint32_t guess(struct predictor *p, const struct gates_read *row, uint32_t layer)
{
    switch (row->kind) {
    case GATES_INPUT:
        return p->predict->source == PREDICT_LOGITS ? guess_from_input(p, layer, row) : 0;
    case GATES_ROUTES: return guess_from_routes(p, layer, row);
    case GATES_COUNTS: return guess_from_counts(p, row);
    }
    return 0; /* another process wrote it */
}

void hints_from_row(struct predictor *p, uint32_t layer)
{
    struct gates_read row;
    uint64_t start = clock_now_ns();
    if (layer + 1 >= hparams(p)->layers || p->predict->source == PREDICT_NOTHING)
        return;
    if (!gates_read(&p->child.gates, layer, &row, p->values)) {
        counter_add(p->child.row, CTR_PREDICTOR_rows_missed, 1);
        return;
    }
    counter_add(p->child.row, CTR_PREDICTOR_rows_read, 1);
    uint32_t last = row.kind == GATES_INPUT ? layer + (uint32_t)p->knobs.ahead : layer + 1;
    for (uint32_t target = layer + 1; target <= last && target < hparams(p)->layers; target++) {
        uint32_t n = guess(p, &row, target);
        if (n == 0)
            break;
        send_hint(p, &row, layer, target, n);
        if (row.kind != GATES_COUNTS && target == layer + 1)
            note_guesses(p, &row, target, n);
        if (target < last && !all_resident(p))
            break;
    }
    counter_add(p->child.row, CTR_PREDICTOR_predict_ns, clock_now_ns() - start);
}

/* Another system from this sequence on. One that cannot run here compute has refused already. */
static void follow_system(struct predictor *p, uint32_t system)
{
    struct error error;
    if (system != p->system && hints_system(p, system, &error) != 0)
        log_warn("system %u: %s", system, error.text);
}

void hints_measure(struct predictor *p)
{
    struct use_record use;
    while (uses_read(&p->child.uses, &p->uses, UINT64_MAX, &use)) {
        if (use.kind == USE_SEQUENCE_BEGIN)
            follow_system(p, use.system);
        if (use.kind != USE_EXPERT || use.prefill)
            continue;
        enum recall_result result =
            recall_use(p->recall, use.sequence, use.position, use.layer, use.expert);
        if (result == RECALL_NO_GUESS)
            continue;
        counter_add(p->child.row, CTR_PREDICTOR_recall_uses, 1);
        if (result == RECALL_HIT)
            counter_add(p->child.row, CTR_PREDICTOR_recall_hits, 1);
    }
}
