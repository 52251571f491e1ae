/* SPDX-License-Identifier: Apache-2.0 */
/* Holds the table of states and events of a child, and the tally of its crashes. */
#include "procs/engine/supervisor/children/fsm.h"

#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/clock.h"
#include "shm/kv/kv.h"

#define BACKOFF_FIRST_NS (50 * NS_PER_MS)
#define BACKOFF_MAX_NS   (10 * NS_PER_S)

/* Rows: states; columns: events, in the order of enum fsm_event. A cell is {next, action}. */
#define DO(next, action)                                                                           \
    {                                                                                              \
        PROC_##next, ACTION_##action                                                               \
    }
#define STAY(state)                                                                                \
    {                                                                                              \
        PROC_##state, ACTION_NONE                                                                  \
    }
#define BROKEN(state)                                                                              \
    {                                                                                              \
        PROC_##state, ACTION_BROKEN                                                                \
    }

static const struct fsm_step table[PROC_STATES][EVENT__COUNT] =
    {
        [PROC_DOWN] =
            {
                [EVENT_GO] = DO(STARTING, SPAWN),
                [EVENT_READY] = BROKEN(DOWN),
                [EVENT_SLOW_START] = BROKEN(DOWN),
                [EVENT_LATE] = BROKEN(DOWN),
                [EVENT_RESTART] = STAY(DOWN),
                [EVENT_STOP] = STAY(DOWN),
                [EVENT_SLOW_STOP] = BROKEN(DOWN),
                [EVENT_EXITED] = BROKEN(DOWN),
                [EVENT_EXITED_EARLY] = BROKEN(DOWN),
                [EVENT_EXITED_OFTEN] = BROKEN(DOWN),
                [EVENT_EXITED_FATAL] = BROKEN(DOWN),
                [EVENT_BACKOFF_OVER] = BROKEN(DOWN),
            },
        [PROC_STARTING] =
            {
                [EVENT_GO] = BROKEN(STARTING),
                [EVENT_READY] = DO(READY, ANNOUNCE),
                [EVENT_SLOW_START] = DO(KILLED, KILL),
                [EVENT_LATE] = BROKEN(STARTING),
                [EVENT_RESTART] = DO(KILLED, KILL),
                [EVENT_STOP] = DO(KILLED, KILL),
                [EVENT_SLOW_STOP] = BROKEN(STARTING),
                [EVENT_EXITED] = DO(DOWN, CLEAN_UP),
                [EVENT_EXITED_EARLY] = DO(BACKOFF, CLEAN_UP_WAIT),
                [EVENT_EXITED_OFTEN] = DO(FAILED, GIVE_UP),
                [EVENT_EXITED_FATAL] = DO(FAILED, GIVE_UP),
                [EVENT_BACKOFF_OVER] = BROKEN(STARTING),
            },
        [PROC_READY] =
            {
                [EVENT_GO] = BROKEN(READY),
                [EVENT_READY] = BROKEN(READY),
                [EVENT_SLOW_START] = BROKEN(READY),
                [EVENT_LATE] = DO(KILLED, KILL),
                [EVENT_RESTART] = DO(KILLED, KILL),
                [EVENT_STOP] = DO(STOPPING, REQUEST_STOP),
                [EVENT_SLOW_STOP] = BROKEN(READY),
                [EVENT_EXITED] = DO(DOWN, CLEAN_UP),
                [EVENT_EXITED_EARLY] = DO(BACKOFF, CLEAN_UP_WAIT),
                [EVENT_EXITED_OFTEN] = DO(FAILED, GIVE_UP),
                [EVENT_EXITED_FATAL] = BROKEN(READY),
                [EVENT_BACKOFF_OVER] = BROKEN(READY),
            },
        [PROC_STOPPING] =
            {
                [EVENT_GO] = BROKEN(STOPPING),
                [EVENT_READY] = BROKEN(STOPPING),
                [EVENT_SLOW_START] = BROKEN(STOPPING),
                [EVENT_LATE] = DO(KILLED, KILL),
                [EVENT_RESTART] = STAY(STOPPING),
                [EVENT_STOP] = STAY(STOPPING),
                [EVENT_SLOW_STOP] = DO(KILLED, KILL),
                [EVENT_EXITED] = DO(DOWN, CLEAN_UP),
                [EVENT_EXITED_EARLY] = DO(DOWN, CLEAN_UP),
                [EVENT_EXITED_OFTEN] = DO(DOWN, CLEAN_UP),
                [EVENT_EXITED_FATAL] = DO(DOWN, CLEAN_UP),
                [EVENT_BACKOFF_OVER] = BROKEN(STOPPING),
            },
        [PROC_BACKOFF] =
            {
                [EVENT_GO] = BROKEN(BACKOFF),
                [EVENT_READY] = BROKEN(BACKOFF),
                [EVENT_SLOW_START] = BROKEN(BACKOFF),
                [EVENT_LATE] = BROKEN(BACKOFF),
                [EVENT_RESTART] = STAY(DOWN),
                [EVENT_STOP] = STAY(DOWN),
                [EVENT_SLOW_STOP] = BROKEN(BACKOFF),
                [EVENT_EXITED] = BROKEN(BACKOFF),
                [EVENT_EXITED_EARLY] = BROKEN(BACKOFF),
                [EVENT_EXITED_OFTEN] = BROKEN(BACKOFF),
                [EVENT_EXITED_FATAL] = BROKEN(BACKOFF),
                [EVENT_BACKOFF_OVER] = STAY(DOWN),
            },
        [PROC_KILLED] =
            {
                [EVENT_GO] = BROKEN(KILLED),
                [EVENT_READY] = STAY(KILLED), /* the byte was sent before the signal */
                [EVENT_SLOW_START] = BROKEN(KILLED),
                [EVENT_LATE] = BROKEN(KILLED),
                [EVENT_RESTART] = STAY(KILLED),
                [EVENT_STOP] = STAY(KILLED),
                [EVENT_SLOW_STOP] = BROKEN(KILLED),
                [EVENT_EXITED] = DO(DOWN, CLEAN_UP),
                [EVENT_EXITED_EARLY] = DO(BACKOFF, CLEAN_UP_WAIT),
                [EVENT_EXITED_OFTEN] = DO(FAILED, GIVE_UP),
                [EVENT_EXITED_FATAL] = DO(BACKOFF, CLEAN_UP_WAIT),
                [EVENT_BACKOFF_OVER] = BROKEN(KILLED),
            },
        [PROC_FAILED] =
            {
                [EVENT_GO] = BROKEN(FAILED),
                [EVENT_READY] = BROKEN(FAILED),
                [EVENT_SLOW_START] = BROKEN(FAILED),
                [EVENT_LATE] = BROKEN(FAILED),
                [EVENT_RESTART] = STAY(DOWN),
                [EVENT_STOP] = STAY(FAILED),
                [EVENT_SLOW_STOP] = BROKEN(FAILED),
                [EVENT_EXITED] = BROKEN(FAILED),
                [EVENT_EXITED_EARLY] = BROKEN(FAILED),
                [EVENT_EXITED_OFTEN] = BROKEN(FAILED),
                [EVENT_EXITED_FATAL] = BROKEN(FAILED),
                [EVENT_BACKOFF_OVER] = BROKEN(FAILED),
            },
};

