/* SPDX-License-Identifier: Apache-2.0 */
/* The cache manager's context and the functions its files share. Private to procs/engine/cache. */
#ifndef SLUICE_ENGINE_CACHE_CACHE_H
#define SLUICE_ENGINE_CACHE_CACHE_H

#include "lib/base/clock.h"
#include "lib/policy/access/swap.h"
#include "lib/policy/prediction/prediction.h"
#include "lib/policy/prediction/prefetch.h"
#include "lib/policy/presets/presets.h"
#include "lib/policy/residency/residency.h"
#include "lib/policy/sequences.h"
#include "lib/tensor/precision.h"
#include "procs/engine/cache/prefault.h"
#include "procs/engine/child/child.h"

#define CACHE_MAGIC 0x48434143u

#define CACHE_FAILURES_MAX 3              /* failed loads after which a request is abandoned */
#define CACHE_SILENCE_NS   (5 * NS_PER_S) /* a ready loader silent for this long is unreachable */
#define CACHE_PINS_NS      (250 * NS_PER_MS) /* between checks for pins without a DEMAND */
#define CACHE_PINS_SOON_MS 5                 /* the same while such pins were found */
#define CACHE_TICK_NS      (50 * NS_PER_MS)
#define CACHE_OBSERVE_NS   (20 * NS_PER_MS) /* checks of loading entries: a DONE can get lost */
#define CACHE_WAITING_MS   2 /* between retries of waiting entries: no message reports an unpin */

/* Flags of an entry, private to the cache. The entry word is authoritative. */
enum {
    NOTE_LISTED = 1,      /* LOADING or DOOMED: in `loading` */
    NOTE_WAITING = 2,     /* ABSENT, no space for it: in `waiting` */
    NOTE_RESIDENT = 4,    /* READY and counted */
    NOTE_DEMANDED = 8,    /* a process waits for it */
    NOTE_PREFETCHED = 16, /* loaded for a hint, not accessed yet */
    NOTE_DIRTY = 64,      /* its loader crashed: the slot is punched before it is freed */
    NOTE_UNSENT = 128,    /* a LOAD did not fit the queue */
    NOTE_FETCHED = 256,   /* prefetch in flight or done, for a layer that compute has not reached */
    NOTE_SUSPECT = 512    /* in memory when a writer of the arena crashed, not compared yet */
};

struct cache_note {          /* one per entry, private */
    uint64_t generation;     /* of the current reservation */
    uint64_t demand_ns;      /* when the DEMAND was sent */
    uint64_t next_send_ns;   /* when LOAD is sent again */
    uint64_t failures_seen;  /* count at the reservation */
    uint64_t failures_from;  /* count at the request */
    uint64_t evicted_at;     /* cache.evicted_bytes after its eviction; 0: it was not evicted */
    uint32_t next, previous; /* in loading or waiting */
    uint32_t resend_ms;
    union {
        uint32_t heat_token;  /* token for which heat is valid */
        uint32_t reserved_at; /* of a page slot: table_reads when it was reserved */
    };
    float heat; /* decayed accesses per token */
    uint16_t flags, priority;
    uint16_t hints; /* predictions of it, in lists of all sequences */
};

struct entry_list {
    uint32_t head, tail, count;
};

struct cache_loader {
    struct channel *channel;
    uint32_t connected_incarnation; /* incarnation that was sent all its pending LOADs */
    bool flushed;
    uint32_t last_sender;   /* newest incarnation that sent a message */
    uint64_t messages_seen; /* its counter of messages; it grows while the loader receives any */
    uint64_t silent_ns; /* since when a ready loader with pending shards is silent; 0: it is not */
    struct msg_loads loads; /* not sent yet */
};

struct prediction_list { /* of one sequence and target layer */
    struct prediction_place target;
    uint32_t count, at; /* predictions before `at` are done */
    bool prefill, certain;
    struct msg_prediction *predictions;
};

struct cache_times { /* compute's counters at the last token */
    uint64_t decode_ns, prefill_ns, stall_ns;
};

