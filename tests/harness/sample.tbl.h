/* SPDX-License-Identifier: Apache-2.0 */
/* This table says what the short form of the tests runs of cases that are alike. `sluice test
 * --long` runs everything; build/tests/NAME --list prints what the short form runs, and
 * `sluice test --list` the whole table.
 *
 *   AMOUNT(id, program, short form, long form, what)  test_amount: repetitions, rows or seconds;
 *                                                     program "": of several
 *   EVERY(id, program, n, what)                       test_sample: one of each n rows
 *   TURN(program, case, n, at each change)            a case that runs at every n-th change: those
 *                                                     of a program and number, in this order
 *   LONG_ONLY(program, case, covered by)              a case that runs in the long form, or if it
 *                                                     is named
 *
 * Rows take turns, so that n changes in a row run all of them: which ones is the number of the
 * change, SLUICE_TURN (launch/sluice: the commits before it). A named case always runs.
 *
 * A row states why nothing is lost. */
#ifndef AMOUNT
#define AMOUNT(...)
#endif
#ifndef EVERY
#define EVERY(...)
#endif
#ifndef TURN
#define TURN(...)
#endif
#ifndef LONG_ONLY
#define LONG_ONLY(...)
#endif

AMOUNT(
    baseline_tokens, "", 64, 256,
    "tokens of each text of the demo model that an engine repeats (baseline.h); the experts of a "
    "text are evicted and read again from its first sentence on")
AMOUNT(budget_limits, "scenario_budget", 3, 20, "changes of the limit while a text is computed")
AMOUNT(crash_loop_s, "scenario_crashes", 5, 60, "seconds of crashes of each process")
AMOUNT(delta_kills, "scenario_deltas", 4, 20, "kills of a loader that reads differences")
AMOUNT(grammar_schemas, "scenario_grammar", 12, 300,
       "random schemas on each model; golden_schema has 300 without an engine")
AMOUNT(hostile_connections, "scenario_hostile", 250, 1000, "connections that are closed at once")
AMOUNT(importance_kills, "scenario_importance", 4, 20, "kills of profile")
AMOUNT(kills_random, "scenario_kills_random", 60, 10000,
       "kills, under all lossless presets together")
AMOUNT(mixes_tokens, "scenario_mixes", 80, 160,
       "tokens of each text; the prompt is longer than a window, and each process is killed before "
       "token 55")
AMOUNT(kv_pages, "shm_kv_pages", 100, 400,
       "random changes of slots, for each type and kind of layers")
AMOUNT(mutated_answers, "unit_answer_mutated", 400, 20000, "mutated answers of each form of calls")
AMOUNT(offline_kills, "scenario_offline_budget", 2, 20, "kills of profile within a budget")
AMOUNT(offline_profile_tokens, "scenario_offline_budget", 512, 1024,
       "tokens of each profile, within a budget, mapped and after kills")
AMOUNT(offline_windows, "scenario_offline_budget", 3, 6,
       "windows of each text, whose losses within a budget are those of the mapped model")
AMOUNT(parallel_sequences, "scenario_parallel", 6, 16,
       "sequences on each kind of model; the demo model also has 2 and 5")
AMOUNT(parallel_tokens, "scenario_parallel", 102, 204,
       "tokens of the longest answer of a sequence; the shortest has a fifth")
AMOUNT(plan_kills, "scenario_offline_budget", 2, 50, "kills of plan within a budget")
AMOUNT(plan_tokens, "scenario_offline_budget", 128, 512,
       "tokens of each plan; within a budget, every expert is quantised again for each 32 of them")
AMOUNT(preset_prompts, "scenario_every_preset", 1, 2,
       "prompts under each preset; kills_random has all of them under the lossless ones")
AMOUNT(pool_requests, "scenario_pool", 24, 1000, "requests, sixteen at a time")
AMOUNT(supervisor_kills, "scenario_stops", 2, 10, "kills of the supervisor")
AMOUNT(tampered_index, "unit_model_index, unit_store", 4, 1,
       "bytes or words to the next one of an index that is changed; the first one in turn")

EVERY(budget_presets, "scenario_budget", 2,
      "presets, each with a prompt and tokens, beside those that occupy memory in their own way "
      "(budget.c); what is resident is bounded by one mechanism")
EVERY(cuda_models, "device_cuda_test", 8,
      "golden models; the kernels have tests of their own, and keys of every type run on three "
      "models")
EVERY(drawn_texts, "unit_held", 3, "numbers of windows and domains of simulated texts")
EVERY(entry_searches, "entry_model", 2,
      "searches within other bounds; the mutants are always detected")
EVERY(gpu_settings, "scenario_gpu_sim", 3,
      "numbers of slots, chunks and GPUs, after the first of each policy")
