/* SPDX-License-Identifier: Apache-2.0 */
/* From gate rows to HINTs, and the accuracy of predictions. */
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "lib/model/limits.h"
#include "lib/policy/prediction/activation.h"
#include "lib/policy/presets/planned.h"
#include "lib/tensor/precision.h"
#include "lib/tensor/tensor_type.h"
#include "procs/engine/predictor/predictor.h"

_Static_assert(PREDICTIONS_MAX == MSG_HINTS_MAX, "a list is one HINT");
_Static_assert(GATES_ROWS == SEQUENCES_MAX, "a row of each sequence is kept");

static const struct model_hparams *hparams(const struct predictor *p)
{
    return &p->child.model->hparams;
}

int hints_set_preset(struct predictor *p, uint32_t preset, struct error *error)
{
    const struct model_hparams *hp = hparams(p);
    struct knobs knobs;
    if (child_knobs(&p->child, preset, &knobs, &p->precision_policy, error) != 0)
        return -1;
    p->preset = preset;
    p->knobs = knobs;
    p->method = prediction_method_of(knobs.prediction);
    p->want = prediction_want(p->method, knobs.predict_k, hp->experts_used, hp->experts);
    for (uint32_t i = 0; i < SEQUENCES_MAX; i++)
        p->sequence[i].chosen_layer = UINT32_MAX;
    if (p->method->source != PREDICT_ACTIVATION || p->activation)
        return 0;
    p->activation = activation_create(hp->layers, hp->experts);
    return p->activation ? 0 : error_set(error, ERR_NO_MEMORY, "out of memory (activations)");
}

/* The bytes of a dense tensor in the arena; NULL until it is READY, and then there is no hint.
 * Dense entries are pinned by the cache: once READY they stay resident. */
static const void *dense_bytes(void *self, uint32_t entry)
{
    const struct predictor *p = self;
    struct directory_entry *d = &p->child.directory.entries[entry];
    const struct model_extent *x = &model_index_entries(p->child.model)[entry].extent[0];
    if (entry_state_of(entry_read(&d->word)) != ENTRY_READY)
        return NULL;
    uint64_t at = atomic_load_explicit(&d->arena_offset, memory_order_relaxed);
    return (const char *)p->child.arena.base + at + x->slot_offset + x->head_bytes;
}

int hints_open(struct predictor *p, struct error *error)
{
    const struct model_hparams *hp = hparams(p);
    p->ops = kernel_ops_select(p->child.params->isa);
    if (!p->ops)
        return error_set(error, ERR_BAD_INPUT,
                         "--isa %s is not supported by this CPU or build; use --isa auto",
                         p->child.params->isa);
    p->tables = (struct path_tables){.layers = hp->layers, .experts = hp->experts};
    if (p->child.plan) {
        p->tables.prev1 = plan_prev1(p->child.plan);
        p->tables.pair_first = plan_pair_first(p->child.plan);
        p->tables.pair_cells =
            (const struct path_cell *)(const void *)plan_pair_cells(p->child.plan);
        p->tables.frequency = plan_frequency(p->child.plan);
    }
    if (hints_set_preset(p, atomic_load(&p->child.procs.head->preset_active), error) != 0)
        return -1;
    p->recall = recall_create(hp->layers, hp->experts, error);
    if (!p->recall)
        return -1;
    p->values = calloc(p->child.gates.width, sizeof *p->values);
    p->router = router_row_create(p->child.model, p->ops, dense_bytes, p);
    p->logits = calloc(hp->experts, sizeof *p->logits);
    p->scratch = calloc(PREDICTION_SCRATCH(hp->experts), sizeof *p->scratch);
    p->predictions = calloc(hp->experts, sizeof *p->predictions);
    if (!p->scratch || !p->values || !p->router || !p->logits || !p->predictions)
        return error_set(error, ERR_NO_MEMORY, "out of memory (predictions)");
    access_log_reader_start(&p->child.access_log, &p->accesses);
    return 0;
}

/* Of the sequence at this place. */
static uint32_t run_prediction(struct predictor *p, const struct gates_read *row, uint32_t place,
                               uint32_t layer, const struct model_router *rule,
                               const uint16_t *chosen2)
{
    const struct model_hparams *hp = hparams(p);
    const struct predictor_sequence *s = &p->sequence[place];
    struct prediction_input in = {.layer = layer,
                                  .now = row->layer,
                                  .sequence = row->sequence,
                                  .position = row->position,
                                  .activation = p->activation,
                                  .experts = hp->experts,
                                  .top_k = hp->experts_used,
                                  .want = p->want,
                                  .logits = rule ? p->logits : NULL,
                                  .router = rule,
                                  .chosen1 = s->chosen[0],
                                  .chosen1_count = s->chosen_count[0],
                                  .chosen2 = chosen2,
                                  .chosen2_count = chosen2 ? s->chosen_count[1] : 0,
                                  .tables = &p->tables,
                                  .scratch = p->scratch};
    return prediction_run(p->method, &in, p->predictions);
}