struct cache_median { /* a running median; 0: unknown */
    double value;
    uint32_t samples;
};

struct cache_reads { /* a loader's counters at the last token */
    uint64_t bytes, busy_ns;
};

struct cache_sequence {           /* one that runs */
    bool stepped;                 /* compute had a position in it: `now` */
    struct prediction_place now;  /* from demands and the access log */
    struct prediction_list *list; /* [layers] */
    uint32_t lists;               /* that are not empty */
};

struct cache_recheck { /* of the experts in memory, after a crash */
    uint32_t crash;    /* value of arena_suspect that it is for */
    uint32_t at, left; /* next entry; experts that remain to be compared */
    uint32_t damaged;
    uint64_t next_ns; /* of the next round */
};

struct cache {
    uint32_t magic;
    uint32_t epoch;
    struct child child;
    const struct model_entry *entries; /* of the model index */
    struct arena_layout layout;
    struct arena_alloc *alloc;
    uint32_t preset; /* the current preset and its policy parameters */
    struct knobs knobs;
    struct residency *residency;    /* experts that are not ABSENT, by slot: entry - dense_count */
    uint64_t capacity;              /* last value passed to residency */
    uint64_t *slot_payload;         /* [expert entries] */
    float *frequency, *shares;      /* from the plan, for the residency object */
    enum precision usual_precision; /* precision of loads without a request */
    struct prefetch_limit limit;
    bool prefill;                     /* compute is in a chunk */
    struct cache_median layer_ns;     /* compute time of a layer, without waiting */
    struct cache_median bytes_per_ns; /* of all loaders, while they read */
    struct cache_times times;
    struct cache_reads reads[SERVICE_LOADERS_MAX];
    uint32_t *fill; /* entries of the preload, in order */
    uint32_t fill_count, fill_at;
    struct swap *swap; /* NULL: no expert replacement */
    struct swap_pair pair;
    bool pair_active, pair_started; /* replacement of `pair` in progress; its read was started */
    uint64_t tokens_read;           /* the access log's count when it was last read to its end */
    bool sets_broken;               /* experts were evicted that replacement did not choose */
    struct cache_note *notes;
    struct entry_list loading, waiting;
    struct channel *compute, *predictor;
    struct cache_loader loaders[SERVICE_LOADERS_MAX];
    uint32_t loader_count;
    struct access_log_reader accesses;
    uint32_t token;        /* passes ended since start, the clock of heat */
    uint16_t pass_ended;   /* the last of them */
    uint32_t tokens_ended; /* decode tokens among the records being read */
    uint32_t layer;        /* that compute is in */
    struct sequences sequences;
    struct cache_sequence sequence[SEQUENCES_MAX]; /* by place */
    uint64_t predicted;                            /* bit i: the sequence at place i has lists */
    uint32_t predictions_max;                      /* of a list */
    struct prefault *prefault;
    bool prefault_full;
    uint64_t prefault_after_ns; /* after an allocation that failed: not tried before; 0: none did */
    bool computing;             /* an access was logged recently */
    uint64_t accesses_noted, accesses_noted_ns;
    uint64_t owned_bytes;       /* slots of entries that are not ABSENT, dense included */
    uint64_t evicted_bytes;     /* slots of evicted entries, since the start */
    uint64_t allocated_payload; /* payload of experts that are not ABSENT */
    uint64_t resident_payload;  /* of READY experts */
    uint32_t resident_entries;
    uint32_t demands_open, prefetches_open;
    uint32_t unsent;
    struct cache_recheck recheck;
    bool pins_soon;      /* pins without a DEMAND were found */
    bool prefetch_check; /* a change may allow another prefetch */
    bool quota_pending;  /* quota_control is not yet acknowledged */
    struct msg_control quota_control;
    uint64_t next_tick_ns, next_observe_ns, next_pins_ns;
    uint64_t lost_seen, invalid_seen; /* counted so far */
    struct arena_alloc_stats alloc_seen;
};

/* start.c */
void cache_flush_loaders(struct cache *c);
void cache_rebuild(struct cache *c);
void cache_load_required(struct cache *c);

