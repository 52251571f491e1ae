/* SPDX-License-Identifier: Apache-2.0 */
/* The ledger: what the engine can use, what it uses, and what is left for the arena. Pure
 * arithmetic over facts from measure.c and budget.c, with unit tests.
 *
 *   budget = margin + fixed + cost(quota) + cost(lent)
 *
 * fixed:  everything whose size does not depend on the arena: segments, KV that running sequences
 *         share, private memory (reservations), program text, kernel memory of threads and
 *         sockets.
 * cost(): the arena's quota and its overhead: tmpfs nodes, page tables of each process that maps
 *         it, and reads in flight of a crashed loader (its pages stay charged until they complete,
 *         while its successor already fills new ones).
 * lent:   memory of experts that kept prefixes save more time with; it yields before all else.
 * margin: memory that cannot be measured: the kernel charges in batches per CPU, page cache of a
 *         started program, a process that grows between two measurements. */
#ifndef SLUICE_ENGINE_SUPERVISOR_BUDGET_LEDGER_H
#define SLUICE_ENGINE_SUPERVISOR_BUDGET_LEDGER_H

#include <stdbool.h>
#include <stdint.h>

/* Kernel memory of one thread: 16 KiB stack, task structure, FPU state (26 KiB measured in
 * total). */
#define LEDGER_THREAD_BYTES (24u * 1024u)
/* Kernel memory of one process: descriptor table, mm, VMAs, sockets with queued buffers, io_uring
 * ring. */
#define LEDGER_PROCESS_BYTES (96u * 1024u)
/* Page tables of a process without segments: measured 62-78 KiB with 15 threads. */
#define LEDGER_PAGE_TABLE_BYTES (80u * 1024u)
/* Touched part of a thread stack, without the frame of a kernel. */
#define LEDGER_STACK_BYTES (16u * 1024u)

struct ledger_facts {
    uint64_t budget;
    /* the model */
    uint64_t dense_bytes;       /* slots of dense entries */
    uint64_t expert_slot_bytes; /* slots of all experts */
    uint64_t experts_min_bytes; /* slots that must fit: capacity_slot_min */
    /* the engine */
    uint64_t segments_bytes; /* all, without the arena's payload and the KV cache */
    uint64_t kv_bytes;       /* keys, values and states: the pool that all sequences share */
    uint64_t lent_bytes; /* for kept prefixes beside the pool, where experts lend: all of it, what
                              * they would not need included; 0: they lend nothing */
    uint64_t
        private_bytes;    /* reservations of all processes, including successors of crashed ones */
    uint64_t text_bytes;  /* programs and libraries, once per file */
    uint64_t page_tables; /* measured, all processes; 0 before */
    uint32_t threads;
    uint32_t processes;
    uint32_t mappers; /* processes that touch the arena's pages */
    uint32_t loaders;
    uint64_t sockets_bytes; /* kernel memory for connections of the gateway */
    uint64_t
        loader_flight; /* reads of one loader that can be at the device: storage_flight_bytes */
};

struct ledger_result {
    uint64_t margin;
    uint64_t fixed;
    uint64_t kernel;      /* part of fixed: threads, processes */
    uint64_t page_tables; /* at this quota */
    uint64_t nodes;       /* tmpfs nodes at this quota */
    uint64_t flight;      /* at this quota */
    uint64_t quota;       /* arena bytes that can be backed; 0 when the minimum does not fit */
    uint64_t spare;      /* left when all experts have memory, without the page tables of its use */
    uint64_t quota_min;  /* dense + K largest experts */
    uint64_t min_budget; /* minimum budget, a whole number of MiB */
};

/* Of `wanted` bytes for kept prefixes, what they can have if experts lend: these keep half of what
 * they would have, and the minimum. 0 where experts need not lend for so much. Whatever
 * f->lent_bytes is. */
uint64_t ledger_lend(const struct ledger_facts *f, uint64_t wanted);

struct ledger_result ledger_make(const struct ledger_facts *facts);

/* The same where nothing is lent: what experts have when it comes back, and what is left then. */
struct ledger_result ledger_unlent(const struct ledger_facts *facts);

/* The smallest budget for the dense weights and `bytes` of experts (of their slots), at least the
 * experts of the minimum. */
uint64_t ledger_budget_for(const struct ledger_facts *facts, uint64_t expert_bytes);

/* max(2 %, 4 MiB) */
uint64_t ledger_margin(uint64_t budget);

/* Spare memory on a machine that has so much available, where `used` of it is in use already and
 * the rest of the engine will take `missing` more. An eighth stays free: other programs take memory
 * at any time. */
uint64_t ledger_spare_within(uint64_t available, uint64_t used, uint64_t missing);
/* The spare memory that is published instead of `now`: in steps, and growth only of more than
 * noise. */
uint64_t ledger_spare_step(uint64_t spare, uint64_t now);

/* What kept prefixes may use beside the pool on a machine that has so much for it: what experts do
 * not need, in steps (*spare: that, and before it the last one); or `lent`, if that is more, which
 * experts have left. Lending that begins or ends (f->lent_bytes) does not touch the former. */
uint64_t ledger_beside_pool(const struct ledger_facts *f, uint64_t machine, uint64_t lent,
                            uint64_t *spare);

/* True when a new quota is to be sent to the cache: every shrink, and growth of more than noise. */
bool ledger_quota_moves(uint64_t now, uint64_t wanted);

#endif
