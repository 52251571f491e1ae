# SPDX-License-Identifier: Apache-2.0
# Tests of shm/, ipc/ and config/.
sluice_unit_test(config_test SOURCES config/config_test.c LINK sluice_config)
sluice_unit_test(option_table_test SOURCES config/option_table_test.c LINK sluice_config)

# The misbehaving peers are processes of their own: NNG must not be used on both sides of a fork.
add_executable(ipc_peer ipc/peer.c)
target_link_libraries(ipc_peer PRIVATE sluice_flags sluice_ipc)
set_target_properties(ipc_peer PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)

sluice_library(ipc_support SOURCES ipc/support.c LINK sluice_ipc PkgConfig::CHECK)
target_compile_definitions(ipc_support PRIVATE IPC_PEER="$<TARGET_FILE:ipc_peer>")
foreach(name channel/messages channel/channel rpc/json rpc/rpc rpc/async engine/engine engine/constraints client)
  get_filename_component(part ${name} NAME)
  sluice_unit_test(ipc_${part}_test SOURCES ipc/${name}_test.c LINK ipc_support)
  add_dependencies(ipc_${part}_test ipc_peer)
endforeach()
target_sources(ipc_rpc_test PRIVATE ipc/rpc/peers_test.c ipc/rpc/calls.c)

# The interleaving checker: the real shm/entry.c and patched copies of it over the checker's atomic operations.
set(tests ${CMAKE_CURRENT_SOURCE_DIR}/shm/directory)
set(entry_c ${CMAKE_SOURCE_DIR}/shm/directory/entry.c)
set(mutants evict_pinned done_revives swap_is_a_store first_shard_publishes)
set(mutant_files)
foreach(mutant ${mutants})
  list(APPEND mutant_files ${CMAKE_CURRENT_BINARY_DIR}/entry_${mutant}.c)
endforeach()
add_custom_command(OUTPUT ${mutant_files}
  COMMAND ${CMAKE_COMMAND} -DIN=${entry_c} -DOUT=${CMAKE_CURRENT_BINARY_DIR}
          -P ${tests}/entry_mutate.cmake
  DEPENDS ${entry_c} ${tests}/entry_mutate.cmake
  COMMENT "patching copies of shm/entry.c")
add_custom_target(entry_mutants DEPENDS ${mutant_files})

function(entry_variant name source)
  add_library(entry_variant_${name} OBJECT ${tests}/entry_variant.c)
  target_link_libraries(entry_variant_${name} PRIVATE sluice_flags)
  target_compile_definitions(entry_variant_${name} PRIVATE
    ENTRY_VARIANT=${name} ENTRY_SOURCE="${source}")
  set_source_files_properties(${tests}/entry_variant.c PROPERTIES OBJECT_DEPENDS "${entry_c};${mutant_files}")
  add_dependencies(entry_variant_${name} entry_mutants)
endfunction()
entry_variant(real ${entry_c})
set(variant_objects $<TARGET_OBJECTS:entry_variant_real>)
foreach(mutant ${mutants})
  entry_variant(${mutant} ${CMAKE_CURRENT_BINARY_DIR}/entry_${mutant}.c)
  list(APPEND variant_objects $<TARGET_OBJECTS:entry_variant_${mutant}>)
endforeach()

add_executable(entry_model ${tests}/entry_model.c ${tests}/entry_model_cache.c ${tests}/entry_model_loader.c ${tests}/entry_model_search.c
  ${tests}/entry_model_words.c ${tests}/entry_model_world.c ${variant_objects})
target_link_libraries(entry_model PRIVATE sluice_flags sluice_base test_sample PkgConfig::XXHASH)
set_target_properties(entry_model PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
add_test(NAME entry_model COMMAND entry_model)
set_tests_properties(entry_model PROPERTIES TIMEOUT 900)

sluice_unit_test(shm_entry SOURCES shm/directory/entry_test.c LINK sluice_shm)
sluice_unit_test(shm_segment SOURCES shm/segment/segment_test.c LINK sluice_shm)
sluice_unit_test(shm_arena SOURCES shm/arena/arena_test.c LINK sluice_shm)
sluice_unit_test(shm_directory SOURCES shm/directory/directory_test.c LINK sluice_shm)
sluice_unit_test(shm_rings SOURCES shm/rings/rings_test.c LINK sluice_shm)
sluice_unit_test(shm_tables SOURCES shm/table/tables_test.c LINK sluice_shm)
sluice_unit_test(shm_kv_pages SOURCES shm/kv/pages_test.c LINK sluice_shm test_sample)

# The same entry.c under ThreadSanitizer, whatever the rest is built with (not together with another sanitizer).
if(NOT SLUICE_SANITIZE)
  foreach(program entry_tsan tsan_probe)
    add_executable(${program} ${tests}/${program}.c)
    target_compile_definitions(${program} PRIVATE _GNU_SOURCE)
    target_include_directories(${program} PRIVATE ${CMAKE_SOURCE_DIR})
    target_compile_options(${program} PRIVATE -Wall -Wextra -Werror -fsanitize=thread -g -O1)
    target_link_options(${program} PRIVATE -fsanitize=thread)
    target_link_libraries(${program} PRIVATE Threads::Threads)
    set_target_properties(${program} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  endforeach()
  target_sources(entry_tsan PRIVATE ${entry_c} ${CMAKE_SOURCE_DIR}/lib/base/log.c ${CMAKE_SOURCE_DIR}/lib/base/log_queue.c)
  add_test(NAME entry_tsan COMMAND ${tests}/run_tsan.sh
    $<TARGET_FILE:tsan_probe> $<TARGET_FILE:entry_tsan>)
  set_tests_properties(entry_tsan PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 300)
endif()
