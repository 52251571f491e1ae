/* One look at the engine: its document, its map, and what the kernel says of its processes. A
 * thread looks again and again, so that keys are answered while the engine is not. */
#ifndef SLUICE_CLIENTS_TOP_SAMPLE_H
#define SLUICE_CLIENTS_TOP_SAMPLE_H

#include <stdbool.h>
#include <stdint.h>

#include "config/services.h"
#include "ipc/rpc/rpc.h"
#include "procs/clients/common/map.h"

struct process_seen { /* of row i of the document, from /proc */
    uint64_t ticks;   /* of the processor: user and system */
    uint64_t anon;    /* private bytes */
};

struct sample {
    json_t *doc, *map_reply; /* map_reply NULL: an engine that has no map */
    struct map map;          /* rows 0 without it; borrows from map_reply */
    uint64_t when_ns;
    struct process_seen seen[SERVICE_ROWS_MAX];
};

/* 0 with *look (freed by sample_free), or -1 with *error. */
int sample_get(struct rpc_client *control, struct sample *sample, struct error *error);
void sample_free(struct sample *sample);

struct poller;
struct poller *poller_open(const char *run, uint64_t interval_ns, struct error *error);
void poller_close(struct poller *l);
/* From the next look on. now: at once. */
void poller_set_interval(struct poller *l, uint64_t interval_ns, bool now);
/* The newest look, when there is one since the last call: true, and *look is the caller's. Else
 * *error is why the last attempt failed, with code ERR_NONE when none did. */
bool poller_take(struct poller *l, struct sample *sample, struct error *error);

#endif