/* loads.c: from ABSENT to READY and back. */
/* Resets the failure count of an ABSENT entry, then as cache_request. */
void cache_request_fresh(struct cache *c, uint32_t entry, enum load_priority priority,
                         uint64_t demand_ns);
/* Requests an ABSENT entry: reserves it, or puts it on the waiting list when there is no space. */
void cache_request(struct cache *c, uint32_t entry, enum load_priority priority,
                   uint64_t demand_ns);
/* Reserves an ABSENT entry at an offset allocated for it, and sends its LOADs. */
void cache_reserve(struct cache *c, uint32_t entry, uint64_t offset, enum load_priority priority,
                   uint64_t demand_ns);
/* Raises the priority of a LOADING entry to a demand. */
void cache_raise(struct cache *c, uint32_t entry, uint64_t demand_ns);
/* Reads the word of a listed entry and handles READY and DOOMED. */
void cache_observe(struct cache *c, uint32_t entry);
void cache_observe_all(struct cache *c);
/* LOADING -> DOOMED, and notifies the loaders. False when it had become READY. */
bool cache_cancel(struct cache *c, uint32_t entry);
void cache_send_due(struct cache *c, uint64_t now_ns);
/* Sends the LOADs gathered so far: one message per loader carries many. */
void cache_send_gathered(struct cache *c);
void cache_send_all_to(struct cache *c, uint32_t loader);
void cache_note_resident(struct cache *c, uint32_t entry);
void cache_set_demanded(struct cache *c, uint32_t entry, bool demanded);
void cache_retry_waiting(struct cache *c);
void cache_waiting_add(struct cache *c, uint32_t entry, enum load_priority priority,
                       uint64_t demand_ns, uint64_t not_before_ns);

/* capacity.c: space and victims. */
bool cache_fits(const struct cache *c, uint32_t entry);
bool cache_space_take(struct cache *c, uint32_t entry, uint64_t *offset);
/* Free space only, without eviction. */
bool cache_space_take_free(struct cache *c, uint32_t entry, uint64_t *offset);
/* Space for a prefetch; false when every victim is worth more than the prefetch. */
bool cache_space_take_prefetch(struct cache *c, uint32_t entry, struct prefetch_state *state,
                               uint64_t *offset);
/* Evicts the victim that the policy chooses. incoming: the entry that needs the space; ENTRY_NONE
 * when the capacity shrinks. False when nothing can be evicted. */
bool cache_evict_one(struct cache *c, uint32_t incoming);
/* READY -> ABSENT. False when it is pinned. */
bool cache_evict(struct cache *c, uint32_t entry);
/* Evicts entries that the allocation keeps for their layer only. */
void cache_evict_expired(struct cache *c);
/* Cancels prefetches until the bytes being freed reach `bytes`. */
void cache_cancel_prefetches(struct cache *c, uint64_t bytes);
float cache_heat(const struct cache *c, uint32_t entry);
uint64_t cache_quota(const struct cache *c);
uint64_t cache_payload_max(const struct cache *c); /* the cap on experts; UINT64_MAX: none */

/* demand.c, hint.c: messages of compute and of the predictor. */
void cache_receive_compute(struct cache *c);
void cache_read_accesses(struct cache *c, uint64_t limit);
void cache_set_token_bell(struct cache *c);
bool cache_tokens_passed(struct cache *c);
void cache_receive_predictor(struct cache *c);
/* certain: of KNOWN; else of HINT. */
void cache_take_hint(struct cache *c, const struct msg_hint *hint, bool certain);
/* Loads what compute waits for although no DEMAND arrived: found by its pins. */
void cache_check_pins(struct cache *c, uint64_t now_ns);
/* The tables of predictions. False: out of memory. */
bool cache_create_predictions(struct cache *c);
void cache_destroy_predictions(struct cache *c);
/* A sequence starts, is at a layer, or ends. */
void cache_sequence_starts(struct cache *c, uint32_t sequence);
void cache_advance(struct cache *c, const struct prediction_place *now);
void cache_sequence_ends(struct cache *c, uint32_t sequence);
/* Of all sequences: their ends may have been lost. */
void cache_forget_predictions(struct cache *c);
void cache_prefetch(struct cache *c);
/* Predictions remain to be prefetched when the storage device is idle. */
bool cache_predictions_wait(struct cache *c);

