# SPDX-License-Identifier: Apache-2.0
# Tests of lib/.
sluice_unit_test(base_test SOURCES lib/base/base_test.c lib/base/log_test.c lib/base/statistics_test.c
  LINK sluice_tensor sluice_text sluice_io sluice_base m)

sluice_unit_test(test_exact SOURCES lib/exact/elementary_test.c LINK sluice_exact sluice_base m)

find_package(Threads REQUIRED)
foreach(name matmul rows invariance bits edges kv attention recurrent)
  sluice_unit_test(test_kernels_${name} SOURCES lib/kernels/${name}_test.c lib/kernels/kernel_test.c
    LINK sluice_kernels Threads::Threads m)
endforeach()
target_compile_definitions(test_kernels_edges PRIVATE SLUICE_SOURCE_DIR="${PROJECT_SOURCE_DIR}")

sluice_unit_test(test_quant SOURCES lib/quant/quant_test.c LINK sluice_quant m)

# gguf_make, store_make and hf_make write small models, valid and malformed; scenarios and fuzzing seeds
# use them, too.
add_library(test_gguf_make STATIC lib/model/gguf_index.c lib/model/gguf_make.c lib/model/gguf_make_archs.c lib/model/gguf_make_recurrent.c)
target_link_libraries(test_gguf_make PUBLIC sluice_model)
add_library(test_store_make STATIC lib/model/store_make.c)
target_link_libraries(test_store_make PUBLIC sluice_model)
add_library(test_hf_make STATIC lib/model/hf_make.c lib/model/hf_make_moved.c)
target_link_libraries(test_hf_make PUBLIC sluice_model)
sluice_unit_test(sandbox_calls_test SOURCES lib/sandbox/calls_test.c LINK sluice_sandbox)
sluice_unit_test(sandbox_access_test SOURCES lib/sandbox/access_test.c LINK sluice_sandbox sluice_io)
sluice_unit_test(sandbox_document_test SOURCES lib/sandbox/document_test.c)
sluice_unit_test(json_reader_test SOURCES lib/json/reader_test.c LINK sluice_json m)
sluice_unit_test(unit_jinja SOURCES lib/jinja/jinja_test.c LINK sluice_jinja)
sluice_unit_test(read_errors_test SOURCES lib/io/read_errors_test.c LINK sluice_read_errors)
sluice_unit_test(unit_jinja_cost SOURCES lib/jinja/cost_test.c LINK sluice_jinja)
sluice_unit_test(strtab_test SOURCES lib/text/strtab_test.c LINK sluice_text)
sluice_unit_test(terminal_test SOURCES lib/terminal/terminal_test.c LINK sluice_terminal sluice_text)
sluice_unit_test(display_test SOURCES lib/terminal/display_test.c LINK sluice_terminal)
sluice_unit_test(unit_nfc SOURCES lib/text/nfc_test.c LINK sluice_text)
sluice_unit_test(unit_printable SOURCES lib/text/printable_test.c LINK sluice_text)
sluice_unit_test(unit_gguf SOURCES lib/model/gguf/gguf_test.c LINK sluice_model test_gguf_make m)
sluice_unit_test(unit_gguf_split SOURCES lib/model/gguf/split_test.c ${CMAKE_SOURCE_DIR}/procs/tools/synth/split.c
  LINK sluice_model test_gguf_make)
sluice_unit_test(unit_gguf_types SOURCES lib/model/gguf/types_test.c LINK sluice_model)
sluice_unit_test(unit_gguf_write SOURCES lib/model/gguf/write_test.c LINK sluice_model)
sluice_unit_test(unit_arch SOURCES lib/model/arch/arch_test.c LINK sluice_model test_gguf_make)
sluice_unit_test(unit_arch_keys SOURCES lib/model/arch/keys_test.c LINK sluice_model test_gguf_make)
sluice_unit_test(unit_model_rows SOURCES lib/model/rows_test.c LINK sluice_base)
sluice_unit_test(unit_arch_bad SOURCES lib/model/arch/bad_models_test.c LINK sluice_model test_gguf_make)
sluice_unit_test(unit_arch_recurrent SOURCES lib/model/arch/recurrent_test.c LINK sluice_model test_gguf_make)
sluice_unit_test(unit_model_index SOURCES lib/model/index/model_index_test.c LINK sluice_model test_gguf_make)
sluice_unit_test(unit_model_capacity SOURCES lib/model/index/capacity_test.c LINK sluice_model)
sluice_unit_test(unit_model_unread SOURCES lib/model/index/unread_test.c LINK sluice_model test_gguf_make)
sluice_unit_test(unit_answer SOURCES lib/model/chat/answer_test.c LINK sluice_chat)
sluice_unit_test(unit_answer_calls SOURCES lib/model/chat/calls_test.c LINK sluice_chat)
sluice_unit_test(unit_chat_types SOURCES lib/model/chat/types_test.c LINK sluice_chat)
sluice_unit_test(unit_chat_format SOURCES lib/model/chat/format_test.c LINK sluice_chat)
sluice_unit_test(unit_tokenizer SOURCES lib/model/tokenizer/tokenizer_test.c
  LINK sluice_model test_gguf_make PkgConfig::JANSSON)
