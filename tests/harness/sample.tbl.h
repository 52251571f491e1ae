/* SPDX-License-Identifier: Apache-2.0 */
/* This table says what the short form of the tests runs of cases that are alike. `sluice test
 * --long` runs everything; build/tests/NAME --list prints what the short form runs, and
 * `sluice test --list` the whole table.
 *
 *   AMOUNT(id, program, short form, long form, what)  test_amount: repetitions, rows or seconds;
 *                                                     program "": of several
 *   EVERY(id, program, n, what)                       test_sample: one of each n rows
 *   TURNS(program, cases, n, at each change)          cases, n or more, of which each runs at every
 *                                                     n-th change, in this order
 *   LONG_ONLY(program, case, covered by)              a case that runs in the long form, or if it
 *                                                     is named
 *
 * Rows take turns, so that n changes in a row run all of them: which ones is the number of the
 * change, SLUICE_TURN (launch/sluice: the commits before it). A named case always runs. The numbers
 * of EVERY and TURNS of a program have no common divisor, so that each row meets each case.
 *
 * A row states why nothing is lost. */
#ifndef AMOUNT
#define AMOUNT(...)
#endif
#ifndef EVERY
#define EVERY(...)
#endif
#ifndef TURNS
#define TURNS(...)
#endif
#ifndef LONG_ONLY
#define LONG_ONLY(...)
#endif

AMOUNT(
    baseline_tokens, "", 64, 256,
    "tokens of each text of the demo model that an engine repeats (baseline.h); the experts of a "
    "text are evicted and read again from its first sentence on")
AMOUNT(budget_tokens, "scenario_budget", 48, 96, "tokens under each preset, after a long prompt")
AMOUNT(budget_limits, "scenario_budget", 3, 20, "changes of the limit while a text is computed")
AMOUNT(
    changes_with_threads, "", 4, 11,
    "of 11 changes at which the engines of a program have compute threads on all cores, unless it "
    "says how many; one_text, mixes, recurrent, kv_types, parallel and golden_* say so always")
AMOUNT(cloze_items, "scenario_loss", 12, 60,
       "items of a task with choices, of which the package transformers says how many are right")
AMOUNT(crash_loop_s, "scenario_crashes", 2, 60, "seconds of crashes of each process")
AMOUNT(delta_kills, "scenario_deltas", 2, 20, "kills of a loader that reads differences")
AMOUNT(fault_tokens, "scenario_servers, scenario_web_servers", 16, 64,
       "tokens of the text during each fault of a server; 16 read hundreds of experts")
AMOUNT(grammar_schemas, "scenario_grammar", 12, 300,
       "random schemas on each model; golden_schema has 300 without an engine")
AMOUNT(hostile_connections, "scenario_hostile", 250, 1000, "connections that are closed at once")
AMOUNT(device_cache_kills, "scenario_device_cache", 4, 60,
       "kills while a cache is filled, on a server of each kind")
AMOUNT(https_kills, "scenario_web_servers", 5, 60,
       "kills of processes and of nginx, at random tokens")
AMOUNT(importance_kills, "scenario_importance", 2, 20, "kills of profile")
AMOUNT(kills_random, "scenario_kills_random", 40, 10000,
       "kills, under all lossless presets together")
AMOUNT(mixes_tokens, "scenario_mixes", 64, 160,
       "tokens of each text; the prompt is longer than a window, and each process is killed before "
       "token 55")
AMOUNT(kv_pages, "shm_kv_pages", 100, 400,
       "random changes of slots, for each type and kind of layers")
AMOUNT(
    mask_steps, "unit_mask", 13, 40,
    "tokens of a text that follows each grammar; every token of the vocabulary is compared at each")
AMOUNT(mutated_answers, "unit_answer_mutated", 400, 20000, "mutated answers of each form of calls")
AMOUNT(offline_kills, "scenario_offline_budget", 2, 20, "kills of profile within a budget")
AMOUNT(offline_profile_tokens, "scenario_offline_budget", 512, 1024,
       "tokens of each profile, within a budget, mapped and after kills")
