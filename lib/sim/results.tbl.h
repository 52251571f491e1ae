/* What a run of the simulator counts: fields of struct sim_stats, in the order of csv and json.
 * COUNT(name, meaning) is a uint64_t, REAL(name, meaning) a double. No include guard; undefined
 * macros expand to nothing and both are undefined at the end. */
#ifndef COUNT
#define COUNT(name, meaning)
#endif
#ifndef REAL
#define REAL(name, meaning)
#endif
COUNT(passes, "over all layers")
COUNT(tokens, "of them")
COUNT(accesses, "of experts: hits, late, misses and skipped together")
COUNT(hits, "there when they were needed")
COUNT(hits_inflight, "on their way")
COUNT(misses, "asked for then")
COUNT(skipped, "left out by precision")
COUNT(low_precision_accesses, "served by, or asking for, a tier worse than high")
COUNT(demand_bytes, "read because they were needed")
COUNT(prefetch_bytes, "read for guesses")
COUNT(prefetches, "begun")
COUNT(prefetches_used, "of them used")
COUNT(prefetches_unused, "of them gone before anybody used them")
COUNT(unused_bytes, "of prefetches that nobody used")
COUNT(predicted_accesses, "in layers that had guesses")
COUNT(predicted_hits, "of those, what a guess named")
COUNT(predictions, "made")
COUNT(prefetch_hits, "hits that a prefetch brought")
REAL(penalty, "misses and late; one at the best tier there is counts 1")
REAL(stall_ns, "when nothing could be computed")
REAL(compute_ns, "of layers and experts")
#undef COUNT
#undef REAL
