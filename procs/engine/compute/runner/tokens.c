/* SPDX-License-Identifier: Apache-2.0 */
/* The next tokens of an answer: sampled from logits, or those that its request or its grammar
 * leaves no choice of. */
#include <math.h>

#include "procs/engine/compute/runner/runner.h"

#define TOPS_STEP 256 /* tokens for which memory is taken at a time */

/* The tokens of the penalties: the end of the log. */
static size_t recent_tokens(struct sequence *s, uint32_t tokens)
{
    int64_t wanted = s->request->sampling.repeat_last_n;
    uint32_t n = wanted < tokens ? (uint32_t)wanted : tokens;
    n = n < RECENT_TOKENS_MAX ? n : RECENT_TOKENS_MAX;
    for (uint32_t i = 0; i < n; i++)
        s->runner->recent[i] = sequence_get(&s->log[tokens - n + i]);
    return n;
}

static struct sampler_settings settings_of(const struct kv_request *q, uint32_t vocab)
{
    const struct sampling *p = &q->sampling;
    return (struct sampler_settings){
        .temperature = p->temperature,
        .top_p = p->top_p,
        .min_p = p->min_p,
        .repeat_penalty = p->repeat_penalty,
        .presence_penalty = p->presence_penalty,
        .frequency_penalty = p->frequency_penalty,
        .top_k = p->top_k < vocab ? (uint32_t)p->top_k : 0,
        .seed = q->seed,
    };
}

/* SAMPLER_NONE: the grammar allows none. */
static uint32_t sample(struct sequence *s, const float *logits, uint32_t at)
{
    struct runner *r = s->runner;
    const struct kv_request *q = s->request;
    struct sampler_settings settings = settings_of(q, r->child->model->hparams.vocab);
    struct sampler_choice choice = {.logits = logits, .recent = r->recent, .position = at};
    choice.recent_count = sampler_penalises(&settings) ? recent_tokens(s, at) : 0;
    if (q->biases > 0) {
        choice.bias = kv_extra(&r->child->kv, s->row)->bias;
        choice.bias_count = q->biases;
    }
    choice.suppressed = tokenizer_suppressed(r->tokenizer, &choice.suppressed_count);
    if (constraint_is_on(&s->constraint)) {
        choice.mask = constraint_mask(&s->constraint, (q->flags & KV_FLAG_IGNORE_EOS) == 0);
        if (!choice.mask)
            return SAMPLER_NONE;
    }
    return sampler_choose(r->sampler, &settings, &choice);
}

/* The number of a token among those of next(). */
static uint32_t number_of(const struct sequence *s, uint32_t at)
{
    return s->score ? at : at - sequence_get(&s->request->prompt_tokens);
}

/* Memory for the most probable tokens beside one, and some of those that follow. NULL with *error:
 * there is none. */
static struct kv_top *tops_at(struct sequence *s, uint32_t token, struct error *error)
{
    const struct kv *kv = &s->runner->child->kv;
    uint32_t end = token + TOPS_STEP < kv->head->context ? token + TOPS_STEP : kv->head->context;
    if (token % TOPS_STEP == 0 && kv_tops_allocate(kv, s->row, token, end, error) != 0)
        return NULL;
    return kv_tops(kv, s->row, token);
}

/* The most probable tokens beside the one at `at`. */
static int record_top(struct sequence *s, const float *logits, double sum, uint32_t at,
                      struct error *error)
{
    uint32_t vocab = s->runner->child->model->hparams.vocab, ids[KV_TOPS_MAX];
    struct kv_top *top = tops_at(s, number_of(s, at), error);
    if (!top)
        return -1;
    uint32_t n = sampler_top(logits, vocab, s->request->top_logprobs, ids);
    for (uint32_t i = 0; i < s->request->top_logprobs; i++)
        top[i] = i < n ? (struct kv_top){ids[i], (float)((double)logits[ids[i]] - sum)}
                       : (struct kv_top){UINT32_MAX, -INFINITY};
    return 0;
}