AMOUNT(offline_windows, "scenario_offline_budget", 3, 6,
       "windows of each text, whose losses within a budget are those of the mapped model")
AMOUNT(oom_tokens, "scenario_oom", 80, 256,
       "tokens of each text during which the kernel kills a process, at once after its start")
AMOUNT(parallel_sequences, "scenario_parallel", 4, 16,
       "sequences on each kind of model; the demo model also has 2 and 5")
AMOUNT(parallel_tokens, "scenario_parallel", 60, 204,
       "tokens of the longest answer of a sequence; the shortest has a fifth")
AMOUNT(plan_kills, "scenario_offline_budget", 2, 50, "kills of plan within a budget")
AMOUNT(plan_tokens, "scenario_offline_budget", 128, 512,
       "tokens of each plan; within a budget, every expert is quantised again for each 32 of them")
AMOUNT(preset_tokens, "scenario_every_preset", 32, 256,
       "tokens under each lossy preset, whose counters they move; lossless texts are those of all "
       "programs")
AMOUNT(preset_prompts, "scenario_every_preset", 1, 2,
       "prompts under each preset; kills_random has all of them under the lossless ones")
AMOUNT(pool_requests, "scenario_pool", 24, 1000, "requests, sixteen at a time")
AMOUNT(reuse_turns, "scenario_reuse", 5, 8,
       "turns of a conversation; killed at each of four points")
AMOUNT(supervisor_kills, "scenario_stops", 2, 10, "kills of the supervisor")
AMOUNT(tampered_index, "unit_model_index, unit_store", 8, 1,
       "bytes or words to the next one of an index that is changed; the first one in turn")

EVERY(budget_presets, "scenario_budget", 7,
      "presets, each with a prompt and tokens, beside those that occupy memory in their own way "
      "(budget.c); what is resident is bounded by one mechanism")
EVERY(cuda_models, "device_cuda_test", 8,
      "golden models; the kernels have tests of their own, and keys of every type run on three "
      "models")
EVERY(delta_presets, "scenario_deltas", 3, "presets on a delta and on a full store")
EVERY(drawn_texts, "unit_held", 6, "numbers of windows and domains of simulated texts")
EVERY(entry_searches, "entry_model", 5,
      "searches within other bounds; the mutants are always detected")
EVERY(gpu_settings, "scenario_gpu_sim", 6,
      "numbers of slots, chunks and GPUs, after the first of each policy")
EVERY(hash_cases, "golden_hash", 8,
      "threads and chunks after the first of each model and set, in turn; golden_rows has more")
EVERY(invariance_lengths, "test_kernels_invariance", 5,
      "lengths of rows, with several of each type and instruction set")
EVERY(lossless_under_kills, "scenario_presets", 4,
      "lossless presets, each process killed once; kills_random: all")
EVERY(lossy_presets, "scenario_lossy", 5, "other presets compared with the simulator")
EVERY(
    prefix_dir_kills, "scenario_prefix_dir", 7,
    "pieces of a file after which compute is killed; all are alike, and the last one is always run")
EVERY(oracle_rounds, "policy_residency_test", 3,
      "rounds of each rule of eviction and allocation, of which each change has two")
EVERY(parallel_more, "scenario_parallel", 3,
      "numbers of sequences, prefixes from storage, beside a quarter of the experts and kills")
EVERY(perplexity_windows, "golden_perplexity", 8,
      "windows of each text; each window has its own reference")
EVERY(row_cases, "golden_rows", 8,
      "threads and chunks, in turn: over all models every instruction set has each")
EVERY(mixed_plans, "unit_mixed", 4,
      "plans of mixed-two, each measured on its own; two of them at each change")
EVERY(not_finite_generate, "scenario_not_finite", 8,
      "values that generate meets, too; all are met by eval and an engine")
EVERY(plan_presets, "scenario_offline_budget", 5, "presets planned within a budget")
EVERY(random_kill_presets, "scenario_kills_random", 4,
      "lossless presets; every_preset: the texts of all of them, scenario_kills: every kill")