EVERY(hash_cases, "golden_hash", 7,
      "threads and chunks after the first of each model and set, in turn; golden_rows has more")
EVERY(invariance_lengths, "test_kernels_invariance", 3,
      "lengths of rows, with several of each type and instruction set")
EVERY(lossless_under_kills, "scenario_presets", 3,
      "lossless presets, each process killed once; kills_random: all")
EVERY(lossy_presets, "scenario_lossy", 5, "other presets compared with the simulator")
EVERY(
    prefix_dir_kills, "scenario_prefix_dir", 5,
    "pieces of a file after which compute is killed; all are alike, and the last one is always run")
EVERY(perplexity_windows, "golden_perplexity", 8,
      "windows of each text; each window has its own reference")
EVERY(row_cases, "golden_rows", 6,
      "threads and chunks, in turn: over all models every instruction set has each")
EVERY(not_finite_generate, "scenario_not_finite", 4,
      "values that generate meets, too; all are met by eval and an engine")
EVERY(plan_presets, "scenario_offline_budget", 3, "presets planned within a budget")
EVERY(random_kill_presets, "scenario_kills_random", 2,
      "lossless presets; every_preset: the texts of all of them, scenario_kills: every kill")
EVERY(recurrent_combinations, "scenario_recurrent", 17,
      "combinations of residency, threads, chunks and kills")
EVERY(split_parts, "scenario_split", 3, "parts that name the model")
EVERY(store_shapes, "unit_store", 4,
      "shapes of a store of the demo model, too; each one of a small model")
EVERY(type_tools, "scenario_type_tools", 6,
      "tensor types in every tool; all types: scenario_types, golden_hash")
EVERY(window_combinations, "scenario_windows", 7, "combinations of residency, chunks and kills")
EVERY(window_points, "scenario_windows", 3, "moments of a kill, after the first two")

LONG_ONLY("scenario_prefix_dir", attention, "two_engines and bounded: the demo model")
LONG_ONLY("scenario_prefix_dir", damaged_attention,
          "damaged_recurrent: tiles, and states in addition")
LONG_ONLY("scenario_prefix_dir", damaged_windows,
          "damaged_recurrent: a block of rings is checked like one of a state")
LONG_ONLY("scenario_prefix_dir", other_kv_type, "other_model: the check of a file's bond")

/* To the engine an architecture is the kinds of its layers; the rest is in the forward pass, which
 * golden_rows computes with few slots, in chunks and with any threads, and golden_arch compares
 * with other implementations. The cases that stay have every kind: qwen2moe (shared experts),
 * glm4moe and ernie4_5_moe (dense layers), qwen3next, qwen35moe and lfm2moe (recurrent),
 * smallthinker (router first), gpt_oss (windows), deepseek2 (latent attention), gemma4. */
LONG_ONLY("scenario_mixes", qwen3moe, "nvfp4: the same architecture")
LONG_ONLY("scenario_mixes", olmoe, "nvfp4: the same kinds of layers")
LONG_ONLY("scenario_mixes", llama, "nvfp4: the same kinds of layers")
LONG_ONLY("scenario_mixes", dots1, "glm4moe")
LONG_ONLY("scenario_mixes", minimax_m2, "nvfp4: the same kinds of layers")
LONG_ONLY("scenario_mixes", bailingmoe2, "glm4moe")
LONG_ONLY("scenario_mixes", granitemoe, "qwen2moe")
LONG_ONLY("scenario_mixes", hunyuan_moe, "qwen2moe")
LONG_ONLY("scenario_mixes", phimoe, "nvfp4: the same kinds of layers")
LONG_ONLY("scenario_mixes", dbrx, "nvfp4: the same kinds of layers")
LONG_ONLY("scenario_mixes", q4_k_m, "scenario_kills_q4_k_m, scenario_one_text_q4_k_m")
LONG_ONLY("scenario_mixes", mxfp4, "scenario_kills_mxfp4, scenario_one_text_mxfp4")

/* Texts and kills under every lossless preset: scenario_every_preset, scenario_kills_random.
 * Decisions and texts of every eviction: scenario_sim_equality. */
LONG_ONLY("scenario_presets", lossless_under_kills, "scenario_kills_random, every lossless preset")
LONG_ONLY("scenario_presets", lossless_arc_fate, "scenario_sim_equality arc_fate")
LONG_ONLY("scenario_presets", lossless_hobbit_eviction, "scenario_sim_equality hobbit")
LONG_ONLY("scenario_presets", lossless_edgemoe_eviction, "scenario_sim_equality edgemoe")
LONG_ONLY("scenario_presets", deterministic_default,
          "scenario_lossy sim_repeats_lossless_presets: the first is default")
