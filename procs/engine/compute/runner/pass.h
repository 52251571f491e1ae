/* SPDX-License-Identifier: Apache-2.0 */
/* Runs passes: the rows of several sequences that are computed together. */
#ifndef SLUICE_ENGINE_COMPUTE_RUNNER_PASS_H
#define SLUICE_ENGINE_COMPUTE_RUNNER_PASS_H

struct runner;

/* Computes the next rows of the sequences that run. Those that are finished or cancelled end, and
 * those that fail. */
void pass_run(struct runner *r);

#endif