EVERY(recorded_shares, "sim_import_test", 2,
      "shares of resident experts, for each recording and policy")
EVERY(recurrent_combinations, "scenario_recurrent", 17,
      "combinations of residency, threads, chunks and kills")
EVERY(split_parts, "scenario_split", 3, "parts that name the model")
EVERY(store_shapes, "unit_store", 8,
      "shapes of a store of the demo model, too; each one of a small model")
EVERY(synth_routings, "scenario_synth_routing", 3, "numbers of experts; unit_synth_blocks: routing")
EVERY(tune_moments, "scenario_tune", 5,
      "moments at which tune is killed; in the last step it is interrupted always")
EVERY(type_tools, "scenario_type_tools", 7,
      "tensor types in every tool; all types: scenario_types, golden_hash")
EVERY(window_combinations, "scenario_windows", 7, "combinations of residency, chunks and kills")
EVERY(window_points, "scenario_windows", 5, "moments of a kill, after the first two")

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
 * change by golden_rows, golden_arch, golden_hash. Those of the first row are killed, too. */
TURNS("scenario_mixes",
      "glm4moe qwen35moe lfm2moe minimax_m3 smallthinker arctic granitehybrid nemotron_h_moe "
      "nemotron_latent qwen4exp minimax_01 jamba glm5_next deepseek4 hy_v4 kimi_linear kimi_k3 "
      "gpt_oss deepseek2 llama4 gemma4 dots3note",
      8, "golden_arch, golden_rows; three others")
TURNS("scenario_mixes",
      "qwen2moe ernie4_5_moe qwen3next bailingmoe3 deepseek32 glm_dsa mistral4 qwen3vlmoe "
      "mellum maple bailingmoe deepseek exaone_moe hy_v3 step35 laguna afmoe granite_swa mimo2 "
      "cohere2moe",
      8, "golden_arch, golden_rows; three others")
TURNS("scenario_mixes", "nvfp4 layers_that_differ", 2,
      "the other one; scenario_kills_q4_k_m, scenario_kills_mxfp4")
/* Kinds of layers, of which each change has some with every mechanism. */
TURNS("scenario_parallel",
      "qwen3moe qwen35moe lfm2moe granitehybrid nemotron jamba kimi_k3 qwen4exp step35 gpt_oss "
      "llama4 gemma4 deepseek2 minimax_01 arctic",
      7, "demo, and two other kinds")
TURNS("scenario_parallel", "memory_for_one preset_change", 2,
      "the other one; scenario_pool, scenario_lossy")
TURNS("scenario_recurrent",
      "qwen35moe qwen3next lfm2moe granitehybrid nemotron jamba kimi_linear kimi_k3 glm5_next "
      "qwen4exp bailingmoe3 minimax_01",
      6, "two other kinds; killed_at_every_point")
TURNS("scenario_conversation", "qwen35moe lfm2moe gpt_oss llama4 gemma4 deepseek2", 6,
      "demo, and another kind")
TURNS("scenario_prefixes",
      "in_turns_with_states in_turns_with_windows in_turns_with_latents in_turns_with_chunks "
      "in_turns_with_ngrams in_turns_with_fixed_decays in_turns_with_elements",
      7, "in_turns, and another kind")
TURNS("scenario_prefixes", "short_requests titles_let_conversations_pass", 2, "the other one")
TURNS("scenario_indexed",
      "deepseek32 glm_dsa minimax_m3 qwen4exp glm5_next deepseek4 dots3note hy_v4", 8,
      "another model, and second turns of one")
TURNS("scenario_indexed",
      "second_turns_in_blocks second_turns_with_pools second_turns second_turns_with_entries "
      "second_turns_with_gates second_turns_with_windows second_turns_with_weights",
      7, "another one, and the text of one")
TURNS("scenario_indexed", "doctor doctor_of_entries", 2, "the other one")
TURNS("scenario_one_prompt",
      "sixteen sixteen_at_once with_states with_windows alike_at_once four_at_once "
      "at_once_with_windows at_once_with_states",
      4, "two others: one prompt, and at once")
