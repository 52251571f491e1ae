/* SPDX-License-Identifier: Apache-2.0 */
/* Gates: a ring of rows, one for each sequence and layer that compute passes, with experts. Writer:
 * compute. Reader: predictor.
 *
 * Rows are numbered from 0 on, modulo 2^32. GATES_ROWS of them are kept: a layer of a pass of so
 * many sequences. Older rows are for layers that their sequences have passed.
 *
 * Contents of a row:
 *   decode   the gate input (hidden floats); with presets that predict from paths, the numbers of
 *            the layer's chosen experts by rank (GATES_ROUTES)
 *   prefill  the E predicted token counts of the next layer, then for each of its experts the
 *            minimum gate weight ranked before it; with presets that predict for chunks
 *
 * Rows are seqlocks over relaxed atomics: a reader that meets a write, or a newer row, skips the
 * row (cost: one hint less). The predictor sleeps on `news`; compute makes a system call only
 * while it sleeps. */
#ifndef SLUICE_SHM_RINGS_GATES_H
#define SLUICE_SHM_RINGS_GATES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "shm/segment/segment.h"

#define GATES_ROWS 64u /* a power of two; SEQUENCES_MAX of lib/policy/sequences.h */

enum gates_kind { GATES_INPUT = 1, GATES_COUNTS = 2, GATES_ROUTES = 3 };

struct gates_row_head {
    _Atomic uint32_t lock; /* seqlock: odd during a write; a restarted writer makes it even again */
    _Atomic uint32_t kind; /* enum gates_kind */
    _Atomic uint32_t sequence; /* low 32 bits of the request id */
    _Atomic uint32_t position;
    _Atomic uint32_t count; /* number of floats */
    _Atomic uint32_t layer, number;
    _Atomic uint32_t token; /* of a row that decodes */
    uint32_t reserved[8];
    /* followed by `width` _Atomic uint32_t: the bits of the floats */
};
_Static_assert(sizeof(struct gates_row_head) == 64, "one cache line");

struct gates_head {
    struct segment_head segment;
    uint32_t layers, width;   /* constants; width = max(hidden, 2 experts) rounded up to 16 */
    _Atomic uint32_t news;    /* futex word: +1 per published row; the number of the next one */
    _Atomic uint32_t waiters; /* 1 while the predictor is in FUTEX_WAIT */
    uint32_t reserved[12];
};

struct gates {
    struct segment segment;
    struct gates_head *head;
    char *rows;
    uint64_t row_bytes;
    uint32_t layers, width; /* as they were when it was attached */
};

struct gates_read {
    enum gates_kind kind;
    uint32_t sequence, position, token, layer, count;
};

/* What a row is of. */
struct gates_place {
    uint32_t layer, sequence, position, token;
};

uint64_t gates_bytes(uint32_t hidden, uint32_t experts);
void gates_format(void *base, uint32_t layers, uint32_t hidden, uint32_t experts);
int gates_attach(int fd, bool writable, uint64_t boot, struct gates *out, struct error *error);

/* compute, once after (re)start: repairs rows left half written by its predecessor. */
void gates_repair(struct gates *g);

/* compute: publishes a row. A system call only if the predictor sleeps. */
void gates_publish(struct gates *g, const struct gates_place *of, enum gates_kind kind,
                   const float *values, uint32_t count);

/* predictor: copies the row with that number, at most `width` floats; values NULL: none of them.
 * False when a newer row is there, or is being written. */
bool gates_read(struct gates *g, uint32_t number, struct gates_read *out, float *values);

/* predictor: waits until news != seen or the timeout. Returns the news counter. */
uint32_t gates_wait(struct gates *g, uint32_t seen, uint64_t timeout_ns);

#endif
