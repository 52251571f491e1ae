# SPDX-License-Identifier: Apache-2.0
# Flags of every target. -ffp-contract=off and the absence of -ffast-math are part of the row-invariance contract.
add_library(sluice_flags INTERFACE)
target_compile_options(sluice_flags INTERFACE
  -Wall -Wextra -Wpedantic -Werror -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla
  -ffp-contract=off -fno-omit-frame-pointer -fvisibility=hidden)
target_compile_definitions(sluice_flags INTERFACE _GNU_SOURCE SLUICE_VERSION="${PROJECT_VERSION}")
target_include_directories(sluice_flags INTERFACE ${CMAKE_SOURCE_DIR})
# Debug sections compressed: where the device's readahead is large (8 MiB here), starting a program brings them into the page
# cache, and they count against a cgroup of the budget's size.
target_link_options(sluice_flags INTERFACE -gz)
if(SLUICE_SANITIZE)
  target_compile_options(sluice_flags INTERFACE -fsanitize=${SLUICE_SANITIZE} -fno-sanitize-recover=all)
  target_link_options(sluice_flags INTERFACE -fsanitize=${SLUICE_SANITIZE})
endif()
# Freed values of the JSON library, which is not instrumented itself: tests/inject/json_checked.c.
if(SLUICE_SANITIZE MATCHES address)
  foreach(name object_size array_size string_value string_length integer_value real_value number_value deep_copy
          array_get object_get object_getn dumps equal object_iter object_set_new object_setn_new object_del
          object_update array_append_new)
    target_link_options(sluice_flags INTERFACE -Wl,--wrap=json_${name})
  endforeach()
endif()
if(SLUICE_FUZZ)
  target_compile_options(sluice_flags INTERFACE -fsanitize=fuzzer-no-link)
  target_link_options(sluice_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()
if(SLUICE_COVERAGE)
  target_compile_options(sluice_flags INTERFACE -O0 -fprofile-instr-generate -fcoverage-mapping)
  target_link_options(sluice_flags INTERFACE -fprofile-instr-generate)
endif()

# sluice_library(NAME SOURCES... [LINK libs...]): a static library of the project.
function(sluice_library name)
  cmake_parse_arguments(A "" "" "SOURCES;LINK" ${ARGN})
  add_library(${name} STATIC ${A_SOURCES})
  target_link_libraries(${name} PUBLIC sluice_flags ${A_LINK})
endfunction()

# sluice_program(COMMAND SOURCES... [LINK libs...]): the executable sluice-COMMAND. All of its sources but NAME_main.c are the
# library sluice_COMMAND_parts, so that tests reach them without compiling them again.
function(sluice_program command)
  cmake_parse_arguments(A "" "" "SOURCES;LINK" ${ARGN})
  if(NOT TARGET sluice_standard_files)
    add_library(sluice_standard_files OBJECT ${CMAKE_SOURCE_DIR}/procs/standard_files.c)
    target_link_libraries(sluice_standard_files PRIVATE sluice_flags)
    if(SLUICE_REPORTS)
      target_sources(sluice_standard_files PRIVATE ${CMAKE_SOURCE_DIR}/tests/inject/reports.c)
      target_compile_definitions(sluice_standard_files PRIVATE SLUICE_REPORTS="${SLUICE_REPORTS}")
    endif()
  endif()
  set(parts ${A_SOURCES})
  list(FILTER parts EXCLUDE REGEX "_main\\.c$")
  list(FILTER A_SOURCES INCLUDE REGEX "_main\\.c$")
  if(parts)
    sluice_library(sluice_${command}_parts SOURCES ${parts} LINK ${A_LINK})
    list(PREPEND A_LINK sluice_${command}_parts)
  endif()
  add_executable(sluice-${command} ${A_SOURCES} $<TARGET_OBJECTS:sluice_standard_files>)
  target_link_libraries(sluice-${command} PRIVATE sluice_flags ${A_LINK})
  set_target_properties(sluice-${command} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/libexec)
  install(TARGETS sluice-${command} RUNTIME DESTINATION ${CMAKE_INSTALL_LIBEXECDIR}/sluice)
endfunction()
