/* SPDX-License-Identifier: Apache-2.0 */
/* Interfaces between the files of the harness. */
#ifndef SLUICE_TESTS_HARNESS_INTERNAL_H
#define SLUICE_TESTS_HARNESS_INTERNAL_H

#include <spawn.h>

#include "tests/harness/harness.h"

/* NULL: test_model() is the demo model. */
void model_set_type(const char *type);

/* Things to remove after a case, newest first; *_gone: the test has removed it. */
void cleanup_cgroup(const char *path);
void cleanup_sampler(struct sampler *s);
void cleanup_sampler_gone(const struct sampler *s);

void cleanup_terminal(struct terminal *t);
void cleanup_terminal_gone(const struct terminal *t);

/* Records a process of the engine; 0: none. */
void engine_saw(struct engine *e, pid_t pid);
void engine_table_close(struct engine *e);

void terminal_destroy(struct terminal *t); /* kills the program */
void cgroup_remove(const char *path);

/* A program to be started with default signal handling and the file actions added to `actions`. */
struct spawning {
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
};
void spawning_start(struct spawning *s, short flags);
/* Starts argv[0]; a failure fails the case. */
pid_t spawning_end(struct spawning *s, const char *const argv[]);

/* Spawns argv[0] in a new process group with these descriptors as stdin, stdout, stderr. */
pid_t spawn_program(const char *const argv[], int in, int out, int err);

#endif
