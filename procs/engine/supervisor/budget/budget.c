/* SPDX-License-Identifier: Apache-2.0 */
/* The budget: facts for the ledger, the quota for the cache, and the sequence of a budget change.
 *
 * Shrink:  quota lowered -> cache evicts, punches, sets quota_applied -> the arena's blocks are
 *          counted -> the cgroup limit is lowered -> the new budget is in effect.
 * Grow:    the cgroup limit is raised -> in effect -> quota raised.
 * Always:  a process that grows takes from the arena at the next measurement, not from the
 * margin. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "config/storage.h"
#include "lib/base/assert.h"
#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "lib/io/backends.h"
#include "lib/kernels/kernels.h"
#include "lib/model/index/capacity.h"
#include "lib/policy/prediction/activation.h"
#include "lib/policy/presets/presets.h"
#include "procs/engine/supervisor/auto.h"
#include "procs/engine/supervisor/budget/budget.h"
#include "procs/engine/supervisor/children/children.h"
#include "procs/engine/supervisor/start/start.h"
#include "procs/engine/supervisor/supervisor.h"
#include "shm/table/counters.h"

#define MEASURE_NS (200 * NS_PER_MS)

/* Thread stacks are mapped completely (THREAD_STACK_BYTES), but few of their pages are touched.
 * Exceptions per process: the main thread's stack is not a separate mapping, those of
 * lifeline and log are small. */
#define THREADS_OTHER 3
_Static_assert(THREAD_STACK_BYTES >= KERNEL_STACK_BYTES + 64 * KIB, "a thread can run a kernel");

/* Private memory of each kind of process before it can be measured, rounded up. */
#define SUPERVISOR_ESTIMATE  (1 * MIB)
#define PROCESS_ESTIMATE     (768 * KIB)
#define ENTRY_ESTIMATE_BYTES 192 /* eviction order, job and reservation of one entry in the cache */
#define OWN_THREADS          4   /* main, lifeline, log, and the cache's prefault */

/* How far a process can grow beyond its size at READY: transient buffers of requests. Memory beyond
 * the reservation is taken from the arena; an allocation beyond this limit fails in the process. */
#define GROWTH_BYTES              (2 * MIB)
#define GROWTH_COMPUTE_BYTES      (8 * MIB)
#define GROWTH_GRAMMARS_BYTES     (48 * MIB) /* compiled, and one that is */
#define GROWTH_VOCAB_BYTES        200        /* per token: its place in a tree, while it is made */
#define RESERVATION_SLACK_BYTES   (128 * KIB)
#define RESERVATION_COMPUTE_BYTES (512 * KIB) /* requests as JSON, tokens of a prompt */

uint64_t budget_available(void)
{
    uint64_t bytes = memory_available();
    return bytes < UINT64_MAX ? bytes : 0;
}

/* "31MiB" where it is a whole number, so that it can be used as an argument. */
static const char *budget_text(uint64_t bytes, char buf[32])
{
    if (bytes % MIB == 0)
        snprintf(buf, 32, "%" PRIu64 "MiB", bytes / MIB);
    else
        snprintf(buf, 32, "%" PRIu64, bytes);
    return buf;
}

/* ---- facts ---- */

/* Reservation of a process: its pages and some growth, at most what it can touch. */
static uint64_t reservation_of(const struct usage *u, enum service service)
{
    uint64_t stacks =
        (u->threads > THREADS_OTHER ? u->threads - THREADS_OTHER : 0) * THREAD_STACK_BYTES;
    uint64_t heap = u->data > stacks ? u->data - stacks : 0;
    uint64_t touched = LEDGER_STACK_BYTES + (service == SERVICE_COMPUTE ? KERNEL_STACK_BYTES : 0);
    uint64_t max = heap + u->threads * touched + RESERVATION_SLACK_BYTES;
    uint64_t reserved = u->anon + (service == SERVICE_COMPUTE ? RESERVATION_COMPUTE_BYTES
                                                              : RESERVATION_SLACK_BYTES);
    reserved = reserved < max ? reserved : max;
    return reserved > u->anon ? reserved : u->anon;
}

