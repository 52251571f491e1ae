/* SPDX-License-Identifier: Apache-2.0 */
/* Lays out, formats and checks the process table, and names its states and waits. */
#include "shm/table/process_table.h"

#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/bytes.h"
#include "shm/table/counters.h"

#define COUNTER(name, kind, unit, doc) {#name, #kind, #unit, doc},
static const struct counter_desc loader_counters[] = {
#include "shm/table/counters_loader.tbl.h"
};
#define COUNTER(name, kind, unit, doc) {#name, #kind, #unit, doc},
static const struct counter_desc cache_counters[] = {
#include "shm/table/counters_cache.tbl.h"
};
#define COUNTER(name, kind, unit, doc) {#name, #kind, #unit, doc},
static const struct counter_desc predictor_counters[] = {
#include "shm/table/counters_predictor.tbl.h"
};
#define COUNTER(name, kind, unit, doc) {#name, #kind, #unit, doc},
static const struct counter_desc compute_counters[] = {
#include "shm/table/counters_compute.tbl.h"
};
#define COUNTER(name, kind, unit, doc) {#name, #kind, #unit, doc},
static const struct counter_desc recorder_counters[] = {
#include "shm/table/counters_recorder.tbl.h"
};
#define COUNTER(name, kind, unit, doc) {#name, #kind, #unit, doc},
static const struct counter_desc gateway_counters[] = {
#include "shm/table/counters_gateway.tbl.h"
};
#define COUNTER(name, kind, unit, doc) {#name, #kind, #unit, doc},
static const struct counter_desc supervisor_counters[] = {
#include "shm/table/counters_supervisor.tbl.h"
};

_Static_assert(ARRAY_LEN(loader_counters) <= PROCS_COUNTERS_MAX &&
                   ARRAY_LEN(cache_counters) <= PROCS_COUNTERS_MAX &&
                   ARRAY_LEN(predictor_counters) <= PROCS_COUNTERS_MAX &&
                   ARRAY_LEN(compute_counters) <= PROCS_COUNTERS_MAX &&
                   ARRAY_LEN(recorder_counters) <= PROCS_COUNTERS_MAX &&
                   ARRAY_LEN(gateway_counters) <= PROCS_COUNTERS_MAX &&
                   ARRAY_LEN(supervisor_counters) <= PROCS_COUNTERS_MAX,
               "a row holds every counter");

const struct counter_desc *counters_of(enum service service, size_t *count)
{
#define CASE(NAME, table)                                                                          \
    case SERVICE_##NAME: *count = ARRAY_LEN(table); return table
    switch (service) {
        CASE(SUPERVISOR, supervisor_counters);
        CASE(CACHE, cache_counters);
        CASE(LOADER, loader_counters);
        CASE(PREDICTOR, predictor_counters);
        CASE(COMPUTE, compute_counters);
        CASE(RECORDER, recorder_counters);
        CASE(GATEWAY, gateway_counters);
    case SERVICE__COUNT: break;
    }
#undef CASE
    sl_panic("service %d", (int)service);
}

/* Services in the order of their enum without the loaders, which follow. */
uint32_t procs_index_of(enum service service, uint32_t number)
{
    sl_assert((unsigned)service < SERVICE__COUNT);
    sl_assert(number < (service == SERVICE_LOADER ? SERVICE_LOADERS_MAX : 1));
    if (service == SERVICE_LOADER)
        return SERVICE__COUNT - 1 + number;
    return (uint32_t)(service < SERVICE_LOADER ? service : service - 1);
}

uint64_t procs_bytes(void)
{
    return align_up(sizeof(struct procs_head), PAGE_BYTES);
}

void procs_format(void *base, const struct params *params, uint32_t loaders)
{
    sl_assert(loaders >= 1 && loaders <= SERVICE_LOADERS_MAX);
    struct procs_head *head = base;
    head->params = *params;
    head->processes = SERVICE__COUNT - 1 + loaders;
    head->loaders = loaders;
    for (int service = 0; service < SERVICE__COUNT; service++)
        for (uint32_t n = 0; n < (service == SERVICE_LOADER ? loaders : 1); n++) {
            struct process *process = &head->process[procs_index_of((enum service)service, n)];
            process->service = (uint32_t)service;
            process->number = n;
        }
}

int procs_attach(int fd, bool writable, uint64_t boot, struct procs *out, struct error *error)
{
    struct segment s;
    if (segment_attach(fd, SEGMENT_PROCS, writable, boot, &s, error) != 0)
        return -1;
    struct procs_head *head = s.base;
    if (s.bytes < sizeof *head || head->processes > SERVICE_PROCESSES_MAX ||
        head->loaders > SERVICE_LOADERS_MAX) {
        error_set(error, ERR_FAILED, "procs segment: %u rows in %llu bytes",
                  s.bytes < sizeof *head ? 0 : head->processes, (unsigned long long)s.bytes);
        s.fd = -1; /* stays the caller's */
        segment_detach(&s);
        return -1;
    }
    *out = (struct procs){.segment = s, .head = head};
    return 0;
}

int procs_check(const struct procs_head *head, struct error *error)
{
    char why[SHARED_TEXT_BYTES];
    shared_text_get(&head->failing, why);
    return why[0] ? error_set(error, ERR_UNAVAILABLE, "%s", why) : 0;
}

const char *proc_wait_text(uint32_t wait)
{
    static const char *const texts[] = {
#define X(name, text) text,
        WAITS(X)
#undef X
    };
    return wait < ARRAY_LEN(texts) ? texts[wait] : "?";
}

const char *proc_state_text(uint32_t state)
{
    static const char *const texts[] = {"down",    "starting", "ready", "stopping",
                                        "backoff", "killed",   "failed"};
    _Static_assert(ARRAY_LEN(texts) == PROC_FAILED + 1, "a text for every state");
    return state < ARRAY_LEN(texts) ? texts[state] : "?";
}
