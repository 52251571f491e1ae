/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that is known from the model: of compute before it can be measured, of a sequence, and the
 * chunk of prompts that the budget allows. */
#include "config/params.h"
#include "lib/base/bytes.h"
#include "lib/core/core.h"
#include "lib/device/device.h"
#include "lib/prefix/prefix.h"
#include "procs/engine/supervisor/budget/budget.h"
#include "procs/engine/supervisor/gpu/gpu.h"
#include "procs/engine/supervisor/supervisor.h"

#define COMPUTE_ESTIMATE (1536 * KIB)
#define COMPUTE_QUERIES  64 /* of MLA that a thread computes at a time */
#define GHOSTS_BYTES                                                                               \
    1.1 /* of a token of the context: hashes of prefixes given up (slots/worth.h) */
#define FORMS_BYTES      7.5 /* of one activation: F32, and quantised for Q8_0, Q4_0, Q4_K */
#define BUDGET_PER_CHUNK 64  /* what the larger chunk may need in addition: 1/64 of the budget */

static double larger(double a, double b)
{
    return a > b ? a : b;
}

/* Copies of the convolutions' matrices and of decays of elements; inputs before the sequence. */
static double recurrent_fixed_floats(const struct model_hparams *h)
{
    double floats = model_recurrent_max(h).channels;
    for (uint32_t layer = 0; layer < h->layers; layer++) {
        struct layer_recurrent r = model_recurrent_of(h, layer);
        floats += (double)r.taps * r.channels;
        floats += r.rule.elements ? (double)r.key_size * r.mixed : 0;
    }
    return floats;
}

/* At least those that the CPU needs alone, when a GPU is lost. */
uint64_t budget_compute_threads(const struct supervisor *s)
{
    uint32_t groups = gpu_thread_groups(s);
    return s->params.threads * (groups > 1 ? groups : 1);
}

/* Elements of the result of a head. */
static uint32_t result_size(const struct model_hparams *h, uint32_t layer,
                            const struct layer_attention *a)
{
    return a->values_in_keys ? model_latent_of(h, layer).value : a->value_size;
}

/* Of a query of MLA, which a thread has; 0 without MLA. */
static double query_bytes(const struct model_hparams *h)
{
    double key = 0, rank = 0;
    for (uint32_t layer = 0; layer < h->layers && h->kv_rank > 0; layer++) {
        key = larger(key, model_latent_of(h, layer).key);
        rank = larger(rank, model_latent_of(h, layer).rank);
    }
    return (4 + FORMS_BYTES) * (key + rank) + (h->kv_rank > 0 ? 4.0 * h->rope_dims : 0);
}

/* Of several streams: those after the first, the sum of a part, what weights it. */
static double stream_row_bytes(const struct model_hparams *h)
{
    double streams = h->streams;
    return streams < 2 ? 0
                       : 4 * streams * h->hidden + 8.0 * model_stream_weights(h) +
                             4.0 * model_ngram_rows(h);
}

/* Of a row of a table on storage. */
static double table_row_bytes(const struct model_index *m)
{
    uint32_t table = model_table_entry(m);
    if (table == ENTRY_NONE)
        return 0;
    uint32_t tensor = model_index_entries(m)[table].extent[0].tensor;
    return (double)model_index_tensors(m)[tensor].row_bytes;
}

/* What a block of rows needs besides: norms and gates of the streams, rows of n-grams; and copies
 * of the weights of the norms. */
static double stream_block_bytes(const struct supervisor *s)
{
    const struct model_hparams *h = &s->model->hparams;
    double rows = (double)s->params.prefill_chunk;
    rows = rows < DEVICE_BLOCK_ROWS ? rows : DEVICE_BLOCK_ROWS;
    if (h->residual == RESIDUAL_BANK) /* weights of the sources, and copies of their scores */
        return rows * 4 * h->streams + 4 * (2.0 * h->layers + 1) * h->hidden;
    double streams = (FORMS_BYTES + 4) * h->streams * h->hidden + FORMS_BYTES * h->stream_rank;
    double copied = (double)sizeof(struct device_row) + table_row_bytes(s->model);
    double ngrams = h->ngram_size > 0 ? FORMS_BYTES * model_ngram_inputs(h) + 4.0 * h->hidden +
                                            model_ngram_rows(h) * copied
                                      : 0;
    double vectors = 2.0 * h->layers + 4 + h->ngram_taps; /* norms, and a convolution */
    if (h->residual == RESIDUAL_MIXED)
        vectors = 1; /* of a norm without weights */
    double weights = h->streams > 1 ? 4 * vectors * h->streams * h->hidden : 0;
    return rows * (streams + ngrams) + weights;
}

/* Results of heads by groups, and what entries are made of. */
static double entry_row_bytes(const struct model_hparams *h)
{
    double most = 0;
    if (h->output_groups == 0)
        return 0;
    for (uint32_t layer = 0; layer < h->layers; layer++)
        most = larger(most, model_entry_row(h, layer));
    return FORMS_BYTES * h->heads * h->head_size + 4 * most;
}

/* Keys that a row attends to, as floats: of its window, and its entries. */
static double entry_thread_bytes(const struct supervisor *s)
{
    const struct model_hparams *h = &s->model->hparams;
    double most = 0;
    if (h->output_groups == 0)
        return 0;
    for (uint32_t layer = 0; layer < h->layers; layer++)
        most = larger(most, (double)model_entries_read(h, layer, s->params.ctx_size));
    return 4.0 * (h->window + most + KV_TILE) * h->head_size;
}

