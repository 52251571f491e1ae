/* SPDX-License-Identifier: Apache-2.0 */
/* The state machine of one child: a table of states and events. Pure: no clock, no process, no
 * shared memory, so that a test can check every cell. children.c supplies events and executes
 * actions.
 *
 *            GO: spawn              READY: announce               STOP: request stop
 *   DOWN ----------------> STARTING ---------------> READY ----------------> STOPPING
 *    ^ ^                    |   |                    |   |                    |   |
 *    | |                    |   | SLOW_START, RESTART|   | LATE, RESTART      |   | SLOW_STOP
 *    | |                    |   +-------> KILLED <---+---|--------------------|---+
 *    | |                    |                |           |                    |
 *    | +-- EXITED: clean up --+----------------+-----------+--------------------+
 *    |                      |                |           |
 *    |   BACKOFF_OVER       |                |           |   EXITED_EARLY: clean up, wait
 *    +------------------ BACKOFF <-----------+-----------+
 *                           |
 *                           +--> (EXITED_OFTEN, EXITED_FATAL from any living state) --> FAILED
 *
 * The first start: a child that fails to start becomes FAILED (EXITED_OFTEN, EXITED_FATAL), which
 * ends the engine if it is essential. A child that has been READY in an engine that has served
 * never gets these events: it is restarted forever, and its requests fail while it crashes again
 * and again (tally_loops).
 *
 * KILLED is "SIGKILL sent, not yet reaped": the process may still write, so that no successor
 * starts before waitpid has returned it. FAILED is left only by `ctl restart`. */
#ifndef SLUICE_ENGINE_SUPERVISOR_CHILDREN_FSM_H
#define SLUICE_ENGINE_SUPERVISOR_CHILDREN_FSM_H

#include <stdbool.h>
#include <stdint.h>

#include "shm/table/process_table.h"

#define PROC_STATES (PROC_FAILED + 1)

enum fsm_event {
    EVENT_GO,           /* to be started; all its prerequisites are READY */
    EVENT_READY,        /* the ready byte arrived */
    EVENT_SLOW_START,   /* it did not arrive in time */
    EVENT_LATE,         /* heartbeat too old */
    EVENT_RESTART,      /* ctl restart or replace */
    EVENT_STOP,         /* the engine stops */
    EVENT_SLOW_STOP,    /* it did not stop in time */
    EVENT_EXITED,       /* reaped: after progress, or on request */
    EVENT_EXITED_EARLY, /* reaped: before READY, or after READY without progress */
    EVENT_EXITED_OFTEN, /* the same, too many times in a minute, at the first start */
    EVENT_EXITED_FATAL, /* reaped while STARTING with exit status 2, at the first start: a retry
                         * cannot help */
    EVENT_BACKOFF_OVER,
    EVENT__COUNT
};

enum fsm_action {
    ACTION_NONE,
    ACTION_SPAWN,
    ACTION_ANNOUNCE, /* it is READY: dependants can start, its reservation is set */
    ACTION_KILL,
    ACTION_REQUEST_STOP,
    ACTION_CLEAN_UP,      /* clean up after a reaped process */
    ACTION_CLEAN_UP_WAIT, /* the same, then wait before the next start */
    ACTION_GIVE_UP,       /* the same, and no further start */
    ACTION_BROKEN         /* cannot happen: our own state is wrong */
};

struct fsm_step {
    uint8_t next;   /* enum proc_state */
    uint8_t action; /* enum fsm_action */
};

struct fsm_step fsm_step(enum proc_state state, enum fsm_event event);

const char *fsm_event_text(enum fsm_event event);

/* Crashes of one child without progress in between. */
#define TALLY_EXITS     5 /* as many within TALLY_WINDOW_NS: it fails to start */
#define TALLY_WINDOW_NS (60ull * 1000000000ull)

struct exit_tally {
    uint64_t at_ns[TALLY_EXITS]; /* ring of the latest */
    uint32_t exits;              /* since the last progress; determines the back-off */
};

/* Counts a crash; true when it is the fifth within a minute. */
bool tally_note(struct exit_tally *tally, uint64_t now_ns);
/* The child made progress: earlier exits no longer count. */
void tally_clear(struct exit_tally *tally);
/* How long to wait after an exit without progress: 50 ms after the first crash (and after an exit
 * that is no crash), doubling, at most 10 s. */
uint64_t tally_backoff_ns(const struct exit_tally *tally);
/* It crashes again and again: one time more than a request is retried (SEQUENCE_CRASHES_MAX), so
 * that a single request never is the reason. */
bool tally_loops(const struct exit_tally *tally);

#endif
