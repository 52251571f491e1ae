/* SPDX-License-Identifier: Apache-2.0 */
/* An engine with little more than its minimum budget, whose memory is seen from outside. */
#ifndef SLUICE_TESTS_SCENARIO_WALLED_H
#define SLUICE_TESTS_SCENARIO_WALLED_H

#include <stdbool.h>
#include <stdint.h>

#include "tests/harness/harness.h"

#define WALLED_OPTIONS 8

struct walled {
    struct engine *engine;
    struct sampler *sampler;
    uint64_t budget_bytes;
    bool cgroup; /* else its processes are sampled */
};

/* The minimum budget of that engine and 6 MiB; stops it. */
uint64_t walled_budget(struct engine *e);
/* Starts an engine with that budget and the options (at most WALLED_OPTIONS, then NULL), in a
 * cgroup where one can be made. */
void walled_start(struct walled *w, uint64_t budget_bytes, const char *const options[]);
/* Notes and checks its memory's peak, and what it has counted itself; stops the engine. */
void walled_end(struct walled *w);

#endif