static uint32_t predict_from_input(struct predictor *p, const struct gates_read *row,
                                   uint32_t place, uint32_t layer)
{
    struct model_router rule;
    if (row->count != hparams(p)->hidden ||
        !router_row_logits(p->router, layer, p->values, row->token, p->logits, &rule))
        return 0;
    return run_prediction(p, row, place, layer, &rule, NULL);
}

/* The experts chosen in the layer routed last become those of "the layer before". */
static uint32_t predict_from_routes(struct predictor *p, const struct gates_read *row,
                                    uint32_t place, uint32_t layer)
{
    uint32_t k = hparams(p)->experts_used;
    struct predictor_sequence *s = &p->sequence[place];
    if (row->count != k)
        return 0;
    /* Index 0 is of the layer before the routed one only if no row was missed. */
    uint32_t now = hparams_experts_before(hparams(p), layer);
    uint32_t before = hparams_experts_before(hparams(p), now);
    bool follows = before < hparams(p)->layers && s->chosen_layer == before &&
                   s->chosen_position == row->position;
    memcpy(s->chosen[1], s->chosen[0], sizeof s->chosen[1]);
    s->chosen_count[1] = s->chosen_count[0];
    s->chosen_count[0] = 0;
    for (uint32_t i = 0; i < k; i++)
        if (p->values[i] >= 0 && p->values[i] < (float)hparams(p)->experts)
            s->chosen[0][s->chosen_count[0]++] = (uint16_t)p->values[i];
    s->chosen_layer = now;
    s->chosen_position = row->position;
    return run_prediction(p, row, place, layer, NULL, follows ? s->chosen[1] : NULL);
}

/* Predicted token counts of a chunk, then the weights ranked before each expert. */
static uint32_t predict_from_counts(struct predictor *p, const struct gates_read *row)
{
    uint32_t experts = hparams(p)->experts;
    if (row->count != 2 * experts)
        return 0;
    struct prediction_chunk in = {.tokens = p->values,
                                  .weight_before = p->values + experts,
                                  .experts = experts,
                                  .whole = p->knobs.prefill_prediction == PREFILL_PREDICTION_LAYER};
    return prediction_chunk_run(p->method, &in, p->predictions);
}

/* The entry to prefetch for prediction `at` of n; ENTRY_NONE when an access would skip it. */
static uint32_t entry_to_hint(const struct predictor *p, uint32_t layer, uint32_t at, uint32_t n,
                              bool prefill)
{
    const struct model_index *m = p->child.model;
    const struct prediction *prediction = &p->predictions[at];
    struct planned_widths widths = planned_widths(p->child.plan, &p->knobs);
    struct precision_predicted in = {
        .at = at, .count = n, .weight_before = prediction->weight_before, .prefill = prefill};
    enum precision precision;
    in.planned =
        planned_precisions(&widths, (size_t)layer * m->hparams.experts + prediction->expert);
    if (!precision_predict(&p->precision_policy, &in,
                           model_expert_precisions(m, layer, prediction->expert), &precision))
        return ENTRY_NONE;
    return model_entry_expert_precision(m, layer, prediction->expert, precision);
}

static void send_hint(struct predictor *p, const struct gates_read *row, uint32_t layer, uint32_t n)
{
    struct msg_hint *h = &p->hint;
    struct process *counters = p->child.process;
    *h = (struct msg_hint){.sent_ns = clock_now_ns(),
                           .sequence = row->sequence,
                           .position = row->position,
                           .layer = (uint16_t)layer,
                           .from_layer = (uint16_t)row->layer,
                           .prefill = row->kind == GATES_COUNTS};
    for (uint32_t i = 0; i < n; i++) {
        uint32_t entry = entry_to_hint(p, layer, i, n, h->prefill != 0);
        if (entry != ENTRY_NONE)
            h->predictions[h->count++] = (struct msg_prediction){
                .entry = entry,
                .probability = prediction_access_probability(
                    p->method, p->predictions[i].probability, hparams(p)->experts_used)};
    }
    if (h->count == 0)
        return;
    n = h->count;
    counter_add(counters, CTR_PREDICTOR_hints_sent, 1);
    counter_add(counters, CTR_PREDICTOR_predictions, n);
    if (channel_send(p->cache, h, MSG_HINT) != 0)
        counter_add(counters, CTR_PREDICTOR_messages_dropped, 1);
}

/* HOBBIT §3.3: the layer after next is predicted only when all predictions for the next are
 * resident. */
static bool all_resident(const struct predictor *p)
{
    const struct msg_hint *h = &p->hint;
    for (uint32_t i = 0; i < h->count; i++)
        if (entry_state_of(entry_read(&p->child.directory.entries[h->predictions[i].entry].word)) !=
            ENTRY_READY)
            return false;
    return true;
}

static void note_predictions(struct predictor *p, const struct gates_read *row, uint32_t place,
                             uint32_t layer, uint32_t n)
{
    struct prediction_place target = {row->sequence, row->position, layer};
    uint32_t experts[MSG_HINTS_MAX];
    for (uint32_t i = 0; i < n; i++)
        experts[i] = p->predictions[i].expert;
    recall_prediction(p->recall, place, &target, experts, n);
}