TURNS("scenario_pool",
      "sixteen_with_prefixes sixteen_in_a_cgroup sixteen_with_states_in_a_cgroup "
      "sixteen_with_states",
      4, "requests_leave_memory, and another one")
TURNS("scenario_windows", "gpt_oss gemma4_second_turns gemma4 gpt_oss_second_turns", 4,
      "one text or second turns")
TURNS("scenario_budget", "without_limit with_limit", 2,
      "the other one; from outside: every_preset without a limit, down_and_up, keeps_the_budget of "
      "servers")
/* Combinations, of which each change has every kind of case. */
TURNS("scenario_kv_types", "f16_one_text q8_0_one_text q4_0_one_text", 3, "another type")
TURNS("scenario_kv_types", "q8_0_killed q4_0_killed f16_killed", 3, "another type")
TURNS("scenario_kv_types",
      "q4_0_within_ledger f16_kept q8_0_within_ledger q4_0_kept f16_within_ledger q8_0_kept", 6,
      "another type")
TURNS("scenario_one_text",
      "experts_100 experts_18_75 experts_50 experts_12_5 experts_25 threads_1 threads_2 "
      "prefill_chunk_1 loaders_2 prefill_chunk_512 prefill_chunk_64 prefill_chunk_7 "
      "backend_pread backend_io_uring page_cache eviction_lru eviction_lfu eviction_fifo "
      "eviction_random eviction_learned prediction_none",
      7, "three options of different kinds")
TURNS("scenario_reuse", "same_text_all_resident same_text_quarter_resident", 2,
      "the other share of the experts")
TURNS("scenario_reuse", "killed_quarter_resident killed_all_resident", 2,
      "the other share of the experts")
TURNS("scenario_sim_equality",
      "fifo lfu random_draws edgemoe activation hobbit hobbit_model arc arc_fate "
      "decayed_frequency lru_even learned together_lru together_learned together_resident_first "
      "preset_hobbit preset_fate preset_edgemoe resident_first resident_first_hobbit "
      "resident_first_edgemoe preset_mixed_two s3_fifo drop resident_first_mixed_two "
      "edgemoe_printed",
      8, "lru; policy_* compare each with an oracle; every_preset")
TURNS("scenario_lossy", "deterministic_hobbit deterministic_mixed_two deterministic_fate", 3,
      "scenario_every_preset; another one")
TURNS("scenario_lossy",
      "sim_repeats_hobbit sim_repeats_fate sim_repeats_edgemoe sim_repeats_resident_first "
      "sim_repeats_mixed_two sim_repeats_mixed_two_resident_first sim_repeats_tables",
      7, "scenario_every_preset; another one, and several presets")
TURNS("scenario_stores", "two_stripes sixteen_stripes", 2, "the other number")
TURNS("scenario_stops",
      "stopped_2s_loader stopped_5s_loader stopped_5s_cache stopped_2s_cache "
      "stopped_2s_predictor stopped_5s_predictor stopped_5s_compute stopped_2s_compute",
      2, "each process, for the other time")
TURNS("scenario_gpu", "attention delta_net latent_attention windows_and_sinks", 4,
      "another kind; device_cuda_test: all models")
TURNS("scenario_type_tools",
      "q4_k_m nvfp4 ternary few_bits layers_that_differ layers_without_experts", 6,
      "every_type, and another mix")
TURNS("scenario_tune_left",
      "split_model lower_precisions_are_stored which_systems_are_stored stores_of_earlier_runs "
      "stores_are_listed_and_removed what_changed_is_noticed",
      6, "another one; scenario_tune")
TURNS("scenario_offline_budget",
      "eval_of_other_mixers eval_of_a_store shares_of_a_long_stream loss_that_cannot_be_kept", 4,
      "eval_of_a_file, eval_with_a_damaged_stripe, plan_and_kills")
TURNS("scenario_offline_budget", "forms_larger_than_the_file eval_of_a_split_file pack", 3,
      "another one; eval_of_a_file")
