/* SPDX-License-Identifier: Apache-2.0 */
/* Decides which rows of which sequences the next pass computes.
 *
 * There is no prefill phase and no decode phase. Each sequence has tokens without a KV row, and
 * each pass takes some of them; a prompt, the newest token of an answer and the tokens that a
 * restarted process computes again differ only in how many there are.
 *
 * A sequence that lacks one row only is a running stream: its row comes first in every pass. The
 * rows of prompts fill the rest of the pass, as far as the pass then takes at most `gap_ns`, which
 * is how long a stream may wait for its next token. Without a stream a prompt takes all rows.
 *
 * The sequence that has waited longest is next, so none starves, and a short prompt does not wait
 * for the end of a long one. Side requests (titles, tags) take what the other prompts leave, until
 * they have waited SCHEDULE_SIDE_PASSES passes. If a pass has fewer rows than there are streams,
 * only the time that they have waited counts.
 *
 * Pure functions over plain structs; times are arguments. compute uses them. */
#ifndef SLUICE_POLICY_SCHEDULE_SCHEDULE_H
#define SLUICE_POLICY_SCHEDULE_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

#define SCHEDULE_SEQUENCES_MAX 64u
/* Rows of prompts that a pass with streams takes, even if it then takes longer than gap_ns: a
 * prompt must end, and a pass of few rows reads nearly as many experts as one of this size. */
#define SCHEDULE_PROMPT_ROWS_MIN 8u
#define SCHEDULE_SIDE_PASSES     16u

/* Times of earlier passes: a line through (rows, ns) by least squares, in which each pass counts
 * SCHEDULE_PACE_KEEP times as much as the one after it. All zero: nothing is known. */
#define SCHEDULE_PACE_KEEP 0.95
struct schedule_pace {
    double weight, rows, ns, rows_rows, rows_ns; /* weighted sums */
};

void schedule_pace_add(struct schedule_pace *p, uint32_t rows, uint64_t ns);

/* The most rows, up to rows_max, with which a pass takes at most ns; 0 if even one row takes
 * longer, or if nothing is known. Passes of one size only tell nothing of others: each row is then
 * assumed to take as long as one of them. */
uint32_t schedule_pace_rows(const struct schedule_pace *p, uint64_t ns, uint32_t rows_max);

/* How many rows take as long as a pass without rows would, rounded up; 0: nothing is known. */
double schedule_pace_pass_rows(const struct schedule_pace *p);

/* gap_ns where none is given: SCHEDULE_GAP_PASSES times as long as a pass that has streams only
 * takes, by the times of such passes, but not less or more than the limits. Then a stream keeps a
 * quarter of its speed while a prompt is read, and a prompt gets passes of many rows, which share
 * the experts that are read. Nothing known: the longest. */
#define SCHEDULE_GAP_PASSES 4u
#define SCHEDULE_GAP_MIN_NS 200000000ull
#define SCHEDULE_GAP_MAX_NS 4000000000ull
uint64_t schedule_gap_ns(const struct schedule_pace *streams);

/* The number of a request in the order in which requests get a place, and in which running ones
 * give memory up, the last one first: of their arrival, but a side request lets the next
 * SCHEDULE_SIDE_REQUESTS others pass. No two have the same. */
#define SCHEDULE_SIDE_REQUESTS 8u
uint64_t schedule_turn(uint64_t arrival, bool side);
/* Whether a request may start where `sides` side requests run, of at most `places` sequences: a
 * side request leaves one place to conversations, if there is another one. */
bool schedule_has_place(uint32_t places, uint32_t sides, bool side);

/* Prompts that arrive together often begin alike. One of them is computed, and the others follow
 * it: without rows of their own, they wait until it has theirs, and take them. That is no slower
 * for them, because the rows that they lack would be computed in the same passes as those of the
 * leader, which is as far as they are; and then one more pass computes the rest of their prompt.
 * So it must save as many rows as take the time of a pass, at least SCHEDULE_FOLLOW_LEAST; a pass
 * of SCHEDULE_FOLLOW_MOST reads nearly all experts, and takes longer than one of a few rows.
 *
 * A sequence follows an earlier one in turn only: that one keeps its memory as long as it runs,
 * and the first of all always continues, so none starves. A conversation does not wait for a side
 * request, whose rows come last. */
#define SCHEDULE_FOLLOW_LEAST 64u
#define SCHEDULE_FOLLOW_MOST  256u
#define SCHEDULE_NONE         UINT32_MAX

struct schedule_leader { /* a sequence that runs, with memory for its rows */
    uint64_t turn;       /* schedule_turn */
    uint32_t rows;       /* that it has */
    uint32_t gives;      /* rows that the other one takes once this one has so many; 0: none */
    bool side;
};
struct schedule_follower { /* a sequence without rows, which could begin now */
    uint64_t turn;
    uint32_t rows; /* that it would begin with */
    bool side;
};
/* The number of the leader to wait for, the one that gives most rows, of these the earliest in
 * turn. SCHEDULE_NONE: it begins now. Asked again when that one has the rows, or computes no
 * more. */
uint32_t schedule_leader(const struct schedule_leader *leaders, uint32_t count,
                         const struct schedule_follower *f, const struct schedule_pace *pace);

struct schedule_sequence {
    uint64_t arrival;  /* number of the request, such as schedule_turn; no two have the same */
    uint64_t served;   /* number of the pass that last computed a row of it; 0: none did */
    uint64_t since;    /* number of the pass before which it arrived: what it waits from */
    uint32_t missing;  /* tokens without a KV row; 0: nothing to do */
    uint32_t rows_max; /* of them, the most in one pass; at least 1 */
    bool side;
};

struct schedule_limits {
    uint64_t pass;   /* number of the next pass; greater than all `served` and `since` */
    uint64_t gap_ns; /* 0: no limit */
    uint32_t rows;   /* of a pass; at least 1 */
};

/* Writes the rows of each sequence in the next pass: the first rows[i] of its missing tokens.
 * count: at most SCHEDULE_SEQUENCES_MAX. Returns their sum, which is 0 only if no token is
 * missing. */
uint32_t schedule_pass(const struct schedule_sequence *sequences, uint32_t count,
                       const struct schedule_limits *limits, const struct schedule_pace *pace,
                       uint32_t *rows);

#endif
