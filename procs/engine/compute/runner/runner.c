/* SPDX-License-Identifier: Apache-2.0 */
/* The runner: a thread that computes the sequences, in order of arrival, as many at a time as the
 * kv segment is made for. All its memory is allocated before compute is READY. */
#include "procs/engine/compute/runner/runner.h"

#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/base/assert.h"
#include "lib/device/host/pool.h"
#include "procs/engine/compute/runner/memory.h"
#include "procs/engine/compute/runner/pass.h"
#include "procs/engine/compute/slots/kept.h"
#include "procs/engine/compute/slots/room.h"

#define IDLE_WAIT_NS  (50 * NS_PER_MS) /* between polls of the cache's channel */
#define SCRATCH_LIMIT (512 * MIB)

static uint32_t threads_of(const struct params *p)
{
    cpu_set_t set;
    uint64_t n = p->threads;
    if (n == 0)
        n = sched_getaffinity(0, sizeof set, &set) == 0 ? (uint64_t)CPU_COUNT(&set) : 1;
    return n < 1 ? 1 : n > POOL_THREADS_MAX ? POOL_THREADS_MAX : (uint32_t)n;
}

/* The instruction set never changes while an engine runs: its speed is that of the first start. */
static const struct kernel_ops *choose_ops(struct child *child)
{
    struct kv_head *kv = child->kv.head;
    uint32_t chosen = atomic_load(&kv->isa);
    const struct kernel_ops *ops = chosen ? kernel_ops_of((enum kernel_isa)(chosen - 1))
                                          : kernel_ops_select(child->params->isa);
    if (!ops && chosen)
        log_fatal(1,
                  "the engine was started with an instruction set (%u) that this CPU or build does "
                  "not support",
                  chosen - 1);
    if (!ops)
        log_fatal(2, "--isa %s is not supported by this CPU or build; use --isa auto",
                  child->params->isa);
    atomic_store(&kv->isa, (uint32_t)ops->isa + 1);
    counter_set(child->process, CTR_COMPUTE_isa, (uint64_t)ops->isa);
    counter_set(child->process, CTR_COMPUTE_arithmetic, KERNEL_ARITHMETIC);
    return ops;
}

/* The reservation may already be set (after a restart): scratch takes at most half of it. */
static size_t scratch_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_DATA, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
        limit.rlim_cur / 2 > SCRATCH_LIMIT)
        return SCRATCH_LIMIT;
    return limit.rlim_cur / 2;
}

static int open_core(struct runner *r, struct error *error)
{
    struct child *child = r->child;
    const struct params *p = child->params;
    const struct kernel_ops *ops = choose_ops(child);
    struct chain_part parts[CHAIN_PARTS_MAX];
    r->gpus = gpus_open(child, ops, threads_of(p));
    struct core_config config = {.model = child->model,
                                 .ops = ops,
                                 .source = experts_source(&r->experts),
                                 .threads = threads_of(p),
                                 .nice = (int)p->nice,
                                 .chunk = (uint32_t)p->prefill_chunk,
                                 .positions = child->kv.head->context,
                                 .prefill_order = prefill_order_of(r->experts.knobs.prefill_order),
                                 .output_bytes = (size_t)child->kv.sequences *
                                                 child->model->hparams.vocab * sizeof(float)};
    uint32_t count = gpus_parts(&r->gpus, child, scratch_limit(), parts);
    r->core = chain_create(&config, parts, count, error);
    if (!r->core)
        return -1;
    char bytes[16];
    log_info("%s%s, %u threads, chunks of %u tokens, %s of scratch",
             r->gpus.count > 0 ? "GPU, " : "", config.ops->name, config.threads,
             chain_rows(r->core), bytes_format(chain_scratch_bytes(r->core), bytes));
    gpus_count(&r->gpus, child);
    counter_set(child->process, CTR_COMPUTE_threads, config.threads);
    atomic_store_explicit(&child->process->threads, config.threads, memory_order_relaxed);
    return 0;
}

