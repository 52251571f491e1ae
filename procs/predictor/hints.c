/* From gate rows to hints, and how good they were. */
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/clock.h"
#include "procs/predictor/predictor.h"

static const struct model_hparams *hparams(const struct predictor *p)
{
    return &p->child.model->hparams;
}

int hints_open(struct predictor *p, struct error *error)
{
    const struct model_hparams *hp = hparams(p);
    uint32_t want = (uint32_t)p->child.params->guesses;
    want = want ? want : hp->experts_used;
    want = want < hp->experts ? want : hp->experts;
    p->want = want < MSG_HINTS_MAX ? want : MSG_HINTS_MAX;
    p->predict = prediction_find(p->child.params->prediction);
    p->ops = kernel_ops_select(p->child.params->isa);
    if (!p->predict || !p->ops)
        return error_set(error, ERR_BAD_INPUT, "--prediction %s or --isa %s is not to be had here",
                         p->child.params->prediction, p->child.params->isa);
    p->recall = recall_create(hp->layers, hp->experts, error);
    if (!p->recall)
        return -1;
    p->values = calloc(p->child.gates.head->width, sizeof *p->values);
    p->input = aligned_alloc(64, kernel_activation_bytes(TENSOR_F32, hp->hidden));
    p->logits = calloc(hp->experts, sizeof *p->logits);
    p->guesses = calloc(hp->experts, sizeof *p->guesses);
    if (!p->values || !p->input || !p->logits || !p->guesses)
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

static uint32_t guess_from_input(struct predictor *p, uint32_t layer, const struct gates_read *row)
{
    struct kernel_matrix w;
    if (row->count != hparams(p)->hidden || !router_of(p, layer, &w))
        return 0;
    p->ops->activation(w.type, p->values, w.k, p->input);
    p->ops->matmul(&w, 0, w.n, p->input, kernel_activation_bytes(w.type, w.k), 1, p->logits, w.n);
    return p->predict(p->logits, w.n, p->want, p->guesses);
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

static void send_hint(struct predictor *p, const struct gates_read *row, uint32_t layer, uint32_t n)
{
    struct msg_hint *h = &p->hint;
    struct proc_row *counters = p->child.row;
    *h = (struct msg_hint){.sent_ns = clock_now_ns(),
                           .sequence = row->sequence,
                           .position = row->position,
                           .layer = (uint16_t)layer,
                           .from_layer = (uint16_t)(layer - 1),
                           .count = (uint16_t)n,
                           .prefill = row->kind == GATES_COUNTS};
    for (uint32_t i = 0; i < n; i++)
        h->guesses[i] = (struct msg_guess){
            .entry = model_entry_expert(p->child.model, layer, p->guesses[i].expert),
            .probability = p->guesses[i].probability};
    counter_add(counters, CTR_PREDICTOR_hints_sent, 1);
    counter_add(counters, CTR_PREDICTOR_guesses, n);
    if (edge_send(p->cache, h, MSG_HINT) != 0)
        counter_add(counters, CTR_PREDICTOR_messages_lost, 1);
}

void hints_from_row(struct predictor *p, uint32_t layer)
{
    struct gates_read row;
    uint64_t start = clock_now_ns();
    if (layer + 1 >= hparams(p)->layers)
        return;
    if (!gates_read(&p->child.gates, layer, &row, p->values)) {
        counter_add(p->child.row, CTR_PREDICTOR_rows_missed, 1);
        return;
    }
    counter_add(p->child.row, CTR_PREDICTOR_rows_read, 1);
    uint32_t n =
        row.kind == GATES_INPUT ? guess_from_input(p, layer + 1, &row) : guess_from_counts(p, &row);
    if (n == 0)
        return;
    send_hint(p, &row, layer + 1, n);
    counter_add(p->child.row, CTR_PREDICTOR_predict_ns, clock_now_ns() - start);
    if (row.kind != GATES_INPUT)
        return;
    uint32_t experts[MSG_HINTS_MAX];
    for (uint32_t i = 0; i < n; i++)
        experts[i] = p->guesses[i].expert;
    recall_guess(p->recall, row.sequence, row.position, layer + 1, experts, n);
}

void hints_measure(struct predictor *p)
{
    struct use_record use;
    while (uses_read(&p->child.uses, &p->uses, UINT64_MAX, &use)) {
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
