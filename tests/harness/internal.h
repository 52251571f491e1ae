/* Between the parts of the harness. */
#ifndef SLUICE_TESTS_HARNESS_INTERNAL_H
#define SLUICE_TESTS_HARNESS_INTERNAL_H

#include "tests/harness/harness.h"

/* Things to clear up after a case, newest first. */
void cleanup_cgroup(const char *path);
void cleanup_sampler(struct sampler *s);
void cleanup_sampler_gone(const struct sampler *s);

void cleanup_terminal(struct terminal *t);
void cleanup_terminal_gone(const struct terminal *t);

void terminal_destroy(struct terminal *t); /* kills what runs there */
void cgroup_remove(const char *path);

/* Spawns argv[0] in a process group of its own with stdout and stderr to descriptors. */
pid_t spawn_program(const char *const argv[], int in, int out, int err);

#endif
