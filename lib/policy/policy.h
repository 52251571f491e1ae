/* Policies: plain code over plain structs. Time and randomness are arguments; no I/O, no shared
 * memory, no threads - cache manager, predictor, compute and the simulator run these very
 * functions. Each interface has a trivially right member that serves as the tests' oracle. Chosen
 * by name; systems.h has the combinations.
 *
 *   residency.h   who is held, who leaves (eviction and allocation)
 *   prediction.h  which experts a coming layer will use
 *   prefetch.h    whether a guess may be loaded now
 *   prefill.h     in which order a chunk's experts are loaded
 *   precision.h   which tiers may serve a use
 *   routing.h     from router logits to experts
 *   swap.h        which experts a masked layer keeps
 *   systems.h     all of it by name
 *
 * What stands here besides is older than those and goes away with its last user. */
#ifndef SLUICE_POLICY_H
#define SLUICE_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/policy/precision.h"
#include "lib/policy/prediction.h"
#include "lib/policy/prefetch.h"
#include "lib/policy/prefill.h"
#include "lib/policy/residency.h"
#include "lib/policy/routing.h"

/* ---- eviction over one pool of entries 0 .. count-1: residency.h takes its place ----
 * Pre: insert only what is not held, touch/remove only what is held. lru: least recently used. lfu:
 * least often used since insertion, ties least recently. fifo: longest held. random: uniform over
 * the held ones, from the seed. */
struct eviction;

/* "lru", "lfu", "fifo", "random"; NULL when unknown or out of memory. */
struct eviction *eviction_create(const char *name, uint32_t count, uint64_t seed);
void eviction_destroy(struct eviction *e);
const char *eviction_name(const struct eviction *e);
void eviction_insert(
    struct eviction *e,
    uint32_t entry); /* becomes held; counts as its first use only in fifo/lru order */
void eviction_touch(struct eviction *e, uint32_t entry); /* one use */
void eviction_remove(struct eviction *e, uint32_t entry);
bool eviction_holds(const struct eviction *e, uint32_t entry);

/* The first entry in order of leaving for which may(arg, entry) is true; POLICY_NONE when there is
 * none. Does not remove it. Cost: O(refused entries) for lru and fifo, at most O(count). */
uint32_t eviction_victim(struct eviction *e, bool (*may)(void *arg, uint32_t entry), void *arg);

/* Names as "lru|lfu|fifo|random". */
const char *eviction_names(void);

/* ---- next-layer and none by a plain function: prediction_named takes its place ---- */
typedef uint32_t (*prediction_fn)(const float *logits, uint32_t experts, uint32_t want,
                                  struct guess *out);
prediction_fn prediction_find(const char *name); /* NULL when unknown */

/* ---- the limit "idle" without an object: prefetch_limit_allows takes its place ---- */
bool prefetch_allowed(const struct prefetch_state *s);

#endif