TURNS("scenario_tables", "chunks four_sequences other_files", 3, "another one; kills")
/* Stories about one program, of which each change has some. */
TURNS("scenario_tune", "later_starts_find_it smallest_budget few_layers", 3,
      "kills, bad_input; scenario_tune_left")
TURNS("scenario_deltas",
      "two_precisions_of_an_expert split_model tools_accept_it options_that_do_not_fit", 4,
      "same_text_as_a_full_store, kills, damages")
TURNS("scenario_large", "within_the_budget a_changing_budget", 2,
      "scenario_budget, with small pages; the other one")
TURNS("scenario_kills", "rows_are_freed loader_segv", 2,
      "loader_crashes of scenario_crashes; every other kill")
TURNS("scenario_kills", "queued_beside_side_requests queued_for_memory queued_for_a_preset", 3,
      "another one; scenario_parallel: kills of several sequences")
TURNS("scenario_reuse",
      "divergent_prompts repl_remembers_all kept_memory_yields bounded_by_keep_kv "
      "repl_answers_to_the_end repl_leaves_out_the_oldest",
      3, "same text, kills; another limit")
TURNS("scenario_pool", "experts_lend_nothing spare_memory dear_experts_lend_nothing", 3,
      "experts_lend; another one")
TURNS("scenario_loss",
      "plan_to_engine resident_first_to_engine kv_type_of_the_measurement "
      "share_of_the_measurement chunk_of_the_measurement dense_of_the_measurement "
      "resident_first_is_scored_in_decode",
      7, "bound_holds, rejected_at_run_time; policy_loss_test: each condition")
TURNS("scenario_measure",
      "bench_variants bench_explicit_variants bench_depth bench_interleave bench_forms "
      "forced_tokens",
      3, "two of them; unit_measured")
TURNS("scenario_measure", "doctor_json doctor_model doctor_on_a_terminal doctor_has_two_forms", 2,
      "two of them; doctor_*_test")
TURNS("scenario_stores",
      "scattered_over_precisions hints_name_the_precision page_cache explicit_loaders "
      "without_native native_among_others",
      3, "two others; texts of other layouts; damages, kills")
TURNS("scenario_stores", "spread_over_five bench_of_a_text stripes_copied", 3,
      "another one; damages, kills")
TURNS("scenario_gpu", "kept_rows copied_rows slots cooperative prefetching automatic", 3,
      "two of them; what fails: all")
TURNS("scenario_gpu_graph", "graphs sizes lower_precision", 3, "another one; test_cuda_*")
TURNS("scenario_gpu_parts", "layers_on_the_cpu two_gpus policies_of_parts", 3,
      "another one; not_finite_on_the_gpu")
TURNS("scenario_gpu_shown", "computing copied_ahead without doctor doctor_parts", 3,
      "another one; lost")
TURNS("scenario_gpu_choice", "measured two_gpus rates_not_used", 3, "another one")
TURNS("scenario_pack",
      "text_from_gguf text_from_stripes text_from_hugging_face text_from_mirrors "
      "experts_converted dense_narrow alignment_of_a_mebibyte",
      4, "another one; interrupted and damaged: all")
TURNS("scenario_grammar", "schemas_on_the_demo_model schemas_on_random_weights", 2,
      "the other one; kills; golden_schema")
TURNS("scenario_grammar",
      "beside_others forced_tokens_one_by_one behind_a_mark biases_and_most_probable "
      "generate_with_a_schema no_token_fits bench_with_and_without",
      3, "two others; kills; what is refused")
TURNS("scenario_filling",
      "everything most_used fixed_set without_a_plan exchanges exchanges_in_prefill", 3,
      "two of them; kills, damages")
TURNS("scenario_filling",
      "short_chunks sets_after_preset_change second_start_is_warm same_prompt_again", 2,
      "two of them; kills, damages")
TURNS("scenario_importance",
      "continued_keeps_the_timings groups_of_another_size rows_without_lower_precisions "
      "begins_at_the_changed_layer",
      4, "another one")
