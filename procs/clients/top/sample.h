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

struct look {
    json_t *doc, *map_reply; /* map_reply NULL: an engine that has no map */
    struct map map;          /* rows 0 without it; borrows from map_reply */
    uint64_t when_ns;
    struct process_seen seen[SERVICE_ROWS_MAX];
};

/* 0 with *look (freed by look_free), or -1 with *error. */
int look_once(struct rpc_client *control, struct look *look, struct error *error);
void look_free(struct look *look);

struct looker;
struct looker *looker_open(const char *run, uint64_t interval_ns, struct error *error);
void looker_close(struct looker *l);
/* From the next look on. now: at once. */
void looker_interval(struct looker *l, uint64_t interval_ns, bool now);
/* The newest look, when there is one since the last call: true, and *look is the caller's. Else
 * *error is why the last attempt failed, with code ERR_NONE when none did. */
bool looker_take(struct looker *l, struct look *look, struct error *error);

#endif