/* Log-probabilities of the token at `at`, if the client asked for them. */
static int record(struct sequence *s, const float *logits, uint32_t at, uint32_t token,
                  struct error *error)
{
    s->logprobs[at] = NAN;
    if (s->request->logprobs == 0)
        return 0;
    double sum = core_log_sum(logits, s->runner->child->model->hparams.vocab);
    s->logprobs[at] = (float)((double)logits[token] - sum);
    return s->request->top_logprobs > 0 ? record_top(s, logits, sum, at, error) : 0;
}

int sequence_record(struct sequence *s, const float *logits, uint32_t at, uint32_t count,
                    struct error *error)
{
    for (uint32_t i = 0; i < count; i++) {
        const float *row = logits + (size_t)i * s->runner->child->model->hparams.vocab;
        if (record(s, row, at + i, sequence_get(&s->log[at + i]), error) != 0)
            return -1;
    }
    return 0;
}

int sequence_record_first(struct sequence *s, struct error *error)
{
    s->logprobs[0] = NAN;
    struct kv_top *top = s->request->top_logprobs > 0 ? tops_at(s, 0, error) : NULL;
    for (uint32_t i = 0; top && i < s->request->top_logprobs; i++)
        top[i] = (struct kv_top){UINT32_MAX, -INFINITY};
    return top || s->request->top_logprobs == 0 ? 0 : -1;
}

/* The token at `at`; SAMPLER_NONE: none continues the grammar. */
static uint32_t next_token(struct sequence *s, const float *logits, uint32_t at)
{
    const struct kv_request *q = s->request;
    if (at - sequence_get(&q->prompt_tokens) < q->forced_tokens)
        return sequence_get(&s->log[at]);
    uint32_t forced =
        constraint_is_on(&s->constraint) ? constraint_forced(&s->constraint) : TOKEN_NONE;
    return forced != TOKEN_NONE ? forced : sample(s, logits, at);
}

static void append(struct sequence *s, uint32_t at, uint32_t token)
{
    atomic_store_explicit(&s->log[at], token, memory_order_relaxed);
    atomic_store_explicit(&s->request->log_tokens, at + 1, memory_order_release);
    s->pass.appended++;
}

/* Tokens that the grammar forces have no logits of their own when they are appended together. */
static bool may_run_ahead(const struct sequence *s)
{
    return constraint_is_on(&s->constraint) && s->request->logprobs == 0 &&
           !child_injected(s->runner->child, INJECT_COMPUTE_ONE_BY_ONE);
}

/* -1: s->failure has the reason. */
static int append_next(struct sequence *s, const float *logits)
{
    uint32_t at = sequence_get(&s->request->log_tokens);
    uint32_t token = next_token(s, logits, at);
    if (token == SAMPLER_NONE)
        return error_set(&s->failure, ERR_GRAMMAR,
                         "no token of the vocabulary continues the grammar behind %u tokens",
                         at - sequence_get(&s->request->prompt_tokens));
    if (record(s, logits, at, token, &s->failure) != 0)
        return -1;
    append(s, at, token);
    return constraint_is_on(&s->constraint) ? constraint_take(&s->constraint, token, &s->failure)
                                            : 0;
}

/* What is appended ahead must be what passes of one token each would append. */
static int append_forced(struct sequence *s)
{
    uint32_t token;
    while (may_run_ahead(s) && (token = constraint_forced(&s->constraint)) != TOKEN_NONE &&
           sequence_finish(s) == KV_FINISH_NONE) {
        uint32_t at = sequence_get(&s->request->log_tokens);
        s->logprobs[at] = NAN;
        append(s, at, token);
        counter_add(s->runner->child->process, CTR_COMPUTE_tokens_forced, 1);
        if (constraint_take(&s->constraint, token, &s->failure) != 0)
            return -1;
    }
    return 0;
}

void sequence_append(struct sequence *s, const float *logits)
{
    s->failure.code = ERR_NONE;
    if (append_next(s, logits) != 0 || append_forced(s) != 0)
        counter_add(s->runner->child->process, CTR_COMPUTE_grammar_errors,
                    constraint_is_on(&s->constraint));
}
