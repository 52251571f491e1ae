/* SPDX-License-Identifier: Apache-2.0 */
/* The work of cache and loaders in a rig: tokens with payloads that are compared, and what must
 * hold after it. */
#ifndef SLUICE_TESTS_FAULT_CACHE_LOADER_WORK_H
#define SLUICE_TESTS_FAULT_CACHE_LOADER_WORK_H

#include <check.h>

#include "tests/fault/cache_loader_rig.h"

#define WAIT_MS 10000
#define TOP_K   4

extern const struct rig_options plain;

/* K different experts of a layer, skewed so that some are accessed more often. */
void choose(const struct rig *r, uint64_t *seed, uint32_t layer, uint32_t *entries);
/* Accesses experts as compute does for tokens; compares every payload with the file. */
void decode(struct rig *r, uint64_t *seed, uint32_t tokens);
/* Opens and starts the rig, decodes tokens, checks quota and overlap. */
void run_plain(struct rig *r, const struct rig_options *options, uint32_t tokens);

void check_quota(struct rig *r);
/* No two entries that are not ABSENT overlap. */
void check_overlap(struct rig *r);

/* Bytes per second of loader 0; 0: no limit. */
void throttle(struct rig *r, uint64_t rate);
/* Waits until the throttle delays a completed read. */
void wait_withheld(struct rig *r);

TCase *add_case(Suite *s, const char *name);
/* The cases of cache_loader_failures_test.c. */
void add_failures(Suite *s);

#endif
