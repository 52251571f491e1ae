/* SPDX-License-Identifier: Apache-2.0 */
/* Contents of a plan. A profile is a plan without decisions: one format for both.
 *
 * PLAN_SCALAR(name, min, max, doc)  a double; NaN: unknown, not planned
 * PLAN_ARRAY(name, type, size, min, max, doc)
 *   type      F32, U32, U16, U8 or CELL (struct plan_cell)
 *   size      in the JSON file:    LAYERS      [L]
 *                                  EXPERTS     [L][E]
 *                                  RANKS       [L][K]
 *                                  AUTO        [PLAN_AUTO_SHARES][PLAN_AUTO_BANDWIDTHS]
 *                                              [PLAN_AUTO_CANDIDATES]
 *             in the binary file:  PAIRS       [L][E][E]
 *                                  PAIR_FIRST  [L][E][E] + 1
 *                                  CELLS       [cells]
 *   min, max  bounds of every element (an F32 may also be NaN: unknown)
 *
 * Bounds are checked when a plan is read and when a blob is checked. A loss is a relative increase
 * of perplexity (0.01: 1 %) over the lossless model, on the text of the plan. Append only: the blob
 * has this order. No include guard: define both macros, then include it. */

/* ---- measured by profile ---- */
PLAN_SCALAR(tokens, 0, 1e15, "Tokens the routing statistics were counted over.")
PLAN_SCALAR(nats, 0, 1e6,
            "Cross-entropy of the lossless model on the profile's text, nats per token.")
PLAN_SCALAR(importance_base, -1e6, 1e6,
            "Nats per token with every expert at int4, on the text of importance.")
PLAN_SCALAR(importance_tokens, 0, 1e15, "Tokens each importance was measured over.")
PLAN_SCALAR(expert_read_ns, 0, 1e15, "Median time to read one expert at queue depth 1.")
PLAN_SCALAR(drive_bytes_per_s, 0, 1e15, "Bandwidth of expert-size reads at queue depth 8.")
PLAN_SCALAR(token_ns, 0, 1e15, "Compute time of one decoded token, all weights resident.")
PLAN_SCALAR(layer_attention_ns, 0, 1e15, "Attention of a layer in decode, mean over layers.")
PLAN_SCALAR(layer_router_ns, 0, 1e15, "Norm and router of a layer in decode.")
PLAN_SCALAR(layer_experts_ns, 0, 1e15, "Experts of a layer in decode.")

/* ---- decided by plan ---- */
PLAN_SCALAR(budget_bytes, 0, 1e18, "Memory budget of the plan.")
PLAN_SCALAR(max_loss, 0, 1e3, "Maximum loss of the plan.")
PLAN_SCALAR(edgemoe_loss, -1, 1e9, "Measured loss with the planned precisions.")
PLAN_SCALAR(edgemoe_loss_low, -1, 1e9, "Lower end of its 95 % interval.")
PLAN_SCALAR(edgemoe_loss_high, -1, 1e9, "Its bound on held-out text.")
PLAN_SCALAR(edgemoe_bytes, 0, 1e18, "Payload bytes of all experts at the planned precisions.")
PLAN_SCALAR(hobbit_t1, 0, 1, "HOBBIT's T1: up to this sum of better weights: high precision.")
PLAN_SCALAR(hobbit_t2, 0, 1, "HOBBIT's T2: up to this sum: low precision; above: skipped.")
PLAN_SCALAR(hobbit_skip_renormalise, 0, 1,
            "1: the other weights are scaled up by the share of skipped experts.")
