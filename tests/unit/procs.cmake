# SPDX-License-Identifier: Apache-2.0
# Tests of procs/: parts of programs without their processes. sluice_NAME_parts: the sources of a program but its main.

sluice_unit_test(child_run_files_test SOURCES procs/engine/child/run_files_test.c LINK sluice_child)
sluice_unit_test(child_run_storage_test SOURCES procs/engine/child/run_storage_test.c LINK sluice_child)
sluice_unit_test(fetch_names_test SOURCES procs/engine/fetch/names_test.c LINK sluice_fetch_parts sluice_no_servers)
sluice_unit_test(push_journal_test SOURCES procs/tools/push/journal_test.c LINK sluice_push_parts)
sluice_unit_test(push_watch_test SOURCES procs/tools/push/watch_test.c LINK sluice_push_parts)
sluice_unit_test(fetch_result_test SOURCES procs/engine/fetch/result_test.c LINK sluice_fetch_result)
if(HTTP_FOUND)
  sluice_unit_test(fetch_server_test SOURCES procs/engine/fetch/server_test.c LINK sluice_fetch_parts sluice_http test_web)
endif()

sluice_unit_test(compute_response_text SOURCES procs/engine/compute/main/response_text_test.c
  LINK sluice_compute_parts sluice_golden)
