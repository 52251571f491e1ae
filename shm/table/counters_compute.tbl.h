/* SPDX-License-Identifier: Apache-2.0 */
/* The counters that compute publishes. COUNTER(name, kind, unit, doc); kind: COUNTER or GAUGE.
 * Append only. */
COUNTER(hits, COUNTER, accesses, "Expert accesses that were READY at the first check.")
COUNTER(hits_inflight, COUNTER, accesses, "Expert accesses that were LOADING at the first check.")
COUNTER(misses, COUNTER, accesses, "Expert accesses that were ABSENT at the first check.")
COUNTER(skipped, COUNTER, accesses, "Expert accesses skipped by policy.")
COUNTER(accesses, COUNTER, accesses,
        "All expert accesses: hits + hits_inflight + misses + skipped.")
COUNTER(demands, COUNTER, messages, "DEMANDs sent.")
COUNTER(demands_retried, COUNTER, messages, "DEMANDs sent again after a timeout.")
COUNTER(tokens_prefill, COUNTER, tokens, "Prompt tokens computed.")
COUNTER(tokens_decode, COUNTER, tokens, "Tokens generated.")
COUNTER(prefill_ns, COUNTER, ns, "Time in prefill.")
COUNTER(decode_ns, COUNTER, ns, "Time in decode.")
COUNTER(stall_ns, COUNTER, ns, "Time waiting for experts.")
COUNTER(sequences_queued, GAUGE, sequences, "Sequences waiting in the queue.")
COUNTER(sequences_running, GAUGE, sequences, "Sequences being computed.")
COUNTER(sequences_done, COUNTER, sequences, "Sequences ended normally.")
COUNTER(sequences_failed, COUNTER, sequences, "Sequences ended by an error.")
COUNTER(sequences_cancelled, COUNTER, sequences, "Sequences cancelled.")
COUNTER(sequences_resumed, COUNTER, sequences, "Sequences resumed after a restart of compute.")
COUNTER(requests, COUNTER, requests, "Client requests.")
COUNTER(requests_rejected, COUNTER, requests,
        "Client requests rejected as malformed or over a limit.")
COUNTER(messages, COUNTER, messages, "Messages received.")
COUNTER(messages_invalid, COUNTER, messages, "Messages rejected by the validator.")
COUNTER(messages_dropped, COUNTER, messages, "Messages that could not be sent.")
COUNTER(kv_bytes, GAUGE, bytes, "KV cache bytes allocated.")
COUNTER(isa, GAUGE, number, "Instruction set: its place in the list of doctor, generic being 0.")
COUNTER(threads, GAUGE, threads, "Compute threads.")
COUNTER(low_precision_accesses, COUNTER, accesses, "Expert accesses served at a lower precision.")
COUNTER(log_lines_dropped, COUNTER, lines, "Log lines dropped because stderr was not read.")
COUNTER(modelled_demand_bytes, GAUGE, bytes,
        "Deterministic mode: bytes that the modelled device read on demand.")
COUNTER(modelled_prefetch_bytes, GAUGE, bytes,
        "Deterministic mode: bytes that the modelled device read for prefetches.")
COUNTER(tokens_repeated, COUNTER, tokens,
        "Tokens computed again, after a pause or a restart of compute; in no other counter.")
COUNTER(tokens_reused, COUNTER, tokens,
        "Prompt tokens not computed: their keys and values were kept from an earlier sequence.")
COUNTER(sequences_reused, COUNTER, sequences, "Sequences that began with kept keys and values.")
COUNTER(state_bytes, GAUGE, bytes,
        "Part of kv_bytes that recurrent states, and checkpoints of them and of windows, have.")
COUNTER(kv_kept_bytes, GAUGE, bytes, "Part of kv_bytes that no running sequence owns (--keep-kv).")
COUNTER(arithmetic, GAUGE, number, "Version of the arithmetic (lib/kernels/ARITHMETIC.md).")
COUNTER(gpu_others_bytes, GAUGE, bytes,
        "Memory of the GPU in use when compute opened it: its own context, and other processes.")
COUNTER(gpu_lost, GAUGE, number, "1: the GPU failed, and compute continues on the CPU.")
COUNTER(gpu_weights_bytes, GAUGE, bytes, "Memory of the GPU: dense weights.")
COUNTER(gpu_activations_bytes, GAUGE, bytes, "Memory of the GPU: rows of a pass, workspace.")
COUNTER(gpu_kv_bytes, GAUGE, bytes, "Memory of the GPU: keys, values and states.")
COUNTER(gpu_experts_bytes, GAUGE, bytes, "Memory of the GPU: slots for experts.")
COUNTER(gpu_uploaded_bytes, GAUGE, bytes, "Copied to the GPU since compute started.")
COUNTER(gpu_downloaded_bytes, GAUGE, bytes, "Copied from the GPU since compute started.")
COUNTER(gpu_expert_hits, GAUGE, uses, "Uses of experts that were on the GPU.")
COUNTER(gpu_expert_uploads, GAUGE, uses, "Uses of experts that were copied to the GPU.")
COUNTER(gpu_expert_evictions, GAUGE, experts, "Experts whose slot on the GPU another one got.")
COUNTER(gpu_kv_uploaded_bytes, GAUGE, bytes,
        "Keys, values and states among gpu_uploaded_bytes: rows that were not on the GPU.")
COUNTER(gpu_kv_downloaded_bytes, GAUGE, bytes,
        "The same among gpu_downloaded_bytes: new rows as floats, and states.")
COUNTER(gpu_expert_on_cpu, GAUGE, uses,
        "Uses of experts that were not on the GPU and that the CPU computed (--gpu-policy "
        "cooperative).")
