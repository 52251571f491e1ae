/* SPDX-License-Identifier: Apache-2.0 */
/* Experts in a bounded memory: a region of slots that threads read experts into, and that evicts
 * the expert whose layer is needed last. Layers are visited in ascending order, cyclically, so the
 * next use of a layer is known: it is as far as the layer is from the layers that are being
 * computed.
 *
 * ABSENT --want--> COMING --read, or made and slots_made--> READY --evicted (no pins)--> ABSENT
 *
 * A form of an expert is the expert as stored at a precision, or one that the caller makes from
 * it. */
#ifndef SLUICE_OFFLINE_SLOTS_H
#define SLUICE_OFFLINE_SLOTS_H

#include "lib/offline/files.h"

struct slots;

enum slots_found {
    SLOTS_READY,  /* pinned */
    SLOTS_COMING, /* pinned; a thread reads or makes it: slots_ready: it is done */
    SLOTS_MAKE,   /* pinned; the caller fills it and calls slots_made */
    SLOTS_FULL,   /* not pinned: no space until a pin is released */
    SLOTS_FAILED, /* not pinned: a read failed, slots_error */
};

/* forms: of each expert; max_bytes: more than the region will ever have. readers: threads that
 * read. NULL with *error. */
struct slots *slots_create(struct offline_files *files, uint32_t experts, uint32_t layers,
                           uint32_t forms, uint64_t max_bytes, uint32_t readers,
                           struct error *error);
void slots_destroy(struct slots *s); /* without pins */

/* The region has this many bytes from now on. Only while nothing is pinned. */
void slots_resize(struct slots *s, uint64_t bytes);
uint64_t slots_bytes(const struct slots *s);

/* A form of an expert (number layer * experts + expert). entry: in the files, or ENTRY_NONE if the
 * caller makes it. bytes: of its slot, multiples of the page. *at: where it is, unless FULL or
 * FAILED. */
struct slots_form {
    uint32_t expert, form, entry;
    uint64_t bytes;
};
enum slots_found slots_pin(struct slots *s, const struct slots_form *f, uint8_t **at);
/* why: it could not be made, and every later call fails; NULL: it is READY. */
void slots_made(struct slots *s, const struct slots_form *f, const struct error *why);
void slots_unpin(struct slots *s, uint32_t expert, uint32_t form);

/* True if it is READY; of a form without a pin, only for the moment. */
bool slots_ready(struct slots *s, uint32_t expert, uint32_t form);

/* Pins it if it is READY; else false. */
bool slots_pin_ready(struct slots *s, uint32_t expert, uint32_t form, uint8_t **at);

/* Waits until something changed since *seen, which begins as 0: a form became READY, a pin was
 * released, or a read failed. -1 with *error in the last case. */
int slots_wait(struct slots *s, uint64_t *seen, struct error *error);

/* The first layer that is visited from now on: those before it are needed last. */
void slots_from(struct slots *s, uint32_t layer);

/* The layer that worker `worker` computes; UINT32_MAX: none. */
#define SLOTS_WORKERS_MAX 64
void slots_at(struct slots *s, uint32_t worker, uint32_t layer);

#endif
