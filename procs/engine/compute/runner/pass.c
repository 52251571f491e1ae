/* SPDX-License-Identifier: Apache-2.0 */
/* The next pass of the sequences that run: which rows it has (lib/policy/schedule), the forward
 * pass, and what follows from it. Until the core gets rows of several sequences at once, each of
 * them has a forward pass of its own. */
#include "procs/engine/compute/runner/pass.h"

#include <math.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/clock.h"
#include "lib/policy/schedule/schedule.h"
#include "procs/engine/compute/runner/runner.h"

/* Log-probabilities of the prompt's tokens position + 1 .. position + rows, where they exist. */
static int score_rows(struct runner *r, struct sequence *s, struct error *error)
{
    uint32_t position = s->pass.position, rows = s->pass.rows;
    uint32_t prompt = sequence_get(&s->request->prompt_tokens);
    uint32_t n = position + rows < prompt ? rows : rows - 1;
    if (position == 0)
        s->logprobs[0] = NAN;
    for (uint32_t i = 0; i < n; i++) /* the pass is done: its tokens are no longer needed */
        r->tokens[i] = sequence_get(&s->log[position + 1 + i]);
    if (n > 0)
        chain_score(r->core, 0, n, r->tokens, r->scores);
    memcpy(&s->logprobs[position + 1], r->scores, n * sizeof *r->scores);
    return chain_check_output(r->core, r->scores, n, error);
}

static int output(struct runner *r, struct sequence *s, struct error *error)
{
    uint32_t end = s->pass.position + s->pass.rows;
    if (s->score)
        return score_rows(r, s, error);
    if (end < sequence_get(&s->request->log_tokens))
        return 0;
    s->pass.logits = chain_output(r->core, s->pass.rows - 1, 1);
    return chain_check_output(r->core, s->pass.logits, r->child->model->hparams.vocab, error);
}

/* Passes that are -1 with values that are not finite have the layer in their error, or are repeated
 * to find it. */
static int forward(struct runner *r, struct sequence *s, struct error *error)
{
    uint32_t position = s->pass.position, rows = s->pass.rows;
    if (chain_forward(r->core, &s->view, r->tokens, position, rows, error) != 0)
        return -1;
    if (output(r, s, error) == 0)
        return 0;
    chain_find_layer(r->core, true);
    sequence_tokens(s, r->tokens); /* score_rows had other tokens there */
    (void)chain_forward(r->core, &s->view, r->tokens, position, rows, error);
    chain_find_layer(r->core, false);
    return -1;
}

static int compute(struct runner *r, struct sequence *s, struct error *error)
{
    sequence_tokens(s, r->tokens);
    r->experts.request = s->request;
    if (forward(r, s, error) != 0) {
        experts_release(&r->experts);
        return -1;
    }
    experts_pass_ends(&r->experts);
    return 0;
}

_Static_assert(RUNNER_SEQUENCES_MAX <= SCHEDULE_SEQUENCES_MAX, "of the kv segment");

static void turn(struct runner *r, struct sequence *s, uint32_t rows)
{
    struct error error;
    uint64_t start = clock_now_ns();
    if (experts_check_model(&r->experts, &error) != 0 || sequence_prepare(s, rows, &error) != 0 ||
        compute(r, s, &error) != 0) {
        if (!atomic_load(&r->stop)) /* else the row stays as it is: the process ends */
            sequence_fail(s, &error);
        return;
    }
    sequence_commit(s);
    gpus_count(&r->gpus, r->child);
    uint64_t ns = clock_now_ns() - start;
    gpu_policy_pass(&r->gpus, r->child, rows, ns);
    sequence_account(s, ns);
}

/* The sequences that continue, and their rows in the pass. Returns their number. Time does not
 * limit a pass: as long as one sequence runs at a time, none waits for its next token because of
 * another one's prompt. */
static uint32_t choose_rows(struct runner *r, struct sequence **member, uint32_t *rows)
{
    static const struct schedule_pace unknown;
    struct schedule_sequence wants[RUNNER_SEQUENCES_MAX];
    uint32_t count = 0, limit = experts_rows(&r->experts, chain_rows(r->core));
    for (uint32_t i = 0; i < r->sequences; i++) {
        struct sequence *s = &r->sequence[i];
        if (!s->request || !sequence_goes_on(s))
            continue;
        member[count] = s;
        wants[count++] = sequence_wants(s, limit);
    }
    struct schedule_limits limits = {.pass = ++r->passes, .rows = limit};
    schedule_pass(wants, count, &limits, &unknown, rows);
    return count;
}

void pass_run(struct runner *r)
{
    struct sequence *member[RUNNER_SEQUENCES_MAX];
    uint32_t rows[RUNNER_SEQUENCES_MAX], count = choose_rows(r, member, rows);
    for (uint32_t i = 0; i < count && !atomic_load_explicit(&r->stop, memory_order_relaxed); i++)
        if (rows[i] > 0)
            turn(r, member[i], rows[i]);
}