/* Of the loader whose servers need most. */
static uint64_t servers_private(const struct supervisor *s)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < s->params.loaders; i++) {
        uint64_t bytes = storage_server_bytes(s, i);
        most = bytes > most ? bytes : most;
    }
    return most;
}

/* The gateway's limits are parameters: their total is reserved, so that many clients cannot exceed
 * it. A loader of servers is READY before its connections have what they need. */
static uint64_t reservation_now(const struct supervisor *s, const struct child_record *c)
{
    uint64_t reserved = reservation_of(&c->usage, c->service);
    uint64_t servers = c->service == SERVICE_LOADER ? storage_server_bytes(s, c->number) : 0;
    uint64_t bound = c->service == SERVICE_GATEWAY ? http_reservation_bytes(&s->params, s->model)
                     : servers > 0                 ? PROCESS_ESTIMATE + servers
                                                   : 0;
    return reserved > bound ? reserved : bound;
}

static uint64_t growth_of(const struct supervisor *s, enum service service)
{
    switch (service) {
    case SERVICE_COMPUTE:
        return GROWTH_COMPUTE_BYTES + GROWTH_GRAMMARS_BYTES +
               (uint64_t)GROWTH_VOCAB_BYTES * s->model->hparams.vocab + s->gpus.host_bytes;
    case SERVICE_GATEWAY: return http_growth(&s->params, s->model);
    case SERVICE_LOADER: return GROWTH_BYTES + servers_private(s);
    default: return GROWTH_BYTES;
    }
}

/* The same of their threads. */
static uint32_t servers_threads(const struct supervisor *s)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < s->params.loaders; i++) {
        uint32_t threads = storage_server_threads(s, i);
        most = threads > most ? threads : most;
    }
    return most;
}

static bool any_pread(struct supervisor *s)
{
    for (uint32_t i = 0; i < s->params.loaders; i++)
        if (strcmp(storage_params(s, i)->backend, "pread") == 0)
            return true;
    return false;
}

/* In processes that serve clients, NNG starts threads in proportion to the number of CPUs. */
static uint32_t threads_estimate(struct supervisor *s, enum service service)
{
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    uint32_t cpus = online > 0 ? (uint32_t)online : 1, tasks = 2 * cpus < 16 ? 2 * cpus : 16;
    uint32_t nng = 8 + tasks + cpus, own = OWN_THREADS;
    switch (service) {
    case SERVICE_SUPERVISOR:
    case SERVICE_GATEWAY: return nng + own;
    case SERVICE_COMPUTE:
        return nng + own + (uint32_t)budget_compute_threads(s) + (s->params.prefix_dir[0] != 0);
    case SERVICE_LOADER:
        return own + (any_pread(s) ? io_backend_info(IO_PREAD)->threads : 0) + servers_threads(s);
    default: return own;
    }
}

/* Only an engine that starts with such a preset has them in its estimate; after `ctl preset` they
 * are in the measured memory. */
static uint64_t activations_estimate(const struct supervisor *s)
{
    const struct model_hparams *h = &s->model->hparams;
    struct knobs k;
    struct error error;
    bool used = knobs_resolve(s->params.preset, NULL, s->params.policy, &k, &error) == 0 &&
                k.prediction == PREDICTION_ACTIVATION;
    return used ? activation_bytes(h->layers, h->experts) : 0;
}

static uint64_t reservation_estimate(const struct supervisor *s, enum service service)
{
    if (service == SERVICE_COMPUTE)
        return budget_compute_bytes(s);
    if (service == SERVICE_CACHE)
        return PROCESS_ESTIMATE + (uint64_t)s->model->entry_count * ENTRY_ESTIMATE_BYTES;
    if (service == SERVICE_GATEWAY)
        return http_reservation_bytes(&s->params, s->model);
    if (service == SERVICE_PREDICTOR)
        return PROCESS_ESTIMATE + activations_estimate(s);
    if (service == SERVICE_LOADER)
        return PROCESS_ESTIMATE + servers_private(s);
    return PROCESS_ESTIMATE;
}

