/* SPDX-License-Identifier: Apache-2.0 */
/* Reports how far the prompt of a sequence is, for replies that have no token yet. A pass of a slow
 * model takes long, so that the layers of the current one count, too. */
#include <stdlib.h>

#include "procs/engine/compute/main/compute.h"

static uint32_t get(const _Atomic uint32_t *word)
{
    return atomic_load_explicit(word, memory_order_relaxed);
}

/* How many end before it starts: those that wait and are before it, and one of those that run. */
static uint64_t before(const struct compute *c, const struct kv_request *q)
{
    uint64_t waiting = 0, turn = sequence_turn(q);
    bool running = false;
    for (uint32_t i = 0; i < KV_REQUESTS_MAX; i++) {
        const struct kv_request *other = &c->child.kv.head->request[i];
        uint32_t state = get(&other->state);
        running |= state == KV_RUNNING;
        waiting += state == KV_QUEUED && sequence_turn(other) < turn;
    }
    return waiting + running;
}

/* Rows of the request that are computed; those in the current pass as far as its layers are. */
static uint64_t rows_done(const struct compute *c, const struct kv_request *q)
{
    uint64_t rows = get(&c->runner.pass_rows[q - c->child.kv.head->request]);
    return get(&q->kv_valid) + rows * get(&c->runner.pass_layer) / c->child.model->hparams.layers;
}

/* The request that computes the rows of this one: another one, or itself. */
static const struct kv_request *computed_by(const struct compute *c, const struct kv_request *q)
{
    const struct kv_request *all = c->child.kv.head->request;
    uint32_t leader = get(&c->runner.follows[q - all]);
    return leader > 0 ? &all[leader - 1] : q;
}

struct engine_progress progress_of(const struct compute *c, const struct kv_request *q,
                                   uint64_t now_ns)
{
    struct engine_progress p = {.known = true, .left_ms = UINT64_MAX};
    uint32_t state = get(&q->state), prompt = get(&q->prompt_tokens);
    if ((state != KV_QUEUED && state != KV_RUNNING) || get(&q->log_tokens) > prompt)
        return (struct engine_progress){0};
    p.tokens = prompt;
    p.queue = state == KV_QUEUED ? before(c, q) : 0;
    if (state == KV_QUEUED)
        return p;
    uint64_t cached = q->stats.cached, started = q->stats.started_ns;
    uint64_t taken_ns = started != 0 && now_ns > started ? now_ns - started : 0;
    p.done = rows_done(c, computed_by(c, q));
    p.done = p.done < prompt ? p.done : prompt;
    p.cached = cached < p.done ? cached : p.done;
    p.time_ms = taken_ns / NS_PER_MS;
    if (p.done > cached && taken_ns > 0)
        p.left_ms = (uint64_t)((double)taken_ns * (double)(prompt - p.done) /
                               (double)(p.done - cached) / (double)NS_PER_MS);
    return p;
}

static json_t *row_of(const struct compute *c, const struct kv_request *q, uint64_t now_ns)
{
    struct engine_progress p = progress_of(c, q, now_ns);
    uint32_t prompt = get(&q->prompt_tokens), log = get(&q->log_tokens);
    uint64_t begun = q->stats.submitted_ns;
    return json_pack("{s:I, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I}", "sequence",
                     (json_int_t)atomic_load(&q->id), "client", q->client, "state",
                     get(&q->state) == KV_QUEUED ? "queued" : "running", "prompt_tokens",
                     (json_int_t)prompt, "done", (json_int_t)(p.known ? p.done : prompt), "cached",
                     (json_int_t)q->stats.cached, "queue", (json_int_t)p.queue, "tokens",
                     (json_int_t)(log > prompt ? log - prompt : 0), "age_ms",
                     (json_int_t)(now_ns > begun ? (now_ns - begun) / NS_PER_MS : 0));
}

static int by_arrival(const void *a, const void *b)
{
    const struct kv_request *const *x = a, *const *y = b;
    uint64_t first = atomic_load(&(*x)->arrival), second = atomic_load(&(*y)->arrival);
    return first < second ? -1 : first > second;
}

json_t *progress_of_all(const struct compute *c, uint64_t now_ns)
{
    const struct kv_request *row[KV_REQUESTS_MAX];
    size_t count = 0;
    json_t *all = json_array();
    for (uint32_t i = 0; i < KV_REQUESTS_MAX; i++) {
        const struct kv_request *q = &c->child.kv.head->request[i];
        uint32_t state = get(&q->state);
        if (state == KV_QUEUED || state == KV_RUNNING)
            row[count++] = q;
    }
    qsort(row, count, sizeof(const struct kv_request *), by_arrival);
    for (size_t i = 0; i < count; i++)
        json_array_append_new(all, row_of(c, row[i], now_ns));
    return all;
}