sluice_unit_test(unit_tokenizer_special SOURCES lib/model/tokenizer/special_test.c LINK sluice_model test_gguf_make)
sluice_unit_test(unit_tokenizer_models SOURCES lib/model/tokenizer/tokenizer_models_test.c
  LINK sluice_model test_gguf_make PkgConfig::JANSSON)
sluice_unit_test(unit_chat_ids SOURCES lib/model/chat/chat_ids_test.c LINK sluice_model PkgConfig::JANSSON)
sluice_unit_test(unit_chat SOURCES lib/model/chat/chat_vectors_test.c
  LINK sluice_model PkgConfig::JANSSON)
sluice_unit_test(unit_tokenizer_words SOURCES lib/model/tokenizer/words_test.c LINK sluice_model PkgConfig::JANSSON)
sluice_unit_test(unit_store
  SOURCES lib/model/store/store_test.c lib/model/store/invalid_test.c lib/model/store/delta_test.c lib/model/store/store_fixture.c
  LINK sluice_model test_gguf_make test_store_make)
sluice_unit_test(unit_safetensors SOURCES lib/model/hf/safetensors_test.c LINK sluice_model)
sluice_unit_test(unit_hf_sentencepiece SOURCES lib/model/hf/sentencepiece_test.c LINK sluice_model)
sluice_unit_test(unit_hf_tiktoken SOURCES lib/model/hf/tiktoken_test.c LINK sluice_model test_hf_make)
sluice_unit_test(unit_hf SOURCES lib/model/hf/hf_test.c LINK sluice_model test_hf_make golden_f16)
sluice_unit_test(unit_hf_directory SOURCES lib/model/hf/directory_test.c LINK sluice_model test_hf_make PkgConfig::JANSSON)
sluice_unit_test(unit_hf_rows SOURCES lib/model/hf/rows_test.c LINK sluice_model m)
sluice_unit_test(unit_hf_rejected SOURCES lib/model/hf/rejected_test.c LINK sluice_model test_hf_make)
sluice_unit_test(unit_hf_large SOURCES lib/model/hf/large_test.c LINK sluice_model sluice_sandbox)
sluice_unit_test(unit_plan SOURCES lib/plan/plan_test.c LINK sluice_plan m)
sluice_unit_test(unit_memory SOURCES lib/memory/available_test.c LINK sluice_memory)
sluice_unit_test(unit_warm SOURCES lib/warm/warm_test.c LINK sluice_warm)
sluice_unit_test(unit_part_name SOURCES lib/file/part_name_test.c LINK sluice_file)
sluice_unit_test(unit_tunings SOURCES lib/tunings/tunings_test.c LINK sluice_tunings)
sluice_unit_test(unit_rates SOURCES lib/rates/rates_test.c LINK sluice_rates test_gguf_make)
sluice_unit_test(unit_plan_paths SOURCES lib/plan/paths_test.c LINK sluice_plan)

sluice_unit_test(policy_sequences_test SOURCES lib/policy/sequences_test.c LINK sluice_policy)
sluice_unit_test(policy_test SOURCES lib/policy/access/access_test.c LINK sluice_policy)
sluice_unit_test(policy_activation_test SOURCES lib/policy/prediction/activation_test.c LINK sluice_policy)
sluice_unit_test(policy_gpu_test SOURCES lib/policy/gpu/trial_test.c LINK sluice_policy)
sluice_unit_test(policy_gpu_cost_test SOURCES lib/policy/gpu/cost_test.c LINK sluice_policy m)
sluice_unit_test(policy_residency_test
  SOURCES lib/policy/residency/residency_test.c lib/policy/residency/rules_test.c LINK sluice_policy)
