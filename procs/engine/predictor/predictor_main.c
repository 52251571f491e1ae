/* sluice-predictor: guesses the experts of the next layer from the gate input of this one.
 *
 * Sleeps on the gates ring, which hears of a layer when its DEMAND is out. A row of decode goes
 * through the next layer's router; a row of prefill already holds counts. Either becomes a HINT to
 * the cache, READY entries included: the cache keeps what is named. It only ever hints: nobody
 * waits for it.
 *
 * Messages   in: CONTROL (supervisor).  out: HINT (cache), ACK.
 * Memory     reads: gates, arena (routers), directory, use log, model index. writes: its sleeper
 * flag in the header of gates, its own row. When it dies: no hints until it is back; text is the
 * same, only slower. When others die: without a cache hints are lost; without compute there are no
 * rows; without the supervisor it ends. Limits: a row that came while another was worked on is
 * passed over (its layer is over by then). */
#include <errno.h>
#include <poll.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/clock.h"
#include "procs/engine/predictor/predictor.h"

#define WAIT_NS       (50 * NS_PER_MS)
#define CALM_NS       (100 * NS_PER_MS) /* without a load, and so many tokens: nothing to foretell */
#define CALM_TOKENS   8
#define NAP_MS        20 /* how often it then looks whether that is still so */
#define TEND_EVERY_NS (50 * NS_PER_MS)

static struct predictor the_predictor;

static void start(struct predictor *p, int argc, char **argv)
{
    struct error error;
    char path[ENDPOINT_BYTES];
    p->magic = PREDICTOR_MAGIC;
    child_start(&p->child, SERVICE_PREDICTOR, argc, argv);
    if (endpoint_path(p->child.run_dir, ENDPOINT_CACHE_PREDICTOR, 0, path, &error) != 0 ||
        hints_open(p, &error) != 0 ||
        (p->cache = edge_dial(path, ROLE_PREDICTOR, p->child.incarnation, &error)) == NULL)
        log_fatal(error_exit_status(error.code), "%s", error.text);
}

static uint64_t loads_sent(const struct predictor *p)
{
    return counter_get(&p->child.procs.head->row[procs_row_of(SERVICE_CACHE, 0)],
                       CTR_CACHE_loads_sent);
}

/* Watches whether hints could change anything. While whole tokens go by and the cache loads nothing
 * at all, everything they need is there. Then the ring is not slept on, so that compute need not
 * wake anybody: a token of a resident model makes no system call for us. */
static bool nothing_to_do(struct predictor *p, uint32_t news, uint64_t now)
{
    struct predictor_calm *calm = &p->calm;
    uint64_t loads = loads_sent(p);
    if (loads != calm->loads)
        *calm = (struct predictor_calm){.loads = loads, .since_ns = now, .news = news};
    return now - calm->since_ns >= CALM_NS &&
           news - calm->news >= CALM_TOKENS * p->child.model->hparams.layers;
}

static void handle_controls(struct predictor *p)
{
    struct msg_control control;
    while (child_control(&p->child, &control)) {
        counter_add(p->child.row, CTR_PREDICTOR_messages, 1);
        child_ack(&p->child, &control);
    }
}

/* The newest row only: guesses of an older one would be for a layer that runs already. */
static void handle_news(struct predictor *p, uint32_t seen, uint32_t news)
{
    uint32_t layer = atomic_load_explicit(&p->child.gates.head->last_layer, memory_order_acquire);
    if (news - seen > 1)
        counter_add(p->child.row, CTR_PREDICTOR_rows_missed, news - seen - 1);
    hints_measure(p);
    if (layer < p->child.model->hparams.layers)
        hints_from_row(p, layer);
    child_progress(&p->child);
}

static void tend(struct predictor *p, uint64_t now)
{
    handle_controls(p);
    child_tend(&p->child);
    edge_tend(p->cache, now);
    hints_measure(p);
    struct edge_stats stats;
    edge_stats_get(p->child.supervisor, &stats);
    counter_set(p->child.row, CTR_PREDICTOR_messages_invalid, stats.invalid);
}

static void loop(struct predictor *p)
{
    uint32_t seen = atomic_load_explicit(&p->child.gates.head->news, memory_order_acquire);
    uint64_t tend_due = 0;
    child_wait(&p->child, WAIT_GATES);
    while (!p->child.stop) {
        uint64_t now = clock_now_ns();
        if (now >= tend_due) {
            tend(p, now);
            tend_due = now + TEND_EVERY_NS;
        }
        if (nothing_to_do(p, seen, now)) {
            poll(NULL, 0, NAP_MS);
            uint32_t news = atomic_load_explicit(&p->child.gates.head->news, memory_order_acquire);
            if (news == seen) /* compute is idle: its next row shall find us listening */
                p->calm = (struct predictor_calm){p->calm.loads, now, news};
            seen = news;
            continue;
        }
        uint32_t news = gates_wait(&p->child.gates, seen, WAIT_NS);
        if (news != seen)
            handle_news(p, seen, news);
        else
            p->calm = (struct predictor_calm){p->calm.loads, now, news};
        seen = news;
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
