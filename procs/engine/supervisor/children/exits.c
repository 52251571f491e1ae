/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the cause of an exit, and keeps the latest exits in a ring. */
#include "procs/engine/supervisor/children/exits.h"

#include <signal.h>
#include <string.h>

#include "lib/base/assert.h"

const char *exit_cause_name(enum exit_cause cause)
{
    static const char *const names[] = {
#define EXIT_CAUSE(id, name) name,
#include "procs/engine/supervisor/children/exits.tbl.h"
    };
    sl_assert(cause < EXIT_CAUSE__COUNT);
    return names[cause];
}

/* The order matters: the OOM killer's SIGKILL is not ours, whatever was requested; a late heartbeat
 * takes precedence over a requested restart, and after a request our signal ends the process, so
 * that its status means nothing. */
enum exit_cause exit_cause_of(const struct exit_facts *facts)
{
    if (facts->oom)
        return EXIT_CAUSE_OOM;
    if (facts->late)
        return EXIT_CAUSE_HEARTBEAT;
    if (facts->requested)
        return EXIT_CAUSE_REQUESTED;
    if (facts->too_slow)
        return EXIT_CAUSE_START;
    return facts->signal ? EXIT_CAUSE_SIGNAL : EXIT_CAUSE_EXIT;
}

bool exit_is_crash(const struct exit_facts *facts)
{
    if (facts->late || facts->oom)
        return true;
    if (facts->requested)
        return false;
    return facts->too_slow || facts->signal != SIGKILL;
}

void exits_record(struct exits *exits, const struct exit_record *exit_record,
                  const char *exit_message)
{
    struct exit_record *d = &exits->ring[exits->count++ % EXITS_MAX];
    size_t n = strnlen(exit_message, EXIT_MESSAGE_BYTES);
    *d = *exit_record;
    if (n == EXIT_MESSAGE_BYTES)
        for (n--; n > 0 && ((unsigned char)exit_message[n] & 0xc0) == 0x80;)
            n--; /* cut between two characters */
    memcpy(d->exit_message, exit_message, n);
    d->exit_message[n] = 0;
}

void exits_mark_restarted(struct exits *exits, uint32_t child)
{
    for (uint32_t i = exits_retained(exits); i-- > 0;) {
        struct exit_record *d =
            &exits->ring[(exits->count - exits_retained(exits) + i) % EXITS_MAX];
        if (d->child == child) {
            d->restarted = true;
            return;
        }
    }
}

uint32_t exits_retained(const struct exits *exits)
{
    return exits->count < EXITS_MAX ? (uint32_t)exits->count : EXITS_MAX;
}

const struct exit_record *exits_at(const struct exits *exits, uint32_t i)
{
    sl_assert(i < exits_retained(exits));
    return &exits->ring[(exits->count - exits_retained(exits) + i) % EXITS_MAX];
}
