/* SPDX-License-Identifier: Apache-2.0 */
/* Exit records: a ring of the latest exits of all children, and the number of restarts of each
 * child by cause. Pure: children.c supplies the facts. */
#ifndef SLUICE_ENGINE_SUPERVISOR_CHILDREN_EXITS_H
#define SLUICE_ENGINE_SUPERVISOR_CHILDREN_EXITS_H

#include <stdbool.h>
#include <stdint.h>

/* With truncated messages they take 9 KiB of a stats snapshot; the gateway's smallest buffer is
 * 32 KiB. */
#define EXITS_MAX          32
#define EXIT_MESSAGE_BYTES 64

enum exit_cause {
#define EXIT_CAUSE(id, name) EXIT_CAUSE_##id,
#include "procs/engine/supervisor/children/exits.tbl.h"
    EXIT_CAUSE__COUNT
};

const char *exit_cause_name(enum exit_cause cause);

/* Facts of a reaped process. */
struct exit_facts {
    bool late;       /* killed for its heartbeat */
    bool requested;  /* its restart or stop was requested */
    bool too_slow;   /* killed before it was ready */
    bool oom;        /* killed by the OOM killer */
    uint32_t signal; /* 0: it exited */
};

enum exit_cause exit_cause_of(const struct exit_facts *facts);

/* A crash counts against the process and against the request it was computing. A SIGKILL from
 * outside does not: it is an operator's (or a test's), not the process's. Our own does, for a late
 * heartbeat or a slow start: the process hangs. So does the OOM killer's: the next one would need
 * as much memory. */
bool exit_is_crash(const struct exit_facts *facts);

struct exit_record {
    uint64_t uptime_ms; /* of the engine */
    uint64_t wall_ms;   /* since 1970 */
    uint32_t child;     /* the caller's number of the child */
    uint32_t incarnation;
    int32_t pid;
    enum exit_cause cause;
    uint32_t signal, exit_status;
    bool restarted; /* a successor was spawned */
    char exit_message[EXIT_MESSAGE_BYTES];
};

struct exits {
    uint64_t count; /* since the start; EXITS_MAX are stored */
    struct exit_record ring[EXITS_MAX];
};

/* Replaces the oldest record. The message is truncated to fit, between two characters. */
void exits_record(struct exits *exits, const struct exit_record *exit_record,
                  const char *exit_message);
/* The child's successor was spawned. */
void exits_mark_restarted(struct exits *exits, uint32_t child);
uint32_t exits_retained(const struct exits *exits);
/* The i-th stored record, the oldest first. */
const struct exit_record *exits_at(const struct exits *exits, uint32_t i);

#endif
