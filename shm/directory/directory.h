/* SPDX-License-Identifier: Apache-2.0 */
/* The directory: one 64-byte entry per model entry (numbered by lib/model/index/model_index.h), a
 * ready counter per layer, and a header with the cache's epoch, the quota and the throttles. Every
 * field names its writer; readers take no lock. */
#ifndef SLUICE_SHM_DIRECTORY_DIRECTORY_H
#define SLUICE_SHM_DIRECTORY_DIRECTORY_H

#include <stdatomic.h>
#include <stdint.h>

#include "lib/base/clock.h"
#include "lib/model/index/model_index.h"
#include "shm/directory/entry.h"
#include "shm/segment/segment.h"

#define DIRECTORY_LOADERS_MAX 16 /* == MSG_PARTS_MAX */
#define DIRECTORY_FILES_MAX   8  /* of a loader (procs/engine/child/run_storage.h) */

struct directory_entry {
    entry_word word;               /* changed by shm/directory/entry.c only */
    _Atomic uint64_t arena_offset; /* writer: cache, while ABSENT; readers: with a pin and READY, or
                                      a LOAD's generation */
    _Atomic uint64_t failures;   /* writer: loaders (fetch_add); failed reads of this entry since it
                                * was last READY */
    _Atomic uint32_t last_errno; /* writer: loaders; errno of the last failure */
    _Atomic uint32_t last_loader; /* writer: loaders; loader of the last failure */
    uint32_t
        slot_pages; /* constants from the model index, written by the supervisor before any child */
    uint16_t layer, expert;
    uint8_t kind, precision;
    uint16_t size_class; /* arena class; entries with a fixed offset, absent ones: UINT16_MAX */
    uint32_t warm_rank;  /* writer: supervisor, before any child: the entry's place among those that
                          * earlier runs used most, from 1; 0: none */
    _Atomic uint32_t accesses; /* writer: cache; logged accesses since the engine started */
    /* Of page slots: 1 + the page of the table that the entry has or had, 0: none yet. Writer:
     * cache, while ABSENT; readers: as arena_offset. */
    _Atomic uint32_t page;
    _Atomic uint32_t used_at; /* table_reads when compute last asked for or read the page of a slot;
                               * writers: compute; cache, while ABSENT (page_slot_unused) */
    uint32_t reserved;
};
_Static_assert(sizeof(struct directory_entry) == 64, "one entry, one cache line");

struct directory_counter {
    _Atomic uint32_t ready;   /* futex word: ++ after every change out of LOADING in this layer */
    _Atomic uint32_t waiters; /* processes in FUTEX_WAIT; no wake at 0 (seq_cst on both sides) */
    uint32_t reserved[14];
};
_Static_assert(sizeof(struct directory_counter) == 64, "a futex has its cache line to itself");

/* A file that a loader reads, as it was when the supervisor opened it. Writer: the supervisor while
 * the loader is down; the loader, for the next three, when these changed without the bytes, and for
 * the last one. */
struct directory_file {
    uint64_t held; /* 1: the loader inherits a descriptor of it; 0: it could not be opened */
    uint64_t dev, ino, bytes;
    int64_t mtime_ns;
    _Atomic int64_t ctime_ns;
    _Atomic uint64_t links_mode, owner; /* st_nlink << 32 | st_mode, st_uid << 32 | st_gid */
    _Atomic uint64_t identity; /* on a server: as it was at the first connection (lib/io/io.h) */
};

/* Why compute accepts no new sequence; directory_head.draining. */
enum directory_draining { DRAINING_NO, DRAINING_DRAIN, DRAINING_STOP };

