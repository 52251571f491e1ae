/* Policies: plain code over plain structs. Time and randomness are arguments; no I/O, no shared
 * memory, no threads - cache manager, predictor, compute, and later the simulator, run these very
 * functions. Each interface has a trivially right member that serves as the tests' oracle. Chosen
 * by name. */
#ifndef SLUICE_POLICY_H
#define SLUICE_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define POLICY_NONE UINT32_MAX

/* ---- eviction: which resident entry leaves first
 * ---------------------------------------------------------- Entries are numbered 0 .. count-1.
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

/* ---- prediction: from router logits on an earlier layer's gate input to guesses
 * --------------------------- next-layer: the `want` largest logits, softmax over all experts as
 * probability (Fate §4.1, HOBBIT §3.3). none: no guesses. Returns the number written, descending
 * probability, ties to the lower index. */
struct guess {
    uint32_t expert;
    float probability;
};
typedef uint32_t (*prediction_fn)(const float *logits, uint32_t experts, uint32_t want,
                                  struct guess *out);
prediction_fn prediction_find(const char *name); /* NULL when unknown */

/* ---- prefetch limit: may a guess be loaded now?
 * ----------------------------------------------------------- */
struct prefetch_state {
    uint32_t demands_open; /* demanded entries not yet READY */
    uint32_t prefetches_open;
    uint32_t prefetches_max; /* bound from queue depth and room */
    uint32_t layer_now;      /* layer compute works on */
    uint32_t layer_guess;
    uint32_t layers;
    float probability;
    bool needs_eviction; /* room only by evicting a resident entry */
    float victim_heat;   /* uses of that victim lately, 0 when unknown */
};
bool prefetch_allowed(const struct prefetch_state *s);

/* ---- prefill order: in which order a chunk's missing experts are loaded
 * ------------------------------------ popularity: most tokens first, ties to the lower index.
 * index: ascending. Sorts order[0..count-1] in place. */
struct prefill_item {
    uint32_t expert;
    uint32_t tokens;
};
typedef void (*prefill_order_fn)(struct prefill_item *items, uint32_t count);
prefill_order_fn prefill_order_find(const char *name);

/* ---- routing: from router logits to experts and weights
 * ----------------------------------------------------- exact: softmax over all experts, the K
 * largest (ties to the lower index), weights renormalised to sum 1 when norm_top_k. `scratch` has
 * `experts` floats. Source: Qwen3-MoE; softmax then top-k. */
struct route {
    uint32_t expert;
    float weight;
};
void routing_exact(const float *logits, uint32_t experts, uint32_t top_k, bool norm_top_k,
                   float *scratch, struct route *out);

/* ---- precision: which tier an expert of rank r may have
 * ------------------------------------------------------ lossless: always the native tier. */
enum precision_need { NEED_HIGH, NEED_LOW, NEED_SKIP };
typedef enum precision_need (*precision_fn)(const struct route *routes, uint32_t top_k,
                                            uint32_t rank);
precision_fn precision_find(const char *name); /* "lossless" */

#endif
