/* SPDX-License-Identifier: Apache-2.0 */
/* The next pass of the sequences that run: which rows it has (lib/policy/schedule), one forward
 * pass for all of them, and what follows from it for each sequence. A pass that fails because of a
 * row is repeated for each of its sequences alone, so that only the one that fails ends. */
#include "procs/engine/compute/runner/pass.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/clock.h"
#include "lib/policy/schedule/schedule.h"
#include "procs/engine/compute/runner/memory.h"
#include "procs/engine/compute/runner/runner.h"

_Static_assert(RUNNER_SEQUENCES_MAX <= SCHEDULE_SEQUENCES_MAX, "of the kv segment");
_Static_assert(RUNNER_SEQUENCES_MAX <= DECODE_ROWS_MAX, "each may have a row that decodes");

/* What the core gets of a pass. */
struct pass {
    struct core_sequence *view;  /* [sequences] */
    struct kv_request **request; /* [sequences] */
    struct core_row *row;        /* [rows] */
    uint32_t *target;            /* [rows] */
    float *score;                /* [rows] */
};

/* Sequences of a pass, in the order of their rows in it. */
struct group {
    struct sequence *member[RUNNER_SEQUENCES_MAX];
    uint32_t count;
};

struct pass *pass_create(uint32_t sequences, uint32_t rows)
{
    struct pass *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->view = calloc(sequences, sizeof *p->view);
    p->request = calloc(sequences, sizeof *p->request);
    p->row = calloc(rows, sizeof *p->row);
    p->target = calloc(rows, sizeof *p->target);
    p->score = calloc(rows, sizeof *p->score);
    return p->view && p->request && p->row && p->target && p->score ? p : NULL;
}

/* ---- the forward pass ------------------------------------------------------------------------ */

/* A token follows its last row. */
static bool gives_token(const struct sequence *s)
{
    bool wanted = !s->score || s->request->max_tokens > 0;
    return wanted && s->pass.position + s->pass.rows >= sequence_get(&s->request->log_tokens);
}

static bool scores_rows(const struct sequence *s)
{
    return s->score && s->pass.position < sequence_get(&s->request->prompt_tokens);
}

static bool is_stream(const struct sequence *s)
{
    return s->pass.rows == 1 && gives_token(s) && !scores_rows(s);
}

/* A pass of several writes rows on the host only: what a GPU has of the slot under this name is not
 * continued, and not cut back, so that it must not be found again. */
static void rename_content(struct runner *r, const struct sequence *s)
{
    r->slots.content[s->slot] = ++r->slots.contents;
}

static void add_rows(struct runner *r, struct sequence *s, uint32_t member, uint32_t first)
{
    uint32_t rows = s->pass.rows;
    s->pass.first = first;
    for (uint32_t i = 0; i < rows; i++)
        r->pass->row[first + i] =
            (struct core_row){.sequence = member,
                              .position = s->pass.position + i,
                              .token = sequence_get(&s->log[s->pass.position + i]),
                              .prefill = core_rows_prefill(rows)};
    r->pass->view[member] = s->view;
    r->pass->request[member] = s->request;
    atomic_store_explicit(&r->pass_rows[s->row], rows, memory_order_relaxed);
    atomic_store_explicit(&s->request->in_pass, 1, memory_order_relaxed);
}

/* Returns the number of rows. */
static uint32_t gather(struct runner *r, const struct group *g)
{
    uint32_t rows = 0;
    atomic_store_explicit(&r->pass_layer, 0, memory_order_relaxed);
    for (uint32_t i = 0; i < g->count; i++) {
        add_rows(r, g->member[i], i, rows);
        if (g->count > 1)
            rename_content(r, g->member[i]);
        rows += g->member[i]->pass.rows;
    }
    experts_pass_begins(&r->experts, r->pass->request, g->count);
    return rows;
}

