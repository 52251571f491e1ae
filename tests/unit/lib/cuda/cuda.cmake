# SPDX-License-Identifier: Apache-2.0
# The kernels of lib/cuda as host code against the generic ones; SKIP with the reason where there is no harness.
get_property(reason GLOBAL PROPERTY SLUICE_CUDA_HARNESS)
if(reason)
  add_test(NAME test_cuda COMMAND ${CMAKE_COMMAND} -E echo "SKIP cuda: ${reason}")
else()
  sluice_library(test_cuda_values SOURCES lib/cuda/cuda_test.c LINK test_kernel_values cuda_fibres)
  foreach(name products experts weights rows attention recurrent router barriers)
    sluice_unit_test(test_cuda_${name} SOURCES lib/cuda/${name}_test.c LINK test_cuda_values sluice_policy
      sluice_device Threads::Threads)
    target_sources(test_cuda_${name} PRIVATE
      $<IF:$<STREQUAL:${name},barriers>,$<TARGET_OBJECTS:cuda_without_barriers>,$<TARGET_OBJECTS:cuda_host>>)
    # C++ without a library: the linker is that of C.
    set_target_properties(test_cuda_${name} PROPERTIES LINKER_LANGUAGE C)
  endforeach()
  sluice_unit_test(device_cuda_test SOURCES lib/device/cuda_test.c $<TARGET_OBJECTS:cuda_host>
    LINK test_device sluice_device_cuda cuda_fibres)
  set_target_properties(device_cuda_test PROPERTIES LINKER_LANGUAGE C)
  set_tests_properties(device_cuda_test PROPERTIES TIMEOUT 1200)
  sluice_unit_test(device_cuda_parts_test SOURCES lib/device/cuda_parts_test.c $<TARGET_OBJECTS:cuda_host>
    LINK test_device sluice_device_cuda cuda_fibres)
  set_target_properties(device_cuda_parts_test PROPERTIES LINKER_LANGUAGE C)
  foreach(name sequences alone)
    sluice_unit_test(device_cuda_${name}_test SOURCES lib/device/cuda_${name}_test.c lib/device/cuda_pair.c
      $<TARGET_OBJECTS:cuda_host> LINK sluice_device_cuda sluice_golden cuda_fibres)
    set_target_properties(device_cuda_${name}_test PROPERTIES LINKER_LANGUAGE C)
  endforeach()
  sluice_unit_test(device_cuda_uploads_test SOURCES lib/device/cuda_uploads_test.c
    $<TARGET_OBJECTS:cuda_host> LINK test_kernel_values sluice_device_cuda sluice_golden cuda_fibres)
  set_target_properties(device_cuda_uploads_test PROPERTIES LINKER_LANGUAGE C)
  sluice_unit_test(test_cuda_harness SOURCES lib/cuda/harness_test.c $<TARGET_OBJECTS:cuda_broken> LINK cuda_fibres)
  set_target_properties(test_cuda_harness PROPERTIES LINKER_LANGUAGE C)
endif()
get_property(no_module GLOBAL PROPERTY SLUICE_CUDA_MODULE)
add_test(NAME cuda_nvcc COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/lib/cuda/nvcc.sh "${NVCC}" ${CMAKE_SOURCE_DIR} "${no_module}"
  ${CMAKE_BINARY_DIR}/libexec/libsluice_cuda.so)
set_tests_properties(cuda_nvcc PROPERTIES TIMEOUT 300)

# The driver and the module as files: libraries that stand for them, in directories of their own because of their names.
sluice_unit_test(cuda_module_test SOURCES lib/cuda/module_test.c LINK sluice_gpu)
foreach(kind good old other nothing part)
  add_library(cuda_fake_${kind} SHARED lib/cuda/fake_driver.c)
  target_include_directories(cuda_fake_${kind} PRIVATE ${CMAKE_SOURCE_DIR})
  set_target_properties(cuda_fake_${kind} PROPERTIES C_VISIBILITY_PRESET default PREFIX "" OUTPUT_NAME libcuda SUFFIX .so.1
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests/fake_${kind})
  string(TOUPPER FAKE_${kind} definition)
  target_compile_definitions(cuda_fake_${kind} PRIVATE ${definition})
  add_dependencies(cuda_module_test cuda_fake_${kind})
endforeach()
# Needs a library that no loader finds: it has no path to it.
add_library(cuda_fake_needed SHARED lib/cuda/fake_driver.c)
target_include_directories(cuda_fake_needed PRIVATE ${CMAKE_SOURCE_DIR})
target_compile_definitions(cuda_fake_needed PRIVATE FAKE_NOTHING)
set_target_properties(cuda_fake_needed PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests/fake_needed)
target_link_libraries(cuda_fake_part PRIVATE -Wl,--no-as-needed cuda_fake_needed)
set_target_properties(cuda_fake_part PROPERTIES SKIP_BUILD_RPATH TRUE)
