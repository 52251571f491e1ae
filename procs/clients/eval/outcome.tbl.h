/* SPDX-License-Identifier: Apache-2.0 */
/* Results of an in-process evaluation, in the order of the csv columns.
 *
 *   OUTCOME_REAL(name, doc)   NaN: not measured; null in json, empty in csv
 *   OUTCOME_COUNT(name, doc)
 *
 * No include guard. */
OUTCOME_REAL(ppl, "perplexity")
OUTCOME_REAL(ppl_lossless, "perplexity of the lossless model, or of the --against recording")
OUTCOME_REAL(loss, "relative increase of perplexity")
OUTCOME_REAL(loss_low, "lower end of its 95 % interval")
OUTCOME_REAL(loss_high, "upper end of its 95 % interval")
OUTCOME_REAL(kld_mean, "mean KL divergence from the lossless model, nats per token")
OUTCOME_REAL(kld_p999, "99.9th percentile of the KL divergence")
OUTCOME_REAL(top1_same, "share of tokens with the same most probable next token")
OUTCOME_COUNT(tokens, "tokens scored")
OUTCOME_COUNT(windows, "windows")
OUTCOME_COUNT(ctx, "tokens per window")
OUTCOME_COUNT(expert_bytes, "payload of the experts: all, or the resident limit")
OUTCOME_COUNT(swaps, "swapmoe: replaced pairs")
OUTCOME_REAL(share_high, "hobbit: share of accesses served or requested at the high precision")
OUTCOME_REAL(share_low, "hobbit: share of accesses served at the low precision")
OUTCOME_REAL(share_skipped, "hobbit: share of accesses skipped")
OUTCOME_REAL(device_bytes_per_s, "read bandwidth of the simulated storage device")
OUTCOME_REAL(hit_rate, "simulated: share of accesses that were resident")
OUTCOME_REAL(bytes_per_token, "simulated: bytes read per token, demands and prefetches")
OUTCOME_REAL(token_ms, "simulated: time per token, stalls included")
OUTCOME_REAL(stall_ms, "simulated: time per token waiting for experts")
OUTCOME_COUNT(cloze_items, "items of the cloze task")
OUTCOME_REAL(cloze_right, "share of them whose true continuation is the most probable")
OUTCOME_REAL(cloze_right_lossless, "the same of the lossless model")
OUTCOME_REAL(cloze_low, "lower end of the 95 % interval of the difference of the two")
OUTCOME_REAL(cloze_high, "upper end of it")
OUTCOME_REAL(cloze_same, "share of the items with the same answer")
#undef OUTCOME_REAL
#undef OUTCOME_COUNT