LONG_ONLY("scenario_lossy", deterministic_edgemoe, "deterministic_hobbit: the same mechanism")
LONG_ONLY("scenario_lossy", free_hobbit, "the test scenario_lossy_free, which runs alone")
LONG_ONLY("scenario_lossy", free_fate, "free_hobbit; scenario_every_preset: the texts of fate")
LONG_ONLY("scenario_lossy", free_edgemoe,
          "free_hobbit; scenario_every_preset: the texts of edgemoe")
LONG_ONLY("scenario_sim_equality", lru_25, "lru; a quarter resident: fifo and others")
LONG_ONLY("scenario_sim_equality", learned_25, "learned; a quarter resident: fifo and others")
LONG_ONLY("scenario_sim_equality", together_hobbit, "hobbit; several sequences: together_lru")
LONG_ONLY("scenario_sim_equality", together_decayed_frequency,
          "decayed_frequency; several sequences: together_learned, which ages the same counts")
LONG_ONLY("scenario_sim_equality", together_arc, "arc; several sequences: together_lru")

LONG_ONLY("scenario_stores", one_stripe, "native_among_others and other cases of one stripe")
LONG_ONLY("scenario_stores", three_stripes, "two_stripes, sixteen_stripes")
LONG_ONLY("scenario_stores", spread_over_two, "spread_over_five")
LONG_ONLY("scenario_model_file", another_model_moved_over_pread,
          "another_model_moved_over; pread: scenario_one_text")
LONG_ONLY("scenario_model_file", model_moved_away,
          "model_removed: the same to the engine, which has it open")
LONG_ONLY("scenario_model_file", copy_truncated,
          "copy_overwritten; truncation: model_truncated, stripe_truncated")

LONG_ONLY("scenario_systems", softmax_with_a_bias, "unit_offline")
LONG_ONLY("scenario_systems", recurrent_layers, "scenario_recurrent")
LONG_ONLY("scenario_systems", router_with_a_scale, "unit_offline")
LONG_ONLY("scenario_systems", biases_and_windows, "scenario_windows")
LONG_ONLY("scenario_tune", killed_at_many_moments, "killed_it_ends_with_the_same_plan")
LONG_ONLY("scenario_offline_budget", four_times_the_budget, "writes 4 GiB; eval_of_a_file")

/* Cases that take turns. */
/* An architecture in an engine: its forward pass, with few slots and in chunks, is tested at each
 * change by golden_rows, golden_arch, golden_hash. */