static int forward(struct runner *r, const struct group *g, struct error *error)
{
    const struct core_pass pass = {.rows = gather(r, g),
                                   .row = r->pass->row,
                                   .sequences = r->pass->view,
                                   .sequence_count = g->count};
    if (chain_pass(r->core, &pass, error) != 0) {
        experts_release(&r->experts);
        return -1;
    }
    experts_pass_ends(&r->experts);
    return 0;
}

/* ---- the output ------------------------------------------------------------------------------ */

/* With the most probable tokens: as many rows at once as the core has memory for. */
static int score_with_tops(struct runner *r, struct sequence *s, uint32_t n, struct error *error)
{
    uint32_t vocab = r->child->model->hparams.vocab, most = chain_output_rows(r->core);
    for (uint32_t done = 0, some; done < n; done += some) {
        some = n - done < most ? n - done : most;
        /* slow with a large vocabulary */
        atomic_store_explicit(r->experts.beat_ns, clock_now_ns(), memory_order_relaxed);
        const float *logits = chain_output(r->core, s->pass.first + done, some);
        if (chain_check_output(r->core, logits, (size_t)some * vocab, error) != 0 ||
            sequence_record(s, logits, s->pass.position + done + 1, some, error) != 0)
            return -1;
    }
    return 0;
}

/* Log-probabilities of the prompt's tokens position + 1 .. position + rows, where they exist. */
static int score_rows(struct runner *r, struct sequence *s, struct error *error)
{
    struct pass *p = r->pass;
    uint32_t position = s->pass.position, rows = s->pass.rows;
    uint32_t prompt = sequence_get(&s->request->prompt_tokens);
    uint32_t n = position + rows < prompt ? rows : rows - 1;
    if (s->request->top_logprobs > 0)
        return score_with_tops(r, s, n, error);
    for (uint32_t i = 0; i < n; i++)
        p->target[i] = sequence_get(&s->log[position + 1 + i]);
    if (n > 0)
        chain_score(r->core, s->pass.first, n, p->target, p->score);
    memcpy(&s->logprobs[position + 1], p->score, n * sizeof *p->score);
    return chain_check_output(r->core, p->score, n, error);
}

/* Of one sequence. */
static int output(struct runner *r, struct sequence *s, struct error *error)
{
    if (scores_rows(s) && score_rows(r, s, error) != 0)
        return -1;
    if (!gives_token(s))
        return 0;
    s->pass.logits = chain_output(r->core, s->pass.first + s->pass.rows - 1, 1);
    return chain_check_output(r->core, s->pass.logits, r->child->model->hparams.vocab, error);
}

/* Of streams from `from` on, whose rows are consecutive: as many as the core has memory for, so
 * that the output matrix is read once for all. Returns their number, 0 if one of them is not
 * finite: then each has its own. */
static uint32_t output_streams(struct runner *r, const struct group *g, uint32_t from)
{
    struct error error;
    uint32_t vocab = r->child->model->hparams.vocab, n = 0;
    while (from + n < g->count && n < chain_output_rows(r->core) && is_stream(g->member[from + n]))
        n++;
    if (n < 2)
        return 0;
    const float *logits = chain_output(r->core, g->member[from]->pass.first, n);
    if (chain_check_output(r->core, logits, (size_t)n * vocab, &error) != 0)
        return 0;
    for (uint32_t i = 0; i < n; i++)
        g->member[from + i]->pass.logits = logits + (size_t)i * vocab;
    return n;
}

/* ---- what follows ---------------------------------------------------------------------------- */

static void commit(struct sequence *s, uint64_t start_ns)
{
    sequence_commit(s);
    sequence_account(s, clock_now_ns() - start_ns);
    atomic_store_explicit(&s->request->in_pass, 0, memory_order_relaxed);
}

/* Its output is not finite: its rows are computed once more, alone, to find the layer. */
static void repeat(struct runner *r, struct sequence *s, uint64_t start_ns)
{
    const struct group alone = {.member = {s}, .count = 1};
    struct error error;
    chain_find_layer(r->core, true);
    int rc = forward(r, &alone, &error);
    chain_find_layer(r->core, false);
    if (rc == 0 && output(r, s, &error) == 0) {
        commit(s, start_ns);
        return;
    }
    experts_release(&r->experts);
    if (!atomic_load(&r->stop))
        sequence_fail(s, &error);
}

