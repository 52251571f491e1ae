/* SPDX-License-Identifier: Apache-2.0 */
/* Prefixes on storage (--prefix-dir): kept slots are written to files, and a prompt that begins
 * with the tokens of a file continues from its rows, also after a restart.
 *
 * The runner chooses, and touches the slots; a thread reads and writes the files:
 *
 *   write   prefixes_turn copies a piece of a kept slot, and the thread writes it. The runner does
 *           so when no pass waited for experts since the last piece, so that no read of an expert
 *           waits for more than one piece.
 *   read    prefixes_begin gives the thread a file and a slot whose sequence waits. The thread
 *           writes rows that are not valid yet; prefixes_loading makes them valid when the
 *           checksums of all are right, and gives them up else, also if storage does not answer
 *           within --load-timeout. Other sequences are computed meanwhile.
 *
 * Every function accepts NULL: there is no directory. The runner thread only, but for what says
 * otherwise. */
#ifndef SLUICE_ENGINE_COMPUTE_PREFIXES_PREFIXES_H
#define SLUICE_ENGINE_COMPUTE_PREFIXES_PREFIXES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "lib/base/error.h"

struct prefixes;
struct slots;
struct kv_request;

/* For the model and the directory of the parameters. wake(arg): there is something for the runner.
 * `arithmetic`: KERNEL_ARITHMETIC. A removal that a predecessor has not ended (kv_head.cleared) is
 * done. NULL with *error: the directory cannot be used. */
struct prefixes *prefixes_open(struct slots *slots, uint32_t arithmetic, void (*wake)(void *arg),
                               void *arg, struct error *error);
void prefixes_close(struct prefixes *p);

/* A running sequence has taken the slot, which has memory for its log: begins to read what storage
 * has beyond the rows that are there, if reading takes less time than computing. */
void prefixes_begin(struct prefixes *p, uint32_t slot, struct kv_request *q,
                    const _Atomic uint32_t *log);
/* True while the slot is read, and may not be computed; then kv_valid has the rows. */
bool prefixes_loading(struct prefixes *p, uint32_t slot, struct kv_request *q);
/* The slot is given up, or its sequence ends: it is not read any more. */
void prefixes_cancel(struct prefixes *p, uint32_t slot);

/* Between passes and while there is none: writes a piece of what is kept, if nothing waits for
 * storage. idle: no sequence runs; stall_ns: the time that passes waited for experts, in all. */
void prefixes_turn(struct prefixes *p, bool idle, uint64_t stall_ns);

/* Begins to remove all files, also the one that is written now; whether it has not ended. */
void prefixes_clear(struct prefixes *p);
bool prefixes_clearing(struct prefixes *p);

/* Any thread. The files that can be used, until false; `at` from 0. */
struct prefix_listed {
    uint32_t tokens, uses;
    uint64_t bytes;
    int64_t used_ns; /* real time */
};
bool prefixes_list(struct prefixes *p, uint32_t at, struct prefix_listed *listed);

#endif
