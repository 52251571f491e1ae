/* SPDX-License-Identifier: Apache-2.0 */
/* This table says what the short form of the tests runs of cases that are alike. `sluice test
 * --long` runs everything; build/tests/NAME --list prints what the short form runs.
 *
 *   AMOUNT(id, program, short form, long form, what)  test_amount: repetitions, rows or seconds;
 *                                                     program "": of several
 *   EVERY(id, program, n, what)                       test_sample: the first of each n rows
 *   LONG_ONLY(program, case, covered by)              a case that runs in the long form, or if it
 *                                                     is named
 *
 * A row states why nothing is lost. */
#ifndef AMOUNT
#define AMOUNT(...)
#endif
#ifndef EVERY
#define EVERY(...)
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
AMOUNT(supervisor_kills, "scenario_stops", 2, 10, "kills of the supervisor")

EVERY(budget_presets, "scenario_budget", 2,
      "presets, each with a prompt and tokens, beside those that occupy memory in their own way "
      "(budget.c); what is resident is bounded by one mechanism")
EVERY(cuda_models, "device_cuda_test", 7,
      "golden models; the kernels have tests of their own, and keys of every type run on three "
      "models")
EVERY(hash_cases, "golden_hash", 7,
      "threads and chunks after the first of each model and set, in turn; golden_rows has more")
EVERY(lossless_under_kills, "scenario_presets", 3,
      "lossless presets, each process killed once; kills_random: all")
EVERY(lossy_presets, "scenario_lossy", 5, "other presets compared with the simulator")
EVERY(
    prefix_dir_kills, "scenario_prefix_dir", 5,
    "pieces of a file after which compute is killed; all are alike, and the last one is always run")
EVERY(perplexity_windows, "golden_perplexity", 6,
      "windows of each text; each window has its own reference")
EVERY(row_cases, "golden_rows", 4,
      "threads and chunks, in turn: over all models every instruction set has each")
EVERY(not_finite_generate, "scenario_not_finite", 4,
      "values that generate meets, too; all are met by eval and an engine")
EVERY(recurrent_combinations, "scenario_recurrent", 17,
      "combinations of residency, threads, chunks and kills")
EVERY(split_parts, "scenario_split", 3, "parts that name the model")
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

#undef AMOUNT
#undef EVERY
#undef LONG_ONLY