/* Tokens and rows of each sequence are published. */
static void finish(struct runner *r, const struct group *g, uint64_t start_ns)
{
    struct group failed = {.count = 0};
    struct error error;
    for (uint32_t i = 0; i < g->count;) {
        uint32_t n = output_streams(r, g, i);
        for (uint32_t j = 0; j < n; j++)
            commit(g->member[i + j], start_ns);
        i += n;
        if (n > 0)
            continue;
        if (output(r, g->member[i], &error) == 0)
            commit(g->member[i], start_ns);
        else
            failed.member[failed.count++] = g->member[i];
        i++;
    }
    for (uint32_t i = 0; i < failed.count; i++)
        repeat(r, failed.member[i], start_ns);
}

/* Rows of a pass. Those that are repeated are of neither kind. */
struct rows {
    uint32_t all, of_prompts, of_answers;
    bool only_streams;
};

static struct rows count_rows(const struct group *g)
{
    struct rows n = {.only_streams = true};
    for (uint32_t i = 0; i < g->count; i++) {
        const struct sequence *s = g->member[i];
        bool in_prompt = sequence_in_prompt(s);
        n.all += s->pass.rows;
        *(in_prompt ? &n.of_prompts : &n.of_answers) += sequence_new_rows(s);
        n.only_streams = n.only_streams && !in_prompt;
    }
    return n;
}

/* When the passes of a turn began, and until when their time was counted: a pass that fails and is
 * repeated takes time, too. */
struct turn_times {
    uint64_t start_ns, counted_ns;
};

/* The engine's time is that of its passes; one with rows of prompts and answers counts for both. */
static void account(struct runner *r, const struct rows *n, uint64_t ns)
{
    struct process *row = r->child->process;
    counter_add(row, CTR_COMPUTE_passes, 1);
    counter_add(row, CTR_COMPUTE_pass_rows, n->all);
    uint64_t prefill_ns = (uint64_t)((double)ns * n->of_prompts / n->all);
    uint64_t new_ns = (uint64_t)((double)ns * (n->of_prompts + n->of_answers) / n->all);
    counter_add(row, CTR_COMPUTE_prefill_ns, prefill_ns);
    counter_add(row, CTR_COMPUTE_decode_ns, new_ns - prefill_ns);
}

/* What the next passes are chosen by: this one's own time. */
static void learn(struct runner *r, const struct rows *n, uint64_t ns)
{
    gpus_count(&r->gpus, r->child);
    gpu_policy_pass(&r->gpus, r->child, n->all, ns);
    schedule_pace_add(&r->pace, n->all, ns);
    if (n->only_streams)
        schedule_pace_add(&r->stream_pace, n->all, ns);
}

/* -1 with *error: the pass failed. */
static int compute(struct runner *r, const struct group *g, struct turn_times *t,
                   struct error *error)
{
    uint64_t start_ns = clock_now_ns();
    const struct rows n = count_rows(g);
    if (experts_check_model(&r->experts, error) != 0 || forward(r, g, error) != 0)
        return -1;
    finish(r, g, t->start_ns);
    uint64_t end_ns = clock_now_ns();
    account(r, &n, end_ns - t->counted_ns);
    learn(r, &n, end_ns - start_ns);
    t->counted_ns = end_ns;
    return 0;
}

/* Whether the pass may fail because of some rows only: of what they contain, of an expert that they
 * are routed to, or of a token for which a table has no experts. */
static bool is_of_rows(const struct error *error)
{
    return error->code == ERR_NOT_FINITE || error->code == ERR_IO || error->code == ERR_NO_MEMORY ||
           error->code == ERR_BAD_INPUT;
}

