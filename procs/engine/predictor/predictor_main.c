/* SPDX-License-Identifier: Apache-2.0 */
/* sluice-predictor: predicts the experts of the next layer from the gate input of this one.
 *
 * Waits on the gates ring; a row is published after the DEMAND of its layer was sent. A row of
 * decode is passed through the next layer's router; a row of prefill already contains counts. Both
 * become a HINT to the cache. READY entries are included, because the cache protects predicted
 * entries from eviction. No process waits for the predictor.
 *
 * Messages   in: CONTROL (supervisor).  out: HINT (cache), ACK.
 * Memory     reads: gates, arena (routers), directory, access log, model index. writes: its waiter
 *            flag in the header of gates, its own row.
 * On its crash: no hints until its restart; the text does not change.
 * On a crash of others: without a cache, hints are dropped; without compute there are no rows;
 *            without the supervisor it exits.
 * Limits:    of rows published while another is processed, only the newest of each sequence is
 *            read: the layers of the others have passed by then. */
#include <errno.h>
#include <poll.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/clock.h"
#include "procs/engine/predictor/predictor.h"

#define WAIT_NS (50 * NS_PER_MS)
#define CALM_NS                                                                                    \
    (100 *                                                                                         \
     NS_PER_MS) /* without a load for this time and number of tokens: predictions are useless */
#define CALM_TOKENS   8
#define IDLE_POLL_MS  20 /* interval of checks in that state */
#define TICK_EVERY_NS (50 * NS_PER_MS)

static struct predictor the_predictor;

static void start(struct predictor *p, int argc, char **argv)
{
    struct error error;
    char path[ENDPOINT_BYTES];
    p->magic = PREDICTOR_MAGIC;
    child_start(&p->child, SERVICE_PREDICTOR, argc, argv);
    if (endpoint_path(p->child.run_dir, ENDPOINT_CACHE_PREDICTOR, 0, path, &error) != 0 ||
        hints_open(p, &error) != 0 ||
        (p->cache = channel_dial(path, ROLE_PREDICTOR, p->child.incarnation, &error)) == NULL)
        log_fatal(error_exit_status(error.code), "%s", error.text);
}

/* Of experts: the pages of a table on storage are read for every token, whatever is predicted. */
static uint64_t expert_loads(const struct predictor *p)
{
    return counter_get(&p->child.procs.head->process[procs_index_of(SERVICE_CACHE, 0)],
                       CTR_CACHE_expert_loads_sent);
}

/* Detects when hints are useless. While the cache loads nothing for whole tokens, every expert is
 * resident. Then the predictor does not wait on the ring, so that compute need not wake it: a token
 * of a resident model causes no system call for the predictor. */
static bool nothing_to_do(struct predictor *p, uint32_t news, uint64_t now)
{
    struct predictor_idle *calm = &p->calm;
    uint64_t loads = expert_loads(p);
    if (loads != calm->loads)
        *calm = (struct predictor_idle){.loads = loads, .since_ns = now, .news = news};
    return now - calm->since_ns >= CALM_NS &&
           news - calm->news >= CALM_TOKENS * p->child.model->hparams.layers;
}

static void handle_controls(struct predictor *p)
{
    struct msg_control control;
    while (child_control(&p->child, &control)) {
        counter_add(p->child.process, CTR_PREDICTOR_messages, 1);
        child_ack(&p->child, &control);
    }
}

/* Returns the number of rows seen then. */
static uint32_t handle_rows(struct predictor *p, uint32_t seen)
{
    uint32_t news = atomic_load_explicit(&p->child.gates.head->news, memory_order_acquire);
    hints_measure(p); /* the accesses of these rows, which precede them */
    hints_from_rows(p, seen, news);
    child_progress(&p->child);
    return news;
}

static void tick(struct predictor *p, uint64_t now)
{
    handle_controls(p);
    child_tick(&p->child);
    channel_tick(p->cache, now);
    hints_measure(p);
    struct channel_stats stats;
    channel_stats_get(p->child.supervisor, &stats);
    counter_set(p->child.process, CTR_PREDICTOR_messages_invalid, stats.invalid);
}

static void loop(struct predictor *p)
{
    uint32_t seen = atomic_load_explicit(&p->child.gates.head->news, memory_order_acquire);
    uint64_t tick_due = 0;
    child_wait(&p->child, WAIT_GATES);
    while (!p->child.stop) {
        uint64_t now = clock_now_ns();
        if (now >= tick_due) {
            tick(p, now);
            tick_due = now + TICK_EVERY_NS;
        }
        if (nothing_to_do(p, seen, now)) {
            poll(NULL, 0, IDLE_POLL_MS);
            uint32_t news = atomic_load_explicit(&p->child.gates.head->news, memory_order_acquire);
            if (news == seen) /* compute is idle: wait on the ring for its next row */
                p->calm = (struct predictor_idle){p->calm.loads, now, news};
            seen = news;
            continue;
        }
        uint32_t news = gates_wait(&p->child.gates, seen, WAIT_NS);
        if (news != seen)
            seen = handle_rows(p, seen);
        else
            p->calm = (struct predictor_idle){p->calm.loads, now, news};
    }
}

int main(int argc, char **argv)
{
    struct predictor *p = &the_predictor;
    start(p, argc, argv);
    child_ready(&p->child);
    loop(p);
    child_exit(&p->child);
}