TURN("scenario_mixes", glm4moe, 5, "golden_arch, golden_rows")
TURN("scenario_mixes", qwen35moe, 5, "golden_arch, golden_rows")
TURN("scenario_mixes", lfm2moe, 5, "golden_arch, golden_rows")
TURN("scenario_mixes", minimax_m3, 5, "golden_arch, golden_rows")
TURN("scenario_mixes", smallthinker, 5, "golden_arch, golden_rows")
TURN("scenario_mixes", arctic, 5, "golden_arch, golden_rows")
TURN("scenario_mixes", granitehybrid, 5, "golden_arch, golden_rows")
TURN("scenario_mixes", nemotron_h_moe, 5, "golden_arch, golden_rows")
TURN("scenario_mixes", nemotron_latent, 5, "golden_arch, golden_rows")
TURN("scenario_mixes", qwen4exp, 5, "golden_arch, golden_rows")
TURN("scenario_mixes", minimax_01, 5, "golden_arch, golden_rows")
TURN("scenario_mixes", jamba, 5, "golden_arch, golden_rows")
TURN("scenario_mixes", glm5_next, 5, "golden_arch, golden_rows")
TURN("scenario_mixes", deepseek4, 5, "golden_arch, golden_rows")
TURN("scenario_mixes", hy_v4, 5, "golden_arch, golden_rows")
TURN("scenario_mixes", kimi_linear, 5, "golden_arch, golden_rows")
TURN("scenario_mixes", kimi_k3, 5, "golden_arch, golden_rows")
TURN("scenario_mixes", gpt_oss, 5, "golden_arch, golden_rows")
TURN("scenario_mixes", deepseek2, 5, "golden_arch, golden_rows")
TURN("scenario_mixes", llama4, 5, "golden_arch, golden_rows")
TURN("scenario_mixes", gemma4, 5, "golden_arch, golden_rows")
TURN("scenario_mixes", qwen2moe, 5, "golden_arch, golden_rows")
TURN("scenario_mixes", ernie4_5_moe, 5, "golden_arch, golden_rows")
TURN("scenario_mixes", qwen3next, 5, "golden_arch, golden_rows")
TURN("scenario_mixes", bailingmoe3, 5, "golden_arch, golden_rows")
TURN("scenario_mixes", deepseek32, 5, "golden_arch, golden_rows")
TURN("scenario_mixes", glm_dsa, 5, "golden_arch, golden_rows")
TURN("scenario_mixes", mistral4, 5, "golden_arch, golden_rows")
TURN("scenario_mixes", qwen3vlmoe, 5, "golden_arch, golden_rows")
TURN("scenario_mixes", mellum, 5, "golden_arch, golden_rows")
TURN("scenario_mixes", maple, 5, "golden_arch, golden_rows")
TURN("scenario_mixes", bailingmoe, 5, "golden_arch, golden_rows")
TURN("scenario_mixes", deepseek, 5, "golden_arch, golden_rows")
TURN("scenario_mixes", exaone_moe, 5, "golden_arch, golden_rows")
TURN("scenario_mixes", hy_v3, 5, "golden_arch, golden_rows")
TURN("scenario_mixes", step35, 5, "golden_arch, golden_rows")
TURN("scenario_mixes", laguna, 5, "golden_arch, golden_rows")
TURN("scenario_mixes", afmoe, 5, "golden_arch, golden_rows")
TURN("scenario_mixes", granite_swa, 5, "golden_arch, golden_rows")
TURN("scenario_mixes", mimo2, 5, "golden_arch, golden_rows")
TURN("scenario_mixes", cohere2moe, 5, "golden_arch, golden_rows")
/* Kinds of layers, of which each change has some with every mechanism. */
TURN("scenario_parallel", qwen3moe, 5, "demo, and three other kinds")
TURN("scenario_parallel", qwen35moe, 5, "demo, and three other kinds")
TURN("scenario_parallel", lfm2moe, 5, "demo, and three other kinds")
TURN("scenario_parallel", granitehybrid, 5, "demo, and three other kinds")
TURN("scenario_parallel", nemotron, 5, "demo, and three other kinds")
TURN("scenario_parallel", jamba, 5, "demo, and three other kinds")
TURN("scenario_parallel", kimi_k3, 5, "demo, and three other kinds")
TURN("scenario_parallel", qwen4exp, 5, "demo, and three other kinds")
TURN("scenario_parallel", step35, 5, "demo, and three other kinds")
TURN("scenario_parallel", gpt_oss, 5, "demo, and three other kinds")
TURN("scenario_parallel", llama4, 5, "demo, and three other kinds")
TURN("scenario_parallel", gemma4, 5, "demo, and three other kinds")
TURN("scenario_parallel", deepseek2, 5, "demo, and three other kinds")
TURN("scenario_parallel", minimax_01, 5, "demo, and three other kinds")
TURN("scenario_parallel", arctic, 5, "demo, and three other kinds")
TURN("scenario_recurrent", qwen35moe, 4, "three other kinds; killed_at_every_point")
TURN("scenario_recurrent", qwen3next, 4, "three other kinds; killed_at_every_point")
TURN("scenario_recurrent", lfm2moe, 4, "three other kinds; killed_at_every_point")
TURN("scenario_recurrent", granitehybrid, 4, "three other kinds; killed_at_every_point")
TURN("scenario_recurrent", nemotron, 4, "three other kinds; killed_at_every_point")
TURN("scenario_recurrent", jamba, 4, "three other kinds; killed_at_every_point")
TURN("scenario_recurrent", kimi_linear, 4, "three other kinds; killed_at_every_point")
TURN("scenario_recurrent", kimi_k3, 4, "three other kinds; killed_at_every_point")
TURN("scenario_recurrent", glm5_next, 4, "three other kinds; killed_at_every_point")
TURN("scenario_recurrent", qwen4exp, 4, "three other kinds; killed_at_every_point")
TURN("scenario_recurrent", bailingmoe3, 4, "three other kinds; killed_at_every_point")
TURN("scenario_recurrent", minimax_01, 4, "three other kinds; killed_at_every_point")
TURN("scenario_conversation", qwen35moe, 3, "demo, and two other kinds")
TURN("scenario_conversation", lfm2moe, 3, "demo, and two other kinds")
TURN("scenario_conversation", gpt_oss, 3, "demo, and two other kinds")
TURN("scenario_conversation", llama4, 3, "demo, and two other kinds")
TURN("scenario_conversation", gemma4, 3, "demo, and two other kinds")
TURN("scenario_conversation", deepseek2, 3, "demo, and two other kinds")
TURN("scenario_prefixes", in_turns_with_states, 4, "in_turns, and one or two other kinds")
TURN("scenario_prefixes", in_turns_with_windows, 4, "in_turns, and one or two other kinds")
TURN("scenario_prefixes", in_turns_with_latents, 4, "in_turns, and one or two other kinds")
TURN("scenario_prefixes", in_turns_with_chunks, 4, "in_turns, and one or two other kinds")
TURN("scenario_prefixes", in_turns_with_ngrams, 4, "in_turns, and one or two other kinds")
TURN("scenario_prefixes", in_turns_with_fixed_decays, 4, "in_turns, and one or two other kinds")
TURN("scenario_prefixes", in_turns_with_elements, 4, "in_turns, and one or two other kinds")
TURN("scenario_indexed", deepseek32, 3, "two models, and second turns of one")
TURN("scenario_indexed", glm_dsa, 3, "two models, and second turns of one")
TURN("scenario_indexed", minimax_m3, 3, "two models, and second turns of one")
TURN("scenario_indexed", qwen4exp, 3, "two models, and second turns of one")
TURN("scenario_indexed", glm5_next, 3, "two models, and second turns of one")
TURN("scenario_indexed", deepseek4, 3, "two models, and second turns of one")
TURN("scenario_indexed", second_turns_in_blocks, 3, "two models, and second turns of one")
TURN("scenario_indexed", second_turns_with_pools, 3, "two models, and second turns of one")
TURN("scenario_indexed", second_turns, 3, "two models, and second turns of one")
TURN("scenario_indexed", second_turns_with_entries, 3, "two models, and second turns of one")
TURN("scenario_indexed", second_turns_with_gates, 3, "two models, and second turns of one")
TURN("scenario_one_prompt", sixteen, 2, "four others: one prompt, and at once")
TURN("scenario_one_prompt", sixteen_at_once, 2, "four others: one prompt, and at once")
TURN("scenario_one_prompt", with_states, 2, "four others: one prompt, and at once")
TURN("scenario_one_prompt", with_windows, 2, "four others: one prompt, and at once")
TURN("scenario_one_prompt", alike_at_once, 2, "four others: one prompt, and at once")
TURN("scenario_one_prompt", four_at_once, 2, "four others: one prompt, and at once")
TURN("scenario_one_prompt", at_once_with_windows, 2, "four others: one prompt, and at once")
TURN("scenario_one_prompt", at_once_with_states, 2, "four others: one prompt, and at once")
TURN("scenario_pool", sixteen_with_prefixes, 2,
     "the same with states or without, with a cgroup or without")
