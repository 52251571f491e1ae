/* SPDX-License-Identifier: Apache-2.0 */
/* A model's file with numbers that are not finite. */
#ifndef SLUICE_TESTS_SCENARIO_SPOILED_H
#define SLUICE_TESTS_SCENARIO_SPOILED_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

/* A copy of the model in the directory of the test case, whose path is returned. The first number
 * of the tensor, of each of its experts, or of each row of the embeddings is NaN, or infinite. */
void spoiled_model(char path[PATH_MAX], const char *model, const char *tensor, bool infinite);
/* Likewise, but only the embedding of one token, which must exist, is NaN. */
void spoiled_token(char path[PATH_MAX], const char *model, uint32_t token);

#endif
