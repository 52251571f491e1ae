/* SPDX-License-Identifier: Apache-2.0 */
/* A sample of an engine: its stats snapshot, its map, and process data from /proc. A thread takes
 * samples, so that keys work while the engine does not reply. */
#ifndef SLUICE_CLIENTS_TOP_SAMPLE_H
#define SLUICE_CLIENTS_TOP_SAMPLE_H

#include <stdbool.h>
#include <stdint.h>

#include "config/services.h"
#include "ipc/rpc/rpc.h"
#include "procs/clients/common/map.h"

struct process_seen { /* of row i of the snapshot, from the kernel */
    uint64_t cpu_ns;
    uint64_t anon; /* private bytes */
};

struct sample {
    json_t *doc, *map_reply; /* map_reply NULL: no map */
    json_t *requests;        /* compute's reply to `status`; NULL: none */
    struct map map;          /* rows 0 without a map; borrows from map_reply */
    uint64_t when_ns;
    struct process_seen seen[SERVICE_PROCESSES_MAX];
};

/* Clients of the supervisor and of compute. */
struct calls {
    struct rpc_client *control, *engine;
};

/* 0, or -1 with *error. stop: when it is set, calls in progress end. */
int calls_open(struct calls *calls, const char *run, volatile int *stop, struct error *error);
void calls_close(struct calls *calls);

/* Takes a sample. 0 with *sample (freed by sample_free), or -1 with *error. */
int sample_get(const struct calls *calls, struct sample *sample, struct error *error);
void sample_free(struct sample *sample);

struct poller;
struct poller *poller_open(const char *run, uint64_t interval_ns, struct error *error);
void poller_close(struct poller *l);
/* Changes the interval from the next sample on. now: sample immediately. */
void poller_set_interval(struct poller *l, uint64_t interval_ns, bool now);
/* Returns true when a sample was taken since the last call; *sample is then the caller's. Otherwise
 * *error is the failure of the last attempt, ERR_NONE when there was none. */
bool poller_take(struct poller *l, struct sample *sample, struct error *error);

#endif
