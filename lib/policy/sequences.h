/* SPDX-License-Identifier: Apache-2.0 */
/* Sequences by number: each that runs has a *place* from 0 to SEQUENCES_MAX - 1, where its owner
 * keeps what belongs to it. Policies, the cache and the predictor see sequences only as numbers in
 * records, several of them in any order, so that a different number than before says nothing: a
 * sequence begins with its START record and ends with its END record.
 *
 * A record may be missing, because a reader of the access log fell behind or was started in the
 * middle. So a number without a place may be started by its first access, and when all places are
 * taken, the sequence that was looked up longest ago loses its place. Nothing allocates. */
#ifndef SLUICE_POLICY_SEQUENCES_H
#define SLUICE_POLICY_SEQUENCES_H

#include <stdbool.h>
#include <stdint.h>

#define SEQUENCES_MAX 64u /* that may run at the same time */
#define SEQUENCE_NONE UINT32_MAX

enum sequence_state { SEQUENCE_FREE, SEQUENCE_RUNS, SEQUENCE_ENDED };

struct sequences { /* all 0: none */
    struct {
        enum sequence_state state;
        uint32_t number;
        uint64_t used; /* number of the call that looked it up last, or ended it */
    } place[SEQUENCES_MAX];
    uint64_t calls;
    uint32_t recent; /* the place looked up last */
};

/* The place of a running sequence; SEQUENCE_NONE when it has none. */
uint32_t sequences_find(struct sequences *s, uint32_t number);

/* Whether the sequence has ended and was not started again. Known only until its place is taken by
 * another one, which may be the next but one to start. */
bool sequences_ended(const struct sequences *s, uint32_t number);

/* A place for a sequence that has none. *displaced: a running sequence loses this place, and the
 * caller ends it first. Places of ended sequences are taken again before unused ones, except for
 * the one that ended last: so one sequence after another uses two places. */
uint32_t sequences_start(struct sequences *s, uint32_t number, bool *displaced);

/* Ends a sequence. Returns the place that it had; SEQUENCE_NONE: it had none. */
uint32_t sequences_end(struct sequences *s, uint32_t number);

#endif