PLAN_SCALAR(hobbit_loss, -1, 1e9, "Measured loss when every access is a miss (the worst case).")
PLAN_SCALAR(hobbit_loss_low, -1, 1e9, "Lower end of its 95 % interval.")
PLAN_SCALAR(hobbit_loss_high, -1, 1e9, "Its bound on held-out text.")
PLAN_SCALAR(hobbit_share_high, 0, 1, "Share of the accesses that need high precision.")
PLAN_SCALAR(hobbit_share_low, 0, 1, "Share of the accesses that need the low precision.")
PLAN_SCALAR(hobbit_w_lru, 0, 1, "Eviction weight of recency.")
PLAN_SCALAR(hobbit_w_lfu, 0, 1, "Eviction weight of frequency.")
PLAN_SCALAR(hobbit_w_lhu, 0, 1, "Eviction weight of high-precision frequency.")
PLAN_SCALAR(hobbit_w_fld, 0, 1, "Eviction weight of layer distance.")
PLAN_SCALAR(fate_boundary, 0, 512, "Layers below this one are fully resident.")
PLAN_SCALAR(fate_prefill_int2, 0, 1, "Fraction of the least popular experts at int2 in prefill.")
PLAN_SCALAR(fate_loss, -1, 1e9, "Measured loss of prefill with that fraction.")
PLAN_SCALAR(fate_loss_low, -1, 1e9, "Lower end of its 95 % interval.")
PLAN_SCALAR(fate_loss_high, -1, 1e9, "Its bound on held-out text.")
PLAN_SCALAR(swap_interval, 0, 1e9, "Tokens between SwapMoE's updates.")
PLAN_SCALAR(swap_loss, -1, 1e9, "Measured loss with the planned virtual experts.")
PLAN_SCALAR(swap_loss_low, -1, 1e9, "Lower end of its 95 % interval.")
PLAN_SCALAR(swap_loss_high, -1, 1e9, "Its bound on held-out text.")
PLAN_SCALAR(hobbit_fld_next, 0, 1, "1: the current layer has the largest layer distance.")

PLAN_SCALAR(uniform_int8_loss_high, -1, 1e9,
            "Bound of the loss on held-out text with every expert at int8.")
PLAN_SCALAR(uniform_int4_loss_high, -1, 1e9, "The same at int4.")
PLAN_SCALAR(uniform_int2_loss_high, -1, 1e9, "The same at int2.")
PLAN_SCALAR(int8_expert_ns, 0, 1e15, "Compute of one expert at int8 in decode, used by auto.")
PLAN_SCALAR(int4_expert_ns, 0, 1e15, "The same at int4.")
PLAN_SCALAR(int2_expert_ns, 0, 1e15, "The same at int2.")

/* ---- how each loss was measured (lib/policy/presets/loss.h) ---- */
PLAN_SCALAR(uniform_method, 0, 15, "enum quant_method of the uniform precisions.")
PLAN_SCALAR(edgemoe_method, 0, 15, "enum quant_method of edgemoe's precisions.")
PLAN_SCALAR(hobbit_method, 0, 15, "enum quant_method of hobbit's precisions.")
PLAN_SCALAR(hobbit_high, 0, 3, "enum precision of hobbit's higher precision.")
PLAN_SCALAR(hobbit_low, 0, 3, "enum precision of hobbit's lower precision.")
PLAN_SCALAR(fate_method, 0, 15, "enum quant_method of fate's precisions.")
PLAN_SCALAR(fate_high, 0, 3, "enum precision of fate's higher precision.")
PLAN_SCALAR(fate_low, 0, 3, "enum precision of fate's lower precision.")
PLAN_SCALAR(fate_chunk, 1, 65536, "Tokens of a chunk.")
PLAN_SCALAR(swap_share, 0, 1, "Share of all experts that was resident.")
PLAN_SCALAR(swap_margin, 0, 1000, "Policy parameter margin.")
PLAN_SCALAR(swap_chunk, 1, 65536, "Tokens of a chunk.")
PLAN_SCALAR(dense_loss_high, -1, 1e9,
            "Bound of the loss on held-out text with dense weights at uniform_dense, and native "
            "experts.")
PLAN_SCALAR(uniform_dense, 0, 2,
            "enum precision of the dense weights with which the losses of uniform precisions were "
            "measured; unknown: native.")
PLAN_SCALAR(edgemoe_dense, 0, 2, "The same of edgemoe's loss.")
PLAN_SCALAR(hobbit_dense, 0, 2, "The same of hobbit's loss.")
PLAN_SCALAR(fate_dense, 0, 2, "The same of fate's loss.")
PLAN_SCALAR(swap_dense, 0, 2, "The same of swapmoe's loss.")
PLAN_SCALAR(importance_group, 1, 4096,
            "Neighbouring experts whose importance was measured together first; unknown: 8.")

/* ---- the GPU that auto's times assume; unknown: none ---- */
PLAN_SCALAR(auto_gpu_slots, 1, 1e9, "Its slots for experts.")
PLAN_SCALAR(auto_gpu_bytes_per_s, 0, 1e15, "Bandwidth of copies to it.")
PLAN_SCALAR(auto_gpu_policy, 0, 2, "0: the policy gpu-centric; 1: cooperative; 2: prefetch.")

