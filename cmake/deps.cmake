# SPDX-License-Identifier: Apache-2.0
# Third-party libraries; CONTRIBUTING.md gives the reason for each.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
find_package(nng CONFIG REQUIRED)
pkg_check_modules(JANSSON REQUIRED IMPORTED_TARGET jansson)
pkg_check_modules(URING REQUIRED IMPORTED_TARGET liburing)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc)
pkg_check_modules(MICROHTTPD REQUIRED IMPORTED_TARGET libmicrohttpd)
pkg_check_modules(EDIT REQUIRED IMPORTED_TARGET libedit)
pkg_check_modules(CURSES REQUIRED IMPORTED_TARGET ncursesw)
if(SLUICE_TESTS)
  pkg_check_modules(CHECK REQUIRED IMPORTED_TARGET check)
endif()
# For the CUDA module and the test cuda_nvcc; may be missing. PyPI's nvidia-cuda-nvcc has it in an activated venv.
file(GLOB venv_cuda $ENV{VIRTUAL_ENV}/lib/python3*/site-packages/nvidia/cu13/bin)
find_program(NVCC nvcc PATHS ${venv_cuda} /usr/local/cuda/bin)