sluice_unit_test(predictor_recall SOURCES procs/engine/predictor/recall_test.c LINK sluice_predictor_core)
target_compile_definitions(compute_response_text PRIVATE SLUICE_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
sluice_unit_test(compute_constraint SOURCES procs/engine/compute/constraints/constraint_test.c
  LINK sluice_compute_parts test_gguf_make)
target_compile_definitions(compute_constraint PRIVATE SLUICE_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
sluice_library(test_slots SOURCES procs/engine/compute/slots/slots_rig.c LINK sluice_compute_parts PkgConfig::CHECK)
foreach(part alike kept state rings shared worth)
  sluice_unit_test(compute_${part} SOURCES procs/engine/compute/slots/${part}_test.c LINK test_slots)
endforeach()
sluice_unit_test(compute_prefixes SOURCES procs/engine/compute/prefixes/prefixes_test.c LINK test_slots)
sluice_unit_test(compute_prefix_index SOURCES procs/engine/compute/prefixes/index_test.c LINK sluice_compute_parts)
sluice_library(test_experts SOURCES procs/engine/compute/experts/world.c
  LINK sluice_compute_parts sluice_golden test_store_make PkgConfig::CHECK)
foreach(part experts pages rows)
  sluice_unit_test(compute_${part} SOURCES procs/engine/compute/experts/${part}_test.c LINK test_experts)
endforeach()

sluice_unit_test(supervisor_fsm_test SOURCES procs/engine/supervisor/children/fsm_test.c
  LINK sluice_supervisor_core sluice_shm)
sluice_unit_test(supervisor_exits_test SOURCES procs/engine/supervisor/children/exits_test.c
  LINK sluice_supervisor_core)
sluice_unit_test(supervisor_oom_test SOURCES procs/engine/supervisor/budget/oom_test.c
  LINK sluice_supervisor_core)
sluice_unit_test(supervisor_ledger_test SOURCES procs/engine/supervisor/budget/ledger_test.c
  LINK sluice_supervisor_core)

sluice_unit_test(cache_test SOURCES procs/engine/cache/cache_test.c procs/engine/cache/world.c
  LINK sluice_cache_parts sluice_golden)
sluice_unit_test(cache_pages_test SOURCES procs/engine/cache/pages_test.c procs/engine/cache/world.c
  LINK sluice_cache_parts sluice_golden)

sluice_unit_test(loader_test SOURCES procs/engine/loader/loader_test.c LINK sluice_loader_parts)
sluice_unit_test(loader_cache_test SOURCES procs/engine/loader/cache_test.c LINK sluice_loader_cache)
sluice_unit_test(loader_verify_test SOURCES procs/engine/loader/verify_test.c LINK sluice_loader_parts)

foreach(name api/completion api/classes/side api/stored api/tokens dialects/openai/answer dialects/openai/continued dialects/openai/request dialects/openai/several dialects/fields dialects/logprobs dialects/openai/shapes http/buffer http/head)
  get_filename_component(part ${name} NAME)
  sluice_unit_test(gateway_${part}_test SOURCES procs/engine/gateway/${name}_test.c LINK sluice_gateway_core)
endforeach()
target_compile_definitions(gateway_fields_test PRIVATE SLUICE_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
foreach(name anthropic/answer anthropic/request ollama/answer ollama/request responses/answer responses/request)
  string(REPLACE / _ test ${name})
  sluice_unit_test(gateway_${test}_test SOURCES procs/engine/gateway/dialects/${name}_test.c LINK sluice_gateway_core)
endforeach()

sluice_unit_test(gateway_definitions_test SOURCES procs/engine/gateway/api/constraints/definitions_test.c
  LINK sluice_gateway_core sluice_grammar)
sluice_unit_test(gateway_left_out_test SOURCES procs/engine/gateway/api/constraints/left_out_test.c
  LINK sluice_gateway_core sluice_grammar)
sluice_unit_test(gateway_typed_test SOURCES procs/engine/gateway/api/constraints/typed_test.c
  LINK sluice_gateway_core sluice_grammar)
sluice_unit_test(gateway_constrain_test SOURCES procs/engine/gateway/api/constraints/constrain_test.c LINK sluice_gateway_core sluice_grammar)

foreach(name serve/stream serve/ask http/http_log)
  get_filename_component(part ${name} NAME)
  sluice_unit_test(gateway_${part}_test SOURCES procs/engine/gateway/${name}_test.c LINK sluice_gateway_parts)
endforeach()
sluice_unit_test(client_test SOURCES procs/clients/common/client_test.c LINK sluice_client)
sluice_unit_test(eval_cloze_test SOURCES procs/clients/eval/cloze_test.c LINK sluice_eval_parts m)
sluice_unit_test(conversation_place_test SOURCES procs/clients/conversation/place_test.c
  LINK sluice_conversation sluice_grammar)
sluice_unit_test(repl_test SOURCES procs/clients/repl/repl_test.c LINK sluice_repl_core)
sluice_unit_test(top_test SOURCES procs/clients/top/top_test.c LINK sluice_top_core)

sluice_unit_test(doctor_together_test SOURCES procs/tools/doctor/together_test.c LINK sluice_doctor_core)
sluice_unit_test(doctor_estimate_test SOURCES procs/tools/doctor/estimate_test.c LINK sluice_doctor_core)
sluice_unit_test(doctor_hidden_test SOURCES procs/tools/doctor/hidden_test.c LINK sluice_doctor_core)
sluice_unit_test(doctor_routing_test SOURCES procs/tools/doctor/routing_test.c LINK sluice_doctor_core)
sluice_unit_test(doctor_ranking_test SOURCES procs/tools/doctor/ranking_test.c LINK sluice_doctor_core)
# reads.c with a pass and devices of the test.
sluice_unit_test(doctor_reads_test SOURCES procs/tools/doctor/reads_test.c ${CMAKE_SOURCE_DIR}/procs/tools/doctor/forward/reads.c LINK sluice_doctor_core Threads::Threads)
sluice_unit_test(doctor_verdict_test SOURCES procs/tools/doctor/verdict_test.c LINK sluice_doctor_core)
foreach(name shape types/mix types/blocks)
  get_filename_component(part ${name} NAME)
  sluice_unit_test(unit_synth_${part} SOURCES procs/tools/synth/${name}_test.c LINK sluice_synth_parts)
endforeach()
foreach(name shares judge held measured papers/eviction papers/widths levers/mixed)
  get_filename_component(part ${name} NAME)
  sluice_unit_test(unit_${part} SOURCES procs/tools/plan/${name}_test.c LINK sluice_plan_parts test_sample m)
endforeach()
foreach(name systems/systems job run)
  get_filename_component(part ${name} NAME)
  sluice_unit_test(unit_tune_${part} SOURCES procs/tools/tune/${name}_test.c LINK sluice_tune_parts m)
endforeach()
target_compile_definitions(unit_synth_mix PRIVATE SLUICE_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
target_compile_definitions(unit_judge PRIVATE SLUICE_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
target_compile_definitions(unit_mixed PRIVATE SLUICE_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
target_compile_definitions(unit_eviction PRIVATE SLUICE_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