/* Bytes in flight of the device with the deepest queue. */
static uint64_t flight_max(struct supervisor *s)
{
    uint64_t max = 0;
    for (uint32_t i = 0; i < s->params.loaders; i++) {
        const struct params *p = storage_params(s, i);
        uint64_t flight = storage_flight_bytes(p, s->model->expert_slot_bytes_max);
        max = flight > max ? flight : max;
    }
    /* A read pins the huge pages at its start and end completely. */
    bool huge = s->params.huge_pages && s->model->expert_slot_bytes_max >= ARENA_HUGE_MIN;
    return huge ? align_up(max, HUGE_PAGE_BYTES) + 2 * HUGE_PAGE_BYTES : max;
}

static void facts_of_model(struct supervisor *s)
{
    struct ledger_facts *f = &s->budget.facts;
    f->dense_bytes = s->model->dense_bytes;
    f->expert_slot_bytes = s->model->expert_slot_bytes;
    f->experts_min_bytes = capacity_slot_min(s->model);
    f->loaders = (uint32_t)s->params.loaders;
    f->mappers = f->loaders + 2; /* compute, predictor */
    f->processes = 1;
    for (int service = SERVICE_SUPERVISOR + 1; service < SERVICE__COUNT; service++)
        f->processes += service_count((enum service)service, &s->params);
    f->sockets_bytes = s->params.http[0] ? http_kernel(&s->params) : 0;
    f->sockets_bytes += storage_socket_bytes(s);
    f->loader_flight = flight_max(s);
}

static void facts_estimate(struct supervisor *s)
{
    struct ledger_facts *f = &s->budget.facts;
    f->segments_bytes = segments_fixed_bytes(s);
    f->kv_bytes = budget_kv_bytes(s);
    f->private_bytes = SUPERVISOR_ESTIMATE;
    f->threads = threads_estimate(s, SERVICE_SUPERVISOR);
    for (int service = SERVICE_SUPERVISOR + 1; service < SERVICE__COUNT; service++) {
        uint32_t count = service_count((enum service)service, &s->params);
        f->private_bytes += reservation_estimate(s, (enum service)service) * count;
        f->threads += threads_estimate(s, (enum service)service) * count;
    }
    f->text_bytes = estimate_text(s);
}

/* The blocks of the KV segment are rows of running sequences, which compute counts, and token logs.
 * Both sums cover every block. */
static void facts_of_segments(struct supervisor *s)
{
    struct ledger_facts *f = &s->budget.facts;
    uint64_t others = PAGE_BYTES;
    for (int kind = 0; kind < SEGMENT__COUNT; kind++)
        if (kind != SEGMENT_ARENA && kind != SEGMENT_KV)
            others += segment_allocated_bytes(s->segments[kind].fd);
    const struct child_record *compute = child_of(s, SERVICE_COMPUTE, 0);
    uint64_t kv = segment_allocated_bytes(s->segments[SEGMENT_KV].fd);
    uint64_t rows = counter_get(compute->process, CTR_COMPUTE_kv_bytes);
    rows = rows < kv ? rows : kv;
    uint64_t fixed = segments_fixed_bytes(s);
    uint64_t reserved = budget_kv_bytes(s);
    others += kv - rows;
    f->segments_bytes = others > fixed ? others : fixed;
    f->kv_bytes = reserved; /* what rows have beyond it is spare memory */
}

static void facts_measure(struct supervisor *s)
{
    struct ledger_facts *f = &s->budget.facts;
    struct usage own = {0};
    measure_process(getpid(), &own);
    uint64_t private = reservation_of(&own, SERVICE_SUPERVISOR), tables = own.page_tables,
             anon = own.anon;
    uint32_t threads = own.threads;
    for (uint32_t i = 0; i < s->children_count; i++) {
        struct child_record *c = &s->children[i];
        /* A starting process still grows: the estimate, or its predecessor's reservation, counts
         * until READY. */
        if (c->pid > 0 && measure_process(c->pid, &c->usage) && c->ready_ns) {
            c->reserved_bytes = reservation_now(s, c);
            c->threads = c->usage.threads;
        }
        private += c->reserved_bytes > c->usage.anon ? c->reserved_bytes : c->usage.anon;
        threads += c->threads;
        tables += c->usage.page_tables;
        anon += c->usage.anon;
    }
    f->private_bytes = private;
    f->threads = threads;
    f->page_tables = tables;
    facts_of_segments(s);
    s->budget.anon = anon;
}

