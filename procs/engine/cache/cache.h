/* The cache manager's context and what its files offer each other. Private to procs/cache. */
#ifndef SLUICE_ENGINE_CACHE_CACHE_H
#define SLUICE_ENGINE_CACHE_CACHE_H

#include "lib/base/clock.h"
#include "lib/policy/access/swap.h"
#include "lib/policy/prediction/prefetch.h"
#include "lib/policy/presets/presets.h"
#include "lib/policy/residency/residency.h"
#include "lib/tensor/tier.h"
#include "procs/engine/cache/prefault.h"
#include "procs/engine/child/child.h"

#define CACHE_MAGIC 0x48434143u

#define CACHE_FAILURES_MAX 3              /* loads that may fail after an entry was asked for */
#define CACHE_ALONE_NS     (5 * NS_PER_S) /* a ready loader never heard of by then is out of reach */
#define CACHE_PINS_NS      (250 * NS_PER_MS) /* between looks for pins no DEMAND came for */
#define CACHE_PINS_SOON_MS 5                 /* the same while there were some */
#define CACHE_TEND_NS      (50 * NS_PER_MS)
#define CACHE_OBSERVE_NS   (20 * NS_PER_MS) /* between looks at loading entries: DONEs get lost */
#define CACHE_WAITING_MS   2 /* between tries of entries without room: unpins are silent */

/* Where an entry stands for the cache; the word decides, these are its own notes about it. */
enum {
    NOTE_LISTED = 1,      /* LOADING or DOOMED: in `loading` */
    NOTE_WAITING = 2,     /* ABSENT and without room: in `waiting` */
    NOTE_RESIDENT = 4,    /* READY and counted */
    NOTE_DEMANDED = 8,    /* somebody waits for it */
    NOTE_PREFETCHED = 16, /* loaded for a hint, not used yet */
    NOTE_HINTED = 32,     /* guessed for a layer still to come */
    NOTE_DIRTY = 64,      /* a loader died on it: the slot is punched before it is given back */
    NOTE_UNSENT = 128,    /* a LOAD did not fit the queue */
    NOTE_FETCHED = 256    /* being fetched, or fetched, for the guesses of a layer still to come */
};

struct cache_note {          /* one per entry, private */
    uint64_t generation;     /* of the running reservation */
    uint64_t demand_ns;      /* of the DEMAND behind it */
    uint64_t next_send_ns;   /* LOAD is repeated then */
    uint64_t failures_seen;  /* when it was reserved */
    uint64_t failures_from;  /* when it was asked for */
    uint32_t next, previous; /* in loading or waiting */
    uint32_t resend_ms;
    uint32_t heat_token; /* heat is right for this token */
    float heat;          /* uses per token, lately */
    uint16_t flags, priority;
};

struct entry_list {
    uint32_t head, tail, count;
};

struct cache_loader {
    struct edge *edge;
    uint32_t greeted; /* incarnation that was sent everything it owes */
    bool flushed;
    uint32_t heard;         /* newest incarnation a message came from */
    uint64_t messages_seen; /* of its own counter: while it moves the loader gets messages */
    uint64_t alone_ns;      /* since when a ready one that owes was never heard; 0: no such thing */
    struct msg_loads loads; /* not sent yet */
};

struct guess_list { /* of one target layer */
    uint32_t sequence, position;
    uint32_t count, at; /* guesses before `at` were dealt with */
    bool prefill;
    struct msg_guess *guesses;
};

struct cache_times { /* of compute, counted so far */
    uint64_t decode_ns, prefill_ns, stall_ns;
};

struct cache_middle { /* a running median; 0: not known */
    double value;
    uint32_t samples;
};

struct cache_reads { /* of a loader, counted so far */
    uint64_t bytes, busy_ns;
};

struct cache_now { /* where compute is, as far as demands and the use log tell */
    uint32_t sequence, position;
    uint16_t layer;
};

struct cache_said {  /* by the router of a layer, until the layer's first use */
    uint8_t *levels; /* [experts] */
    uint32_t count;  /* of them that came */
    struct cache_now at;
};

