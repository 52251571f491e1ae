/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of a state, for masks: steps that are taken back. Frames are kept once each, in an
 * array that only grows within a walk; what a walk added is cut off again. */
#ifndef SLUICE_GRAMMAR_STATE_H
#define SLUICE_GRAMMAR_STATE_H

#include "lib/grammar/program.h"

#define STATE_ITEMS   256   /* stacks side by side; more are dropped */
#define STATE_FRAMES  16384 /* of all stacks */
#define STATE_VISITED 4096

struct frame {
    uint32_t node; /* a CALL or LOOP */
    uint32_t count, parent, depth, chain;
};

struct item {
    uint32_t node, frame; /* a node that consumes a byte; frame 0: the bottom */
};

struct items {
    uint32_t count;
    bool end; /* the text may end here */
    struct item at[STATE_ITEMS];
};

struct visit_mark {
    uint32_t node, frame, fresh, round;
};

struct grammar_state {
    const struct grammar *g;
    uint32_t frames_count, round;
    struct frame frames[STATE_FRAMES];
    uint32_t heads[STATE_VISITED];
    struct visit_mark visited[STATE_VISITED];
    uint32_t moved[STATE_FRAMES]; /* state_compact's */
    struct items now, then, spare;
};

/* `from` after a byte, in *to. False: no stack continues. */
bool state_step(struct grammar_state *s, const struct items *from, uint8_t byte, struct items *to);
/* Cuts off the frames from `count` on. */
void state_take_back(struct grammar_state *s, uint32_t count);
/* Keeps the frames that s->now has, so that at least half of the room is free. */
void state_compact(struct grammar_state *s);
/* The bytes that one of the items consumes. */
void items_bytes(const struct grammar_state *s, const struct items *items, uint64_t set[4]);

#endif