/* Memory used now: everything that can be measured, and an estimate of the kernel's part. */
static void used_measure(struct supervisor *s)
{
    struct budget *b = &s->budget;
    uint64_t segments = 0;
    for (int kind = 0; kind < SEGMENT__COUNT; kind++)
        segments += segment_allocated_bytes(s->segments[kind].fd);
    b->used = segments + segments / 400 + b->anon + b->facts.page_tables + b->ledger.kernel +
              b->facts.text_bytes;
    if (b->used > b->used_max)
        b->used_max = b->used;
    counter_set(s->process, CTR_SUPERVISOR_budget_bytes, b->applied);
    counter_set(s->process, CTR_SUPERVISOR_used_bytes, b->used);
    counter_set(s->process, CTR_SUPERVISOR_used_bytes_max, b->used_max);
}

/* ---- quota ---- */

static void quota_send(struct supervisor *s, uint64_t quota)
{
    struct budget *b = &s->budget;
    struct directory_head *head = s->directory.head;
    b->quota = quota;
    b->epoch++;
    atomic_store_explicit(&head->quota_bytes, quota, memory_order_relaxed);
    /* Release: a process that reads the epoch reads its quota. */
    atomic_store_explicit(&head->quota_epoch, b->epoch, memory_order_release);
    struct child_record *cache = child_of(s, SERVICE_CACHE, 0);
    if (cache)
        control_set(s, cache, CONTROL_QUOTA, quota, b->epoch);
}

bool budget_settled(const struct supervisor *s)
{
    return lend_quota_settled(s) && lend_settled(s);
}

uint64_t budget_timeout_ns(const struct supervisor *s, uint64_t bytes)
{
    uint64_t freed = s->budget.applied > bytes ? s->budget.applied - bytes : 0;
    return NS_PER_S + freed / (2 * MIB) * (NS_PER_S / 1024); /* 0.5 s per GiB */
}

static int budget_too_small(uint64_t wanted, uint64_t min_budget, struct error *error)
{
    char a[32], b[32];
    return error_set(
        error, ERR_BUDGET_TOO_SMALL,
        "--budget %s is too small for this model: minimum %s (a smaller --ctx-size lowers it)",
        budget_text(wanted, a), budget_text(min_budget, b));
}

static int experts_cap(struct supervisor *s, struct error *error)
{
    uint64_t cap = capacity_payload_max(s->model, s->params.resident_experts);
    uint64_t min = capacity_payload_min(s->model);
    if (cap < min)
        return error_set(
            error, ERR_BAD_INPUT,
            "--resident-experts %g%%: must hold the %u experts of one token; use %.2f%% or more",
            s->params.resident_experts, s->model->hparams.experts_used,
            100.0 * (double)min / (double)s->model->expert_bytes + 0.005);
    s->budget.experts_max = cap;
    return 0;
}

static int budget_facts(struct supervisor *s, struct error *error)
{
    if (arena_layout_make(s->model, &s->layout, error) != 0 || experts_cap(s, error) != 0)
        return -1;
    facts_of_model(s);
    facts_estimate(s);
    return 0;
}

/* Not an error: the arena takes only what the model needs, kept prefixes what is available, and
 * memory can be added to a running machine. */
static void warn_beyond_machine(uint64_t bytes)
{
    char a[32], b[32];
    long pages = sysconf(_SC_PHYS_PAGES);
    uint64_t memory = pages > 0 ? (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE) : UINT64_MAX;
    if (bytes > memory)
        log_warn("--budget %s is more than this machine's memory of %s; the engine may be swapped "
                 "out or killed",
                 budget_text(bytes, a), budget_text(memory, b));
}

static void divide(struct budget *b, uint64_t bytes)
{
    b->facts.budget = bytes;
    b->ledger = ledger_make(&b->facts);
}

