/* What systems need beside a model: plans and stores of the demo model, in the case's directory. */
#ifndef SLUICE_TESTS_SCENARIO_FIXTURES_H
#define SLUICE_TESTS_SCENARIO_FIXTURES_H

#include <limits.h>
#include <stdint.h>

/* A plan with numbers that nobody measured: norms, frequencies and paths; widths in turn from the
 * tiers of tier_mask (0: none). What systems need to run, not what would make them good. Written
 * to `name`; `path` is where. */
void plan_make(char path[PATH_MAX], const char *name, uint32_t tier_mask);

/* A store with these tiers ("native,int4"), made by sluice pack. */
void store_pack(char path[PATH_MAX], const char *name, const char *tiers);

/* The demo model with a chat template, which it has not: a GGUF file that differs in this key. */
void chat_model_make(char path[PATH_MAX], const char *name, const char *chat_template);

#endif
