/* The state machine of one child: a table of states and events. Pure: no clock, no process, no
 * shared memory, so that a test can walk every cell. children.c feeds it and does what it says.
 *
 *            GO: spawn              READY: announce               STOP: ask
 *   DOWN ----------------> STARTING ---------------> READY ----------------> STOPPING
 *    ^ ^                    |   |                    |   |                    |   |
 *    | |                    |   | SLOW_START, RESTART|   | LATE, RESTART      |   | SLOW_STOP
 *    | |                    |   +-------> KILLED <---+---|--------------------|---+
 *    | |                    |                |           |                    |
 *    | +------ DIED: bury --+----------------+-----------+--------------------+
 *    |                      |                |           |
 *    |   BACKOFF_OVER       |                |           |   DIED_EARLY: bury, wait
 *    +------------------ BACKOFF <-----------+-----------+
 *                           |
 *                           +--> (DIED_OFTEN, DIED_REFUSED from any living state) --> FAILED
 *
 * KILLED is "SIGKILL sent, not yet reaped": what the process was told to write may still be
 * written, so nobody takes its place before the kernel has returned it to waitpid. FAILED is left
 * only when a person says RESTART. */
#ifndef SLUICE_ENGINE_SUPERVISOR_CHILDREN_FSM_H
#define SLUICE_ENGINE_SUPERVISOR_CHILDREN_FSM_H

#include <stdbool.h>
#include <stdint.h>

#include "shm/table/process_table.h"

#define PROC_STATES (PROC_FAILED + 1)

enum machine_event {
    EVENT_GO,           /* wanted, and everything it starts after is READY */
    EVENT_READY,        /* the byte came */
    EVENT_SLOW_START,   /* it did not come in time */
    EVENT_LATE,         /* heartbeat too old */
    EVENT_RESTART,      /* a person asked for a new one */
    EVENT_STOP,         /* the run ends */
    EVENT_SLOW_STOP,    /* STOP was not obeyed in time */
    EVENT_DIED,         /* reaped: after progress, or because we asked for it */
    EVENT_DIED_EARLY,   /* reaped: before READY, or after READY without progress */
    EVENT_DIED_OFTEN,   /* the same, too many times in a minute */
    EVENT_DIED_REFUSED, /* reaped while STARTING with exit status 2: trying again cannot help */
    EVENT_BACKOFF_OVER,
    EVENT__COUNT
};

enum machine_action {
    ACTION_NONE,
    ACTION_SPAWN,
    ACTION_ANNOUNCE, /* it is READY: dependants may start, its lease is taken */
    ACTION_KILL,
    ACTION_ASK_STOP,
    ACTION_BURY,      /* clean up after a reaped process */
    ACTION_BURY_WAIT, /* the same, then wait before the next one */
    ACTION_GIVE_UP,   /* the same, then none is started any more */
    ACTION_BROKEN     /* cannot happen: our own state is wrong */
};

struct machine_step {
    uint8_t next;   /* enum proc_state */
    uint8_t action; /* enum machine_action */
};

struct machine_step machine_step(enum proc_state state, enum machine_event event);

const char *machine_event_text(enum machine_event event);

/* Early deaths of one child. */
#define TALLY_DEATHS    5
#define TALLY_WINDOW_NS (60ull * 1000000000ull)

struct death_tally {
    uint64_t at_ns[TALLY_DEATHS]; /* ring of the latest */
    uint32_t deaths;              /* since the last progress; decides the back-off */
};

/* Notes an early death; true when it is the fifth within a minute. */
bool tally_note(struct death_tally *tally, uint64_t now_ns);
/* The child made progress: what was before does not count any more. */
void tally_clear(struct death_tally *tally);
/* How long to wait after the death just noted: 50 ms, doubling, at most 10 s. */
uint64_t tally_backoff_ns(const struct death_tally *tally);

#endif
