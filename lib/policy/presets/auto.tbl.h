/* SPDX-License-Identifier: Apache-2.0 */
/* Candidates of the preset auto. AUTO_CANDIDATE(preset, loss, base, part)
 *   preset  its name
 *   loss    the scalar of a plan that holds the bound of its measured loss, or LOSSLESS
 *   base    the candidate that lacks one part of it; NULL: none
 *   part    that part, for people
 * Of candidates with equal predictions the first is chosen. Append only: the order is that of the
 * predictions in a plan, at most PLAN_AUTO_CANDIDATES. (Plans of older versions have "default" in
 * place of auto-prefetch; both take the same time once the cache is full. Some have times of a
 * former candidate, drop with prefetch, in the place after the last row.) No include guard. */
AUTO_CANDIDATE("auto-noprefetch", LOSSLESS, "lod", "eviction by access probability")
AUTO_CANDIDATE("auto-prefetch", LOSSLESS, "auto-noprefetch", "prefetch")
AUTO_CANDIDATE("auto", LOSSLESS, "auto-noprefetch", "prefetch while it helps")
AUTO_CANDIDATE("auto-hobbit-eviction", LOSSLESS, "lod", "HOBBIT's eviction with prefetch")
AUTO_CANDIDATE("lod", LOSSLESS, NULL, "a cache")
AUTO_CANDIDATE("eap", LOSSLESS, "lod", "Fate's cache with prefetch by paths")
AUTO_CANDIDATE("auto-mixed-noprefetch", PLAN_edgemoe_loss_high, "auto-noprefetch",
               "a precision per expert")
AUTO_CANDIDATE("auto-mixed", PLAN_edgemoe_loss_high, "auto-mixed-noprefetch", "prefetch")
AUTO_CANDIDATE("edgemoe", PLAN_edgemoe_loss_high, "auto-mixed-noprefetch",
               "EdgeMoE's eviction and prefetch")
AUTO_CANDIDATE("auto-two-precision", PLAN_hobbit_loss_high, "auto-two-precision-noprefetch",
               "prefetch")
AUTO_CANDIDATE("hobbit", PLAN_hobbit_loss_high, "auto-two-precision-noprefetch",
               "HOBBIT's cache and prefetch")
AUTO_CANDIDATE("auto-int8", PLAN_uniform_int8_loss_high, "auto-prefetch", "every expert at int8")
AUTO_CANDIDATE("auto-int4", PLAN_uniform_int4_loss_high, "auto-prefetch", "every expert at int4")
AUTO_CANDIDATE("auto-int2", PLAN_uniform_int2_loss_high, "auto-prefetch", "every expert at int2")
AUTO_CANDIDATE("fate", PLAN_fate_loss_high, "lod", "Fate's cache, prefetch and precisions")
AUTO_CANDIDATE("iq8", PLAN_uniform_int8_loss_high, "lod", "every expert at int8")
AUTO_CANDIDATE("iq4", PLAN_uniform_int4_loss_high, "lod", "every expert at int4")
AUTO_CANDIDATE("iq2", PLAN_uniform_int2_loss_high, "lod", "every expert at int2")
AUTO_CANDIDATE("auto-resident-first-noprefetch", PLAN_reroute_loss_high, "auto-noprefetch",
               "cache-aware routing")
AUTO_CANDIDATE("auto-resident-first", PLAN_reroute_loss_high, "auto-resident-first-noprefetch",
               "prefetch while it helps")
AUTO_CANDIDATE("auto-two-precision-noprefetch", PLAN_hobbit_loss_high, "auto-noprefetch",
               "two precisions by gate weight")
AUTO_CANDIDATE("mixed-two", PLAN_mixed_loss_high, "auto-mixed-noprefetch",
               "a lower precision by gate weight")
AUTO_CANDIDATE("mixed-two-resident-first", PLAN_joint_loss_high, "mixed-two", "cache-aware routing")
AUTO_CANDIDATE("auto-mixed-adaptive", PLAN_edgemoe_loss_high, "auto-mixed-noprefetch",
               "prefetch while it helps")
AUTO_CANDIDATE("auto-two-precision-adaptive", PLAN_hobbit_loss_high,
               "auto-two-precision-noprefetch", "prefetch while it helps")
AUTO_CANDIDATE("mixed-two-adaptive", PLAN_mixed_loss_high, "mixed-two", "prefetch while it helps")
AUTO_CANDIDATE("swapmoe", PLAN_swap_loss_high, "lod", "routing to the resident experts only")
AUTO_CANDIDATE("drop", PLAN_drop_loss_high, "auto-noprefetch",
               "missing experts of little weight left out")
#undef AUTO_CANDIDATE
