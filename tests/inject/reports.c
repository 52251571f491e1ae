/* SPDX-License-Identifier: Apache-2.0 */
/* Options of the sanitizers in programs of an engine (SLUICE_REPORTS). Their reports are files,
 * since these processes keep no variables and write into logs; tests/scenario/sanitized.sh looks
 * for them. A process may grow little (RLIMIT_DATA), so that little that was freed is kept. Targets
 * of fuzzing in the same build do not have this source: their reports go to their own logs. */

/* The sanitizers may be a library, which finds it by name. */
#define FOUND __attribute__((visibility("default")))

FOUND const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "log_path=" SLUICE_REPORTS ":quarantine_size_mb=8:thread_local_quarantine_size_kb=64:"
           "detect_leaks=0";
}

FOUND const char *__ubsan_default_options(void);
const char *__ubsan_default_options(void)
{
    return "log_path=" SLUICE_REPORTS ":print_stacktrace=1";
}

/* A build for coverage would start to count here and write a file at the exit, which the sandbox
 * does not permit: with this name defined, the linker leaves that start out. */
extern int __llvm_profile_runtime;
int __llvm_profile_runtime;