struct cache {
    uint32_t magic;
    uint32_t epoch;
    struct child child;
    const struct model_entry *entries; /* of the model index */
    struct arena_layout layout;
    struct arena_alloc *alloc;
    uint32_t system; /* that runs: its number, its knobs */
    struct knobs knobs;
    struct residency *residency; /* experts that are not ABSENT, by slot: entry - dense_count */
    uint64_t capacity;           /* it was told so */
    uint64_t *slot_payload;      /* [experts' entries] */
    float *frequency, *shares;   /* of the plan, for the residency object */
    enum tier usual_tier;        /* that experts nobody asked for are loaded at */
    struct prefetch_limit limit;
    struct cache_middle layer_ns;     /* a layer's own work */
    struct cache_middle bytes_per_ns; /* of all loaders while they read */
    struct cache_said said;
    struct cache_times times;
    struct cache_reads reads[SERVICE_LOADERS_MAX];
    uint32_t *fill; /* entries the room is filled with at first, in order */
    uint32_t fill_count, fill_at;
    struct swap *swap; /* NULL: nothing is swapped */
    struct swap_pair pair;
    bool pair_out; /* it is being exchanged */
    struct cache_note *notes;
    struct entry_list loading, waiting;
    struct edge *compute, *predictor;
    struct cache_loader loaders[SERVICE_LOADERS_MAX];
    uint32_t loader_count;
    struct uses_reader uses;
    uint32_t token;        /* tokens ended since start, the clock of heat */
    uint32_t tokens_ended; /* tokens of decode among the records now read */
    struct cache_now now;
    struct guess_list *guesses; /* per layer */
    uint32_t guesses_max;
    struct prefault *prefault;
    bool prefault_broken, prefault_full;
    bool computing; /* a use was logged lately */
    uint64_t uses_noted, uses_noted_ns;
    uint64_t owned_bytes;      /* slots of entries that are not ABSENT, dense included */
    uint64_t held_payload;     /* payload of experts that are not ABSENT */
    uint64_t resident_payload; /* of READY experts */
    uint32_t resident_entries;
    uint32_t demands_open, prefetches_open;
    uint32_t unsent;
    bool pins_soon;     /* there were pins no DEMAND came for */
    bool prefetch_look; /* something changed that may allow another prefetch */
    bool quota_asked;   /* quota_control waits for its acknowledgement */
    struct msg_control quota_control;
    uint64_t next_tend_ns, next_observe_ns, next_pins_ns;
    uint64_t lost_seen, invalid_seen; /* counted so far */
    struct arena_alloc_stats alloc_seen;
};

/* cache_start.c */
void cache_flush_loaders(struct cache *c);
void cache_rebuild(struct cache *c);
void cache_load_standing(struct cache *c);

/* cache_loads.c: from ABSENT to READY and back. */
/* Asks for an ABSENT entry with a fresh count of failures, then as cache_request. */
void cache_request_anew(struct cache *c, uint32_t entry, enum load_priority priority,
                        uint64_t demand_ns);
/* Asks for an ABSENT entry: reserves it, or puts it on the waiting list when there is no room. */
void cache_request(struct cache *c, uint32_t entry, enum load_priority priority,
                   uint64_t demand_ns);
/* Reserves an ABSENT entry at a place that was taken for it, and sends its LOADs. */
void cache_reserve(struct cache *c, uint32_t entry, uint64_t offset, enum load_priority priority,
                   uint64_t demand_ns);
/* Raises the priority of a LOADING entry to a demand. */
void cache_raise(struct cache *c, uint32_t entry, uint64_t demand_ns);
/* Looks at the word of a listed entry and draws the consequences of READY and DOOMED. */
void cache_observe(struct cache *c, uint32_t entry);
void cache_observe_all(struct cache *c);
/* LOADING -> DOOMED, and tells the loaders to look. False when it had become READY. */
bool cache_cancel(struct cache *c, uint32_t entry);
void cache_send_due(struct cache *c, uint64_t now_ns);
/* Sends the LOADs gathered so far: one message a loader carries many. */
void cache_send_gathered(struct cache *c);
void cache_send_all_to(struct cache *c, uint32_t loader);
void cache_note_resident(struct cache *c, uint32_t entry);
void cache_set_demanded(struct cache *c, uint32_t entry, bool demanded);
void cache_retry_waiting(struct cache *c);
void cache_waiting_add(struct cache *c, uint32_t entry, enum load_priority priority,
                       uint64_t demand_ns, uint64_t not_before_ns);