static bool was_in_pass(const struct kv_head *kv)
{
    bool was = false;
    for (uint32_t i = 0; i < KV_REQUESTS_MAX; i++)
        was |= atomic_load(&kv->request[i].state) == KV_RUNNING &&
               atomic_load(&kv->request[i].in_pass) != 0;
    return was;
}

static void wake(void *arg)
{
    runner_wake(arg);
}

/* Without it, nothing is stored; requests are served all the same. */
static void open_prefixes(struct runner *r)
{
    const struct params *p = r->child->params;
    struct error error;
    if (!p->prefix_dir[0] || p->keep_kv == 0 || p->deterministic)
        return;
    r->prefixes = prefixes_open(&r->slots, KERNEL_ARITHMETIC, wake, r, &error);
    if (!r->prefixes)
        log_warn("prefixes are not stored: %s", error.text);
}

/* What is kept in memory and on storage; a predecessor may have been killed while it removed it. */
static void open_kept(struct runner *r)
{
    struct kv_head *kv = r->child->kv.head;
    kept_check(&r->slots);
    r->clear_seen = atomic_load(&kv->clear_wanted);
    if (r->clear_seen != atomic_load(&kv->cleared))
        kept_clear(&r->slots);
    open_prefixes(r);
    atomic_store(&kv->cleared, r->clear_seen);
}

int runner_open(struct runner *r, struct child *child, const struct tokenizer *tokenizer,
                const struct grammars *grammars, struct error *error)
{
    const struct model_hparams *hp = &child->model->hparams;
    r->child = child;
    r->tokenizer = tokenizer;
    r->experts.beat_ns = &r->beat_ns;
    r->experts.pass_layer = &r->pass_layer;
    if (experts_open(&r->experts, child, &r->stop, error) != 0 || open_core(r, error) != 0 ||
        kv_check(&child->kv, hp, chain_rows(r->core), error) != 0)
        return -1;
    r->sampler = sampler_create(hp->vocab, error);
    if (!r->sampler || constraints_open(&r->constraints, grammars, hp->vocab, error) != 0)
        return -1;
    r->recent = calloc(RECENT_TOKENS_MAX, sizeof *r->recent);
    r->sequences = child->kv.sequences;
    r->blames = was_in_pass(child->kv.head);
    r->sequence = calloc(r->sequences, sizeof *r->sequence);
    r->pass = pass_create(r->sequences, chain_rows(r->core));
    if (!r->pass || !r->recent || !r->sequence)
        return error_set(error, ERR_NO_MEMORY, "out of memory (runner)");
    for (uint32_t i = 0; i < r->sequences; i++)
        if (sequence_open(&r->sequence[i], r, error) != 0)
            return -1;
    r->slots.child = child;
    r->slots.beat_ns = &r->beat_ns;
    r->slots.spare_bytes = &child->directory.head->kv_spare_bytes;
    if (worth_open(&r->slots, error) != 0)
        return -1;
    r->slots.spare_seen = UINT64_MAX; /* of a predecessor: not known */
    r->slots.preset = r->experts.preset;
    r->slots.lossy = knobs_lossy(&r->experts.knobs);
    r->slots.preset_class = experts_preset_class(&r->experts);
    open_kept(r);
    const struct kv_head *kv = child->kv.head;
    char bytes[16];
    if (kv->ring > 0)
        log_info("layers with a window of %u tokens keep the last %u", kv->window, kv->ring);
    if (kv->state_bytes > 0 && kv->states > 0)
        log_info("state of %s: memory for %u versions, a checkpoint every %llu tokens",
                 bytes_format(kv->state_bytes, bytes), kv->states_reserved,
                 (unsigned long long)child->params->checkpoint_tokens);
    return 0;
}

static uint64_t counter_of(const struct child *child, enum service service, uint32_t number,
                           unsigned counter)
{
    return counter_get(&child->procs.head->process[procs_index_of(service, number)], counter);
}