struct directory_head {
    struct segment_head segment;
    uint32_t entry_count,
        layer_count; /* constants; counters: layer_count + 1, the last for global tensors */
    uint32_t loader_count, dense_count;
    uint64_t entries_offset;
    _Atomic uint32_t epoch;       /* writer: cache, +1 at its start before FLUSH */
    _Atomic uint32_t draining;    /* enum directory_draining; writer: supervisor */
    _Atomic uint64_t quota_bytes; /* writer: supervisor: target for backed arena bytes (header page
                                     not counted) */
    _Atomic uint64_t kv_spare_bytes; /* writer: supervisor: of the budget, what experts do not need,
                                     * or lend: compute keeps prefixes there, and gives it back */
    _Atomic uint32_t quota_epoch;    /* writer: supervisor, after quota_bytes */
    _Atomic uint32_t quota_applied;  /* writer: cache: epoch whose quota backed bytes obey */
    _Atomic uint64_t
        experts_payload_max; /* writer: supervisor: --resident-experts cap in payload bytes;
                                             UINT64_MAX: none */
    _Atomic uint64_t
        backed_bytes; /* writer: cache: bytes of the arena that are or may become backed */
    _Atomic uint64_t owned_bytes; /* writer: cache: slot bytes of entries that are not ABSENT */
    _Atomic uint64_t resident_payload_bytes;                      /* writer: cache */
    _Atomic uint64_t throttle_bytes_per_s[DIRECTORY_LOADERS_MAX]; /* writer: supervisor; 0 = none */
    _Atomic uint32_t prefetch_paused;  /* writer: cache: an entry waits for capacity (loaders check
                                        * it before a prefetch chunk) */
    _Atomic uint32_t doorbells_wanted; /* writer: cache: wants doorbells for successful shards
                                        * immediately */
    _Atomic uint32_t quarantined[DIRECTORY_LOADERS_MAX]; /* quarantined copies of a loader
                                                          * (procs/engine/child/run_storage.h).
                                                          * writer: that loader; the supervisor
                                                          * clears it while the loader is down */
    _Atomic uint64_t token_bell; /* writer: cache: compute sends TOKENS when the access log's count
                                  * of tokens reaches this; 0: never */
    _Atomic uint32_t replaced[DIRECTORY_LOADERS_MAX]; /* copies whose path names another file now,
                                                       * or none; bits and writers as in
                                                       * quarantined */
    _Atomic uint32_t model_changed; /* writer: supervisor: 0, or the file that changed in place and
                                     * has no other copy (run_storage.h): every sequence fails */
    _Atomic uint32_t arena_suspect; /* writer: supervisor: crashes of processes that may write the
                                       * arena, each of which may have damaged it */
    _Atomic uint32_t arena_checked; /* writer: cache: value of arena_suspect after which it has
                                       * verified the experts in memory */
    _Atomic uint32_t
        kv_lent_max_mib;          /* writer: supervisor: what experts may lend to kept prefixes */
    _Atomic uint32_t table_reads; /* writer: compute: reads of rows of a table on storage, modulo
                                   * 2^32: the time of page slots (lib/policy/access/pages.h) */
    uint32_t reserved;
    struct directory_file files[DIRECTORY_LOADERS_MAX][DIRECTORY_FILES_MAX];
};

struct directory {
    struct segment segment;
    struct directory_head *head;
    struct directory_entry *entries;
    struct directory_counter *counters;
};

uint64_t directory_bytes(const struct model_index *model);

/* supervisor: initialises a newly created segment. size_class comes from the arena layout. */
struct arena_layout;
void directory_format(void *base, const struct model_index *model,
                      const struct arena_layout *layout, uint32_t loader_count);

/* Attaches and checks the counts against the model index. -1 with *error. */
int directory_attach(int fd, bool writable, uint64_t boot, const struct model_index *model,
                     struct directory *out, struct error *error);

/* Counter index of an entry: its layer, or layer_count for global tensors. */
static inline uint32_t directory_counter_of(const struct directory *d, uint32_t entry)
{
    uint16_t layer = d->entries[entry].layer;
    return layer == UINT16_MAX ? d->head->layer_count : layer;
}

/* Rule (d) of entry.h: increments the counter and wakes waiters. Call it after every change out of
 * LOADING. */
void directory_signal(struct directory *d, uint32_t counter);

/* FUTEX_WAIT on a counter while it equals `seen`, at most timeout_ns. Spurious returns are
 * normal. */
void directory_wait(struct directory *d, uint32_t counter, uint32_t seen, uint64_t timeout_ns);

static inline uint32_t directory_counter_now(struct directory *d, uint32_t counter)
{
    return atomic_load_explicit(&d->counters[counter].ready, memory_order_seq_cst);
}

/* supervisor: clears the pin bit of a process in all entries. */
void directory_sweep(struct directory *d, enum entry_pinner pinner);

#endif