/* Activations of a row of a chunk. */
static double row_bytes(const struct model_index *m)
{
    const struct model_hparams *h = &m->hparams;
    double hidden = h->hidden, inner = h->expert_inner, used = h->experts_used;
    double q = 0, mix = 0, keys = 0, values = 0,
           gates = 0; /* floats of a row, of the largest layer */
    for (uint32_t layer = 0; layer < h->layers; layer++) {
        struct layer_attention a = m->layer[layer].attention;
        keys = larger(keys, (double)a.kv_heads * a.key_size);
        gates = larger(gates, model_gates_of(&a, result_size(h, layer, &a)).floats);
        if (h->output_groups > 0) { /* queries; results of heads have all forms (below) */
            q = larger(q, (double)a.heads * a.key_size);
            mix = larger(mix, (double)h->output_groups * h->output_rank);
            continue;
        }
        if (a.values_in_keys) { /* queries of MLA stay in the scratch of a thread */
            mix = larger(mix, (double)a.heads * result_size(h, layer, &a));
            continue;
        }
        q = larger(q, (double)a.heads * a.key_size);
        mix = larger(mix, (double)a.heads * a.value_size);
        values = larger(values, (double)a.kv_heads * a.value_size);
    }
    struct layer_recurrent recurrent = model_recurrent_max(h);
    mix = larger(mix, recurrent.mixed);
    bool early = h->layer_ffn[hparams_next_experts(h, 0)] == FFN_DENSE_THEN_EXPERTS;
    return (FORMS_BYTES * (early ? 2 : 1) + 8) * hidden + FORMS_BYTES * mix +
           4 * (q + gates + keys + values) + 4.0 * LAYER_KIND__COUNT * model_rope_dims_max(h) +
           4.0 * h->experts + used * (4 * hidden + 24) + 8 * inner + 4.0 * recurrent.projected +
           FORMS_BYTES * h->q_rank + 2 * FORMS_BYTES * h->expert_width +
           FORMS_BYTES * (h->weighted_input ? hidden : 0) +
           2 * FORMS_BYTES * (h->low_rank ? h->delta_size : h->step_rank) + stream_row_bytes(h) +
           entry_row_bytes(h);
}

/* Of an indexer: keys, weights and lists of a chunk; queries and scores of the rows of which it
 * chooses at a time. core_scratch_layout cuts them. */
static double index_bytes(const struct supervisor *s)
{
    const struct model_hparams *h = &s->model->hparams;
    uint32_t positions = (uint32_t)s->params.ctx_size, chunk = (uint32_t)s->params.prefill_chunk;
    if (!model_chooses(h, positions))
        return 0;
    double lists = model_index_lists(h), scores = lists * core_index_scores(h, positions);
    bool entries = h->output_groups > 0; /* their keys are counted with them */
    double keys = entries ? 0 : h->index_size * (h->index_gates ? 2.0 : 1.0);
    double most = entries ? h->index_top_k : model_chosen_tokens(h);
    double row = keys + h->index_heads + lists * (most + 1);
    double each = (double)h->index_size * h->index_heads + scores;
    return 4 * (chunk * row + core_index_rows(h, positions, chunk) * each);
}

/* Activations of a chunk, logits, and the rows gathered by every thread, of further groups of
 * threads one. */
uint64_t budget_compute_bytes(const struct supervisor *s)
{
    const struct model_hparams *h = &s->model->hparams;
    double hidden = h->hidden, inner = h->expert_inner;
    double rows = (double)s->params.prefill_chunk; /* that a thread gathers at a time */
    rows = rows < DEVICE_GATHER_ROWS ? rows : DEVICE_GATHER_ROWS;
    double thread = rows * FORMS_BYTES * (hidden + inner) + 8.0 * h->experts +
                    COMPUTE_QUERIES * query_bytes(h) + entry_thread_bytes(s);
    double sequences = larger(2, (double)s->params.parallel);
    double logits = larger(4.0 * sequences * h->vocab, (double)MIB);
    return COMPUTE_ESTIMATE + s->gpus.host_bytes +
           (s->params.prefix_dir[0] ? PREFIX_MEMORY_BYTES : 0) +
           (uint64_t)((double)s->params.prefill_chunk * row_bytes(s->model) + logits +
                      16.0 * h->vocab + GHOSTS_BYTES * (double)s->params.ctx_size +
                      4 * recurrent_fixed_floats(h) + stream_block_bytes(s) + index_bytes(s) +
                      (double)s->params.threads * thread +
                      (double)(budget_compute_threads(s) - s->params.threads) *
                          (FORMS_BYTES * (hidden + inner) + LEDGER_STACK_BYTES));
}

uint64_t budget_kv_bytes(const struct supervisor *s)
{
    struct kv_shape kv = kv_shape_for(s);
    return kv_reserved_bytes(&kv);
}

/* Of the larger chunk: activations and longer rings of windows. */
uint64_t budget_chunk(struct supervisor *s)
{
    static const uint32_t chunk[] = {PREFILL_CHUNK, PREFILL_CHUNK_LARGE};
    const uint64_t given = s->params.prefill_chunk;
    const uint64_t budget = s->params.budget > 0 ? s->params.budget : budget_available() / 2;
    double bytes[ARRAY_LEN(chunk)];
    for (size_t i = 0; i < ARRAY_LEN(chunk); i++) {
        s->params.prefill_chunk = chunk[i];
        bytes[i] = chunk[i] * row_bytes(s->model) + (double)budget_kv_bytes(s);
    }
    s->params.prefill_chunk = given;
    bool large = (bytes[1] - bytes[0]) * BUDGET_PER_CHUNK <= (double)budget;
    uint64_t chosen = chunk[large ? 1 : 0];
    return chosen < s->budget.chunk_max ? chosen : s->budget.chunk_max;
}