/* ---- more of how losses and times were measured ---- */
PLAN_SCALAR(uniform_kv_type, 0, 3,
            "enum kv_type with which the losses of uniform precisions and of dense weights alone "
            "were measured; unknown: f16.")
PLAN_SCALAR(edgemoe_kv_type, 0, 3, "The same of edgemoe's loss.")
PLAN_SCALAR(hobbit_kv_type, 0, 3, "The same of hobbit's loss.")
PLAN_SCALAR(fate_kv_type, 0, 3, "The same of fate's loss.")
PLAN_SCALAR(swap_kv_type, 0, 3, "The same of swapmoe's loss.")
PLAN_SCALAR(swap_reads_per_token, 0, 1e15,
            "Experts that the device could read while a token was computed; unknown: token_ns "
            "divided by expert_read_ns, and without these no limit.")
PLAN_SCALAR(threads, 1, 65536, "Threads that the times were measured with; unknown: any.")

/* ---- routing resident-first ---- */
PLAN_SCALAR(reroute_nats, 0, 100, "Policy parameter nats.")
PLAN_SCALAR(reroute_loss, -1, 1e9,
            "Measured loss token by token: the largest one of several resident shares.")
PLAN_SCALAR(reroute_loss_low, -1, 1e9, "Lower end of its 95 % interval.")
PLAN_SCALAR(reroute_loss_high, -1, 1e9, "Its bound on held-out text.")
PLAN_SCALAR(reroute_share, 0, 1, "The smallest resident share that it was measured with.")
PLAN_SCALAR(reroute_dense, 0, 2, "enum precision of the dense weights; unknown: native.")
PLAN_SCALAR(reroute_kv_type, 0, 3, "enum kv_type; unknown: f16.")
/* ---- decided by plan: mixed-two, thresholds for a capacity ---- */
PLAN_SCALAR(mixed_t1, 0, 1, "mixed-two: up to this sum of better weights: the higher precision.")
PLAN_SCALAR(mixed_t2, 0, 1, "mixed-two: up to this sum: the lower one; above: skipped.")
PLAN_SCALAR(mixed_loss, -1, 1e9, "Measured loss with them.")
PLAN_SCALAR(mixed_loss_low, -1, 1e9, "Lower end of its 95 % interval.")
PLAN_SCALAR(mixed_loss_high, -1, 1e9, "Its bound on held-out text.")
PLAN_SCALAR(mixed_method, 0, 15, "enum quant_method of mixed-two's precisions.")
PLAN_SCALAR(mixed_dense, 0, 2, "enum precision of the dense weights of its loss.")
PLAN_SCALAR(mixed_kv_type, 0, 3, "enum kv_type of its loss.")
PLAN_SCALAR(mixed_share, 0, 1,
            "Share of the experts' bytes that was resident; unknown: every access was a miss.")
PLAN_SCALAR(hobbit_share, 0, 1, "The same of hobbit's loss.")

/* ---- decided by plan: mixed-two and routing resident-first, searched together ---- */
PLAN_SCALAR(joint_t1, 0, 1, "mixed-two's T1.")
PLAN_SCALAR(joint_t2, 0, 1, "mixed-two's T2.")
PLAN_SCALAR(joint_nats, 0, 100, "resident-first's nats.")
PLAN_SCALAR(joint_loss, -1, 1e9,
            "Measured loss token by token: the largest one of several resident shares.")
PLAN_SCALAR(joint_loss_low, -1, 1e9, "Lower end of its 95 % interval.")
PLAN_SCALAR(joint_loss_high, -1, 1e9, "Its bound on held-out text.")
PLAN_SCALAR(joint_share, 0, 1, "The smallest resident share that it was measured with.")
PLAN_SCALAR(joint_method, 0, 15, "enum quant_method of its precisions.")
PLAN_SCALAR(joint_dense, 0, 2, "enum precision of the dense weights of its loss.")
PLAN_SCALAR(joint_kv_type, 0, 3, "enum kv_type of its loss.")

/* ---- precision drop ---- */
PLAN_SCALAR(drop_t2, 0, 1, "drop: above this sum of better weights a missing expert is left out.")
PLAN_SCALAR(drop_loss, -1, 1e9,
            "Measured loss token by token: the largest one of several resident shares.")
