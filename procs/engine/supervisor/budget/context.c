/* SPDX-License-Identifier: Apache-2.0 */
/* The context without --ctx-size: what the model has, as far as the keys and values of a sequence
 * fit a share of the budget. */
#include "config/params.h"
#include "lib/base/bytes.h"
#include "procs/engine/supervisor/budget/budget.h"
#include "procs/engine/supervisor/start/start.h"
#include "procs/engine/supervisor/supervisor.h"

#define BUDGET_PER_CONTEXT 8     /* they take at most 1/8 of the budget, */
#define CONTEXT_LOW        4096u /* but so many tokens are possible, */
#define CONTEXT_SMALLEST   512u  /* unless the engine could not start with them */
#define CONTEXT_STEP       1024u

static uint32_t smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* Of a sequence with that context. A pass of the larger chunk has the longer rings. */
static uint64_t sequence_bytes(struct supervisor *s, uint32_t context)
{
    const uint64_t given = s->params.ctx_size, chunk = s->params.prefill_chunk;
    s->params.ctx_size = context;
    s->params.prefill_chunk = chunk ? chunk : PREFILL_CHUNK_LARGE;
    uint64_t bytes = budget_kv_bytes(s);
    s->params.ctx_size = given;
    s->params.prefill_chunk = chunk;
    return bytes;
}

/* A GPU computes no indexer. */
uint32_t budget_context_low(const struct supervisor *s)
{
    const struct model_hparams *h = &s->model->hparams;
    uint32_t most = smaller(CONTEXT_LOW, model_context(h));
    return s->gpus.count > 0 && h->index_heads > 0 ? smaller(most, model_chosen_tokens(h)) : most;
}

uint32_t budget_context_smallest(const struct supervisor *s)
{
    return smaller(CONTEXT_SMALLEST, model_context(&s->model->hparams));
}

/* /dev/shm, which has the keys and values, may be smaller than the budget, which a small model does
 * not use up. */
uint32_t budget_context(struct supervisor *s)
{
    const uint64_t given = s->params.budget > 0 ? s->params.budget : budget_available() / 2;
    const uint64_t space = segments_space(), budget = space < given ? space : given;
    uint32_t low = budget_context_low(s),
             most = smaller(model_context(&s->model->hparams), MODEL_CONTEXT_MAX);
    if (s->gpus.count > 0) /* it also takes memory of the GPU */
        return low;
    if (sequence_bytes(s, most) <= budget / BUDGET_PER_CONTEXT)
        return most;
    uint32_t steps = low / CONTEXT_STEP, end = most / CONTEXT_STEP;
    while (steps < end) {
        uint32_t middle = steps + (end - steps + 1) / 2;
        if (sequence_bytes(s, middle * CONTEXT_STEP) <= budget / BUDGET_PER_CONTEXT)
            steps = middle;
        else
            end = middle - 1;
    }
    return steps * CONTEXT_STEP > low ? steps * CONTEXT_STEP : low;
}

bool budget_context_halve(struct supervisor *s)
{
    if (!s->budget.context_chosen || s->params.ctx_size <= CONTEXT_SMALLEST)
        return false;
    s->params.ctx_size =
        s->params.ctx_size / 2 > CONTEXT_SMALLEST ? s->params.ctx_size / 2 : CONTEXT_SMALLEST;
    return true;
}
