/* SPDX-License-Identifier: Apache-2.0 */
/* Plans, stores, chat models and changed copies derived from the demo model, in the directory of
 * the test case. */
#ifndef SLUICE_TESTS_SCENARIO_FIXTURES_H
#define SLUICE_TESTS_SCENARIO_FIXTURES_H

#include <limits.h>
#include <stdint.h>

/* Writes a plan with synthetic norms, frequencies and expert transitions to `name` and returns its
 * path. Experts get the precisions of precision_mask in turn (0: none). Presets can run with this
 * plan, but it does not make them fast or accurate. */
void plan_make(char path[PATH_MAX], const char *name, uint32_t precision_mask);
/* Also with mixed-two's precisions: these as the higher ones, and lower ones; and with routing
 * resident-first others. */
void plan_make_two(char path[PATH_MAX], const char *name, uint32_t precision_mask);

/* A store with these precisions ("native,int4"), made by sluice pack. */
void store_pack(char path[PATH_MAX], const char *name, const char *precisions);

/* A copy of the demo model with this chat template; the original has none. */
void chat_model_make(char path[PATH_MAX], const char *name, const char *chat_template);

/* The path of the tables file of a plan. */
void plan_tables(const char *plan, char path[PATH_MAX]);

/* A copy of the demo model of the same size and shape, whose last quarter has other bytes. */
void other_model_make(char path[PATH_MAX]);
/* A copy with other signs of some weights of experts, none of them in a sample of the file
 * (lib/file/sample_hash.h). */
void other_experts_make(char path[PATH_MAX]);

#endif