TURN("scenario_pool", sixteen_in_a_cgroup, 2,
     "the same with states or without, with a cgroup or without")
TURN("scenario_pool", sixteen_with_states_in_a_cgroup, 2,
     "the same with states or without, with a cgroup or without")
TURN("scenario_pool", sixteen_with_states, 2,
     "the same with states or without, with a cgroup or without")
TURN("scenario_windows", gpt_oss, 2, "one text, second turns")
TURN("scenario_windows", gemma4, 2, "one text, second turns")
TURN("scenario_windows", gemma4_second_turns, 2, "one text, second turns")
TURN("scenario_windows", gpt_oss_second_turns, 2, "one text, second turns")
/* Combinations, of which each change has every option of each side. */
TURN("scenario_kv_types", f16_one_text, 3, "each kind of case, and each type")
TURN("scenario_kv_types", q8_0_one_text, 3, "each kind of case, and each type")
TURN("scenario_kv_types", q4_0_one_text, 3, "each kind of case, and each type")
TURN("scenario_kv_types", q8_0_killed, 3, "each kind of case, and each type")
TURN("scenario_kv_types", q4_0_killed, 3, "each kind of case, and each type")
TURN("scenario_kv_types", f16_killed, 3, "each kind of case, and each type")
TURN("scenario_kv_types", q4_0_within_ledger, 3, "each kind of case, and each type")
TURN("scenario_kv_types", f16_within_ledger, 3, "each kind of case, and each type")
TURN("scenario_kv_types", q8_0_within_ledger, 3, "each kind of case, and each type")
TURN("scenario_kv_types", f16_kept, 3, "each kind of case, and each type")
TURN("scenario_kv_types", q8_0_kept, 3, "each kind of case, and each type")
TURN("scenario_kv_types", q4_0_kept, 3, "each kind of case, and each type")
TURN("scenario_one_text", experts_100, 3, "a third of the options, several of each kind")
TURN("scenario_one_text", experts_18_75, 3, "a third of the options, several of each kind")
TURN("scenario_one_text", experts_50, 3, "a third of the options, several of each kind")
TURN("scenario_one_text", experts_12_5, 3, "a third of the options, several of each kind")
TURN("scenario_one_text", experts_25, 3, "a third of the options, several of each kind")
TURN("scenario_one_text", threads_1, 3, "a third of the options, several of each kind")
TURN("scenario_one_text", threads_2, 3, "a third of the options, several of each kind")
TURN("scenario_one_text", prefill_chunk_1, 3, "a third of the options, several of each kind")
TURN("scenario_one_text", loaders_2, 3, "a third of the options, several of each kind")
TURN("scenario_one_text", prefill_chunk_512, 3, "a third of the options, several of each kind")
TURN("scenario_one_text", prefill_chunk_64, 3, "a third of the options, several of each kind")
TURN("scenario_one_text", prefill_chunk_7, 3, "a third of the options, several of each kind")
TURN("scenario_one_text", backend_pread, 3, "a third of the options, several of each kind")
TURN("scenario_one_text", backend_io_uring, 3, "a third of the options, several of each kind")
TURN("scenario_one_text", page_cache, 3, "a third of the options, several of each kind")
TURN("scenario_one_text", eviction_lru, 3, "a third of the options, several of each kind")
TURN("scenario_one_text", eviction_lfu, 3, "a third of the options, several of each kind")
TURN("scenario_one_text", eviction_fifo, 3, "a third of the options, several of each kind")
TURN("scenario_one_text", eviction_random, 3, "a third of the options, several of each kind")
TURN("scenario_one_text", eviction_learned, 3, "a third of the options, several of each kind")
TURN("scenario_one_text", prediction_none, 3, "a third of the options, several of each kind")
TURN("scenario_reuse", same_text_all_resident, 2, "the other share of the experts")
TURN("scenario_reuse", same_text_quarter_resident, 2, "the other share of the experts")
TURN("scenario_reuse", killed_quarter_resident, 2, "the other share of the experts")
TURN("scenario_reuse", killed_all_resident, 2, "the other share of the experts")
TURN("scenario_sim_equality", fifo, 3, "lru; policy_* compare each with an oracle; every_preset")
TURN("scenario_sim_equality", lfu, 3, "lru; policy_* compare each with an oracle; every_preset")
TURN("scenario_sim_equality", random_draws, 3,
     "lru; policy_* compare each with an oracle; every_preset")
