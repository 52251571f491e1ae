/* Between the parts of the harness. */
#ifndef SLUICE_TESTS_HARNESS_INTERNAL_H
#define SLUICE_TESTS_HARNESS_INTERNAL_H

#include <spawn.h>

#include "tests/harness/harness.h"

/* Things to clear up after a case, newest first. */
void cleanup_cgroup(const char *path);
void cleanup_sampler(struct sampler *s);
void cleanup_sampler_gone(const struct sampler *s);

void cleanup_terminal(struct terminal *t);
void cleanup_terminal_gone(const struct terminal *t);

void terminal_destroy(struct terminal *t); /* kills what runs there */
void cgroup_remove(const char *path);

/* A program about to start: with every signal as by default, and what `actions` gets in between. */
struct spawning {
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
};
void spawning_start(struct spawning *s, short flags);
/* Starts argv[0]; a failure fails the case. */
pid_t spawning_end(struct spawning *s, const char *const argv[]);

/* Spawns argv[0] in a process group of its own with stdout and stderr to descriptors. */
pid_t spawn_program(const char *const argv[], int in, int out, int err);

#endif