/* Predicts one target layer into p->predictions; returns their number. */
static uint32_t predict_layer(struct predictor *p, const struct gates_read *row, uint32_t place,
                              uint32_t layer)
{
    if (row->kind == GATES_ROUTES && p->method->source == PREDICT_ACTIVATION)
        return run_prediction(p, row, place, layer, NULL, NULL);
    switch (row->kind) {
    case GATES_INPUT:
        return p->method->source == PREDICT_LOGITS ? predict_from_input(p, row, place, layer) : 0;
    case GATES_ROUTES: return predict_from_routes(p, row, place, layer);
    case GATES_COUNTS: return predict_from_counts(p, row);
    }
    return 0; /* written by another process */
}

static void hint_layers(struct predictor *p, const struct gates_read *row, uint32_t place)
{
    bool chunk = row->kind == GATES_COUNTS;
    uint32_t ahead = chunk ? 1 : prediction_layers(p->method, p->knobs.lookahead);
    uint32_t target = row->layer;
    for (uint32_t i = 0; i < ahead; i++) {
        target = hparams_next_experts(hparams(p), target + 1);
        if (target == hparams(p)->layers)
            return;
        uint32_t n = predict_layer(p, row, place, target);
        if (n == 0)
            return;
        send_hint(p, row, target, n);
        if (!chunk && i == 0)
            note_predictions(p, row, place, target, n);
        if (i + 1 < ahead && !all_resident(p))
            return;
    }
}

/* ---- sequences ------------------------------------------------------------------------------- */

static uint32_t place_of(struct predictor *p, uint32_t sequence)
{
    bool displaced;
    uint32_t place = sequences_find(&p->sequences, sequence);
    if (place != SEQUENCE_NONE)
        return place;
    place = sequences_start(&p->sequences, sequence, &displaced);
    p->sequence[place].chosen_layer = UINT32_MAX;
    return place;
}

static void hint_row(struct predictor *p, uint32_t number, uint32_t place)
{
    struct gates_read row;
    uint64_t start = clock_now_ns();
    if (!gates_read(&p->child.gates, number, &row, p->values)) {
        counter_add(p->child.process, CTR_PREDICTOR_rows_overwritten, 1);
        return;
    }
    counter_add(p->child.process, CTR_PREDICTOR_rows_read, 1);
    hint_layers(p, &row, place);
    counter_add(p->child.process, CTR_PREDICTOR_predict_ns, clock_now_ns() - start);
}

void hints_from_rows(struct predictor *p, uint32_t from, uint32_t to)
{
    bool taken[SEQUENCES_MAX] = {false};
    uint32_t kept = to - from < GATES_ROWS ? to - from : GATES_ROWS, older = to - from - kept;
    for (uint32_t number = to; number != to - kept;) { /* the newest first */
        struct gates_read row;
        if (!gates_read(&p->child.gates, --number, &row, NULL)) {
            older++;
            continue;
        }
        /* A row follows its accesses: a sequence without a place has ended. */
        uint32_t place = sequences_find(&p->sequences, row.sequence);
        if (place == SEQUENCE_NONE || taken[place]) {
            older++;
            continue;
        }
        taken[place] = true;
        if (hparams_next_experts(hparams(p), row.layer + 1) < hparams(p)->layers &&
            p->method->source != PREDICT_NOTHING)
            hint_row(p, number, place);
    }
    counter_add(p->child.process, CTR_PREDICTOR_rows_overwritten, older);
}

/* Another preset from this sequence on; compute has rejected presets that cannot run here. */
static void follow_preset(struct predictor *p, uint32_t preset)
{
    struct error error;
    if (preset != p->preset && hints_set_preset(p, preset, &error) != 0)
        log_warn("preset %u: %s", preset, error.text);
}

static void sequence_ends(struct predictor *p, uint32_t sequence)
{
    (void)sequences_end(&p->sequences, sequence);
    if (p->activation)
        activation_sequence_ends(p->activation, sequence);
}

void hints_measure(struct predictor *p)
{
    struct access_record access;
    while (access_log_read(&p->child.access_log, &p->accesses, UINT64_MAX, &access)) {
        if (access.kind == ACCESS_SEQUENCE_START) {
            follow_preset(p, access.preset);
            (void)place_of(p, access.sequence);
        }
        if (access.kind == ACCESS_SEQUENCE_END)
            sequence_ends(p, access.sequence);
        if (access.kind != ACCESS_EXPERT)
            continue;
        if (p->activation && access.layer < hparams(p)->layers &&
            access.expert < hparams(p)->experts)
            activation_access(p->activation, access.sequence, access.layer, access.expert,
                              access.tokens);
        uint32_t place = place_of(p, access.sequence);
        if (access.prefill)
            continue;
        struct prediction_place at = {access.sequence, access.position, access.layer};
        enum recall_result result = recall_access(p->recall, place, &at, access.expert);
        if (result == RECALL_NO_PREDICTION)
            continue;
        counter_add(p->child.process, CTR_PREDICTOR_recall_accesses, 1);
        if (result == RECALL_HIT)
            counter_add(p->child.process, CTR_PREDICTOR_recall_hits, 1);
    }
}