TURN("scenario_sim_equality", edgemoe, 3, "lru; policy_* compare each with an oracle; every_preset")
TURN("scenario_sim_equality", activation, 3,
     "lru; policy_* compare each with an oracle; every_preset")
TURN("scenario_sim_equality", hobbit, 3, "lru; policy_* compare each with an oracle; every_preset")
TURN("scenario_sim_equality", hobbit_model, 3,
     "lru; policy_* compare each with an oracle; every_preset")
TURN("scenario_sim_equality", arc, 3, "lru; policy_* compare each with an oracle; every_preset")
TURN("scenario_sim_equality", arc_fate, 3,
     "lru; policy_* compare each with an oracle; every_preset")
TURN("scenario_sim_equality", decayed_frequency, 3,
     "lru; policy_* compare each with an oracle; every_preset")
TURN("scenario_sim_equality", lru_even, 3,
     "lru; policy_* compare each with an oracle; every_preset")
TURN("scenario_sim_equality", learned, 3, "lru; policy_* compare each with an oracle; every_preset")
TURN("scenario_sim_equality", together_lru, 3,
     "lru; policy_* compare each with an oracle; every_preset")
TURN("scenario_sim_equality", together_learned, 3,
     "lru; policy_* compare each with an oracle; every_preset")
TURN("scenario_sim_equality", together_resident_first, 3,
     "lru; policy_* compare each with an oracle; every_preset")
TURN("scenario_sim_equality", preset_hobbit, 3,
     "lru; policy_* compare each with an oracle; every_preset")
TURN("scenario_sim_equality", preset_fate, 3,
     "lru; policy_* compare each with an oracle; every_preset")
TURN("scenario_sim_equality", preset_edgemoe, 3,
     "lru; policy_* compare each with an oracle; every_preset")
TURN("scenario_sim_equality", resident_first, 3,
     "lru; policy_* compare each with an oracle; every_preset")
TURN("scenario_sim_equality", resident_first_hobbit, 3,
     "lru; policy_* compare each with an oracle; every_preset")
TURN("scenario_sim_equality", resident_first_edgemoe, 3,
     "lru; policy_* compare each with an oracle; every_preset")
TURN("scenario_sim_equality", preset_mixed_two, 3,
     "lru; policy_* compare each with an oracle; every_preset")