sluice_unit_test(policy_residency_arc_test SOURCES lib/policy/residency/arc_test.c LINK sluice_policy)
sluice_unit_test(policy_residency_learned_test SOURCES lib/policy/residency/learned_test.c LINK sluice_policy m)
sluice_unit_test(policy_reuse_test SOURCES lib/policy/reuse/reuse_test.c LINK sluice_policy)
sluice_unit_test(policy_gpu_places_test SOURCES lib/policy/gpu/places_test.c LINK sluice_policy)
sluice_unit_test(policy_gpu_slabs_test SOURCES lib/policy/gpu/slabs_test.c LINK sluice_policy)
sluice_unit_test(policy_prediction_test SOURCES lib/policy/prediction/prediction_test.c LINK sluice_policy)
sluice_unit_test(policy_lists_test SOURCES lib/policy/prediction/lists_test.c LINK sluice_policy)
sluice_unit_test(policy_judge_test SOURCES lib/policy/prediction/judge_test.c LINK sluice_policy)
sluice_unit_test(policy_schedule_test SOURCES lib/policy/schedule/schedule_test.c LINK sluice_policy)
sluice_unit_test(policy_router_test SOURCES lib/policy/prediction/router_test.c LINK sluice_policy)
sluice_unit_test(policy_presets_test SOURCES lib/policy/presets/presets_test.c LINK sluice_policy)
sluice_unit_test(policy_auto_test SOURCES lib/policy/presets/auto_test.c LINK sluice_policy m)
sluice_unit_test(policy_loss_test SOURCES lib/policy/presets/loss_test.c LINK sluice_policy sluice_plan)
sluice_unit_test(policy_swap_test SOURCES lib/policy/access/swap_test.c LINK sluice_policy m)
sluice_unit_test(policy_planned_test SOURCES lib/policy/presets/planned_test.c LINK sluice_policy m)

sluice_unit_test(sim_trace_test SOURCES lib/trace/trace_test.c LINK sluice_sim)
sluice_unit_test(sim_test
  SOURCES lib/sim/sim_test.c lib/sim/cache_test.c lib/sim/gpu_test.c lib/sim/sequences_test.c LINK sluice_sim)
sluice_unit_test(sim_states_test SOURCES lib/sim/states_test.c LINK sluice_sim)
sluice_unit_test(sampler_test SOURCES lib/sampling/sampler_test.c LINK sluice_sampling)
# The golden library gives the core a model.
sluice_unit_test(core_lost_test SOURCES lib/core/lost_test.c LINK sluice_golden)
sluice_unit_test(core_rows_test SOURCES lib/core/rows_test.c LINK sluice_golden)
sluice_unit_test(core_margins_test SOURCES lib/core/margins_test.c LINK sluice_golden m)
sluice_unit_test(core_memory_test SOURCES lib/core/memory_test.c LINK sluice_golden)
sluice_unit_test(core_chain_test SOURCES lib/core/chain/chain_test.c lib/device/checked.c lib/device/run.c LINK sluice_golden)
sluice_unit_test(core_rope_test SOURCES lib/core/rope_test.c LINK sluice_golden m)
sluice_unit_test(device_cuda_batches_test SOURCES lib/device/cuda_batches_test.c LINK sluice_device_cuda)
sluice_unit_test(device_host_test SOURCES lib/device/host_test.c LINK sluice_device Threads::Threads)
sluice_unit_test(device_host_finite_test SOURCES lib/device/host_finite_test.c LINK sluice_device Threads::Threads)
sluice_unit_test(device_checked_test SOURCES lib/device/checked_test.c lib/device/checked.c lib/device/run.c
  LINK sluice_golden)
sluice_unit_test(unit_offline SOURCES lib/offline/offline_test.c ${CMAKE_SOURCE_DIR}/procs/tools/plan/network.c
  LINK sluice_offline m)
sluice_unit_test(unit_routers SOURCES lib/offline/routers_test.c LINK sluice_offline m)
sluice_unit_test(unit_clocked SOURCES lib/offline/measure/clocked_test.c LINK sluice_offline sluice_sim m)

foreach(test sandbox_document_test unit_gguf_types unit_gguf_write unit_model_index unit_tokenizer unit_tokenizer_models unit_tokenizer_special
             unit_jinja            unit_tokenizer_words unit_chat unit_chat_ids unit_store unit_hf unit_hf_directory unit_hf_rejected unit_hf_sentencepiece unit_hf_tiktoken unit_offline unit_routers unit_clocked)
  target_compile_definitions(${test} PRIVATE SLUICE_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
endforeach()

include(lib/cuda/cuda.cmake)
