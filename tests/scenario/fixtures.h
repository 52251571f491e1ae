/* What presets need in addition to a model: plans and stores of the demo model, in the case's directory. */
#ifndef SLUICE_TESTS_SCENARIO_FIXTURES_H
#define SLUICE_TESTS_SCENARIO_FIXTURES_H

#include <limits.h>
#include <stdint.h>

/* A plan with synthetic numbers: norms, frequencies and paths; widths in turn from the
 * tiers of precision_mask (0: none). What systems need to run, not what would make them good. Written
 * to `name`; `path` is where. */
void plan_make(char path[PATH_MAX], const char *name, uint32_t precision_mask);

/* A store with these tiers ("native,int4"), made by sluice pack. */
void store_pack(char path[PATH_MAX], const char *name, const char *precisions);

/* The demo model with a chat template, which it has not: a GGUF file that differs in this key. */
void chat_model_make(char path[PATH_MAX], const char *name, const char *chat_template);

#endif
