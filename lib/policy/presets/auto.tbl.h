/* What the system auto chooses among. AUTO_CANDIDATE(system, loss): a system's name; the scalar of
 * a plan whose value is the upper end of its measured loss, LOSSLESS for those that change nothing.
 * Of candidates that are predicted alike the one that stands first is taken. Append only: order is
 * that of a plan's predictions, PLAN_AUTO_CANDIDATES at most. (auto-prefetch stands where plans of
 * older programs have the default, whose time once the room is full is the same.) No include guard.
 */
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
#undef AUTO_CANDIDATE