PLAN_SCALAR(drop_loss_low, -1, 1e9, "Lower end of its 95 % interval.")
PLAN_SCALAR(drop_loss_high, -1, 1e9, "Its bound on held-out text.")
PLAN_SCALAR(drop_share, 0, 1, "The smallest resident share that it was measured with.")
PLAN_SCALAR(drop_dense, 0, 2, "enum precision of the dense weights; unknown: native.")
PLAN_SCALAR(drop_kv_type, 0, 3, "enum kv_type; unknown: f16.")
PLAN_SCALAR(experts_bytes, 0, 1e18, "Bytes of all experts of the model, which shares are of.")

/* ---- measured by profile ---- */
PLAN_ARRAY(frequency, F32, EXPERTS, 0, 1, "Accesses per token.")
PLAN_ARRAY(
    norm, F32, EXPERTS, 0, 1e30,
    "|E_i|: Frobenius norm of the expert's three matrices together (SwapMoE: parameter magnitude).")
PLAN_ARRAY(importance, F32, EXPERTS, -1e6, 1e6,
           "Increase of nats per token with this expert at int2 and all others at int4.")
PLAN_ARRAY(importance_measured, U8, EXPERTS, 0, 1,
           "1: importance measured for this expert; 0: share of its group's.")
PLAN_ARRAY(recall_gate, F32, LAYERS, 0, 1,
           "Top-K recall: this layer's router on the previous layer's gate input.")
PLAN_ARRAY(recall_gate_list, F32, LAYERS, 0, 1,
           "The same with the list above the 75th percentile (Fate).")
PLAN_ARRAY(recall_attention, F32, LAYERS, 0, 1,
           "Top-K recall from this layer's own attention input.")
PLAN_ARRAY(recall_attention_list, F32, LAYERS, 0, 1,
           "The same with the list above the 75th percentile.")
PLAN_ARRAY(recall_attention_before, F32, LAYERS, 0, 1,
           "Top-K recall from the previous layer's attention input.")
PLAN_ARRAY(recall_attention_before_list, F32, LAYERS, 0, 1,
           "The same with the list above the 75th percentile.")

/* ---- decided by plan ---- */
PLAN_ARRAY(width, U8, EXPERTS, 0, 3, "edgemoe: enum precision of the expert.")
PLAN_ARRAY(virtual_experts, U32, LAYERS, 0, 4096, "swapmoe: v_i, resident experts per layer.")
PLAN_ARRAY(resident, U8, EXPERTS, 0, 1, "swapmoe: 1 for the initially resident experts.")
PLAN_ARRAY(share, U32, LAYERS, 0, 4096,
           "Resident entries per layer (fate: boundary layers full, the rest even).")
PLAN_ARRAY(auto_ns, F32, AUTO, 0, 1e15,
           "auto: predicted time of a decoded token of each candidate, by the share of the experts "
           "that fits and by read bandwidth (lib/policy/presets/auto.h); NaN: not predicted.")

/* ---- path statistics: counts, all halved before one exceeds its bound ---- */
PLAN_ARRAY(prev1, U16, PAIRS, 0, 65535,
           "[l][a][e]: e chosen at l by tokens that chose a at l - 1 (also eap's transition); l = "
           "0: zero.")
PLAN_ARRAY(
    pair_first, U32, PAIR_FIRST, 0, 4294967295.0,
    "[l][a][b]: first of the cells of tokens that chose a at l - 2 and b at l - 1; one more at "
    "the end")
PLAN_ARRAY(pair_cells, CELL, CELLS, 0, 4294967295.0,
           "Expert chosen at l and its count, descending per pair.")

/* ---- decided by plan ---- */
PLAN_ARRAY(mixed_high, U8, EXPERTS, 0, 3, "mixed-two: enum precision of the expert.")
PLAN_ARRAY(mixed_low, U8, EXPERTS, 0, 3, "mixed-two: its lower precision; the same: none.")
PLAN_ARRAY(joint_high, U8, EXPERTS, 0, 3, "mixed-two with routing resident-first: the same of it.")
PLAN_ARRAY(joint_low, U8, EXPERTS, 0, 3, "Its lower precision; the same: none.")

/* ---- measured by profile ---- */
PLAN_ARRAY(rank_share, F32, RANKS, 0, 1,
           "Share of a rank of the gate weights of a token's experts, mean over the tokens.")
#undef PLAN_SCALAR
#undef PLAN_ARRAY