struct engine_counts runner_counts(const struct runner *r)
{
    const struct child *child = r->child;
    struct engine_counts n = {.evictions =
                                  counter_of(child, SERVICE_CACHE, 0, CTR_CACHE_evictions)};
    for (uint32_t i = 0; i < child->procs.head->loaders; i++)
        n.bytes_read += counter_of(child, SERVICE_LOADER, i, CTR_LOADER_bytes_read);
    return n;
}

static uint64_t grown(uint64_t before, uint64_t after)
{
    return after > before ? after - before : 0;
}

uint32_t runner_running(const struct runner *r)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->sequences; i++)
        n += r->sequence[i].request != NULL;
    return n;
}

/* What does not divide is shared the next time. */
static void take_share(uint64_t *sum, uint64_t *seen, uint64_t now, uint32_t running)
{
    uint64_t share = grown(*seen, now) / running;
    *sum += share;
    *seen = now > *seen ? *seen + share * running : now;
}

/* The cache and the loaders count for all; sequences that run at the same time get equal shares. */
void runner_share_counts(const struct runner *r)
{
    struct engine_counts now = runner_counts(r);
    uint32_t running = runner_running(r);
    for (uint32_t i = 0; i < r->sequences; i++) {
        if (!r->sequence[i].request)
            continue;
        struct kv_stats *f = &r->sequence[i].request->stats;
        take_share(&f->evictions, &f->evictions_seen, now.evictions, running);
        take_share(&f->bytes_read, &f->bytes_read_seen, now.bytes_read, running);
    }
}

static bool is_held(const struct runner *r, uint32_t row)
{
    for (uint32_t i = 0; i < r->sequences; i++)
        if (r->sequence[i].request && r->sequence[i].row == row)
            return true;
    return false;
}

static uint32_t count_sides(const struct runner *r)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->sequences; i++)
        n += r->sequence[i].request && sequence_is_side(r->sequence[i].request);
    return n;
}

/* Whether a row is one to compute: RUNNING, of a predecessor, or QUEUED, and there is a place. */
static bool may_be_next(const struct runner *r, uint32_t row, uint32_t sides)
{
    const struct kv_request *q = &r->child->kv.head->request[row];
    uint32_t state = atomic_load_explicit(&q->state, memory_order_acquire);
    if (state == KV_QUEUED)
        return schedule_has_place(r->sequences, sides, sequence_is_side(q));
    return state == KV_RUNNING && !is_held(r, row);
}

/* The next row to compute, in order of turn. Those of a predecessor come before all that wait, also
 * before conversations whose turn is earlier than that of a side request: they have slots, memory
 * and a preset, which nobody can take from a sequence that is not held. */
static bool next_row(struct runner *r, uint32_t *row)
{
    uint64_t best = UINT64_MAX;
    uint32_t sides = count_sides(r);
    bool runs = false;
    for (uint32_t i = 0; i < KV_REQUESTS_MAX; i++) {
        if (!may_be_next(r, i, sides))
            continue;
        const struct kv_request *q = &r->child->kv.head->request[i];
        bool its = atomic_load(&q->state) == KV_RUNNING;
        uint64_t turn = sequence_turn(q);
        if (its != runs ? its : turn < best) {
            best = turn;
            runs = its;
            *row = i;
        }
    }
    return best != UINT64_MAX;
}

static void wait_for_work(struct runner *r, uint32_t seen)
{
    struct timespec timeout = {.tv_nsec = (long)IDLE_WAIT_NS};
    child_wait(r->child, WAIT_IDLE);
    syscall(SYS_futex, &r->work, FUTEX_WAIT_PRIVATE, seen, &timeout, NULL, 0);
}

void runner_wait_for_prefix(struct runner *r, uint32_t seen)
{
    struct timespec timeout = {.tv_nsec = (long)IDLE_WAIT_NS};
    syscall(SYS_futex, &r->work, FUTEX_WAIT_PRIVATE, seen, &timeout, NULL, 0);
    atomic_store_explicit(&r->beat_ns, clock_now_ns(), memory_order_relaxed);
}

