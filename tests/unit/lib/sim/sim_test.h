/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the sources of sim_test. */
#ifndef SLUICE_TESTS_UNIT_LIB_SIM_SIM_TEST_H
#define SLUICE_TESTS_UNIT_LIB_SIM_SIM_TEST_H

#include <check.h>

#include "lib/sim/sim.h"

#define EXPERT_BYTES 1000000u /* 1 ms at 1 GB/s */

/* A preset with these knobs changed (may be NULL), and space for `entries` experts. */
struct sim_config config_of(const char *preset, const char *knobs, uint64_t entries);

TCase *sim_cache_case(void);
TCase *sim_gpu_case(void);
TCase *sim_logits_case(void);
TCase *sim_reroute_case(void);
TCase *sim_sequences_case(void);
TCase *sim_table_case(void);
TCase *sim_together_case(void);

#endif