TURN("scenario_lossy", deterministic_hobbit, 2, "scenario_every_preset; three or four others")
TURN("scenario_lossy", deterministic_mixed_two, 2, "scenario_every_preset; three or four others")
TURN("scenario_lossy", sim_repeats_hobbit, 2, "scenario_every_preset; three or four others")
TURN("scenario_lossy", sim_repeats_fate, 2, "scenario_every_preset; three or four others")
TURN("scenario_lossy", sim_repeats_edgemoe, 2, "scenario_every_preset; three or four others")
TURN("scenario_lossy", sim_repeats_resident_first, 2, "scenario_every_preset; three or four others")
TURN("scenario_lossy", sim_repeats_mixed_two, 2, "scenario_every_preset; three or four others")
TURN("scenario_lossy", deterministic_fate, 2, "scenario_every_preset; three or four others")
TURN("scenario_stores", two_stripes, 2, "the other number")
TURN("scenario_stores", sixteen_stripes, 2, "the other number")
TURN("scenario_stops", stopped_2s_loader, 2, "each process, for the other time")
TURN("scenario_stops", stopped_5s_loader, 2, "each process, for the other time")
TURN("scenario_stops", stopped_5s_cache, 2, "each process, for the other time")
TURN("scenario_stops", stopped_2s_cache, 2, "each process, for the other time")
TURN("scenario_stops", stopped_2s_predictor, 2, "each process, for the other time")
TURN("scenario_stops", stopped_5s_predictor, 2, "each process, for the other time")
TURN("scenario_stops", stopped_5s_compute, 2, "each process, for the other time")
TURN("scenario_stops", stopped_2s_compute, 2, "each process, for the other time")
TURN("scenario_gpu", attention, 2, "two kinds; device_cuda_test: all models")
TURN("scenario_gpu", delta_net, 2, "two kinds; device_cuda_test: all models")
TURN("scenario_gpu", latent_attention, 2, "two kinds; device_cuda_test: all models")
TURN("scenario_gpu", windows_and_sinks, 2, "two kinds; device_cuda_test: all models")
TURN("scenario_type_tools", q4_k_m, 2, "every_type, and three mixes")
TURN("scenario_type_tools", nvfp4, 2, "every_type, and three mixes")
TURN("scenario_type_tools", ternary, 2, "every_type, and three mixes")
TURN("scenario_type_tools", few_bits, 2, "every_type, and three mixes")
TURN("scenario_type_tools", layers_that_differ, 2, "every_type, and three mixes")
TURN("scenario_type_tools", layers_without_experts, 2, "every_type, and three mixes")
TURN("scenario_tune_left", split_model, 2, "which_systems_are_stored, and two others")
TURN("scenario_tune_left", lower_precisions_are_stored, 2, "stores_of_earlier_runs, and two others")
TURN("scenario_tune_left", which_systems_are_stored, 2, "split_model, and two others")
TURN("scenario_tune_left", stores_of_earlier_runs, 2, "lower_precisions_are_stored, and two others")
TURN("scenario_offline_budget", eval_of_other_mixers, 2, "eval_of_a_file; golden_rows: mixers")
TURN("scenario_offline_budget", eval_of_a_store, 2, "eval_of_a_file, eval_with_a_damaged_stripe")
TURN("scenario_offline_budget", shares_of_a_long_stream, 2, "plan_and_kills within a budget")
TURN("scenario_offline_budget", loss_that_cannot_be_kept, 2, "scenario_tune_left: fate and hobbit")
TURN("scenario_tables", chunks, 2, "the other one; kills")
TURN("scenario_tables", four_sequences, 2, "the other one; kills")

/* Stories about one program, each of which is told by a half of them at each change. */
TURN("scenario_tune_left", stores_are_listed_and_removed, 2, "scenario_tune; the other one")
TURN("scenario_tune_left", what_changed_is_noticed, 2, "scenario_tune; the other one")
TURN("scenario_tune", smallest_budget, 2, "later_starts_find_it, kills")
TURN("scenario_tune", few_layers, 2, "later_starts_find_it, kills")
TURN("scenario_deltas", two_precisions_of_an_expert, 2, "same_text_as_a_full_store, kills, damages")
TURN("scenario_deltas", split_model, 2, "same_text_as_a_full_store, kills, damages")
TURN("scenario_deltas", tools_accept_it, 2, "same_text_as_a_full_store, kills, damages")
TURN("scenario_deltas", options_that_do_not_fit, 2, "same_text_as_a_full_store, kills, damages")
TURN("scenario_large", within_the_budget, 2, "scenario_budget, with small pages; the other one")
TURN("scenario_large", a_changing_budget, 2, "scenario_budget, with small pages; the other one")
TURN("scenario_reuse", divergent_prompts, 2, "same text, kills, limits")
TURN("scenario_reuse", repl_remembers_all, 2, "same text, kills, limits")
TURN("scenario_pool", experts_lend_nothing, 2, "experts_lend; the other one")
TURN("scenario_pool", dear_experts_lend_nothing, 2, "experts_lend; the other one")
TURN("scenario_loss", plan_to_engine, 2,
     "bound_holds, rejected_at_run_time; policy_loss_test: each condition")