bool runner_preset_waits(const struct runner *r)
{
    return atomic_load(&r->child->procs.head->preset_requested) != r->experts.preset;
}

/* Whether a sequence may start beside those that run. It waits for their end if the preset is to
 * change, because they keep theirs, or if its log does not fit into the memory that they leave. A
 * sequence of a predecessor has started already. */
static bool may_start(const struct runner *r, uint32_t row)
{
    const struct kv_request *q = &r->child->kv.head->request[row];
    if (runner_running(r) == 0 || atomic_load(&q->state) == KV_RUNNING)
        return true;
    return !runner_preset_waits(r) && memory_admits(r, q, kv_log(&r->child->kv, row));
}

/* Of sequences that a predecessor of compute began, what was counted since is shared when all of
 * them run again. */
static void begin(struct runner *r, struct sequence *s, uint32_t row)
{
    if (!atomic_load(&r->busy)) {
        atomic_store(&r->busy, 1);
        child_wait(r->child, WAIT_NONE);
    }
    if (atomic_load(&r->child->kv.head->request[row].state) != KV_RUNNING)
        runner_share_counts(r);
    sequence_begin(s, row);
}

/* Rows for the places that are free. */
static void admit(struct runner *r)
{
    uint32_t row;
    for (uint32_t i = 0; i < r->sequences; i++)
        while (!r->sequence[i].request && next_row(r, &row)) {
            if (!may_start(r, row))
                return;
            begin(r, &r->sequence[i], row);
        }
}

static void clear_kept(struct runner *r)
{
    struct kv_head *kv = r->child->kv.head;
    uint64_t wanted = atomic_load(&kv->clear_wanted);
    if (wanted != r->clear_seen) {
        r->clear_seen = wanted;
        child_inject(r->child, INJECT_COMPUTE_CLEARS);
        kept_clear(&r->slots);
        child_inject(r->child, INJECT_COMPUTE_CLEARS);
        prefixes_clear(r->prefixes);
    }
    if (!prefixes_clearing(r->prefixes))
        atomic_store(&kv->cleared, r->clear_seen);
}

uint64_t runner_clear(struct runner *r)
{
    uint64_t number = atomic_fetch_add(&r->child->kv.head->clear_wanted, 1) + 1;
    runner_wake(r);
    return number;
}

static void *runner_main(void *arg)
{
    struct runner *r = arg;
    if (r->child->params->nice > 0)
        setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), (int)r->child->params->nice);
    while (!atomic_load(&r->stop)) {
        uint32_t seen = atomic_load(&r->work);
        room_return(&r->slots);
        if (!atomic_load(&r->busy))
            experts_tick(&r->experts, clock_now_ns());
        if (atomic_load(&r->admitted))
            admit(r);
        if (atomic_load(&r->busy))
            pass_run(r);
        else
            wait_for_work(r, seen);
        worth_tick(&r->slots, clock_now_ns());
        clear_kept(r);
        prefixes_turn(r->prefixes, !atomic_load(&r->busy),
                      counter_get(r->child->process, CTR_COMPUTE_stall_ns));
        if (runner_running(r) == 0)
            atomic_store(&r->busy, 0);
    }
    return NULL;
}

int runner_start(struct runner *r, struct error *error)
{
    atomic_store(&r->beat_ns, clock_now_ns());
    int rc = pthread_create(&r->thread, NULL, runner_main, r);
    return rc == 0 ? 0 : error_set_errno(error, ERR_NO_MEMORY, rc, "cannot start the runner");
}

void runner_admit(struct runner *r)
{
    atomic_store(&r->admitted, 1);
    runner_wake(r);
}

void runner_wake(struct runner *r)
{
    atomic_fetch_add(&r->work, 1);
    syscall(SYS_futex, &r->work, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

bool runner_alive(const struct runner *r, uint64_t heartbeat_ns)
{
    uint64_t beat = atomic_load_explicit(&r->beat_ns, memory_order_relaxed);
    uint64_t now = clock_now_ns();
    return now < beat || now - beat < heartbeat_ns / 2;
}