/* A budget that nobody has given is at least the minimum, if there is so much. */
static void divide_at_least(struct budget *b, uint64_t available)
{
    if (b->facts.budget < b->ledger.min_budget && b->ledger.min_budget <= available)
        divide(b, b->ledger.min_budget);
}

/* And at most what /dev/shm has, which is often small in containers, although private memory is not
 * there. Where that is less than the minimum, it is the minimum, if what is there of it fits; else
 * chunks and the context become smaller first. */
static void budget_divide(struct supervisor *s)
{
    struct budget *b = &s->budget;
    uint64_t available = budget_available(), half = align_down(available / 2, MIB);
    uint64_t most = segments_limit(s);
    if (s->params.budget > 0) {
        divide(b, s->params.budget);
        return;
    }
    divide(b, half < most ? half : align_down(most, MIB));
    uint64_t there = b->ledger.quota_min + b->facts.segments_bytes + b->facts.kv_bytes;
    if (there + MIB <= most) /* MIB: budgets and quotas are whole steps */
        divide_at_least(b, available);
}

int budget_make(struct supervisor *s, struct error *error)
{
    struct budget *b = &s->budget;
    if (budget_facts(s, error) != 0)
        return -1;
    budget_divide(s);
    if (b->facts.budget < b->ledger.min_budget && b->chunk_max > 0 &&
        s->params.prefill_chunk > PREFILL_CHUNK) {
        s->params.prefill_chunk = PREFILL_CHUNK;
        facts_estimate(s);
        budget_divide(s);
    }
    while (b->facts.budget < b->ledger.min_budget && budget_context_halve(s)) {
        facts_estimate(s);
        budget_divide(s);
    }
    if (s->params.budget == 0)
        divide_at_least(b, budget_available());
    return 0;
}

int budget_start(struct supervisor *s, struct error *error)
{
    struct budget *b = &s->budget;
    if (budget_make(s, error) != 0)
        return -1;
    if (b->facts.budget < b->ledger.min_budget)
        return budget_too_small(b->facts.budget, b->ledger.min_budget, error);
    warn_beyond_machine(b->facts.budget);
    s->params.budget = b->applied = b->wanted = b->facts.budget;
    cgroup_limit(s, b->applied);
    return 0;
}

void budget_publish(struct supervisor *s)
{
    for (uint32_t i = 0; i < s->children_count; i++) {
        struct child_record *c = &s->children[i];
        c->reserved_bytes = reservation_estimate(s, c->service);
        c->threads = threads_estimate(s, c->service);
    }
    atomic_store_explicit(&s->directory.head->experts_payload_max, s->budget.experts_max,
                          memory_order_relaxed);
    for (uint32_t i = 0; i < s->params.loaders; i++)
        atomic_store_explicit(&s->directory.head->throttle_bytes_per_s[i],
                              storage_params(s, i)->throttle, memory_order_relaxed);
    quota_send(s, s->budget.ledger.quota);
    lend_send(s);
    used_measure(s);
}

void budget_child_ready(struct supervisor *s, struct child_record *c)
{
    text_trim(s, storage_program(s, c->service, c->number));
    if (!measure_process(c->pid, &c->usage))
        return; /* it has exited; SIGCHLD follows */
    c->reserved_bytes = reservation_now(s, c);
    c->threads = c->usage.threads;
    uint64_t growth = growth_of(s, c->service);
    struct rlimit limit;
    limit.rlim_cur = limit.rlim_max = c->usage.data + growth;
    prlimit(c->pid, RLIMIT_DATA, &limit, NULL);
}

int budget_all_ready(struct supervisor *s, struct error *error)
{
    struct budget *b = &s->budget;
    text_trim(s, "sluice-run");
    text_trim(s, "sluice-inspect");
    b->facts.text_bytes = measure_text(s);
    b->next_measure_ns = 0;
    budget_tick(s, clock_now_ns());
    if (b->applied < b->ledger.min_budget)
        return budget_too_small(b->applied, b->ledger.min_budget, error);
    return 0;
}