TURN("scenario_loss", resident_first_to_engine, 2,
     "bound_holds, rejected_at_run_time; policy_loss_test: each condition")
TURN("scenario_loss", kv_type_of_the_measurement, 2,
     "bound_holds, rejected_at_run_time; policy_loss_test: each condition")
TURN("scenario_loss", share_of_the_measurement, 2,
     "bound_holds, rejected_at_run_time; policy_loss_test: each condition")
TURN("scenario_loss", chunk_of_the_measurement, 2,
     "bound_holds, rejected_at_run_time; policy_loss_test: each condition")
TURN("scenario_loss", dense_of_the_measurement, 2,
     "bound_holds, rejected_at_run_time; policy_loss_test: each condition")
TURN("scenario_measure", bench_variants, 2, "three of them; unit_measured")
TURN("scenario_measure", bench_explicit_variants, 2, "three of them; unit_measured")
TURN("scenario_measure", bench_depth, 2, "three of them; unit_measured")
TURN("scenario_measure", bench_interleave, 2, "three of them; unit_measured")
TURN("scenario_measure", bench_forms, 2, "three of them; unit_measured")
TURN("scenario_measure", forced_tokens, 2, "three of them; unit_measured")
TURN("scenario_stores", scattered_over_precisions, 2, "same texts of other layouts; damages, kills")
TURN("scenario_stores", hints_name_the_precision, 2, "same texts of other layouts; damages, kills")
TURN("scenario_stores", page_cache, 2, "same texts of other layouts; damages, kills")
TURN("scenario_stores", explicit_loaders, 2, "same texts of other layouts; damages, kills")
TURN("scenario_gpu", kept_rows, 2, "three of them; what fails: all")
TURN("scenario_gpu", copied_rows, 2, "three of them; what fails: all")
TURN("scenario_gpu", slots, 2, "three of them; what fails: all")
TURN("scenario_gpu", cooperative, 2, "three of them; what fails: all")
TURN("scenario_gpu", prefetching, 2, "three of them; what fails: all")
TURN("scenario_gpu", automatic, 2, "three of them; what fails: all")
TURN("scenario_pack", text_from_gguf, 2, "two of them; interrupted and damaged: all")
TURN("scenario_pack", text_from_stripes, 2, "two of them; interrupted and damaged: all")
TURN("scenario_pack", text_from_hugging_face, 2, "two of them; interrupted and damaged: all")
TURN("scenario_pack", text_from_mirrors, 2, "two of them; interrupted and damaged: all")
TURN("scenario_grammar", schemas_on_the_demo_model, 2, "the other one; kills; golden_schema")
TURN("scenario_grammar", schemas_on_random_weights, 2, "the other one; kills; golden_schema")
TURN("scenario_filling", everything, 2, "three of them; kills, damages")
TURN("scenario_filling", most_used, 2, "three of them; kills, damages")
TURN("scenario_filling", fixed_set, 2, "three of them; kills, damages")
TURN("scenario_filling", without_a_plan, 2, "three of them; kills, damages")
TURN("scenario_filling", exchanges, 2, "three of them; kills, damages")
TURN("scenario_filling", exchanges_in_prefill, 2, "three of them; kills, damages")
TURN("scenario_importance", continued_keeps_the_timings, 2, "two of them")
TURN("scenario_importance", groups_of_another_size, 2, "two of them")
TURN("scenario_importance", rows_without_lower_precisions, 2, "two of them")
TURN("scenario_importance", begins_at_the_changed_layer, 2, "two of them")
TURN("scenario_remote", opens_a_split_model, 2, "a file; a store; kills")
TURN("scenario_remote", another_model_is_fetched, 2, "a file; a store; kills")
TURN("scenario_remote", continues_a_fetch, 2, "a file; a store; kills")
TURN("scenario_remote", the_server_goes_away, 2, "scenario_servers")
TURN("scenario_remote", a_client_opens_it, 2, "a file; a store; kills")
TURN("scenario_presets", lossless_learned_eviction, 2,
     "scenario_every_preset, scenario_sim_equality")
TURN("scenario_presets", lossless_fate_list, 2, "scenario_every_preset, scenario_sim_equality")
TURN("scenario_presets", lossless_two_ahead, 2, "scenario_every_preset, scenario_sim_equality")
TURN("scenario_presets", deterministic_lod, 2, "scenario_every_preset, scenario_sim_equality")
TURN("scenario_presets", deterministic_learned_eviction, 2,
     "scenario_every_preset, scenario_sim_equality")

#undef AMOUNT
#undef EVERY
#undef TURN
#undef LONG_ONLY
