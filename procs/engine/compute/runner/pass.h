/* SPDX-License-Identifier: Apache-2.0 */
/* Runs passes: the rows of several sequences that are computed together. */
#ifndef SLUICE_ENGINE_COMPUTE_RUNNER_PASS_H
#define SLUICE_ENGINE_COMPUTE_RUNNER_PASS_H

#include <stdint.h>

struct pass;
struct runner;

/* Memory for passes of up to `rows` rows of `sequences` sequences; NULL: there is none. It lives as
 * long as compute. */
struct pass *pass_create(uint32_t sequences, uint32_t rows);

/* Computes the next rows of the sequences that run. Those that are finished or cancelled end, and
 * those that fail. */
void pass_run(struct runner *r);

#endif
