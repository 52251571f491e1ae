/* What the system auto chooses among. AUTO_CANDIDATE(system, loss, guesses): a system's name; the
 * scalar of a plan whose value is the upper end of its measured loss, LOSSLESS for those that
 * change nothing; GUESSES for those that load what nobody asked for yet, QUIET for the others. Of
 * candidates that are predicted alike the one that stands first is taken. Append only: order is
 * that of a plan's predictions, PLAN_AUTO_CANDIDATES at most. No include guard. */
AUTO_CANDIDATE("auto-quiet", LOSSLESS, QUIET)
AUTO_CANDIDATE("default", LOSSLESS, GUESSES)
AUTO_CANDIDATE("auto", LOSSLESS, GUESSES)
AUTO_CANDIDATE("auto-records", LOSSLESS, GUESSES)
AUTO_CANDIDATE("lod", LOSSLESS, QUIET)
AUTO_CANDIDATE("eap", LOSSLESS, GUESSES)
AUTO_CANDIDATE("auto-widths-quiet", PLAN_edgemoe_loss_high, QUIET)
AUTO_CANDIDATE("auto-widths", PLAN_edgemoe_loss_high, GUESSES)
AUTO_CANDIDATE("edgemoe", PLAN_edgemoe_loss_high, GUESSES)
AUTO_CANDIDATE("auto-tiers", PLAN_hobbit_loss_high, GUESSES)
AUTO_CANDIDATE("hobbit", PLAN_hobbit_loss_high, GUESSES)
AUTO_CANDIDATE("auto-int8", PLAN_uniform_int8_loss_high, GUESSES)
AUTO_CANDIDATE("auto-int4", PLAN_uniform_int4_loss_high, GUESSES)
AUTO_CANDIDATE("auto-int2", PLAN_uniform_int2_loss_high, GUESSES)
AUTO_CANDIDATE("fate", PLAN_fate_loss_high, GUESSES)
AUTO_CANDIDATE("iq8", PLAN_uniform_int8_loss_high, QUIET)
AUTO_CANDIDATE("iq4", PLAN_uniform_int4_loss_high, QUIET)
AUTO_CANDIDATE("iq2", PLAN_uniform_int2_loss_high, QUIET)
#undef AUTO_CANDIDATE
