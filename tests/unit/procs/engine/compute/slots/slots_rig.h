/* SPDX-License-Identifier: Apache-2.0 */
/* Slots of a kv segment of its own, without a core: for tests of slots, versions of the state and
 * rings. */
#ifndef SLUICE_TESTS_SLOTS_RIG_H
#define SLUICE_TESTS_SLOTS_RIG_H

#include <check.h>
#include <stdbool.h>
#include <stdint.h>

#include "procs/engine/compute/slots/kept.h"
#include "procs/engine/compute/slots/slots.h"
#include "procs/engine/compute/slots/state.h"

struct rig {
    _Atomic uint64_t beat_ns;
    struct child child;
    struct slots slots;
    struct params params; /* defaults */
    struct process row;
    struct procs_head *procs;
    struct model_index model;
    struct kv_head *head;
    struct kv_shape shape;
};

/* One per program. Keys and values are F16. */
extern struct rig w;

void rig_open(const struct model_hparams *h, uint32_t context, uint32_t chunk,
              uint32_t checkpoints);
void rig_open_counts(const struct model_hparams *h, uint32_t context, uint32_t chunk,
                     const struct kv_counts *counts);
void rig_close(void);

/* A RUNNING request in row `row` with a prompt of `tokens` tokens. The log, all of the context, is
 * that of all others; from position `differs` on, that of others with the same `shift`. */
struct kv_request *rig_submit(uint32_t row, uint64_t id, uint32_t tokens, uint32_t differs,
                              uint32_t shift);
/* Its slot, with memory for a log of `tokens` tokens. */
uint32_t rig_start(uint32_t row, struct kv_request *q, uint32_t tokens);
/* The log has so many tokens now. */
void rig_extend(uint32_t slot, struct kv_request *q, uint32_t tokens);
/* A request in row `row`, with tokens of its own, takes memory until the rest suffices for one slot
 * of `tokens` tokens, but not for one beside another slot, whose `rows` rows it shares. */
void rig_leave(uint32_t row, uint64_t id, uint32_t tokens, uint32_t rows);
void rig_end(uint32_t row, uint32_t slot, struct kv_request *q, bool keep);

/* Runs the tests; returns the exit status. */
int rig_main(const char *name, TCase *t);

#endif
