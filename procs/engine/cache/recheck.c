/* SPDX-License-Identifier: Apache-2.0 */
/* The arena after a crash of a process that may write it. A wild write can have changed any expert
 * that was published before. So every expert that was in memory at that time is compared with its
 * checksum (stores have them), one at a time between messages. A damaged one is evicted, and read
 * again when it is needed.
 *
 *   arena_suspect (supervisor)   crashes of writers so far
 *   arena_checked (cache)        of these, those after which every expert was compared; a successor
 *                                of a cache that died in between starts again */
#include <inttypes.h>
#include <unistd.h>
#define XXH_STATIC_LINKING_ONLY /* a state on the stack */
#include <xxhash.h>

#include "lib/base/assert.h"
#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "procs/engine/cache/cache.h"

#define COPY_BYTES    (32 * KIB) /* fits a core's cache; a mapping would take page tables */
#define NEXT_ROUND_NS (20 * NS_PER_MS)

static atomic_flag damage_logged = ATOMIC_FLAG_INIT;

/* ---- one expert ------------------------------------------------------------------------------ */

static bool range_has_sum(struct cache *c, uint64_t at, uint64_t bytes, uint64_t sum)
{
    XXH3_state_t state;
    char copy[COPY_BYTES];
    XXH3_64bits_reset(&state);
    while (bytes > 0) {
        size_t want = bytes < sizeof copy ? (size_t)bytes : sizeof copy;
        ssize_t got = pread(c->child.arena.fd, copy, want, (off_t)at);
        if (got <= 0)
            return false;
        XXH3_64bits_update(&state, copy, (size_t)got);
        at += (uint64_t)got;
        bytes -= (uint64_t)got;
    }
    return XXH3_64bits_digest(&state) == sum;
}

/* Pre: READY, which only this process can change. */
static bool is_right(struct cache *c, uint32_t entry)
{
    const struct model_entry *e = &c->entries[entry];
    const uint64_t *sums = model_index_checksums(c->child.model) + e->checksum_first;
    for (uint32_t i = 0; i < c->loader_count; i++) {
        struct model_extent shard[ENTRY_EXTENTS_MAX];
        uint32_t runs = model_entry_shard(e, i, c->loader_count, shard);
        sl_assert(runs <= 1); /* an entry of a store is one extent */
        if (runs == 1 && !range_has_sum(c, cache_offset(c, entry) + shard[0].slot_offset,
                                        shard[0].read_bytes, sums[i]))
            return false;
    }
    return true;
}

static void clear(struct cache *c, uint32_t entry)
{
    c->notes[entry].flags &= (uint16_t)~NOTE_SUSPECT;
    c->recheck.left--;
}

static void drop(struct cache *c, uint32_t entry)
{
    if (!cache_evict(c, entry))
        return; /* compute uses it: in the next round */
    c->sets_broken = c->swap != NULL;
    clear(c, entry);
    c->recheck.damaged++;
    cache_count(c, CTR_CACHE_experts_damaged, 1);
    if (log_once(&damage_logged))
        log_error(
            "layer %u expert %u was damaged in memory after it had been read; it is read again. "
            "Text since the damage may be wrong (further ones are only counted)",
            c->entries[entry].layer, c->entries[entry].expert);
}

/* True if it was compared. One that is being read is compared in the next round: a part of it may
 * have been read before the crash. */
static bool recheck_entry(struct cache *c, uint32_t entry)
{
    enum entry_state state = entry_state_of(cache_entry_word(c, entry));
    if (state == ENTRY_ABSENT)
        clear(c, entry);
    if (state != ENTRY_READY || !cache_noted(c, entry, NOTE_RESIDENT))
        return false;
    cache_count(c, CTR_CACHE_experts_rechecked, 1);
    if (is_right(c, entry))
        clear(c, entry);
    else
        drop(c, entry);
    return true;
}

/* ---- all ------------------------------------------------------------------------------------- */

static void begin(struct cache *c, uint32_t suspect)
{
    c->recheck = (struct cache_recheck){.crash = suspect};
    for (uint32_t e = c->child.model->dense_count; e < c->child.model->entry_count; e++) {
        bool suspected = c->entries[e].checksum_first != ENTRY_NONE &&
                         entry_state_of(cache_entry_word(c, e)) != ENTRY_ABSENT;
        c->notes[e].flags &= (uint16_t)~NOTE_SUSPECT;
        if (!suspected)
            continue;
        c->notes[e].flags |= NOTE_SUSPECT;
        c->recheck.left++;
    }
    if (c->child.model->checksum_count == 0)
        log_warn(
            "a process that may write experts crashed; those of this model have no checksums, so "
            "that they cannot be verified");
}

static void end(struct cache *c)
{
    struct directory_head *head = c->child.directory.head;
    atomic_store_explicit(&head->arena_checked, c->recheck.crash, memory_order_release);
    if (c->child.model->checksum_count > 0)
        log_info("verified the experts in memory after a crash: %" PRIu32 " damaged",
                 c->recheck.damaged);
}

bool cache_recheck(struct cache *c, uint64_t now_ns)
{
    struct directory_head *head = c->child.directory.head;
    struct cache_recheck *r = &c->recheck;
    uint32_t suspect = atomic_load_explicit(&head->arena_suspect, memory_order_acquire);
    if (suspect == atomic_load_explicit(&head->arena_checked, memory_order_relaxed))
        return false;
    if (r->crash != suspect)
        begin(c, suspect);
    if (now_ns < r->next_ns)
        return false;
    while (r->left > 0 && r->at < c->child.model->entry_count) {
        uint32_t entry = r->at++;
        if (cache_noted(c, entry, NOTE_SUSPECT) && recheck_entry(c, entry))
            return true;
    }
    if (r->left == 0) {
        end(c);
        return false;
    }
    r->at = 0;
    r->next_ns = now_ns + NEXT_ROUND_NS;
    return false;
}