TURNS("scenario_web_servers", "keeps_the_budget credentials_of_the_environment opens_a_model", 2,
      "another one; budget and models of nbd, credentials of a file")
TURNS("scenario_push", "an_upload_that_is_gone s3_refuses a_server_refuses to_an_object_store", 2,
      "two of them; a web server; an interrupted push")
TURNS("scenario_device_cache",
      "damaged_blocks_are_read_again full_cache_evicts another_model_has_another_file "
      "second_engine_runs_without full_disk_is_no_error with_tls changed_experts_are_read_again "
      "replace_empties_the_file",
      4, "two of them; cold and warm, kills; slots, heads and locks in loader_cache_test")
LONG_ONLY("scenario_clusters", opens_a_model, "io_rados_test; scenario_remote")
LONG_ONLY("scenario_clusters", the_osd_is_killed, "io_rados_test; scenario_servers")
LONG_ONLY("scenario_clusters", wrong_bytes_are_read_elsewhere, "io_rados_test; scenario_servers")
LONG_ONLY("scenario_clusters", keeps_the_budget, "scenario_servers: budget of nbd")
LONG_ONLY("scenario_clusters", reads_a_striped_file, "io_rados_test, without a cluster")
LONG_ONLY("scenario_clusters", pack_sends_a_store, "scenario_push")
TURNS("scenario_remote",
      "opens_a_split_model another_model_is_fetched continues_a_fetch the_server_goes_away "
      "a_client_opens_it",
      2, "a file; a store; kills")
TURNS("scenario_presets",
      "lossless_learned_eviction lossless_fate_list lossless_two_ahead deterministic_lod "
      "deterministic_learned_eviction",
      5, "scenario_every_preset, scenario_sim_equality")
TURNS("scenario_presets",
      "switches_between_sequences switch_waits_for_the_next_sequence trace_has_every_access", 3,
      "another one; scenario_lossy")
TURNS("scenario_prefix_dir", "recurrent two_engines windows bounded", 2,
      "two others; kills, damages")
TURNS("scenario_split", "same_text links part_replaced other_programs", 2,
      "two others; kills, wrong parts")
TURNS("scenario_model_file", "another_model_moved_over model_removed", 2, "the other one")
TURNS("scenario_model_file", "expert_overwritten expert_overwritten_through_a_mapping", 2,
      "the other one")
TURNS("scenario_model_file", "touched_when_resident model_touched", 2, "the other one")
TURNS("scenario_model_file", "stripe_moved_over copy_moved_over", 2, "the other one")
TURNS("scenario_progress",
      "in_replies over_http on_a_terminal in_the_repl in_a_narrow_repl not_in_the_repl", 3,
      "two of them")
TURNS("scenario_screens",
      "repl_on_a_terminal repl_for_a_person repl_takes_a_paste repl_as_a_filter stats_watches "
      "repl_states_what_it_drops map_and_directory_agree stats_of_sequences top_on_a_terminal "
      "top_as_text top_shows_requests",
      2, "half of them, of each program; restarts")
TURNS("scenario_clients",
      "eval_windows profile_plan_generate eval_per_token trace_and_sim eval_modelled "
      "inspect_demo profile_of_routing",
      3, "two of them")
TURNS("scenario_auto",
      "follows_the_plan swapmoe_from_its_share_on needs_the_stored_precisions "
      "needs_the_planned_precisions takes_a_loss_that_is_allowed doctor_prints_the_ranking",
      3, "two of them; policy_auto_*")
TURNS("scenario_systems", "dense_layers_and_groups predictions_know_the_bias_of_the_logits", 2,
      "the other one; unit_offline")
TURNS("scenario_gateway_tools",
      "coder glm minimax minimax_m3 minimax_m1 hermes deepseek_v3 deepseek_v31 deepseek_v32 "
      "deepseek_v4 kimi kimi_k3 mimo hy3 cohere mistral gemma lfm2 llama4 harmony",
      5, "four of them; unit_answer*: each form")

#undef AMOUNT
#undef EVERY
#undef TURNS
#undef LONG_ONLY
