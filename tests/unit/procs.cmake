# SPDX-License-Identifier: Apache-2.0
# Tests of procs/: parts of programs without their processes.
set(procs ${CMAKE_SOURCE_DIR}/procs)

sluice_unit_test(child_run_files_test SOURCES procs/engine/child/run_files_test.c LINK sluice_child)
sluice_unit_test(child_run_storage_test SOURCES procs/engine/child/run_storage_test.c LINK sluice_child)

set(compute ${procs}/engine/compute)
sluice_unit_test(compute_response_text SOURCES procs/engine/compute/main/response_text_test.c
  ${compute}/main/response_text.c ${compute}/runner/stops.c
  LINK sluice_golden sluice_predictor_core sluice_child sluice_ipc sluice_shm sluice_model)
target_compile_definitions(compute_response_text PRIVATE SLUICE_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
sluice_unit_test(compute_constraint SOURCES procs/engine/compute/constraints/constraint_test.c
  ${compute}/constraints/constraint.c ${compute}/constraints/grammars.c
  LINK sluice_grammar sluice_shm sluice_model test_gguf_make)
target_compile_definitions(compute_constraint PRIVATE SLUICE_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
foreach(part alike kept state rings shared)
  sluice_unit_test(compute_${part} SOURCES procs/engine/compute/slots/${part}_test.c
    procs/engine/compute/slots/slots_rig.c ${compute}/slots/alike.c ${compute}/slots/kept.c ${compute}/slots/room.c ${compute}/slots/state.c
    ${compute}/slots/table.c
    LINK sluice_child sluice_ipc sluice_shm sluice_policy sluice_model sluice_config sluice_base)
endforeach()
sluice_unit_test(compute_prefixes SOURCES procs/engine/compute/prefixes/prefixes_test.c
  procs/engine/compute/slots/slots_rig.c ${compute}/slots/alike.c ${compute}/slots/kept.c ${compute}/slots/room.c ${compute}/slots/state.c
  ${compute}/slots/table.c ${compute}/prefixes/index.c ${compute}/prefixes/load.c ${compute}/prefixes/prefixes.c
  ${compute}/prefixes/read.c ${compute}/prefixes/store.c ${compute}/prefixes/worker.c ${compute}/prefixes/write.c
  LINK sluice_prefix sluice_child sluice_ipc sluice_shm sluice_policy sluice_model sluice_config sluice_base PkgConfig::XXHASH)
sluice_unit_test(compute_prefix_index SOURCES procs/engine/compute/prefixes/index_test.c ${compute}/prefixes/index.c
  LINK sluice_prefix sluice_policy sluice_base)
foreach(part experts rows)
  sluice_unit_test(compute_${part} SOURCES procs/engine/compute/experts/${part}_test.c
    procs/engine/compute/experts/world.c ${compute}/experts/accesses.c ${compute}/experts/deterministic.c
    ${compute}/experts/experts.c ${compute}/experts/gates.c ${compute}/experts/mask.c
    ${compute}/experts/precision.c ${compute}/experts/preset.c
    LINK sluice_golden sluice_deterministic sluice_child sluice_ipc sluice_shm sluice_policy sluice_model
    test_store_make)
endforeach()

sluice_unit_test(supervisor_fsm_test SOURCES procs/engine/supervisor/children/fsm_test.c
  LINK sluice_supervisor_core sluice_shm)
sluice_unit_test(supervisor_exits_test SOURCES procs/engine/supervisor/children/exits_test.c
  LINK sluice_supervisor_core)
sluice_unit_test(supervisor_oom_test SOURCES procs/engine/supervisor/budget/oom_test.c
  LINK sluice_supervisor_core)
sluice_unit_test(supervisor_ledger_test SOURCES procs/engine/supervisor/budget/ledger_test.c
  LINK sluice_supervisor_core)

set(cache ${procs}/engine/cache)
sluice_unit_test(cache_test SOURCES procs/engine/cache/cache_test.c procs/engine/cache/world.c
  ${cache}/start.c ${cache}/loads.c ${cache}/capacity.c ${cache}/demand.c ${cache}/hint.c ${cache}/loaders.c
  ${cache}/quota.c ${cache}/prefault.c ${cache}/policy.c ${cache}/fill.c ${cache}/recheck.c
  LINK sluice_golden sluice_child sluice_ipc sluice_shm sluice_policy sluice_model sluice_config sluice_base
       PkgConfig::XXHASH Threads::Threads)

set(loader ${procs}/engine/loader)
sluice_unit_test(loader_test SOURCES procs/engine/loader/loader_test.c
  ${loader}/jobs.c ${loader}/chunk.c ${loader}/throttle.c ${loader}/storage.c
  LINK sluice_child sluice_shm sluice_model sluice_config sluice_base)
sluice_unit_test(loader_verify_test SOURCES procs/engine/loader/verify_test.c ${loader}/jobs.c ${loader}/verify.c
  LINK sluice_model sluice_read_errors sluice_config sluice_base PkgConfig::XXHASH)

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
sluice_unit_test(gateway_constrain_test SOURCES procs/engine/gateway/api/constraints/constrain_test.c LINK sluice_gateway_core sluice_grammar)

set(gateway ${procs}/engine/gateway)
sluice_unit_test(gateway_stream_test SOURCES procs/engine/gateway/serve/stream_test.c ${gateway}/serve/answers.c ${gateway}/serve/stream.c
  LINK sluice_gateway_core sluice_child sluice_ipc sluice_shm sluice_chat sluice_config sluice_base PkgConfig::MICROHTTPD)
sluice_unit_test(gateway_ask_test SOURCES procs/engine/gateway/serve/ask_test.c ${gateway}/serve/ask.c ${gateway}/http/responses.c
  LINK sluice_gateway_core sluice_child sluice_ipc sluice_shm sluice_chat sluice_config sluice_base PkgConfig::MICROHTTPD)
sluice_unit_test(gateway_http_log_test SOURCES procs/engine/gateway/http/http_log_test.c ${gateway}/http/http_log.c
  LINK sluice_gateway_core sluice_child sluice_ipc sluice_shm sluice_chat sluice_config sluice_base PkgConfig::MICROHTTPD)
sluice_unit_test(client_test SOURCES procs/clients/common/client_test.c LINK sluice_client)
sluice_unit_test(conversation_place_test SOURCES procs/clients/conversation/place_test.c
  LINK sluice_conversation sluice_grammar)
sluice_unit_test(repl_test SOURCES procs/clients/repl/repl_test.c LINK sluice_repl_core)
sluice_unit_test(top_test SOURCES procs/clients/top/top_test.c LINK sluice_top_core)

sluice_unit_test(doctor_together_test SOURCES procs/tools/doctor/together_test.c LINK sluice_doctor_core)
sluice_unit_test(doctor_estimate_test SOURCES procs/tools/doctor/estimate_test.c LINK sluice_doctor_core)
sluice_unit_test(doctor_ranking_test SOURCES procs/tools/doctor/ranking_test.c LINK sluice_doctor_core)
sluice_unit_test(doctor_verdict_test SOURCES procs/tools/doctor/verdict_test.c LINK sluice_doctor_core)
sluice_unit_test(unit_synth_mix SOURCES procs/tools/synth/types/mix_test.c ${procs}/tools/synth/types/mix.c
  ${procs}/tools/synth/shape.c LINK sluice_model PkgConfig::JANSSON m)
sluice_unit_test(unit_synth_blocks SOURCES procs/tools/synth/types/blocks_test.c ${procs}/tools/synth/types/blocks.c
  ${procs}/tools/synth/types/encoder.c LINK sluice_tensor sluice_base m)
sluice_unit_test(unit_shares SOURCES procs/tools/plan/shares_test.c ${procs}/tools/plan/shares.c LINK sluice_base m)
sluice_unit_test(unit_eviction SOURCES procs/tools/plan/papers/eviction_test.c
  ${procs}/tools/plan/papers/eviction.c ${procs}/tools/plan/shrunk.c ${procs}/tools/plan/planning.c
  ${procs}/tools/plan/held.c ${procs}/tools/plan/judge.c ${procs}/tools/plan/measured.c ${procs}/tools/plan/progress.c
  LINK sluice_inspected sluice_offline sluice_sim PkgConfig::JANSSON PkgConfig::XXHASH m)
sluice_unit_test(unit_judge SOURCES procs/tools/plan/judge_test.c ${procs}/tools/plan/planning.c
  ${procs}/tools/plan/held.c ${procs}/tools/plan/judge.c ${procs}/tools/plan/measured.c ${procs}/tools/plan/progress.c
  LINK sluice_inspected sluice_offline PkgConfig::JANSSON PkgConfig::XXHASH m)
sluice_unit_test(unit_held SOURCES procs/tools/plan/held_test.c ${procs}/tools/plan/held.c LINK sluice_base m)
sluice_unit_test(unit_measured SOURCES procs/tools/plan/measured_test.c ${procs}/tools/plan/measured.c
  LINK sluice_file sluice_base PkgConfig::XXHASH)
sluice_unit_test(unit_widths SOURCES procs/tools/plan/papers/widths_test.c ${procs}/tools/plan/papers/widths.c
  LINK sluice_tensor sluice_base m)
sluice_unit_test(unit_tune_systems SOURCES procs/tools/tune/systems/systems_test.c ${procs}/tools/tune/systems/systems.c
  ${procs}/tools/tune/systems/choose.c ${procs}/tools/tune/machine.c ${procs}/tools/tune/model.c ${procs}/tools/tune/run.c
  LINK sluice_policy sluice_plan sluice_tunings sluice_json sluice_file sluice_memory sluice_base PkgConfig::JANSSON m)
foreach(part job run)
  sluice_unit_test(unit_tune_${part} SOURCES procs/tools/tune/${part}_test.c ${procs}/tools/tune/job.c
    ${procs}/tools/tune/machine.c ${procs}/tools/tune/model.c ${procs}/tools/tune/run.c
    LINK sluice_tunings sluice_json sluice_file sluice_memory sluice_base PkgConfig::JANSSON m)
endforeach()
target_compile_definitions(unit_synth_mix PRIVATE SLUICE_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
target_compile_definitions(unit_judge PRIVATE SLUICE_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
target_compile_definitions(unit_eviction PRIVATE SLUICE_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