static void turn(struct runner *r, const struct group *g)
{
    uint64_t now_ns = clock_now_ns();
    struct turn_times times = {now_ns, now_ns};
    struct error error;
    if (g->count == 0 || compute(r, g, &times, &error) == 0)
        return;
    bool divides = g->count > 1 && is_of_rows(&error);
    for (uint32_t i = 0; i < g->count && !atomic_load(&r->stop); i++) {
        const struct group alone = {.member = {g->member[i]}, .count = 1};
        if (!divides || compute(r, &alone, &times, &error) != 0) {
            if (!atomic_load(&r->stop)) /* else the row stays as it is: the process ends */
                sequence_fail(g->member[i], &error);
        }
    }
}

/* ---- the choice ------------------------------------------------------------------------------ */

static uint64_t gap_ns(const struct runner *r)
{
    uint64_t given = r->child->params->max_token_gap * NS_PER_MS;
    return given > 0 ? given : schedule_gap_ns(&r->stream_pace);
}

/* Streams come first, so that their rows are consecutive. */
static void add_prepared(struct group *g, struct sequence *const *member, const uint32_t *rows,
                         uint32_t count, bool streams)
{
    for (uint32_t i = 0; i < count; i++)
        if (rows[i] > 0 && member[i]->request && is_stream(member[i]) == streams)
            g->member[g->count++] = member[i];
}

/* One pass of some of the sequences. */
static void run_some(struct runner *r, struct sequence *const *member, uint32_t count)
{
    struct schedule_sequence wants[RUNNER_SEQUENCES_MAX];
    uint32_t rows[RUNNER_SEQUENCES_MAX], limit = experts_rows(&r->experts, chain_rows(r->core));
    struct group g = {.count = 0};
    struct error error;
    for (uint32_t i = 0; i < count; i++)
        wants[i] = sequence_wants(member[i], limit);
    struct schedule_limits limits = {.pass = ++r->passes, .gap_ns = gap_ns(r), .rows = limit};
    schedule_pass(wants, count, &limits, &r->pace, rows);
    for (uint32_t i = 0; i < count; i++)
        if (rows[i] > 0 && sequence_prepare(member[i], rows[i], &error) != 0)
            sequence_fail(member[i], &error);
    add_prepared(&g, member, rows, count, true);
    add_prepared(&g, member, rows, count, false);
    turn(r, &g);
}

/* Those that continue, in order of turn. */
static uint32_t running(struct runner *r, struct sequence **member)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < r->sequences; i++) {
        struct sequence *s = &r->sequence[i];
        if (!s->request || !sequence_goes_on(s))
            continue;
        uint64_t turn = sequence_turn(s->request);
        uint32_t at = count++;
        while (at > 0 && sequence_turn(member[at - 1]->request) > turn) {
            member[at] = member[at - 1];
            at--;
        }
        member[at] = s;
    }
    return count;
}

/* A sequence at which compute may have crashed has a pass of its own until it makes progress: then
 * only crashes at its own rows are counted, and the others of its pass are computed. */
void pass_run(struct runner *r)
{
    struct sequence *member[RUNNER_SEQUENCES_MAX], *together[RUNNER_SEQUENCES_MAX];
    struct sequence *suspect[RUNNER_SEQUENCES_MAX];
    uint32_t seen = atomic_load(&r->work);
    uint32_t count = running(r, member), n = 0, suspects = 0, loading = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (!memory_ready(r, member[i]))
            continue;
        if (prefixes_loading(r->prefixes, member[i]->slot, member[i]->request)) {
            loading++;
            continue;
        }
        if (count > 1 && sequence_is_suspect(member[i]))
            suspect[suspects++] = member[i];
        else
            together[n++] = member[i];
    }
    if (n > 0)
        run_some(r, together, n);
    else if (suspects == 0 && loading > 0)
        runner_wait_for_prefix(r, seen);
    for (uint32_t i = 0; i < suspects && !atomic_load(&r->stop); i++)
        run_some(r, &suspect[i], 1);
}
