/* What became of children that died: the latest deaths of all of them, in a ring, and how many of
 * each cause a child was restarted for. Pure: who died, when and of what is told by children.c. */
#ifndef SLUICE_ENGINE_SUPERVISOR_CHILDREN_EXITS_H
#define SLUICE_ENGINE_SUPERVISOR_CHILDREN_EXITS_H

#include <stdbool.h>
#include <stdint.h>

/* With their words cut they are 9 KiB of a document of which the gateway's smallest buffer takes
 * 32 KiB. */
#define DEATHS_KEPT        32
#define DEATHS_WORDS_BYTES 64

enum death_cause {
#define DEATH(name, word) DEATH_##name,
#include "procs/engine/supervisor/children/exits.tbl.h"
    DEATH__COUNT
};

const char *death_word(enum death_cause cause);

/* What is known of a process that was reaped. */
struct death_facts {
    bool late;       /* killed for its heartbeat */
    bool asked;      /* somebody wanted a new one, or none */
    bool too_slow;   /* killed before it was ready */
    uint32_t signal; /* 0: it exited */
};

enum death_cause death_cause_of(const struct death_facts *facts);

struct death {
    uint64_t uptime_ms; /* of the engine */
    uint64_t wall_ms;   /* since 1970 */
    uint32_t child;     /* whose: the caller's number */
    uint32_t incarnation;
    int32_t pid;
    enum death_cause cause;
    uint32_t signal, exit_status;
    bool restarted; /* another one was spawned */
    char words[DEATHS_WORDS_BYTES];
};

struct deaths {
    uint64_t count; /* since the start; at most DEATHS_KEPT are kept */
    struct death ring[DEATHS_KEPT];
};

/* Keeps it in the place of the oldest. words: cut to what fits, between two characters. */
void deaths_note(struct deaths *deaths, const struct death *death, const char *words);
/* The child's successor was spawned. */
void deaths_restarted(struct deaths *deaths, uint32_t child);
uint32_t deaths_kept(const struct deaths *deaths);
/* The i-th of those kept, the oldest first. */
const struct death *deaths_at(const struct deaths *deaths, uint32_t i);

#endif