COUNTER(gpu_expert_background, GAUGE, experts,
        "Experts of these that were copied to the GPU for later tokens.")
COUNTER(gpu_busy_ns, GAUGE, ns,
        "Time with work on the GPU that compute had not waited for yet, since compute started.")
COUNTER(gpu_prefetches, GAUGE, experts,
        "Experts that were copied to the GPU because they were predicted for the next layer "
        "(--gpu-policy prefetch).")
COUNTER(gpu_prefetches_timely, GAUGE, experts, "Of these, used when the copy had ended.")
COUNTER(gpu_prefetches_late, GAUGE, experts, "Of these, used before the copy had ended.")
COUNTER(gpu_prefetches_unused, GAUGE, experts, "Of these, replaced before a use.")
COUNTER(gpu_policy, GAUGE, number,
        "The policy of the next token: 0 gpu-centric, 1 cooperative, 2 prefetch.")
COUNTER(gpu_trials, GAUGE, trials, "Times that --gpu-policy auto chose a policy.")
COUNTER(gpu_centric_tokens, GAUGE, tokens, "Tokens measured with gpu-centric for that choice.")
COUNTER(gpu_centric_token_ns, GAUGE, ns, "Time per token with it in the last trial.")
COUNTER(gpu_cooperative_tokens, GAUGE, tokens, "Tokens measured with cooperative.")
COUNTER(gpu_cooperative_token_ns, GAUGE, ns, "Time per token with it in the last trial.")
COUNTER(gpu_prefetch_tokens, GAUGE, tokens, "Tokens measured with prefetch.")
COUNTER(gpu_prefetch_token_ns, GAUGE, ns, "Time per token with it in the last trial.")
COUNTER(gpu_expert_filled, GAUGE, experts,
        "Experts that were copied to free slots of the GPU and not used so far.")
COUNTER(gpu_graph_launches, GAUGE, tokens,
        "Tokens that the GPU computed alone, by one launch of a graph.")
COUNTER(sequences_paused, COUNTER, sequences,
        "Sequences that gave their keys and values up for older ones and compute them again.")
COUNTER(passes, COUNTER, passes, "Forward passes.")
COUNTER(pass_rows, COUNTER, rows, "Rows of these: tokens of all sequences.")
COUNTER(pass_experts, COUNTER, experts, "Experts of these, of all layers: each one once per pass.")
COUNTER(pass_expert_rows, COUNTER, rows, "Rows that these experts were computed for.")
COUNTER(kv_kept_entries, GAUGE, prefixes, "Prefixes that are kept.")
COUNTER(kv_kept_evictions, COUNTER, times,
        "Times that a kept prefix, a part of it or a checkpoint of it was given up for others.")
COUNTER(sequences_copied, COUNTER, sequences,
        "Part of sequences_reused whose prefix was copied, because its owner kept it.")
COUNTER(sequences_constrained, COUNTER, sequences, "Sequences whose answers keep to a grammar.")
COUNTER(tokens_forced, COUNTER, tokens,
        "Part of tokens_decode that a grammar forced: appended without a pass of their own.")
COUNTER(grammar_errors, COUNTER, times,
        "Grammars that were refused, and answers that ended because no token fits theirs.")
COUNTER(prefixes_stored, COUNTER, prefixes, "Prefixes written to --prefix-dir.")
COUNTER(prefixes_read, COUNTER, prefixes, "Prefixes read from --prefix-dir for a sequence.")
COUNTER(prefix_tokens_read, COUNTER, tokens, "Tokens of these: not computed.")
COUNTER(prefix_bytes_written, COUNTER, bytes, "Bytes written to --prefix-dir.")
COUNTER(prefix_bytes_read, COUNTER, bytes, "Bytes read from --prefix-dir for sequences.")
COUNTER(prefixes_rejected, GAUGE, files,
        "Files of --prefix-dir that were damaged, or of another model or version, since compute "
        "started.")
COUNTER(prefix_errors, GAUGE, errors,
        "Reads and writes of --prefix-dir that failed, since compute started.")
COUNTER(prefix_files, GAUGE, files, "Prefixes in --prefix-dir.")
COUNTER(prefix_bytes, GAUGE, bytes, "Bytes of these.")
COUNTER(
    kv_shared_bytes, GAUGE, bytes,
    "Keys and values of slots that begin alike, which would be in memory again without sharing.")
COUNTER(sequences_followed, COUNTER, sequences,
        "Sequences that waited for rows of a prompt that an earlier one computed.")
COUNTER(kv_spare_seen_bytes, GAUGE, bytes,
        "Memory beside the pool within which all that is kept is now.")
COUNTER(kv_wanted_bytes, GAUGE, bytes,
        "Memory of experts that kept prefixes would use better: what both save is measured.")
COUNTER(kv_step_ns, GAUGE, ns,
        "What a step of memory (a 64th of the budget) saved kept prefixes lately, at most.")
COUNTER(experts_step_ns, GAUGE, ns, "What a step more would have saved experts in that time.")
COUNTER(table_rows, COUNTER, rows, "Rows read of a table on storage.")
COUNTER(table_pages, COUNTER, pages, "Pages of the table that these rows are in.")
COUNTER(table_misses, COUNTER, pages, "Pages of the table that were requested from the cache.")
COUNTER(table_wait_ns, COUNTER, ns, "Time waiting for pages of the table.")
COUNTER(rerouted_accesses, COUNTER, accesses,
        "Accesses of resident experts in place of missing ones (routing=resident-first).")
COUNTER(known_layers, COUNTER, layers,
        "Layers whose experts a table names, of which some were not in memory when a pass began: "
        "they were requested then.")
#undef COUNTER
