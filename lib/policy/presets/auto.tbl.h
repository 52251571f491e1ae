/* SPDX-License-Identifier: Apache-2.0 */
/* Candidates of the preset auto. AUTO_CANDIDATE(preset, loss): name of a preset; the scalar of a
 * plan that holds the bound of its measured loss, or LOSSLESS. Of candidates with equal
 * predictions the first is chosen. Append only: the order is that of the predictions in a plan, at
 * most PLAN_AUTO_CANDIDATES. (Plans of older versions have "default" in place of auto-prefetch;
 * both take the same time once the cache is full.) No include guard. */
AUTO_CANDIDATE("auto-noprefetch", LOSSLESS)
AUTO_CANDIDATE("auto-prefetch", LOSSLESS)
AUTO_CANDIDATE("auto", LOSSLESS)
AUTO_CANDIDATE("auto-hobbit-eviction", LOSSLESS)
AUTO_CANDIDATE("lod", LOSSLESS)
AUTO_CANDIDATE("eap", LOSSLESS)
AUTO_CANDIDATE("auto-mixed-noprefetch", PLAN_edgemoe_loss_high)
AUTO_CANDIDATE("auto-mixed", PLAN_edgemoe_loss_high)
AUTO_CANDIDATE("edgemoe", PLAN_edgemoe_loss_high)
AUTO_CANDIDATE("auto-two-precision", PLAN_hobbit_loss_high)
AUTO_CANDIDATE("hobbit", PLAN_hobbit_loss_high)
AUTO_CANDIDATE("auto-int8", PLAN_uniform_int8_loss_high)
AUTO_CANDIDATE("auto-int4", PLAN_uniform_int4_loss_high)
AUTO_CANDIDATE("auto-int2", PLAN_uniform_int2_loss_high)
AUTO_CANDIDATE("fate", PLAN_fate_loss_high)
AUTO_CANDIDATE("iq8", PLAN_uniform_int8_loss_high)
AUTO_CANDIDATE("iq4", PLAN_uniform_int4_loss_high)
AUTO_CANDIDATE("iq2", PLAN_uniform_int2_loss_high)
AUTO_CANDIDATE("auto-resident-first-noprefetch", PLAN_reroute_loss_high)
AUTO_CANDIDATE("auto-resident-first", PLAN_reroute_loss_high)
AUTO_CANDIDATE("auto-two-precision-noprefetch", PLAN_hobbit_loss_high)
AUTO_CANDIDATE("mixed-two", PLAN_mixed_loss_high)
#undef AUTO_CANDIDATE