/* cache_room.c: who must leave. */
bool cache_fits(const struct cache *c, uint32_t entry);
bool cache_room_take(struct cache *c, uint32_t entry, uint64_t *offset);
/* Room that nothing has to leave for. */
bool cache_room_take_free(struct cache *c, uint32_t entry, uint64_t *offset);
/* Room for a guess; false when only something worth more would have to leave. */
bool cache_room_take_prefetch(struct cache *c, uint32_t entry, struct prefetch_state *state,
                              uint64_t *offset);
/* Evicts the entry whose turn it is. incoming: the entry room is made for, ENTRY_NONE when the room
 * shrinks. False when nothing may leave. */
bool cache_evict_one(struct cache *c, uint32_t incoming);
/* READY -> ABSENT. False when it is pinned. */
bool cache_evict(struct cache *c, uint32_t entry);
/* What the allocation does not keep beyond its layer. */
void cache_evict_expired(struct cache *c);
/* Cancels prefetches until the bytes on their way back reach `bytes`. */
void cache_cancel_prefetches(struct cache *c, uint64_t bytes);
float cache_heat(const struct cache *c, uint32_t entry);
uint64_t cache_quota(const struct cache *c);

/* cache_demand.c, cache_hint.c: what compute and the predictor say. */
void cache_receive_compute(struct cache *c);
void cache_read_uses(struct cache *c, uint64_t limit);
void cache_receive_predictor(struct cache *c);
/* The pins say it too: asks for what compute waits for although no DEMAND came. */
void cache_look_at_pins(struct cache *c, uint64_t now_ns);
void cache_advance(struct cache *c, struct cache_now now);
void cache_prefetch(struct cache *c);
/* There are guesses to load as soon as the drive is free. */
bool cache_guesses_wait(const struct cache *c);

/* cache_loaders.c */
void cache_receive_loader(struct cache *c, uint32_t loader);
/* Looks at the process table: cleans up after reaped loaders, greets new ones. */
void cache_look_at_loaders(struct cache *c);
void cache_clean_loader(struct cache *c, uint32_t loader, uint32_t reaped);
struct proc_row *cache_loader_row(const struct cache *c, uint32_t loader);
bool cache_loader_ready(const struct cache *c, uint32_t loader);

/* cache_quota.c */
/* One slice of obeying the quota and of prefaulting. True when there is more to do at once. */
bool cache_obey_quota(struct cache *c);
void cache_prefault(struct cache *c);
/* There are pages to prefault once nothing is loading. */
bool cache_prefault_waits(const struct cache *c);

/* cache_policy.c: the system that runs. */
int cache_take_system(struct cache *c, uint32_t system, struct error *error);
/* The use log names a sequence's system: takes it if it is another one. */
void cache_follow_system(struct cache *c, uint32_t system);
void cache_follow_capacity(struct cache *c);
/* Entries of the largest size that experts have room for. */
uint32_t cache_capacity_entries(const struct cache *c);
/* `ended` tokens of decode were completed. */
void cache_note_tokens(struct cache *c, uint32_t ended);
/* What reading an expert takes, as the loaders read lately; 0: not known. */
double cache_expert_ns(const struct cache *c);

/* cache_fill.c: what is loaded without being asked for. */
int cache_plan_fill(struct cache *c, struct error *error);
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

static inline uint64_t cache_word(struct cache *c, uint32_t entry)
{
    return entry_look(&cache_directory_entry(c, entry)->word);
}

static inline bool cache_is_expert(const struct cache *c, uint32_t entry)
{
    return entry >= c->child.model->dense_count;
}

static inline bool cache_noted(const struct cache *c, uint32_t entry, unsigned flag)
{
    return (c->notes[entry].flags & flag) != 0;
}

static inline uint64_t cache_offset(struct cache *c, uint32_t entry)
{
    /* Only the cache writes it, and there is one thread of it that does. */
    return atomic_load_explicit(&cache_directory_entry(c, entry)->arena_offset,
                                memory_order_relaxed);
}

static inline void cache_signal(struct cache *c, uint32_t entry)
{
    directory_signal(&c->child.directory, directory_counter_of(&c->child.directory, entry));
}

static inline void cache_count(struct cache *c, unsigned counter, uint64_t n)
{
    counter_add(c->child.row, counter, n);
}

void cache_list_append(struct cache *c, struct entry_list *list, uint32_t entry);
void cache_list_remove(struct cache *c, struct entry_list *list, uint32_t entry);

#endif
