/* What an evaluation in this process tells, in the order of csv's columns. OUTCOME_REAL(name, doc),
 * OUTCOME_COUNT(name, doc); a real that is NaN was not measured: null in json, empty in csv. No
 * include guard. */
OUTCOME_REAL(ppl, "perplexity")
OUTCOME_REAL(ppl_lossless, "of the lossless model, or of what --against recorded")
OUTCOME_REAL(loss, "relative rise of perplexity")
OUTCOME_REAL(loss_low, "lower end of its 95 % interval")
OUTCOME_REAL(loss_high, "upper end")
OUTCOME_REAL(kld_mean, "KL divergence from the lossless model, nats a token")
OUTCOME_REAL(kld_p999, "below it are 99.9 % of the tokens")
OUTCOME_REAL(top1_same, "share of the tokens with the same first choice")
OUTCOME_COUNT(tokens, "scored")
OUTCOME_COUNT(windows, "windows")
OUTCOME_COUNT(ctx, "tokens of a window")
OUTCOME_COUNT(expert_bytes, "payload of the experts: all, or those that may be resident")
OUTCOME_COUNT(swaps, "swapmoe: pairs")
OUTCOME_REAL(share_high, "hobbit: share of the uses served by, or asked for at, the high tier")
OUTCOME_REAL(share_low, "the low tier")
OUTCOME_REAL(share_skipped, "skipped")
OUTCOME_REAL(device_bytes_per_s, "of the modelled drive")
OUTCOME_REAL(hit_rate, "modelled: uses found resident")
OUTCOME_REAL(bytes_per_token, "modelled: read, demands and prefetches")
OUTCOME_REAL(token_ms, "modelled: of a token, waiting included")
OUTCOME_REAL(stall_ms, "modelled: waiting for experts")
#undef OUTCOME_REAL
#undef OUTCOME_COUNT