/* pages.c: page slots of a table on storage. They have their memory from the start on; it is
 * neither lent nor evicted. */
void cache_take_pages(
    struct cache *c); /* their memory, once, before what was READY is taken over */
void cache_demand_pages(struct cache *c, const struct msg_pages *demand);
/* A page slot that was reset: reads its page again, if it did not fail. */
void cache_page_was_reset(struct cache *c, uint32_t entry, bool failed);

/* loaders.c */
void cache_receive_loader(struct cache *c, uint32_t loader);
/* Reads the process table: cleans up after reaped loaders, sends pending LOADs to new ones. */
void cache_check_loaders(struct cache *c);
void cache_clean_loader(struct cache *c, uint32_t loader, uint32_t reaped);
struct process *cache_loader_process(const struct cache *c, uint32_t loader);
bool cache_loader_ready(const struct cache *c, uint32_t loader);

/* recheck.c */
/* Compares one expert with its checksum if a writer of the arena crashed. True when it did. */
bool cache_recheck(struct cache *c, uint64_t now_ns);

/* quota.c */
/* Applies the quota, one slice of work. True when more work remains. */
bool cache_apply_quota(struct cache *c);
void cache_prefault(struct cache *c);
/* Pages remain to be prefaulted when nothing is loading. */
bool cache_prefault_waits(const struct cache *c);

/* policy.c: the current preset. */
int cache_set_preset(struct cache *c, uint32_t preset, struct error *error);
/* Switches to the preset that the access log gives for a sequence. */
void cache_follow_preset(struct cache *c, uint32_t preset);
void cache_follow_capacity(struct cache *c);
/* Number of entries of the largest size that fit. */
uint32_t cache_capacity_entries(const struct cache *c);
/* `ended` decode tokens were completed. */
void cache_note_tokens(struct cache *c, uint32_t ended);
/* Time to read an expert at the recent read bandwidth; 0: unknown. */
double cache_expert_ns(const struct cache *c);

/* fill.c: loads without a request. */
int cache_choose_fill(struct cache *c, struct error *error);
void cache_fill(struct cache *c);
bool cache_fill_waits(const struct cache *c);

/* ---- small helpers ---- */

static inline uint32_t cache_slot(const struct cache *c, uint32_t entry)
{
    return entry - c->child.model->dense_count;
}

static inline struct directory_entry *cache_directory_entry(struct cache *c, uint32_t entry)
{
    return &c->child.directory.entries[entry];
}

static inline uint64_t cache_entry_word(struct cache *c, uint32_t entry)
{
    return entry_read(&cache_directory_entry(c, entry)->word);
}

static inline bool cache_is_page(const struct cache *c, uint32_t entry)
{
    return entry >= model_experts_end(c->child.model);
}

static inline bool cache_is_expert(const struct cache *c, uint32_t entry)
{
    return entry >= c->child.model->dense_count && !cache_is_page(c, entry);
}

static inline bool cache_noted(const struct cache *c, uint32_t entry, unsigned flag)
{
    return (c->notes[entry].flags & flag) != 0;
}

static inline uint64_t cache_offset(struct cache *c, uint32_t entry)
{
    /* Relaxed: only this thread of the cache writes it. */
    return atomic_load_explicit(&cache_directory_entry(c, entry)->arena_offset,
                                memory_order_relaxed);
}

static inline void cache_signal(struct cache *c, uint32_t entry)
{
    directory_signal(&c->child.directory, directory_counter_of(&c->child.directory, entry));
}

static inline void cache_count(struct cache *c, unsigned counter, uint64_t n)
{
    counter_add(c->child.process, counter, n);
}

void cache_list_append(struct cache *c, struct entry_list *list, uint32_t entry);
void cache_list_remove(struct cache *c, struct entry_list *list, uint32_t entry);

#endif