/* A shrink takes effect when the arena has shrunk; only then the cgroup limit is lowered. */
static void settle(struct supervisor *s)
{
    struct budget *b = &s->budget;
    if (b->wanted == b->applied || !budget_settled(s))
        return;
    char text[32];
    cgroup_limit(s, b->wanted);
    b->applied = b->wanted;
    facts_measure(s); /* the reply contains the memory used now */
    used_measure(s);
    log_info("budget %s is in effect", budget_text(b->applied, text));
}

/* Before a smaller budget is in effect, prefixes leave their memory, and experts need not leave for
 * it what they would read again at once. */
static uint64_t quota_wanted(const struct budget *b)
{
    uint64_t quota = b->ledger.quota;
    if (b->wanted >= b->applied)
        return quota;
    uint64_t unlent = ledger_unlent(&b->facts).quota;
    uint64_t keeps = b->quota < unlent ? b->quota : unlent;
    return quota > keeps ? quota : keeps;
}

/* What a quota may grow to in /dev/shm. */
static uint64_t quota_in_segments(const struct supervisor *s, uint64_t quota)
{
    uint64_t most = segments_quota(s), now = s->budget.quota;
    return quota <= most ? quota : most > now ? most : now;
}

static void quota_follow(struct supervisor *s)
{
    struct budget *b = &s->budget;
    lend_reserve(s);
    b->ledger = ledger_make(&b->facts);
    uint64_t quota = quota_wanted(b);
    if (quota < b->ledger.quota_min && b->facts.lent_bytes > 0) {
        quota = b->ledger.quota_min; /* prefixes are leaving what they have of it */
    } else if (quota < b->ledger.quota_min) {
        /* A lower quota cannot work: only the margin and the cgroup limit remain. */
        quota = b->ledger.quota_min;
        if (!b->over) {
            char text[32];
            log_warn("private memory grew beyond its reservation; the minimum budget is now %s",
                     budget_text(b->ledger.min_budget, text));
        }
        b->over = true;
    } else {
        b->over = false;
    }
    if (quota > b->quota) /* processes take less than was estimated, of memory that is not there */
        quota = quota_in_segments(s, quota);
    if (ledger_quota_moves(b->quota, quota))
        quota_send(s, quota);
    lend_settle(s);
    lend_send(s);
}

void budget_tick(struct supervisor *s, uint64_t now_ns)
{
    struct budget *b = &s->budget;
    settle(s);
    if (now_ns < b->next_measure_ns)
        return;
    b->next_measure_ns = now_ns + MEASURE_NS;
    facts_measure(s);
    quota_follow(s);
    used_measure(s);
}

int budget_change(struct supervisor *s, uint64_t bytes, struct error *error)
{
    struct budget *b = &s->budget;
    struct ledger_facts facts = b->facts;
    facts.budget = bytes;
    struct ledger_result ledger = ledger_make(&facts), all = ledger_unlent(&facts);
    if (bytes < ledger.min_budget)
        return budget_too_small(bytes, ledger.min_budget, error);
    struct knobs knobs; /* a measured loss may hold for a minimum of resident experts only */
    if (!auto_follows(s) && model_check_preset(s, atomic_load(&s->procs->preset_requested),
                                               budget_share(s, all.quota), &knobs, error) != 0)
        return -1;
    struct budget before = *b;
    b->facts.budget = b->wanted = bytes;
    if (bytes >= b->applied) {
        b->ledger = ledger;
        if (segments_check_space(s, error) != 0) {
            b->facts = before.facts;
            b->wanted = before.wanted;
            b->ledger = before.ledger;
            return -1;
        }
        cgroup_limit(s, bytes);
        b->applied = bytes;
        quota_send(s, ledger.quota > ledger.quota_min ? ledger.quota : ledger.quota_min);
        lend_send(s);
        return 0;
    }
    /* What prefixes have of it is left before the smaller budget is in effect. */
    b->ledger = ledger;
    uint64_t quota = quota_wanted(b);
    quota_send(s, quota > ledger.quota_min ? quota : ledger.quota_min);
    b->lent = 0;
    lend_send(s);
    settle(s);
    return b->applied == bytes ? 0 : 1;
}