struct fsm_step fsm_step(enum proc_state state, enum fsm_event event)
{
    sl_assert((unsigned)state < PROC_STATES);
    sl_assert((unsigned)event < EVENT__COUNT);
    return table[state][event];
}

const char *fsm_event_text(enum fsm_event event)
{
    static const char *const text[EVENT__COUNT] = {
        [EVENT_GO] = "go",
        [EVENT_READY] = "ready",
        [EVENT_SLOW_START] = "slow start",
        [EVENT_LATE] = "late heartbeat",
        [EVENT_RESTART] = "restart",
        [EVENT_STOP] = "stop",
        [EVENT_SLOW_STOP] = "slow stop",
        [EVENT_EXITED] = "died",
        [EVENT_EXITED_EARLY] = "died early",
        [EVENT_EXITED_OFTEN] = "died too often",
        [EVENT_EXITED_FATAL] = "cannot start",
        [EVENT_BACKOFF_OVER] = "back-off over",
    };
    return (unsigned)event < EVENT__COUNT ? text[event] : "?";
}

bool tally_note(struct exit_tally *tally, uint64_t now_ns)
{
    memmove(&tally->at_ns[0], &tally->at_ns[1], sizeof tally->at_ns - sizeof tally->at_ns[0]);
    tally->at_ns[TALLY_EXITS - 1] = now_ns;
    if (tally->exits < UINT32_MAX)
        tally->exits++;
    return tally->exits >= TALLY_EXITS && now_ns - tally->at_ns[0] <= TALLY_WINDOW_NS;
}

void tally_clear(struct exit_tally *tally)
{
    *tally = (struct exit_tally){0};
}

bool tally_loops(const struct exit_tally *tally)
{
    return tally->exits > SEQUENCE_CRASHES_MAX;
}

uint64_t tally_backoff_ns(const struct exit_tally *tally)
{
    uint64_t wait = BACKOFF_FIRST_NS;
    for (uint32_t i = 1; i < tally->exits && wait < BACKOFF_MAX_NS; i++)
        wait *= 2;
    return wait < BACKOFF_MAX_NS ? wait : BACKOFF_MAX_NS;
}
